"""`@brick.trace`: a traced function behaves as before, and its spans cover the time in which it runs."""

from __future__ import annotations

import pytest
from recorded import Start, counts, record, spans, summaries


@pytest.mark.ci
def test_a_traced_function_is_a_brick_with_its_own_name(worker: Start, prefix: str) -> None:
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


@pytest.mark.ci
def test_special_methods_of_a_class_can_be_traced(worker: Start, prefix: str) -> None:
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
def test_a_callable_object_is_timed_by_its_call_method(worker: Start, prefix: str, named: bool) -> None:
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


def test_a_traced_class_attribute_receives_self_as_before(worker: Start, prefix: str) -> None:
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
    # The brick of a `functools.partial` has the name of its function.
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


def test_a_traced_function_keeps_its_metadata(worker: Start, prefix: str) -> None:
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


def test_an_exception_of_a_traced_function_is_counted_and_raised(worker: Start, prefix: str) -> None:
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


@pytest.mark.ci
def test_wrong_arguments_are_refused_by_the_function_itself(worker: Start, prefix: str) -> None:
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


@pytest.mark.ci
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


@pytest.mark.ci
def test_a_traced_function_records_in_any_thread_and_child(worker: Start, prefix: str) -> None:
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
def test_an_object_that_is_not_a_function_is_left_unchanged(worker: Start, prefix: str, what: str) -> None:
    program = f"""
    thing = {what}
    try: report(brick.trace(thing) is thing)
    except TypeError as error: report(str(error))
    """
    assert worker(program).next_report() is True
    assert "BRICKD_STRICT=1" in worker(program, BRICKD_STRICT="1").next_report()


@pytest.mark.ci
def test_a_self_referencing_traced_function_is_garbage_collected(worker: Start, prefix: str) -> None:
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
    assert process.next_report() is True
    assert process.end() == 0


def test_a_traced_function_with_a_refused_end_raises_its_own_exception(worker: Start, prefix: str) -> None:
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
    assert (process.next_report(), process.next_report()) == ("KeyError", "RuntimeError")
    assert process.end() == 0
