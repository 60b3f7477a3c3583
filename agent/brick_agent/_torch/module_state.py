"""Decides whether the output of a part may depend on more than its arguments.

Owns: the search for state in a part (caches, attributes that a call changes, active dropout), and the rule that decides
for each call whether its output depends on state. Must not know: checksums, which parts are selected. Invariants:
nothing is computed with tensors; only attention modules and modules with buffers are inspected, and only in a sampled
call; if it is unknown whether there is state, the answer is yes.
"""

from __future__ import annotations

import enum
import functools
import re
import sys
import types
import weakref

from brick_agent._torch.module_selection import category

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set
    from typing import Any

    from brick_agent._torch.call_tensors import Passed
    from brick_agent._torch.module_selection import Part

_CACHE = re.compile(r"(?<![a-z])kv(?![a-z])|(?<![a-z])(kv)?caches?(?![a-z])", re.IGNORECASE)
_PLAIN = (bool, int, float, str, bytes, complex, type(None))
_FIXED = (*_PLAIN, enum.Enum, type, types.FunctionType, types.MethodType)
_ORDINARY = (dict, list, tuple, set, frozenset)  # containers whose contents are only what they show
_ITEMS_MAX = 64
_KINDS_MAX = 1024  # the largest number of cached classes of attribute values


class _Handling(enum.Enum):
    """How a change of an attribute's value is detected."""

    CONSTANT = enum.auto()  # changes by identity
    TENSOR = enum.auto()  # changes by version
    CONTAINER = enum.auto()  # changes by content, if the content is constant
    CACHE = enum.auto()


_CONSTANT = _Handling.CONSTANT


class UnknownStateError(Exception):
    """Raised if a module no longer exists, or if it has a value whose changes cannot be detected."""


class ModuleState:
    """The state that a part may keep between calls."""

    def __init__(self, part: Part) -> None:
        self._usual = vars(sys.modules["torch"].nn.Module()).keys()
        inside = [(name.rpartition(".")[2], each) for name, each in part.module.named_modules()]
        attentions = [each for name, each in inside if attends(name, each)]
        if part.category == "attention":
            attentions.append(part.module)
        self._attends = bool(attentions)
        self._plain = part.category in ("ffn", "norm")
        self._caches = any(_CACHE.search(name) for name, _ in part.module.named_buffers())
        watched = [*attentions, *(each for _, each in inside if vars(each).get("_buffers"))] if attentions else []
        # Only one module of each class is watched, because `look` must be fast, and modules of one class keep the same
        # kind of state.
        self._watched = [weakref.ref(each) for each in {type(each): each for each in reversed(watched)}.values()]
        self._dropouts = dropouts(part.module)

    def look(self, passed: Passed) -> list[Any] | None:
        """Return the state to compare after the call; None if it is unknown, or if a cache decides."""
        if not self._attends or passed.has_place:
            return None
        try:
            return self._kept()
        except Exception:
            return None

    def decides(self, before: list[Any] | None, passed: Passed, returned: Passed) -> bool | None:
        """Return whether state affected the output of a call. None: unknown, so the module's name decides this."""
        cache = passed.cached()
        if cache or passed.more or self._caches or any(map(drops, self._dropouts)):
            return True
        if cache is False:  # the part got no cache, or filled an empty cache
            return False
        if not self._attends:
            return False if self._plain else None
        if before is None or returned.caches or not _several_tokens(passed.tensors):
            return True
        now = self.look(passed)
        return now is None or not is_same(before, now)

    def _kept(self) -> list[Any]:
        """Return the attributes of the watched modules; for tensors, also their versions."""
        kept: list[Any] = []
        for this in self._watched:
            module = this()
            if module is None:
                raise UnknownStateError
            kept += kept_in(vars(module), self._usual)
        return kept


def kept_in(held: Mapping[str, Any], usual: Set[str]) -> list[Any]:
    """Return the buffers of a module, and its attributes without the `usual` ones; for tensors, also their versions."""
    kept: list[Any] = []
    for name in held.keys() - usual:
        value = held[name]
        kept.append(value)
        if (handling := _handling(type(value))) is not _CONSTANT:  # type: ignore[arg-type]
            kept += _further(name, value, handling)
    for value in held["_buffers"].values():
        if value is not None:
            kept += value, value._version
    return kept


def _further(name: str, value: Any, handling: _Handling) -> Sequence[Any]:
    """Return data about a value.

    A call has changed the value if this data or the identity of the value is different afterwards.
    """
    if handling is _Handling.CACHE or _is_cache(name):
        raise UnknownStateError
    if handling is _Handling.TENSOR:
        return (value._version,)
    return _contents(value, _ITEMS_MAX)


def _contents(value: Any, most: int) -> list[Any]:
    """Return the values in a container, and those in ordinary containers among them."""
    found = list(_inside(value))
    for each in found:  # the list grows meanwhile
        if _handling(type(each)) is not _CONSTANT:  # type: ignore[arg-type]
            if type(each) not in _ORDINARY:
                raise UnknownStateError
            found += _inside(each)
        if len(found) > most:
            raise UnknownStateError
    return found


@functools.lru_cache(maxsize=_KINDS_MAX)
def _handling(kind: type) -> _Handling:
    torch, name = sys.modules["torch"], kind.__name__.lower()
    if issubclass(kind, torch.Tensor):
        return _Handling.TENSOR
    if "cache" in name:
        return _Handling.CACHE
    if issubclass(kind, (*_FIXED, torch.nn.Module)) or kind.__module__ == "torch" or "config" in name:
        return _Handling.CONSTANT
    return _Handling.CONTAINER


@functools.lru_cache(maxsize=_KINDS_MAX)
def _is_cache(name: str) -> bool:
    return _CACHE.search(name) is not None


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    return list(getattr(value, "__dict__", {}).values())


def attends(name: str, module: Any) -> bool:
    """Whether a module with this name is an attention module."""
    kind = type(module).__name__
    return "attention" in kind.lower() or category(name, kind) == "attention"


def dropouts(module: Any) -> list[weakref.ReferenceType[Any]]:
    """Return the dropouts inside a module."""
    return [weakref.ref(each) for each in module.modules() if "dropout" in type(each).__name__.lower()]


def drops(this: weakref.ReferenceType[Any]) -> bool:
    """Whether a dropout is active."""
    module = this()
    return module is None or bool(module.training)


def _several_tokens(tensors: Sequence[Any]) -> bool:
    """Whether a call gets complete sequences.

    If it does not, its tokens also attend to state that earlier calls left.
    """
    if not tensors:
        return False
    first = tensors[0]
    shape = first.shape[:-1] if first.is_floating_point() else first.shape
    return len(shape) >= 2 and shape[-1] > 1


def is_same(before: Sequence[Any], now: Sequence[Any]) -> bool:
    return len(before) == len(now) and all(
        a is b or (isinstance(a, _PLAIN) and type(a) is type(b) and a == b) for a, b in zip(before, now, strict=True)
    )
