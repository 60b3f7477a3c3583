"""`@brick.trace`: what is wrapped behaves as before, and its spans are where its time is."""

from __future__ import annotations

import pytest
from conftest import reading
from recorded import Start, counts, record, spans, summaries


def test_a_traced_function_is_a_brick_of_its_own_name(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        class Model:
            @brick.trace
            def forward(self, x, *, scale=1): return x * scale
            @brick.trace
            @staticmethod
            def help(x): return x
            @staticmethod
            @brick.trace
            def aid(x): return x
            @brick.trace
            @classmethod
            def make(cls): return cls()
        @brick.trace("sampling", category="scheduler")
        def sample(): return 3
        @brick.trace("sampled", "scheduler")
        def sampled(): return 4
        model = Model.make()
        assert (model.forward(2, scale=3), Model.help(4), Model.aid(5), sample(), sampled()) == (6, 4, 5, 3, 4)
        """,
    )
    names = ("Model.make", "Model.forward", "Model.help", "Model.aid", "sampling", "sampled")
    assert counts(got) == {(name,): 1 for name in names}
    categories = {got.name(path.name): got.category(path.name) for path in got.paths if path}
    assert (categories["sampling"], categories["sampled"]) == ("scheduler", "scheduler")


def test_what_a_class_calls_by_itself_may_be_traced(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        class Base:
            @brick.trace
            def __new__(cls, *args): return super().__new__(cls)
            @brick.trace
            def __init__(self, *args): self.args = args
            @brick.trace
            def __init_subclass__(cls, /, **keywords): cls.made_with = keywords
            @brick.trace
            def __class_getitem__(cls, key): return (cls, key)
        class Derived(Base, size=3):
            @classmethod
            @brick.trace
            def __init_subclass__(cls): cls.second = True
            @staticmethod
            @brick.trace
            def __new__(cls, *args): return super().__new__(cls)
        class Last(Derived): pass
        last = Last(1, 2)
        assert (Derived.made_with, Derived["key"], Last.second) == ({"size": 3}, (Derived, "key"), True)
        assert (type(last), last.args, type(last.__new__(Derived))) == (Last, (1, 2), Derived)
        """,
    )
    assert counts(got) == {
        ("Derived.__new__",): 2,
        ("Derived.__new__", "Base.__new__"): 2,
        ("Base.__init__",): 1,
        ("Base.__init_subclass__",): 1,
        ("Derived.__init_subclass__",): 1,
        ("Base.__class_getitem__",): 1,
    }


@pytest.mark.parametrize("named", [True, False])
def test_an_object_that_is_called_is_timed_as_what_its_call_is(worker: Start, prefix: str, named: bool) -> None:
    got = record(
        worker,
        prefix,
        f"""
        import asyncio, functools, inspect, types
        class Plain:
            def __call__(self, x): return [x]
        class Coroutine:
            async def __call__(self, x):
                with brick.span("inside"): return [x]
        class Generated:
            def __call__(self, x):
                with brick.span("inside"): pass
                yield x
        class Stream:
            async def __call__(self, x):
                with brick.span("inside"): pass
                yield x
        def trace(what): return brick.trace(type(what).__name__)(what) if {named} else brick.trace(what)
        class Holder:
            plain = trace(Plain())
            coroutine = trace(Coroutine())
            generated = trace(Generated())
            stream = trace(Stream())
        async def every(it): return [each async for each in it]
        h = Holder()
        assert h.plain(1) == list(h.generated(1)) == asyncio.run(h.coroutine(1)) == [1]
        assert asyncio.run(every(h.stream(1))) == [1]
        assert inspect.signature(trace(Coroutine())) == inspect.signature(Coroutine())
        """,
    )
    assert counts(got) == {
        ("Plain",): 1,
        ("Coroutine",): 1,
        ("Coroutine", "inside"): 1,
        ("Generated",): 2,
        ("Generated", "inside"): 1,
        ("Stream",): 2,
        ("Stream", "inside"): 1,
    }


def test_a_class_attribute_gets_self_where_it_did_before_it_was_traced(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import asyncio, functools, inspect
        def f(*args): return args
        async def c(*args): return args
        class Bound:
            def method(self, *args): return args
            async def waits(self, *args): return args
            __call__ = method
        bound = Bound()
        class Plain:
            f, c, partial, waits = f, c, functools.partial(f, 0), functools.partial(c, 0)
            length, made, thing, method, awaited = len, functools.partial(list), Bound(), bound.method, bound.waits
            cut = str.upper
        class Traced: pass
        for name, each in vars(Plain).items():
            if not name.startswith("__"): setattr(Traced, name, brick.trace(each))
        plain, traced = Plain(), Traced()
        def called(owner, name, *args):
            result = getattr(owner, name)(*args)
            return asyncio.run(result) if inspect.iscoroutine(result) else result
        for name in ("f", "c", "partial", "waits", "thing", "method", "awaited"):
            # `self` differs, and nothing else.
            assert [each for each in called(traced, name, 7) if each is not traced] == [
                each for each in called(plain, name, 7) if each is not plain
            ], name
            assert (traced in called(traced, name, 7)) == (plain in called(plain, name, 7)), name
            for is_one in (inspect.iscoroutinefunction, asyncio.iscoroutinefunction, inspect.ismethod):
                assert is_one(getattr(traced, name)) == is_one(getattr(plain, name)), name
        assert (traced.length("abc"), traced.made("abc")) == (3, ["a", "b", "c"])
        for owner in (plain, traced):
            try: owner.cut()
            except TypeError as error: assert "str" in str(error)
            else: raise AssertionError
        assert Traced.cut("a") == "A"
        """,
    )
    # A partial is called what the function in it is.
    assert counts(got) == {
        ("f",): 4,
        ("c",): 4,
        ("Bound",): 2,
        ("Bound.method",): 2,
        ("Bound.waits",): 2,
        ("len",): 1,
        ("list",): 1,
        ("str.upper",): 2,
    }


def test_a_generator_that_may_be_awaited_still_may(worker: Start, prefix: str) -> None:
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


def test_what_is_traced_looks_as_it_did(worker: Start, prefix: str) -> None:
    record(
        worker,
        prefix,
        """
        import asyncio, copy, functools, inspect, pickle, weakref
        def f(a: int, b: str = "x") -> bool:
            "What f does."
        async def c(): pass
        def g(): yield
        async def ag(): yield
        for function in (f, c, g, ag):
            traced = brick.trace(function)
            assert inspect.signature(traced) == inspect.signature(function)
            assert (traced.__name__, traced.__doc__) == (function.__name__, function.__doc__)
            assert traced.__wrapped__ is function
            assert traced is copy.copy(traced) is copy.deepcopy(traced)
            for is_one in (callable, inspect.isroutine, inspect.iscoroutinefunction, inspect.isgeneratorfunction,
                           inspect.isasyncgenfunction, asyncio.iscoroutinefunction):
                assert is_one(traced) == is_one(function), (function, is_one)
        assert asyncio.iscoroutinefunction(brick.trace(waits=False)(c))
        original, f = f, brick.trace(f)
        assert pickle.loads(pickle.dumps(f)) is f
        assert brick.trace(functools.partial(int, base=2))("101") == 5
        assert brick.trace(len)("abc") == 3
        assert weakref.ref(f)() is f
        f.mine = 1
        assert (f.mine, repr(f)) == (1, f"<traced {original!r}>")
        """,
    )


def test_a_traced_function_that_raises_is_counted_and_its_exception_is_the_callers(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import asyncio
        error = KeyError("mine")
        @brick.trace
        def f(): raise error
        @brick.trace
        async def c(): raise error
        @brick.trace
        def g():
            yield 1
            raise error
        def consume(): return list(g())
        for call in (f, lambda: asyncio.run(c()), consume):
            try: call()
            except KeyError as seen: assert seen is error
            else: raise AssertionError(call)
        try: f("one argument too many")
        except TypeError: pass
        """,
    )
    assert counts(got) == {("f",): 2, ("c",): 1, ("g",): 2}
    assert spans(got) == {"begun": 5, "summarized": 5}


def test_arguments_that_do_not_fit_are_refused_where_the_function_begins(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        @brick.trace
        def f(): pass
        @brick.trace
        def g(): yield
        @brick.trace
        async def c(): pass
        @brick.trace
        async def stream(): yield
        unfit = (g(1), c(1), stream(1).__anext__())
        for call in (lambda: f(1), *(lambda each=each: each.send(None) for each in unfit)):
            try: call()
            except TypeError as error: assert "takes 0 positional arguments" in str(error)
            else: raise AssertionError
        """,
    )
    assert spans(got)["begun"] == spans(got)["summarized"]


def test_a_generator_is_timed_while_it_runs_and_not_while_its_consumer_does(worker: Start, prefix: str) -> None:
    rows = summaries(
        record(
            worker,
            prefix,
            """
            import time
            consumer = brick.brick("consumer")
            @brick.trace
            def tokens():
                for n in range(3):
                    yield n
            for _ in tokens():
                with consumer:
                    time.sleep(0.002)
            """,
        )
    )
    # Three values and the end; a consumer below its generator would stand in its path.
    assert {path: row["count"] for path, row in rows.items()} == {("tokens",): 4, ("consumer",): 3}
    assert rows[("tokens",)]["total_ns"] < rows[("consumer",)]["total_ns"]


def test_a_generator_closed_early_is_closed_within_a_span_and_leaves_nothing_open(worker: Start, prefix: str) -> None:
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


def test_a_generator_takes_what_is_sent_and_thrown_and_returns_its_value(worker: Start, prefix: str) -> None:
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
    with brick.span("others"): await asyncio.sleep(0.01)
    event.set()
    await asyncio.gather(*tasks)
asyncio.run(main())
"""


def test_a_coroutine_is_one_span_with_what_it_waits_for(worker: Start, prefix: str) -> None:
    rows = summaries(record(worker, prefix, WAITING.format("")))
    assert {path: row["count"] for path, row in rows.items()} == {
        ("handle",): 3,
        ("handle", "asked"): 3,
        ("handle", "told"): 3,
        ("others",): 1,
    }
    assert rows[("handle",)]["min_ns"] > rows[("others",)]["max_ns"]


def test_a_coroutine_without_its_waits_is_a_span_a_resumption(worker: Start, prefix: str) -> None:
    got = record(worker, prefix, WAITING.format(", waits=False"))
    rows = summaries(got)
    assert {path: row["count"] for path, row in rows.items()} == {
        ("handle",): 6,
        ("handle", "asked"): 3,
        ("handle", "told"): 3,
        ("others",): 1,
    }
    assert rows[("handle",)]["total_ns"] < rows[("others",)]["total_ns"]
    assert spans(got) == {"begun": 13, "summarized": 13}


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
    # Without waits `inner` stands open between two resumptions of `waits`: abandoned with the first, unmatched later.
    wanted = (
        {"begun": 200, "summarized": 200}
        if waits
        else {"begun": 300, "summarized": 200, "abandoned": 100, "unmatched": 100}
    )
    assert spans(got) == wanted


@pytest.mark.parametrize("waits", [True, False])
def test_an_asynchronous_generator_is_timed_while_it_is_asked(worker: Start, prefix: str, waits: bool) -> None:
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
                with brick.span("consumer"): await asyncio.sleep(0.001)
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
    # Asked three times (two values and the end), four times, twice; what awaits is resumed once more each time.
    asked, resumed_after_a_wait = 3 + 4 + 2, 2 + 2 + 1
    assert counts(got) == {("stream",): asked + (0 if waits else resumed_after_a_wait), ("consumer",): 2}
    assert spans(got)["begun"] == spans(got)["summarized"] == sum(counts(got).values())


def test_an_asynchronous_generator_that_is_dropped_is_closed_by_the_loop(worker: Start, prefix: str) -> None:
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
def test_an_asynchronous_generator_that_outlives_its_loop_is_closed_once_by_it(
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
    assert (process.end(), process.said) == (0, "")
    # What awaits while it closes is resumed once more.
    assert counts(got) == {("stream",): 3 * (asked + (1 if waits else 2))}
    assert spans(got)["begun"] == spans(got)["summarized"] == sum(counts(got).values())


@pytest.mark.parametrize("waits", [True, False])
def test_an_asynchronous_generator_that_is_dropped_without_a_loop_closes_itself(
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
    assert (process.end(), process.said) == (0, "")
    assert spans(got) == {"begun": 2, "summarized": 2}


@pytest.mark.parametrize("waits", [True, False])
def test_what_a_generator_yields_is_its_consumers_alone(worker: Start, prefix: str, waits: bool) -> None:
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
    assert process.heard() == [True, True]


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
def test_what_is_thrown_in_is_freed_without_the_collector(worker: Start, prefix: str, way: str, waits: bool) -> None:
    process = worker(
        THROWN + f"report([left({way!r}, lambda f: f), left({way!r}, lambda f: brick.trace(f, waits={waits}))])"
    )
    undecorated, traced = process.heard()
    assert traced == undecorated
    assert undecorated[0] == 0


def test_a_traced_recursion_takes_one_path(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        @brick.trace
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        assert fib(15) == 610
        """,
    )
    assert counts(got) == {("fib",): 1973}
    (row,) = summaries(got).values()
    assert row["total_ns"] == pytest.approx(row["self_ns"])


def test_a_traced_function_records_in_whatever_thread_and_child_it_runs(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import threading
        @brick.trace
        def work(): return sum(range(10))
        threads = [threading.Thread(target=lambda: [work() for _ in range(100)]) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        child = os.fork()
        if not child:
            work()
            brick.shutdown()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
    )
    assert spans(got) == {"begun": 400, "summarized": 400}


@pytest.mark.parametrize("what", ["3", "int", "object()"])
def test_what_is_no_function_is_left_as_it_is(worker: Start, prefix: str, what: str) -> None:
    program = f"""
    thing = {what}
    try: report(brick.trace(thing) is thing)
    except TypeError as error: report(str(error))
    """
    assert worker(program).heard() is True
    assert "BRICKD_STRICT=1" in worker(program, BRICKD_STRICT="1").heard()


def test_a_traced_function_that_refers_to_itself_is_collected(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import gc, weakref
        def make():
            @brick.trace
            def fall(n): return fall(n - 1) if n else 0
            return fall
        fall = make()
        fall.circle = fall
        assert fall(3) == 0
        gone = weakref.ref(fall)
        del fall
        gc.collect()
        report(gone() is None)
        """,
        python=("-X", "dev"),
    )
    assert process.heard() is True
    assert process.end() == 0


def test_a_traced_function_whose_end_is_refused_raises_its_own_exception_first(worker: Start, prefix: str) -> None:
    process = worker(
        """
        b = brick.brick("f")
        @brick.trace("f")
        def f(error):
            b.stop()  # ends the span around this call
            if error: raise error
            return 7
        for error in (KeyError("mine"), None):
            try: report(f(error))
            except (KeyError, RuntimeError) as seen: report(type(seen).__name__)
        """,
        BRICKD_STRICT="1",
    )
    assert (process.heard(), process.heard()) == ("KeyError", "RuntimeError")
    assert process.end() == 0
