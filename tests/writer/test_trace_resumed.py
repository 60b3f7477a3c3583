"""`@brick.trace` of generators and coroutines: a span either includes the waits, or has only the time in which they
run.
"""

from __future__ import annotations

import pytest
from conftest import reading
from recorded import Start, counts, record, spans


@pytest.mark.ci
def test_a_generator_is_timed_only_while_it_runs(worker: Start, prefix: str) -> None:
    process = worker(
        """
        consumer = brick.brick("consumer")
        @brick.trace
        def tokens():
            for n in range(3):
                yield n
        for _ in tokens():
            with consumer: pause()
        pause()
        """
    )
    for asked in (1, 2, 3):
        process.paused()
        wanted = {"begun": 2 * asked, "summarized": 2 * asked - 1, "open": 1}
        assert spans(reading(prefix)) == wanted, "only the consumer's span is open"
        process.go()
    process.paused()
    # Four spans: one for each of the three values, and one for the end. If the generator's span stayed open, the
    # consumer's spans would be inside it.
    assert counts(reading(prefix)) == {("tokens",): 4, ("consumer",): 3}
    process.go()
    assert process.end() == 0


def test_a_generator_closed_early_is_closed_inside_a_span(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        log = []
        @brick.trace
        def g():
            try:
                yield 1
                yield 2
            finally:
                with brick.span("cleanup"): log.append("closed")
        first = g(); next(first); first.close()
        second = g(); next(second); del second
        never = g(); never.close()
        unused = g(); del unused
        assert log == ["closed", "closed"]
        """,
    )
    assert counts(got) == {("g",): 4, ("g", "cleanup"): 2}
    assert spans(got) == {"begun": 6, "summarized": 6}


@pytest.mark.ci
def test_a_generator_passes_on_sent_values_exceptions_and_its_result(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        @brick.trace
        def g():
            try: seen = yield "ready"
            except KeyError: seen = "thrown"
            yield seen
            return "value"
        def outer(result): result.append((yield from g()))
        result = []
        it = outer(result)
        assert (next(it), it.send("sent")) == ("ready", "sent")
        assert next(it, "end") == "end" and result == ["value"]
        it = g()
        next(it)
        assert it.throw(KeyError("k")) == "thrown"
        try: it.throw(ZeroDivisionError())
        except ZeroDivisionError: pass
        else: raise AssertionError
        """,
    )
    assert spans(got) == {"begun": 6, "summarized": 6}


@pytest.mark.ci
def test_a_span_left_open_across_a_yield_is_abandoned_and_ends_no_other(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        inner = brick.brick("inner")
        @brick.trace
        def g():
            with inner:
                yield 1
        list(g())
        """,
    )
    assert counts(got) == {("g",): 2}
    assert spans(got) == {"begun": 3, "summarized": 2, "abandoned": 1, "unmatched": 1}


def test_an_awaitable_generator_stays_awaitable(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import asyncio, inspect, types
        @brick.trace
        @types.coroutine
        def moment():
            yield
            return "paused"
        async def main(): return await moment()
        assert asyncio.run(main()) == "paused"
        assert inspect.isgeneratorfunction(moment)
        """,
    )
    assert counts(got) == {("moment",): 2}
    assert spans(got) == {"begun": 2, "summarized": 2}


WAITING = """
import asyncio
async def wait(event):
    with brick.span("asked"): pass
    await event.wait()
    with brick.span("told"): pass
@brick.trace("handle"{})
async def handle(event): return await wait(event)
async def main():
    event = asyncio.Event()
    tasks = [asyncio.create_task(handle(event)) for _ in range(3)]
    await asyncio.sleep(0)
    with brick.span("others"): pause()
    event.set()
    await asyncio.gather(*tasks)
asyncio.run(main())
"""


@pytest.mark.parametrize(("options", "resumptions", "waiting"), [("", 1, 3), (", waits=False", 2, 0)])
def test_a_coroutine_is_one_span_with_waits_or_one_per_resumption(
    worker: Start, prefix: str, options: str, resumptions: int, waiting: int
) -> None:
    process = worker(WAITING.format(options) + "pause()")
    process.paused()
    assert spans(reading(prefix))["open"] == 1 + waiting, "the outer spans, and the span that waits"
    process.go()
    process.paused()
    got = reading(prefix)
    assert counts(got) == {
        ("handle",): 3 * resumptions,
        ("handle", "asked"): 3,
        ("handle", "told"): 3,
        ("others",): 1,
    }
    assert spans(got) == {"begun": 7 + 3 * resumptions, "summarized": 7 + 3 * resumptions}
    process.go()
    assert process.end() == 0


@pytest.mark.parametrize("waits", [True, False])
def test_a_task_cancelled_inside_a_span_leaves_nothing_open(worker: Start, prefix: str, waits: bool) -> None:
    got = record(
        worker,
        prefix,
        f"""
        import asyncio
        log = []
        @brick.trace(waits={waits})
        async def waits():
            try:
                with brick.span("inner"):
                    await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                log.append("cancelled")
                raise
        async def main():
            tasks = [asyncio.create_task(waits()) for _ in range(100)]
            await asyncio.sleep(0)
            for task in tasks: task.cancel()
            assert all(isinstance(each, asyncio.CancelledError)
                       for each in await asyncio.gather(*tasks, return_exceptions=True))
        asyncio.run(main())
        assert log == ["cancelled"] * 100
        """,
    )
    # If waits are not included, `inner` is still open when the first resumption of `waits` ends. At this moment,
    # `inner` is counted as abandoned. Its later end is counted as unmatched.
    wanted = (
        {"begun": 200, "summarized": 200}
        if waits
        else {"begun": 300, "summarized": 200, "abandoned": 100, "unmatched": 100}
    )
    assert spans(got) == wanted


@pytest.mark.parametrize("waits", [True, pytest.param(False, marks=pytest.mark.ci)])
def test_a_yielded_value_is_not_kept(worker: Start, prefix: str, waits: bool) -> None:
    process = worker(
        f"""
        import gc, weakref
        gc.disable()
        class Held: pass
        @brick.trace
        def generator():
            yield Held()
            yield
        @brick.trace(waits={waits})
        async def stream():
            yield Held()
            yield
        it, async_it = generator(), stream()
        values = [next(it)]
        try: async_it.__anext__().send(None)
        except StopIteration as stop: values.append(stop.value)
        gone = [weakref.ref(value) for value in values]
        values.clear()
        report([each() is None for each in gone])
        """
    )
    assert process.next_report() == [True, True]


THROWN = """
import asyncio, gc, weakref
class Held: pass
def generator():
    while True:
        try: yield
        except KeyError: pass
async def future(): await asyncio.get_running_loop().create_future()
async def stream():
    while True:
        try: yield
        except KeyError: pass
def thrown(it, kind):
    held = Held()
    gone.append(weakref.ref(held))
    try: it.throw(kind())
    except ZeroDivisionError: pass
def caught_and_not(make):
    it = make(generator)()
    next(it)
    thrown(it, KeyError)
    thrown(it, KeyError)
    thrown(it, ZeroDivisionError)
def dropped(make):
    it = make(generator)()
    next(it)
    thrown(it, KeyError)
async def cancelled(make):
    for _ in range(10):
        task = asyncio.create_task(make(future)())
        await asyncio.sleep(0)
        held = task.held = Held()
        gone.append(weakref.ref(held))
        del held
        task.cancel()
        try: await task
        except asyncio.CancelledError: pass
        del task
async def thrown_async(make):
    it = make(stream)()
    await it.__anext__()
    for kind in (KeyError, KeyError, ZeroDivisionError):
        held = Held()
        gone.append(weakref.ref(held))
        try: await it.athrow(kind())
        except ZeroDivisionError: pass
        del held
    it = make(stream)()
    await it.__anext__()
    await it.athrow(KeyError())
    await it.aclose()
ways = {
    "caught_and_not": caught_and_not,
    "dropped": dropped,
    "cancelled": lambda make: asyncio.run(cancelled(make)),
    "thrown_async": lambda make: asyncio.run(thrown_async(make)),
}
def left(way, make):
    global gone
    gone = []
    ways[way](make)  # what is made once
    gc.collect()
    gone = []
    gc.disable()
    ways[way](make)
    alive = sum(each() is not None for each in gone)
    found = gc.collect()
    gc.enable()
    return [alive, found]
"""


@pytest.mark.parametrize("way", ["caught_and_not", "dropped", "cancelled", "thrown_async"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_thrown_exception_is_freed_without_the_garbage_collector(
    worker: Start, prefix: str, way: str, waits: bool
) -> None:
    process = worker(
        THROWN + f"report([left({way!r}, lambda f: f), left({way!r}, lambda f: brick.trace(f, waits={waits}))])"
    )
    undecorated, traced = process.next_report()
    assert traced == undecorated
    assert undecorated[0] == 0
