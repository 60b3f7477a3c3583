"""Makes each call of a torch model a step, which has the same number in all workers.

Owns: the number, and the step that filled each cache. Must not know: parts, the record of a step. Invariants: two calls
have the same number only if they got the same tensors and their caches were filled by the same calls; a cache of
unknown content gives a unique number; nothing is computed with tensors; no cache is changed or kept alive.
"""

from __future__ import annotations

import sys
import time
import weakref

from brick_agent._core import _step_of, step
from brick_agent._torch.call_tensors import given, is_fresh

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

_ALL = 2**64 - 1
_filled: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # the last step that filled each cache


def stepped(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Make each call a step, unless a step is open."""
    torch = sys.modules["torch"]

    def called(*args: Any, **keywords: Any) -> Any:
        begun = _begin(torch.Tensor, args, keywords)
        if begun is None:
            return plain(*args, **keywords)
        of, number, caches = begun
        with of:
            result = plain(*args, **keywords)
        if not caches:  # the model may have created a cache
            _note_returned(torch.Tensor, result, number)
        return result

    return called


def _begin(kind: type, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, int, list[Any]] | None:
    """Return a new step, its number, and its caches; None: a step is already open, or recording is off."""
    try:
        passed = given(kind, args, keywords)
        number = _step_of(passed.tensors, sum(map(_filled_by, passed.caches)) & _ALL)
        if number is None:
            return None
        _note(passed.caches, number)
        first = passed.tensors[0] if passed.tensors else None
        rows = first.shape[0] if first is not None and first.dim() > 0 else 0
        return step(number, kind="forward", rows=rows), number, passed.caches
    except Exception:
        return None


def _filled_by(cache: Any) -> int:
    """Return the number of the step that filled a cache; 0: it is empty; a unique number: the step is unknown."""
    try:
        known = _filled.get(cache)
    except TypeError:  # the cache is a list or a tuple
        return time.monotonic_ns()
    return known if known is not None else 0 if is_fresh(cache) else time.monotonic_ns()


def _note(caches: Iterable[Any], number: int) -> None:
    for each in caches:
        try:
            _filled[each] = number
        except TypeError:
            continue


def _note_returned(kind: type, result: Any, number: int) -> None:
    try:
        _note(given(kind, (result,), {}).caches, number)
    except Exception:
        return
