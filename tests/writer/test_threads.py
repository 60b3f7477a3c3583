"""Threads that start and end, and the exit of the interpreter."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from conftest import WRITER, reading, readings
from faults import Compile, Start, counts, exact, native, program, record

pytestmark = pytest.mark.interpreter

CHURN = """
import threading
b = brick.brick("b")
def run():
    for _ in range(10):
        with b: pass
for _ in range({batches}):
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def churned(worker: Start, prefix: str, batches: int) -> None:
    got = record(worker, prefix, CHURN.format(batches=batches))
    assert exact(got) == {"begun": batches * 80, "summarized": batches * 80}
    assert sum(lane["opened"] for _, lane, _ in got.lanes) == batches * 8
    assert len(got.lanes) <= 8, "lanes are used again"
    assert all(lane["thread"] == 0 for _, lane, _ in got.lanes)


@pytest.mark.ci
def test_a_thousand_threads_share_eight_lanes_and_lose_nothing(worker: Start, prefix: str) -> None:
    churned(worker, prefix, 125)


@pytest.mark.slow
def test_ten_thousand_threads_share_eight_lanes_and_lose_nothing(worker: Start, prefix: str) -> None:
    churned(worker, prefix, 1250)


@pytest.mark.ci
def test_threads_that_all_start_recording_at_once_are_all_counted(compiled: Compile, prefix: str) -> None:
    for _ in range(5):
        with native(program(compiled, "first"), "8") as process:
            tried, strangers = process.next_report()
            assert strangers == 0, "once there is a segment, a name has one number in all threads"
            spans = exact(reading(prefix))
            assert spans["begun"] + spans.get("no_lane", 0) == tried
            assert spans["summarized"] + spans.get("rejected", 0) == spans["begun"] > 0, (
                "only spans without a name are lost"
            )
            assert counts(reading(prefix)) == {"shared": spans["summarized"]}
            process.go()
            assert process.end() == 0


@pytest.mark.ci
def test_more_native_threads_than_lanes_are_counted(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "first"), "20", BRICKD_LANES="4") as process:
        tried, _ = process.next_report()
        got = reading(prefix)
        spans = exact(got)
        assert spans["begun"] + spans["no_lane"] == tried
        assert spans["summarized"] + spans.get("rejected", 0) == spans["begun"]
        assert got.process["lanes_refused"] == 16
        assert sum(lane["opened"] for _, lane, _ in got.lanes) == 4
        process.go()
        assert process.end() == 0


def test_without_a_lane_layers_and_stray_ends_count_as_no_spans(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import threading
        brick.init(lanes=1)
        b = brick.brick("b")
        with b: pass
        def second():
            b.stop()
            for _ in range(10):
                with brick.layer(1), b: pass
        thread = threading.Thread(target=second); thread.start(); thread.join()
        """,
    )
    assert exact(got) == {"begun": 1, "summarized": 1, "no_lane": 10}


@pytest.mark.ci
def test_a_refused_thread_gets_a_lane_that_becomes_free(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import threading
        brick.init(lanes=1)
        b = brick.brick("b")
        turn = threading.Barrier(2)
        def first():
            with b: pass
            turn.wait()
            turn.wait()
        def second():
            turn.wait()
            for _ in range(3):
                with b: pass
            turn.wait()
            one.join()
            for _ in range(5):
                with b: pass
        one, two = threading.Thread(target=first), threading.Thread(target=second)
        one.start(); two.start(); two.join()
        """,
    )
    assert exact(got) == {"begun": 6, "summarized": 6, "no_lane": 3}
    assert got.process["lanes_refused"] == 1


# ---- the end of the interpreter ----------------------------------------------------------------------------------


@pytest.mark.parametrize("round_", [0, *(pytest.param(n, marks=pytest.mark.ci) for n in range(1, 5))])
def test_daemon_threads_that_keep_recording_do_not_disturb_the_exit(worker: Start, prefix: str, round_: int) -> None:
    process = worker(
        """
        import threading
        started = threading.Barrier(9)
        def run():
            first = True
            while True:
                with brick.span("b"), brick.layer(1), brick.brick("c")(elements=1): pass
                if first: started.wait()
                first = False
        for _ in range(8): threading.Thread(target=run, daemon=True).start()
        started.wait()
        sys.exit(5)
        """
    )
    assert process.end() == 5
    assert process.stderr == ""
    assert readings(prefix) == []


def test_spans_recorded_by_atexit_handlers_are_counted(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import atexit
        b = brick.brick("b")
        def last():
            for _ in range(10):
                with b: pass
            pause()
        atexit.register(last)
        with b: pass
        sys.exit(5)
        """
    )
    process.paused()
    assert exact(reading(prefix)) == {"begun": 11, "summarized": 11}
    process.go()
    assert process.end() == 5
    assert process.stderr == ""
    assert readings(prefix) == []


def test_finalizers_that_record_during_interpreter_shutdown_are_harmless(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import threading, weakref
        class Recorder:
            def __init__(self): self.b = brick.brick("b"); self.self = self; self.span = brick.span
            def __del__(self):
                with self.b, self.span("new at the end"): pass
                self.b.start()
        kept = [Recorder() for _ in range(10)]
        sys.recorder = Recorder()
        os.recorder = Recorder()
        threading.current_thread().recorder = Recorder()
        local = threading.local(); local.recorder = Recorder()
        weakref.finalize(kept[0], brick.brick("finalize").start)
        with brick.brick("b"): pass
        sys.exit(5)
        """
    )
    assert process.end() == 5
    assert process.stderr == ""
    assert readings(prefix) == []


LAST_LOOK = """
import atexit
atexit.register(pause)
b = brick.brick("b")
"""


@pytest.mark.parametrize(
    ("program", "status", "ledger"),
    [
        ("with b: sys.exit(5)", 5, {"begun": 1, "summarized": 1}),
        ("b.start(); sys.exit(5)", 5, {"begun": 1, "open": 1}),
        ("with b, b: sys.exit(5)", 5, {"begun": 2, "summarized": 2}),
        ("with b: raise KeyError('mine')", 1, {"begun": 1, "summarized": 1}),
        ("with b: raise KeyboardInterrupt", -signal.SIGINT, {"begun": 1, "summarized": 1}),
        ("with b: pass\nb.stop(); sys.exit(5)", 5, {"begun": 1, "summarized": 1, "unmatched": 1}),
    ],
)
def test_a_host_that_exits_inside_a_span_exits_normally(
    worker: Start, prefix: str, program: str, status: int, ledger: dict[str, int]
) -> None:
    process = worker(LAST_LOOK + program)
    process.paused()
    assert exact(reading(prefix)) == ledger
    process.go()
    assert process.end() == status
    assert "brickd" not in process.stderr
    assert len(readings(prefix)) == (status < 0), "a worker killed by a signal leaves its segment"


@pytest.mark.ci
def test_an_unassigned_name_number_is_recorded_as_other(compiled: Compile, prefix: str, tmp_path: Path) -> None:
    source = tmp_path / "unknown.c"
    source.write_text(
        """
        #include "brick_agent.h"
        #include <unistd.h>
        int main(void)
        {
            char turn;
            brick_begin(60000, NULL, NULL);
            brick_end(60000, NULL, 0, 0);
            return write(1, "1\\n", 2) == 2 && read(0, &turn, 1) == 1 ? 0 : 4;
        }
        """
    )
    with native(compiled("unknown", (source, compiled("writer.so", WRITER, "-shared", "-fPIC")))) as process:
        process.next_report()
        assert counts(reading(prefix)) == {"other": 1}
        process.go()
        assert process.end() == 0
