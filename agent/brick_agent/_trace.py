"""The decorator `trace`.

Owns: which kind of callable gets which wrapper, and which parts of its run are spans. Must not know: how a span is
recorded. Invariants: a wrapped callable behaves as before for its callers, for `inspect` and for pickle, also when it
raises (with one difference: a generator or a coroutine refuses wrong arguments at its first step, not at the call); no
span of a generator is open while its consumer runs. A frame of this module keeps no value alive, because the value
belongs to its consumer. A frame also keeps no exception or awaitable alive, because these would keep the frame alive.
"""

from __future__ import annotations

import os
import sys

from brick_agent._core import Brick, _task_ended, brick
from brick_agent._core import _traced as _traced_function

# Methods that Python implicitly makes static or class methods: a class needs plain functions under these names.
_IMPLICIT = ("__new__", "__init_subclass__", "__class_getitem__")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Any, ParamSpec, TypeVar, overload

    _Parameters = ParamSpec("_Parameters")
    _Result = TypeVar("_Result")

    @overload
    def trace(what: Callable[_Parameters, _Result], /) -> Callable[_Parameters, _Result]: ...
    @overload
    def trace(
        what: str | None = None, /, category: str | None = None, *, waits: bool = True
    ) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]: ...
    def trace(what: Any = None, /, category: str | None = None, *, waits: bool = True) -> Any: ...

else:

    def trace(what=None, /, category=None, *, waits=True):
        """Time each call of a function: `@trace`, or `@trace("name", "ffn")`.

        The default name of the brick is the function's `__qualname__`. A generator is timed from each resumption to its
        next `yield`, not while its consumer runs. An asynchronous generator is timed in the same way, including its
        awaits. A coroutine is one span from its first step to its end, including its awaits. A coroutine or a generator
        that a plain function returns is not timed. Each call of a plain function needs a C frame, as with
        functools.lru_cache: if sys.setrecursionlimit raised the limit, a deep recursion may overflow the stack.

        Args:
            what: the function, or a name.
            category: the category, as for `brick`.
            waits: False: each resumption of a coroutine or an asynchronous generator is a span, without the time in
                between; the last span of each task is also counted.

        The first call records where a function is defined, except for lambdas and callables not written in Python.

        >>> @brick.trace
        ... def tokenize(text):
        ...     return text.split()
        >>> tokenize("a b")
        ['a', 'b']

        >>> @brick.trace("stream", category="host")
        ... def tokens():
        ...     yield "a"
        ...     yield "b"
        >>> list(tokens())
        ['a', 'b']

        >>> @brick.trace(waits=False)
        ... async def handle(request):
        ...     return request + 1
        >>> import asyncio
        >>> asyncio.run(handle(1))
        2
        """
        if what is None or isinstance(what, str):
            return lambda function: _traced(function, what, category, waits)
        return _traced(what, None, category, waits)


def _traced(function: Any, name: str | None, category: str | None, waits: bool) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_traced(function.__func__, name, category, waits))
    if isinstance(function, type) or not callable(function):
        if os.environ.get("BRICKD_STRICT") == "1":
            raise TypeError(f"brick_agent: trace takes a function, not {function!r} (BRICKD_STRICT=1)")
        return function
    import functools
    import inspect
    import types

    # Make a new method or staticmethod around the traced function, so that it binds as before and looks unchanged to
    # `inspect`.
    if isinstance(function, types.MethodType):
        return types.MethodType(_traced(function.__func__, name, category, waits), function.__self__)
    if isinstance(function, functools.partial) and not isinstance(function.func, type):
        inside = _traced(function.func, name, category, waits)
        return functools.wraps(function)(functools.partial(inside, *function.args, **function.keywords))

    named = function.func if isinstance(function, functools.partial) else function
    b = brick(str(getattr(named, "__qualname__", type(named).__qualname__)) if name is None else name, category)

    def calls(is_one: Callable[[Any], bool]) -> bool:
        return is_one(function) or is_one(type(function).__call__)

    def recorded(spans: bool) -> Any:
        return _traced_function(function, b, spans, *_definition(function))

    if calls(inspect.iscoroutinefunction):
        traced = _coroutine(recorded(False), b, waits)
    elif calls(inspect.isasyncgenfunction):
        traced = _async_generator(recorded(False), b, waits)
    elif calls(inspect.isgeneratorfunction):
        traced = _generator(recorded(False), b)
        if calls(_is_awaited):
            traced = types.coroutine(traced)
    elif inspect.isfunction(function) and function.__name__ in _IMPLICIT:
        traced = _function(recorded(True))
    else:
        return functools.wraps(function)(recorded(True))
    traced = functools.wraps(function)(traced)
    # Python passes `self` to a plain function of a class, but not to other callables. So their wrappers must be static
    # methods.
    return traced if hasattr(type(function), "__get__") else staticmethod(traced)


def _definition(function: Any) -> tuple[str | None, int]:
    """Return the file, relative to its entry in sys.path, and the line. The file is None if it is not recorded."""
    import inspect
    import types

    try:
        code = getattr(inspect.unwrap(function), "__code__", None)
    except ValueError:  # the function's __wrapped__ is itself
        code = None
    if not isinstance(code, types.CodeType) or code.co_name == "<lambda>" or code.co_filename.startswith("<"):
        return None, 0
    file = code.co_filename
    above = [
        entry for entry in sys.path if isinstance(entry, str) and entry and file.startswith(f"{entry.rstrip('/')}/")
    ]
    short = file[len(max(above, key=len).rstrip("/")) + 1 :] if above else "/".join(file.split("/")[-2:])
    return short.encode("utf-8", "backslashreplace").decode(), code.co_firstlineno


def _is_awaited(function: Any) -> bool:
    """Whether `types.coroutine` made this generator function awaitable."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_flags & 0x100 != 0  # inspect.CO_ITERABLE_COROUTINE


def _function(function: Callable[..., Any]) -> Callable[..., Any]:
    def traced(*args: Any, **keywords: Any) -> Any:
        return function(*args, **keywords)

    return traced


def _generator(function: Callable[..., Any], b: Brick) -> Callable[..., Any]:
    def traced(*args: Any, **keywords: Any) -> Generator[Any, Any, Any]:
        return (yield from _resumed(function(*args, **keywords), b))

    return traced


def _coroutine(function: Callable[..., Any], b: Brick, waits: bool) -> Callable[..., Any]:
    async def with_waits(*args: Any, **keywords: Any) -> Any:
        with b:
            return await function(*args, **keywords)

    async def without(*args: Any, **keywords: Any) -> Any:
        return await _Resumed(function(*args, **keywords), b, True)

    return with_waits if waits else without


def _async_generator(function: Callable[..., Any], b: Brick, waits: bool) -> Callable[..., Any]:
    async def timed(awaited: Any) -> Any:
        try:
            if not waits:
                return await _Resumed(awaited, b, False)
            with b:
                return await awaited
        finally:
            del awaited

    async def traced(*args: Any, **keywords: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **keywords)
        step = _first_step(inner)
        try:
            while True:
                try:
                    values = [await timed(step)]
                except StopAsyncIteration:
                    return
                finally:
                    step = None
                try:
                    step = inner.asend((yield values.pop()))
                except GeneratorExit:
                    await timed(inner.aclose())
                    raise
                except BaseException as error:
                    step = inner.athrow(error)
        finally:
            if not waits:
                _task_ended(b)

    return traced


def _first_step(inner: Any) -> Any:
    """Return the first awaitable of an asynchronous generator, without letting the event loop see the generator.

    When the loop ends, it closes all generators that it has seen. The loop would close the traced generator and this
    inner generator at the same time.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return inner.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


class _Resumed:
    """Awaits an object, with a span for each resumption."""

    __slots__ = ("_awaited", "_brick", "_ends")

    def __init__(self, awaited: Any, b: Brick, ends: bool) -> None:
        self._awaited = awaited
        self._brick = b
        self._ends = ends

    def __await__(self) -> Generator[Any, Any, Any]:
        return _resumed(self._awaited, self._brick, self._ends)


def _resumed(inner: Any, b: Brick, ends: bool = False) -> Generator[Any, Any, Any]:
    """Do the same as `yield from inner`, with a span for each resumption; `ends`: whether the last span ends a task."""
    resume, argument = inner.send, None
    try:
        while True:
            try:
                with b:
                    values = [resume(argument)]
            except StopIteration as stop:
                return stop.value
            argument = None
            try:
                argument = yield values.pop()  # a variable instead of this list would keep the value alive
                resume = inner.send
            except GeneratorExit:
                with b:
                    inner.close()
                raise
            except BaseException as error:
                resume, argument = inner.throw, error
    finally:
        del inner, resume, argument
        if ends:
            _task_ended(b)
