"""`@brick.trace` of asynchronous generators: they are timed while they run, and closed once."""

from __future__ import annotations

import pytest
from conftest import reading
from recorded import Start, counts, record, spans


@pytest.mark.parametrize("waits", [True, False])
def test_an_asynchronous_generator_is_timed_while_it_runs(worker: Start, prefix: str, waits: bool) -> None:
    got = record(
        worker,
        prefix,
        f"""
        import asyncio
        log = []
        @brick.trace(waits={waits})
        async def stream():
            try:
                sent = yield 1
                await asyncio.sleep(0)
                try: yield sent
                except KeyError: yield "thrown"
            finally:
                await asyncio.sleep(0)
                log.append("closed")
        async def main():
            values = []
            async for value in stream():
                with brick.span("consumer"): await asyncio.sleep(0)
                values.append(value)
            assert values == [1, None]
            it = stream()
            assert (await it.__anext__(), await it.asend("sent"), await it.athrow(KeyError())) == (1, "sent", "thrown")
            await it.aclose()
            try: await it.__anext__()
            except StopAsyncIteration: pass
            broken = stream()
            await broken.__anext__()
            try: await broken.athrow(ZeroDivisionError())
            except ZeroDivisionError: pass
            assert log == ["closed"] * 3
        asyncio.run(main())
        """,
    )
    # The three generators are resumed three times (two values and the end), four times, and twice. Each await adds one
    # resumption.
    asked, resumed_after_a_wait = 3 + 4 + 2, 2 + 2 + 1
    assert counts(got) == {("stream",): asked + (0 if waits else resumed_after_a_wait), ("consumer",): 2}
    assert spans(got)["begun"] == spans(got)["summarized"] == sum(counts(got).values())


def test_a_dropped_asynchronous_generator_is_closed_by_the_loop(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import asyncio
        log = []
        @brick.trace
        async def stream():
            try:
                yield 1
                yield 2
            finally:
                log.append("closed")
        async def main():
            async for _ in stream(): break
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        asyncio.run(main())
        assert log == ["closed"]
        """,
    )
    assert spans(got)["begun"] == spans(got)["summarized"]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("asked", [1, 2])
def test_an_asynchronous_generator_that_outlives_its_loop_is_closed_once(
    worker: Start, prefix: str, waits: bool, asked: int
) -> None:
    process = worker(
        f"""
        import asyncio
        log, kept = [], []
        @brick.trace("stream", waits={waits})
        async def stream():
            try:
                yield 1
                yield 2
                yield 3
            finally:
                await asyncio.sleep(0)
                log.append("closed")
        async def main():
            for _ in range(3):
                it = stream()
                kept.append(it)
                for _ in range({asked}): await it.__anext__()
        asyncio.run(main())
        assert log == ["closed"] * 3, log
        pause()
        """
    )
    process.paused()
    got = reading(prefix)
    process.go()
    assert (process.end(), process.stderr) == (0, "")
    # An await while the generator is closed adds one resumption.
    assert counts(got) == {("stream",): 3 * (asked + (1 if waits else 2))}
    assert spans(got)["begun"] == spans(got)["summarized"] == sum(counts(got).values())


@pytest.mark.ci
@pytest.mark.parametrize("waits", [True, pytest.param(False, marks=pytest.mark.ci)])
def test_an_asynchronous_generator_dropped_without_a_loop_closes_itself(
    worker: Start, prefix: str, waits: bool
) -> None:
    process = worker(
        f"""
        log = []
        @brick.trace("stream", waits={waits})
        async def stream():
            try:
                yield 1
                yield 2
            finally:
                log.append("closed")
        it = stream()
        try: it.__anext__().send(None)
        except StopIteration as stop: assert stop.value == 1
        del it
        assert log == ["closed"], log
        assert sys.get_asyncgen_hooks() == (None, None)
        pause()
        """
    )
    process.paused()
    got = reading(prefix)
    process.go()
    assert (process.end(), process.stderr) == (0, "")
    assert spans(got) == {"begun": 2, "summarized": 2}
