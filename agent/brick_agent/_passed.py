"""Which tensors pass into a call and out of it.

Owns: where they are looked for, and how far. Must not know: what is done with them. Invariants: nothing is changed, and
nothing that a tensor computes is asked for; a cache of what was computed before is left alone, and that there is one is
told.
"""

from __future__ import annotations

import dataclasses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

TENSORS_MAX = 16
_DEPTH_MAX = 4
_ITEMS_MAX = 64
_CACHES = ("past_key_value", "kv_cache", "layer_past", "cache_params")


class Passed:
    """What was found.

    Attributes:
        tensors: in their order, at most so many.
        plain: numbers, words and what is left out, by their names or places.
        cache: whether there is a cache of what was computed before; None: nothing is said of one.
        more: whether there were more than are looked at.
    """

    __slots__ = ("_kind", "cache", "more", "plain", "tensors")

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.tensors: list[Any] = []
        self.plain: dict[str, Any] = {}
        self.cache: bool | None = None
        self.more = False

    def take(self, what: Any, name: str = "", depth: int = 0) -> None:
        """Look for tensors in an argument or a result; `name`: what it is called there."""
        if _is_cache(name, what):
            self.cache = self.cache or what is not None
        elif isinstance(what, self._kind):
            if len(self.tensors) < TENSORS_MAX:
                self.tensors.append(what)
            else:
                self.more = True
        elif what is None or isinstance(what, (str, bytes, int, float, bool, complex)):
            if len(self.plain) < _ITEMS_MAX:
                self.plain[name] = repr(what)
        elif depth == _DEPTH_MAX:
            self.more = True
        elif isinstance(what, dict):
            self.take_named(what, name, depth + 1)
        elif isinstance(what, (tuple, list)):
            self.take_named(dict(enumerate(what)), name, depth + 1)
        elif dataclasses.is_dataclass(what):
            self.take_named(getattr(what, "__dict__", {}), name, depth + 1)

    def take_named(self, what: Mapping[Any, Any], of: str = "", depth: int = 0) -> None:
        """The same of several."""
        for name, each in list(what.items())[:_ITEMS_MAX]:
            self.take(each, f"{of}.{name}" if of else str(name), depth)
        self.more |= len(what) > _ITEMS_MAX


def given(kind: type, args: Sequence[Any], keywords: Mapping[str, Any]) -> Passed:
    """What a call is given; `kind`: the class of tensors."""
    passed = Passed(kind)
    passed.take_named(dict(enumerate(args)))
    passed.take_named(keywords)
    return passed


def _is_cache(name: str, what: Any) -> bool:
    """Whether it is one, or would be if there were one."""
    return name.rpartition(".")[2].startswith(_CACHES) or "Cache" in type(what).__name__
