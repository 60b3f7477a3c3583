"""Re-entry: signal handlers, finalizers and weakref callbacks that record while they interrupt a recording call."""

from __future__ import annotations

import platform
from collections import Counter

import pytest
from conftest import reading, readings
from faults import Compile, Start, counts, exact, native, program, record, total
from recorded import events

pytestmark = pytest.mark.interpreter

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="steps single instructions of an x86")


@pytest.mark.ci
def test_python_timer_handlers_record_during_an_interrupted_call(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import signal
        fired = 0
        outer, inner = brick.brick("outer"), brick.brick("inner")
        def handler(number, frame):
            global fired
            fired += 1
            with brick.span("handler", elements=1): kernel.record(7)
        kernel = brick.brick("kernel")
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        rounds = 0
        @brick.trace("traced")
        def step():
            with brick.step(17, rows=2): pass
        while fired < 300:
            with outer, inner(elements=2): rounds += 1
            step()
        signal.setitimer(signal.ITIMER_REAL, 0)
        report([rounds, fired])
        pause()
        """
    )
    rounds, fired = process.next_report()
    process.paused()
    got = reading(prefix)
    assert exact(got) == {"begun": 4 * rounds + 2 * fired, "summarized": 4 * rounds + 2 * fired}
    names = ("outer", "inner", "traced", "step")
    assert counts(got) == {**dict.fromkeys(names, rounds), "handler": fired, "kernel": fired}
    process.go()
    assert process.end() == 0


@pytest.mark.ci
def test_native_handlers_that_interrupt_the_writer_are_refused_and_counted(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "signals"), "timers", "20000") as process:
        reported = process.next_report()
        got = reading(prefix)
        spans = exact(got)
        assert reported["attempts"] >= 600
        assert spans["begun"] == spans["summarized"] == reported["spans"] + reported["recorded"]
        assert spans.get("nested", 0) + spans.get("no_lane", 0) == reported["refused"] + reported["missed"]
        assert counts(got) == {"plain": reported["spans"], "interrupting": reported["recorded"]}
        assert sum(lane["opened"] for _, lane, _ in got.lanes) == 3
        process.go()
        assert process.end() == 0


@needs_x86
@pytest.mark.parametrize("of", ["steps", pytest.param("opening", marks=pytest.mark.slow)])
def test_a_handler_after_every_instruction_of_the_writer_corrupts_nothing(
    compiled: Compile, prefix: str, of: str
) -> None:
    with native(program(compiled, "signals"), of, "3") as process:
        reported = process.next_report()
        got = reading(prefix)
        spans = exact(got)
        assert reported["spans"] == 3
        assert min(reported["recorded"], reported["refused"]) > 100
        assert (reported["missed"] > 100) == (of == "opening")
        assert reported["attempts"] == reported["recorded"] + reported["refused"] + reported["missed"]
        assert spans["begun"] == spans["summarized"] == 3 + reported["recorded"]
        assert spans["nested"] + spans.get("no_lane", 0) == reported["refused"] + reported["missed"]
        assert [lane["opened"] for _, lane, _ in got.lanes] == [1], "one thread has one lane"
        process.go()
        assert process.end() == 0


@pytest.mark.ci
@needs_x86
def test_a_fork_in_a_handler_during_a_record_keeps_the_parents_ledger_exact(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "signals"), "forks", "1") as process:
        reported = process.next_report()
        assert reported["children"] > 20
        assert reported["failures"] == 0
        found = readings(prefix)
        (parent,) = (each for each in found if each.alive)
        assert exact(parent) == {"begun": 2, "summarized": 2}
        children = [each for each in found if not each.alive]
        assert all(counts(each)["interrupting"] == 1 for each in children)
        assert len(children) == reported["children"]
        process.go()
        assert process.end() == 0


@pytest.mark.ci
@needs_x86
def test_a_handler_after_every_instruction_of_deferred_work_corrupts_nothing(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "signals"), "deferred", "3") as process:
        reported = process.next_report()
        got = reading(prefix)
        spans = exact(got)
        assert min(reported["recorded"], reported["refused"], reported["deferred"]) > 20
        assert (
            reported["attempts"]
            == reported["recorded"] + reported["refused"] + reported["missed"] + reported["deferred"]
        )
        assert spans["begun"] == spans["summarized"] == reported["recorded"]
        assert spans["nested"] + spans.get("no_lane", 0) == reported["refused"] + reported["missed"]
        logged = events(got)
        kinds = Counter(each["kind"] for each in logged)
        assert kinds == {"defer": 3 + reported["deferred"], "measured": 3, "finalize": 3}
        assert len({each["id"] for each in logged if each["kind"] == "defer"}) == kinds["defer"]
        assert [each["sequence"] for each in logged] == list(range(1, len(logged) + 1))
        assert reported["pending"] == reported["deferred"], "the stream was never finalized"
        process.go()
        assert process.end() == 0


@pytest.mark.ci
@needs_x86
def test_a_fork_in_a_handler_during_deferred_work_keeps_all_ledgers_exact(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "signals"), "forks-deferred", "1") as process:
        reported = process.next_report()
        assert reported["children"] > 20
        assert (reported["failures"], reported["pending"]) == (0, 0)
        for each in readings(prefix):
            assert exact(each) == {}
            found = [(event["kind"], event.get("path")) for event in events(each)]
            plain, own = (
                [("defer", (name,)), ("measured", None), ("finalize", None)] for name in ("plain", "interrupting")
            )
            # If a child is forked before the record begins, the child also writes the whole record.
            assert found == plain * 2 if each.alive else found in (own, plain + own)
        process.go()
        assert process.end() == 0


@pytest.mark.ci
def test_finalizers_called_by_the_garbage_collector_record(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import asyncio, gc, threading, weakref
        made = 0
        class Knot:
            def __init__(self): self.self = self
            def __del__(self):
                with finalized(elements=1): pass
        class Plain: pass
        def called(_):
            with brick.span("called back"): pass
        finalized, outer, inner = brick.brick("finalized"), brick.brick("outer"), brick.brick("inner")
        def knot():
            global made
            made += 1
            Knot()
            plain = Plain()
            plain.weak = weakref.ref(plain)
            kept.append(weakref.ref(plain, called))
        kept = []
        gc.set_threshold(1)
        for n in range(500):
            with outer:
                knot()
                with inner(elements=1, bytes=2), brick.layer(n % 5): knot()
            with brick.span(f"name {n % 50}", step=n): knot()
        async def task():
            with outer: await asyncio.sleep(0)
        async def tasks():
            for _ in range(100): await asyncio.create_task(task()); knot()
        asyncio.run(tasks())
        def thread():
            with outer: knot()
        for _ in range(20):
            each = threading.Thread(target=thread); each.start(); each.join()
        gc.collect()
        gc.disable()
        assert made == 1620
        """,
    )
    by_name = counts(got)
    assert (by_name.pop("finalized"), by_name.pop("called back")) == (1620, 1620)
    assert (by_name.pop("outer"), by_name.pop("inner")) == (620, 500)
    assert by_name == {f"name {n}": 10 for n in range(50)}
    assert exact(got) == {"begun": 4860, "summarized": 4860}


def test_a_forked_python_signal_handler_counts_separately(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import signal
        b = brick.brick("b")
        def handler(number, frame):
            if (child := os.fork()) == 0:
                with b: pass
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        signal.signal(signal.SIGUSR1, handler)
        for n in range(10):
            with b: os.kill(os.getpid(), signal.SIGUSR1)
        pause()
        """
    )
    process.paused()
    assert total(readings(prefix)) == {"begun": 20, "summarized": 20}
    assert len(readings(prefix)) == 11
