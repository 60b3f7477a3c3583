"""Caches of transformers: which ones hold exactly the results of their tokens, and whether something changed them.

Owns: the kinds of caches, and the marks by which a change is found. Must not know: histories, calls. Invariants: no
cache is changed or kept alive; nothing is computed with tensors; only the first and the last layer are marked, because
a step of decode has little time, and the host's own calls (reorder, crop, select, repeat) change all layers.
"""

from __future__ import annotations

import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CACHE = "cache"  # the reason if a cache does not hold exactly the results of its tokens
CACHES = "past_key_values", "cache"  # the names of a cache in the arguments and the result of a model


def why_not(cache: Any) -> str | None:
    """Return why a cache does not hold exactly the results of its tokens; None: it does."""
    kind, layers = type(cache), getattr(cache, "layers", None)
    if (
        kind.__name__ != "DynamicCache"
        or not kind.__module__.startswith("transformers.")
        or not isinstance(layers, list)
    ):
        return CACHE
    is_plain = not getattr(cache, "offloading", False) and all(type(each).__name__ == "DynamicLayer" for each in layers)
    return None if is_plain else CACHE


def is_empty(cache: Any) -> bool:
    """Whether a cache is known to hold nothing."""
    layers = getattr(cache, "layers", None)
    return isinstance(layers, list) and not any(getattr(each, "is_initialized", True) for each in layers)


def marks(cache: Any) -> list[tuple[Any, int | None]]:
    """Return marks of the tensors of the first and the last layer. Each step replaces them by new tensors."""
    ends = cache.layers[0], cache.layers[-1]
    return [(weakref.ref(each), version(each)) for layer in ends for each in (layer.keys, layer.values)]


def version(tensor: Any) -> int | None:
    """Return how often a tensor was changed in place; None: torch does not count this."""
    return None if tensor.is_inference() else tensor._version


def is_same(cache: Any, marked: list[tuple[Any, int | None]]) -> bool:
    """Whether nothing has replaced or changed the first and the last layer since the step."""
    ends = cache.layers[0], cache.layers[-1]
    now = [each for layer in ends for each in (layer.keys, layer.values)]
    both = zip(now, marked, strict=True)
    return all(this() is each and counted == version(each) for each, (this, counted) in both)


def fits(cache: Any, batch: int, length: int) -> bool:
    """Whether a cache has this many sequences and columns."""
    return all(
        each.keys.shape[0] == batch and each.keys.shape[-2] == length for each in (cache.layers[0], cache.layers[-1])
    )


def returned(result: Any) -> Any:
    """Return the cache that the model has made."""
    if isinstance(result, dict):
        return next((result[name] for name in CACHES if result.get(name) is not None), None)
    every = result if isinstance(result, (tuple, list)) else ()
    return next((each for each in every if "Cache" in type(each).__name__), None)
