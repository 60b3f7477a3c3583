"""Wraps the callable of a module that torch calls, and removes the wrappers.

Owns: in which attribute a module keeps this callable, and which methods copy it. Must not know: what a wrapper records.
Invariants: a module's forward is not changed, so that the host may read, keep and replace it; copies and pickles
contain no wrapper; torch compiles a module without its wrapper; this module keeps no model alive.
"""

from __future__ import annotations

import sys
import types
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    This = weakref.ReferenceType[Any] | None  # the module, which is the first argument
    _Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
    _Make = Callable[[Callable[..., Any], This], Callable[..., Any]]

# Methods that copy or pickle a module. Callers look these methods up on the module itself.
_COPIED_BY = ("__getstate__", "__reduce__", "__deepcopy__", "_replicate_for_data_parallel")
_PLACES = ("_compiled_call_impl", "_call_impl", *_COPIED_BY)


def wrap(module: Any, first: _Wrap | None, then: _Make | None) -> None:
    """Wrap the callable that torch calls with `then`, and wrap the result with `first`. None stands for no wrapper."""

    def make(plain: Callable[..., Any], of: This) -> Callable[..., Any]:
        inner = _bound(plain, of) if then is None else then(plain, of)
        return inner if first is None else first(inner)

    held = vars(module)
    name = "_call_impl" if held.get("_compiled_call_impl") is None else "_compiled_call_impl"
    # If torch's compiler or other code has set an attribute of the module, wrap that attribute. Otherwise wrap the
    # function of the class, which takes the module as argument.
    held[name] = (_Around(held[name], make) if name in held else _Called(module, make)).call
    for each in _COPIED_BY:
        of_class: Any = getattr(type(module), each, None)
        if each not in held and of_class is not getattr(object, each, None):
            held[each] = _Copied(module, of_class).call


def unwrap(module: Any) -> None:
    """Remove all wrappers of a module, if it has any."""
    _remove(vars(module))


def unwrapped(module: Any) -> dict[str, Any]:
    """Return a copy of a module's attributes, without wrappers."""
    held = dict(vars(module))
    _remove(held)
    return held


def _remove(held: dict[str, Any]) -> None:
    while found := _wrappers(held):  # a wrapper may be around another one
        for name, each in found:
            each.remove(held, name)


def _bound(plain: Callable[..., Any], of: This) -> Callable[..., Any]:
    return plain if of is None else lambda *args, **keywords: plain(of(), *args, **keywords)


def _wrappers(held: Mapping[str, Any]) -> list[tuple[str, _Wrapper]]:
    """The wrappers in a module's attributes, by name."""
    methods = ((name, held.get(name)) for name in _PLACES)
    owners = ((name, each.__self__) for name, each in methods if type(each) is types.MethodType)
    return [(name, each) for name, each in owners if isinstance(each, _Wrapper)]


class _Wrapper:
    """A wrapper. The module's attribute is a bound method of the wrapper, because a method is faster to call.

    Code that copies or pickles a module's attributes directly gets the original attributes.
    """

    def before(self) -> Any:
        raise NotImplementedError

    def remove(self, held: dict[str, Any], name: str) -> None:
        del held[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return types.SimpleNamespace, (), {"call": self.before()}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Wrapper:
        return self


class _Called(_Wrapper):
    """The wrapper of the callable of a module's class; it calls the module's current forward."""

    def __init__(self, module: Any, make: _Make) -> None:
        plain, this = type(module)._call_impl, weakref.ref(module)
        self._usual = sys.modules["torch"].compiler.is_dynamo_compiling, plain, make(plain, this), this

    def call(self, *args: Any, **keywords: Any) -> Any:
        compiling, plain, made, module = self._usual
        if compiling():
            return plain(module(), *args, **keywords)
        return made(*args, **keywords) if keywords else made(*args)

    def before(self) -> Any:
        _, plain, _, module = self._usual
        return types.MethodType(plain, module())


class _Around(_Wrapper):
    """The wrapper of a module's own attribute."""

    def __init__(self, plain: Callable[..., Any], make: _Make) -> None:
        self._compiling = sys.modules["torch"].compiler.is_dynamo_compiling
        self._plain, self._made = plain, make(plain, None)

    def call(self, *args: Any, **keywords: Any) -> Any:
        if self._compiling():
            return self._plain(*args, **keywords)
        return self._made(*args, **keywords)

    def before(self) -> Any:
        return self._plain

    def remove(self, held: dict[str, Any], name: str) -> None:
        held[name] = self._plain


class _Copied(_Wrapper):
    """The wrapper of a method that copies a module, because a copied wrapper would call the original module."""

    def __init__(self, module: Any, plain: Callable[..., Any]) -> None:
        self._module, self._plain = weakref.ref(module), plain

    def call(self, *args: Any) -> Any:
        module = self._module()
        held = vars(module)
        removed = {name: held[name] for name, _ in _wrappers(held)}
        _remove(held)
        try:
            made = self._plain(module, *args)
            # Copy the attributes, because the wrappers are put back below.
            if type(made) is tuple:
                return tuple(dict(held) if each is held else each for each in made)
            return dict(held) if made is held else made
        finally:
            held.update(removed)

    def before(self) -> Any:
        return types.MethodType(self._plain, self._module())
