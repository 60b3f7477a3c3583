"""The tensors in the arguments and the results of a call.

Owns: the search for tensors, and its limits. Must not know: the use of the tensors. Invariants: no argument is changed,
and nothing is computed with tensors; a cache of earlier results is not searched. Only two facts about a cache are
recorded: that it exists, and whether it is empty, if that is known without a computation.
"""

from __future__ import annotations

import dataclasses
import enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

TENSORS_MAX = 16
_DEPTH_MAX = 4
_ITEMS_MAX = 64
# Torch's dtypes and devices also count as plain values.
_PLAIN = (str, bytes, int, float, bool, complex, slice, range, enum.Enum)
_CACHES = ("past_key_value", "kv_cache", "layer_past", "cache_params")


class Passed:
    """The contents of arguments or results."""

    __slots__ = ("_cache", "_empty", "_kind", "_layer", "caches", "more", "plain", "tensors")

    def __init__(self, kind: type, layer: int | None = None) -> None:
        self._kind, self._layer = kind, layer
        self._cache: bool | None = None
        self._empty: list[Any] = []
        self.caches: list[Any] = []  # caches of earlier results, in order
        self.tensors: list[Any] = []  # in order, at most TENSORS_MAX
        self.plain: dict[str, Any] = {}  # the texts of plain values (numbers, words), by name or position
        self.more = False  # whether a limit was exceeded or a value could not be searched

    def take(self, what: Any, name: str = "", depth: int = 0) -> None:
        """Search an argument or a result; `name`: the argument's name in the call."""
        if is_cache(name, what):
            empty = what is None or _holds(what, self._layer) is False
            self._cache = self._cache or not empty
            if what is not None:
                self.caches.append(what)
                self._empty += [what] if empty else []
        elif isinstance(what, self._kind):
            if len(self.tensors) < TENSORS_MAX:
                self.tensors.append(what)
            else:
                self.more = True
        elif what is None or isinstance(what, _PLAIN) or type(what).__module__ == "torch":
            if len(self.plain) < _ITEMS_MAX:
                self.plain[name] = repr(what)
        elif depth == _DEPTH_MAX:
            self.more = True
        elif isinstance(what, dict):
            self.take_named(what, name, depth + 1)
        elif isinstance(what, (tuple, list)):
            self.take_named(dict(enumerate(what)), name, depth + 1)
        elif dataclasses.is_dataclass(what) and not isinstance(what, type):
            fields = {each.name: getattr(what, each.name, None) for each in dataclasses.fields(what)}
            self.take_named({**getattr(what, "__dict__", {}), **fields}, name, depth + 1)
        else:
            self.more = True

    def take_named(self, what: Mapping[Any, Any], of: str = "", depth: int = 0) -> None:
        """Search several values by name."""
        for name, each in list(what.items())[:_ITEMS_MAX]:
            self.take(each, f"{of}.{name}" if of else str(name), depth)
        self.more |= len(what) > _ITEMS_MAX

    @property
    def has_place(self) -> bool:
        """Whether there is a cache, or an argument for a cache."""
        return self._cache is not None

    def cached(self) -> bool | None:
        """Return whether the call depends on a cache; None: there is no cache.

        Use this only after the part was called. If a part did not fill its own empty cache, it may have read the cache
        of another part.
        """
        if self._cache is None:
            return None
        return self._cache or any(not _holds(each, self._layer) for each in self._empty)


def given(kind: type, args: Sequence[Any], keywords: Mapping[str, Any], layer: int | None = None) -> Passed:
    """Search the arguments of a call; `kind`: the class of tensors; `layer`: the layer of the cache."""
    passed = Passed(kind, layer)
    passed.take_named(dict(enumerate(args)))
    passed.take_named(keywords)
    return passed


def is_fresh(cache: Any) -> bool:
    """Return whether a cache is known to be empty, without any computation."""
    if _holds(cache, None) is False:
        return True
    both = [getattr(cache, name, None) for name in ("self_attention_cache", "cross_attention_cache")]
    if None not in both:
        return all(map(is_fresh, both))
    layers = getattr(cache, "layers", None)
    return isinstance(layers, list) and not any(getattr(each, "is_initialized", True) for each in layers)


def _holds(cache: Any, layer: int | None) -> bool | None:
    """Return whether a cache (or only its part for a layer) has contents; None: unknown."""
    if type(cache).__name__ != "DynamicCache" or not hasattr(cache, "get_seq_length"):
        return None
    layers = range(len(cache)) if layer is None else (layer,)
    return any(cache.get_seq_length(each) != 0 for each in layers)


def is_cache(name: str, what: Any) -> bool:
    """Whether an argument is a cache, or has the name of one (its value may be None)."""
    own = name.rpartition(".")[2]
    return own == "cache" or own.startswith(_CACHES) or "Cache" in type(what).__name__
