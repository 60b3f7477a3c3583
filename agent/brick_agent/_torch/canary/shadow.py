"""A shadow of a model: the same parameters and buffers in modules of its own, without the agent's wrappers.

A canary runs through the shadow. So an attribute that its forward sets does not change the model that serves, and
nothing of the canary is recorded. Owns: how a shadow is made, what of a model a call may change. Must not know: what
runs through a shadow. Invariants: a shadow copies no tensor; the model is only read; a model whose modules refer to
each other in a hidden way has no shadow, because a call of its shadow could reach the model.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict

from brick_agent._torch.call_wrappers import unwrapped
from brick_agent._torch.canary.refusal import RefusalError
from brick_agent._torch.module_state import is_same, kept_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_COPIED = (dict, list, set, OrderedDict)  # attributes of these classes are copied, so that the shadow's can be changed
_DEPTH_MAX = 3
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def shadow_of(model: Any) -> tuple[Any, dict[Any, Any]]:
    """Return the shadow of a model, and the shadow of each of its modules."""
    made: dict[Any, Any] = {}
    names = {module: name or "the model" for name, module in model.named_modules()}
    return _shadow(model, made, names), made


def _shadow(module: Any, made: dict[Any, Any], names: dict[Any, str]) -> Any:
    if module in made:
        return made[module]
    held, name = unwrapped(module), names[module]
    for own in ("forward", "_call_impl", "_compiled_call_impl"):
        if held.get(own) is not None:
            raise RefusalError("stateful", f"{name} has a {own} of its own")
    if any(held.get(hooks) for hooks in _HOOKS):
        raise RefusalError("hooks", f"{name} has forward hooks")
    shadow = made[module] = object.__new__(type(module))
    usual = _usual()
    for attribute, value in held.items():
        if attribute not in usual and _refers(value):
            raise RefusalError("stateful", f"{name}.{attribute} refers to a module")
        held[attribute] = type(value)(value) if type(value) in _COPIED else value
    children = held["_modules"]
    for child, each in children.items():
        children[child] = None if each is None else _shadow(each, made, names)
    vars(shadow).update(held)
    return shadow


def _refers(value: Any, depth: int = 0) -> bool:
    """Whether a value is or contains a module, or a method of one."""
    kind = sys.modules["torch"].nn.Module
    if isinstance(value, kind) or (isinstance(value, types.MethodType) and isinstance(value.__self__, kind)):
        return True
    if depth == _DEPTH_MAX:
        return False
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = value
    elif isinstance(value, functools.partial):
        inside = (value.func, *value.args, *value.keywords.values())
    return any(_refers(each, depth + 1) for each in inside)


@functools.cache
def _usual() -> frozenset[str]:
    return frozenset(vars(sys.modules["torch"].nn.Module()))


class ModelValues:
    """The buffers and attributes of all modules of a model, as they are now."""

    def __init__(self, model: Any) -> None:
        self._kept = [(name, self._read(name, module)) for name, module in model.named_modules()]

    def _read(self, name: str, module: Any) -> list[Any]:
        try:
            return kept_in(unwrapped(module), _usual())
        except Exception as error:
            where = name or "the model"
            raise RefusalError("stateful", f"{where} keeps a value whose changes cannot be seen") from error

    def values(self) -> Iterator[Any]:
        """Return all values."""
        for _, kept in self._kept:
            yield from kept

    def changed(self, now: ModelValues) -> str | None:
        """Return the name of the first module that has changed."""
        if len(self._kept) != len(now._kept):
            return "the model"
        for (name, before), (_, after) in zip(self._kept, now._kept, strict=True):
            if not is_same(before, after):
                return name or "the model"
        return None
