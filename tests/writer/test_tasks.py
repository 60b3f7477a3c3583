"""Spans of tasks, greenlets, threads and processes: each has its own spans, and no span is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import readings
from faults import native
from recorded import Start, counts, record, spans, summaries


def test_asyncio_tasks_interleaved_on_one_handle_keep_their_own_durations(worker: Start, prefix: str) -> None:
    rows = summaries(
        record(
            worker,
            prefix,
            """
            import asyncio
            short, long = brick.brick("short"), brick.brick("long")
            async def first(ready, done):
                with long:
                    ready.set()
                    await done.wait()
            async def second(ready, done):
                await ready.wait()
                with short: pass
                with long:
                    with short: pass
                done.set()
            async def main():
                ready, done = asyncio.Event(), asyncio.Event()
                await asyncio.gather(first(ready, done), second(ready, done))
            asyncio.run(main())
            """,
        )
    )
    assert {path: row["count"] for path, row in rows.items()} == {("long",): 2, ("short",): 1, ("long", "short"): 1}
    assert rows[("long",)]["max_ns"] > rows[("short",)]["max_ns"] + rows[("long", "short")]["max_ns"]


@pytest.mark.ci
def test_a_thousand_interleaved_tasks_leave_an_exact_ledger(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import asyncio
        outer, inner = brick.brick("outer"), brick.brick("inner")
        async def task():
            for _ in range(3):
                with outer:
                    await asyncio.sleep(0)
                    with inner:
                        await asyncio.sleep(0)
        async def main():
            await asyncio.gather(*(task() for _ in range(1000)))
        asyncio.run(main())
        """,
    )
    assert counts(got) == {("outer",): 3000, ("outer", "inner"): 3000}
    assert spans(got) == {"begun": 6000, "summarized": 6000}


def test_greenlets_interleaved_on_one_thread_keep_their_own_stacks(worker: Start, prefix: str) -> None:
    rows = summaries(
        record(
            worker,
            prefix,
            """
            from greenlet import greenlet
            a, b = brick.brick("a"), brick.brick("b")
            def one():
                with a:
                    two_.switch()
                    with b: pass
                two_.switch()
            def two():
                with b:
                    one_.switch()
                main_.switch()
            main_, one_, two_ = greenlet.getcurrent(), greenlet(one), greenlet(two)
            one_.switch()
            """,
        )
    )
    assert {path: row["count"] for path, row in rows.items()} == {("a",): 1, ("a", "b"): 1, ("b",): 1}


def test_a_task_that_ends_with_a_span_open_is_counted_as_abandoned(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import asyncio
        b = brick.brick("b")
        async def leaves():
            b.start()
        async def main():
            for _ in range(50):
                await asyncio.create_task(leaves())
        asyncio.run(main())
        # While other work goes on, the agent checks the 256 places of the table of keys, one at a time.
        for _ in range(64 * (256 + 50)):
            with brick.span("work"): pass
        """,
    )
    assert spans(got) == {"begun": 64 * 306 + 50, "summarized": 64 * 306, "abandoned": 50}


def test_threads_have_their_own_lanes_and_return_them(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import threading
        b = brick.brick("b")
        brick.init()
        def run(many):
            for _ in range(many):
                with b: pass
        for _ in range(100):
            thread = threading.Thread(target=run, args=(10,)); thread.start(); thread.join()
        """,
    )
    assert spans(got) == {"begun": 1000, "summarized": 1000}
    assert [lane["opened"] for _, lane, _ in got.lanes] == [100]
    assert [lane["thread"] for _, lane, _ in got.lanes] == [0]


def test_threads_above_the_number_of_lanes_are_counted(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import threading
        brick.init(lanes=2)
        b = brick.brick("b")
        barrier = threading.Barrier(5)
        def run():
            barrier.wait()
            for _ in range(10):
                with b: pass
            barrier.wait()
        threads = [threading.Thread(target=run) for _ in range(5)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    )
    assert spans(got) == {"begun": 20, "summarized": 20, "no_lane": 30}
    assert got.process["lanes_refused"] == 3


def test_a_thread_that_ends_with_a_span_open_abandons_it(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import threading
        thread = threading.Thread(target=brick.brick("b").start); thread.start(); thread.join()
        """,
    )
    assert spans(got) == {"begun": 1, "abandoned": 1}


@pytest.mark.ci
@pytest.mark.interpreter
@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.ci), "spawn"])
@pytest.mark.parametrize("early", ["import brick_agent", ""], ids=["imported early", "by the child's work"])
def test_a_multiprocessing_child_that_ended_cleanly_leaves_nothing(
    prefix: str, tmp_path: Path, method: str, early: str
) -> None:
    # The program is in a file: if multiprocessing does not fork a child, the child imports the program again.
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import multiprocessing
{early}
def work():
    import brick_agent
    with brick_agent.span("child"): pass
    assert brick_agent._core._segment_name()
if __name__ == "__main__":
    children = [multiprocessing.get_context({method!r}).Process(target=work) for _ in range(3)]
    for child in children: child.start()
    for child in children: child.join()
    print([child.exitcode for child in children], flush=True)
    input()
"""
    )
    with native(Path(sys.executable), str(program)) as process:
        assert process.next_report() == [0, 0, 0]
        assert readings(prefix) == []
