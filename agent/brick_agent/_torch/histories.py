"""Follows the sequences of a decoder of transformers: which tokens filled each cache, and in which steps.

Owns: what a call of the whole model tells about its sequences, and the histories of each cache. Must not know: parts,
which models have histories, how a history is computed. Invariants: a cache has a history only if every step that
filled it was seen, and nothing else changed it since, as far as its first and its last layer show; what is not known
to be plain is unknown, and counted under a reason; no cache is changed or kept alive; the host sees no exception of
this module; a call inside another one is not a step; nothing waits for a device. If the tokens are not contiguous,
they are copied; nothing else is computed with tensors.
"""

from __future__ import annotations

import sys
import threading
import weakref
from array import array

from brick_agent._core import History, _choose, _step_parts, rows
from brick_agent._torch.history_caches import CACHES, fits, is_empty, is_same, marks, returned, why_not
from brick_agent._torch.history_models import entries, longest, why_no_histories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

# Why the histories of a call's sequences are unknown.
ATTENTION = "attention"
DEVICE = "device"
EDITED = "edited"
INPUTS = "inputs"
MASK = "mask"
POSITIONS = "positions"
ROTARY = "rotary"
TRAINING = "training"
UNSEEN = "unseen"

# Arguments that change no output of a layer.
_HARMLESS = frozenset(("use_cache", "return_dict", "output_hidden_states", "logits_to_keep", "num_logits_to_keep"))
_ATTENTIONS = "eager", "sdpa"  # others may be compiled, or choose kernels by more than the shape of the batch
_NO_TOKENS = array("i")


class _Filled:
    """What is known about a cache after a step."""

    __slots__ = ("by", "histories", "length", "marks", "parts", "why")

    def __init__(self, by: Followed, why: str | None, histories: list[History], parts: list[tuple[int, int]]) -> None:
        self.by = weakref.ref(by)
        self.why = why  # the reason if the histories of all its sequences are unknown
        self.histories, self.parts = histories, parts  # parts: the column and the position of each first token
        self.length = 0  # with padding
        self.marks: list[tuple[Any, int | None]] = []


class _Step:
    """A step in progress."""

    __slots__ = ("batch", "cache", "filled", "length", "lost")

    def __init__(self, batch: int, length: int, cache: Any, filled: _Filled) -> None:
        self.batch, self.length, self.cache, self.filled = batch, length, cache, filled
        self.lost: list[History] = []  # of sequences whose cache is unknown after this step


class _Here(threading.local):
    inside = False
    shape = (0, 0)


_filled: weakref.WeakKeyDictionary[Any, _Filled] = weakref.WeakKeyDictionary()
_here = _Here()


def shape_here() -> tuple[int, int]:
    """Return the batch size and the number of columns of the call that this thread makes."""
    return _here.shape


class UnknownError(Exception):
    """Raised if the histories of a call are unknown; its argument is the reason."""


class Followed:
    """The calls of a model, of which the outermost ones are steps."""

    def __init__(self, module: Any, names: Sequence[str]) -> None:
        self._module, self._names = weakref.ref(module), tuple(names)
        self._torch = sys.modules["torch"]
        self._why, self._longest = why_no_histories(module), longest(module)

    def around(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Follow each call of a function, unless it is inside of another followed call."""

        def called(*args: Any, **keywords: Any) -> Any:
            if _here.inside:
                return plain(*args, **keywords)
            step, _here.inside = None, True
            try:
                step = self._begin(args, keywords)
                result = plain(*args, **keywords)
            except BaseException:
                self._forget(step)
                raise
            finally:
                _here.inside = False
                _choose(None)
            if step is not None:
                self._end(step, result)
            return result

        return called

    def _begin(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> _Step | None:
        try:
            given = dict(zip(self._names, args, strict=False), **keywords)
            cache = next((given[name] for name in CACHES if given.get(name) is not None), None)
            try:
                if len(args) > len(self._names):
                    raise UnknownError(INPUTS)
                return self._step(given, cache)
            except UnknownError as unknown:
                return self._unknown(given, cache, str(unknown))
        except Exception:
            return None

    def _step(self, given: dict[str, Any], cache: Any) -> _Step:
        """Add the tokens of a step to its histories, and choose rows."""
        tokens, mask, positions, module = (
            *map(given.get, ("input_ids", "attention_mask", "position_ids")),
            self._module(),
        )
        if self._why is not None or module is None:
            raise UnknownError(self._why or UNSEEN)
        if module.training:
            raise UnknownError(TRAINING)
        if getattr(module.config, "_attn_implementation", None) not in _ATTENTIONS:
            raise UnknownError(ATTENTION)
        if tokens is None or tokens.dim() != 2 or not all(map(_is_usual, given.items())):
            raise UnknownError(INPUTS)
        if not all(each is None or each.is_cpu for each in (tokens, mask, positions)):
            raise UnknownError(DEVICE)
        batch, length = tokens.shape
        filled = self._filled(cache)
        if filled.why is not None:
            raise UnknownError(filled.why)
        cached = filled.length
        if cached + length >= self._longest:
            raise UnknownError(ROTARY)
        parts: Any = None
        if mask is not None or positions is not None:
            parts = _step_parts(mask, positions, batch, cached, length)
        steps = given.get("cache_position")
        if steps is not None and _step_parts(None, steps.unsqueeze(0), 1, cached, length) != [(0, 0, length, 0)]:
            parts = POSITIONS
        if isinstance(parts, str):
            raise UnknownError(parts)
        return self._extend(_Step(batch, cached + length, cache, filled), tokens, mask is not None, parts)

    def _filled(self, cache: Any) -> _Filled:
        """Return what is known about the cache before the step."""
        if cache is None:
            return _Filled(self, None, [], [])
        known = _filled.get(cache)
        if is_empty(cache):
            return _Filled(self, why_not(cache), [], [])
        if known is None:
            return _Filled(self, why_not(cache) or UNSEEN, [], [])
        if known.why is None and (known.by() is not self or not is_same(cache, known.marks)):
            return _Filled(self, EDITED, [], [])
        return known

    def _extend(
        self, step: _Step, tokens: Any, has_mask: bool, parts: list[tuple[int, int, int, int] | None] | None
    ) -> _Step:
        filled, (batch, length) = step.filled, tokens.shape
        if parts is None:
            parts = [(0, 0, length, 0)] * batch
        if not filled.histories:
            filled.parts = [(each[0], each[3]) if each is not None else (0, 0) for each in parts]
            filled.histories = [_new(*place) for place in filled.parts]
        counts, at = [], []
        for n, (part, place, history) in enumerate(zip(parts, filled.parts, filled.histories, strict=True)):
            left, first, count, shift = part or (0, 0, 0, 0)
            if part is None or left != place[0]:
                history.lose(MASK)
            elif shift != place[1] or shift < 0:
                history.lose(POSITIONS)
            elif first + count < length:  # the padding that follows stays in the cache
                step.lost.append(history)
            counts.append(count)
            at.append(n * length + first)
        known = [part for part in parts if part is not None]
        left_side = any(part[0] > 0 for part in known)
        right_side = len(known) < batch or any(part[1] + part[2] < length for part in known)
        shape = [batch, length, filled.length, has_mask, left_side, right_side]
        if not tokens.is_contiguous():
            tokens = tokens.contiguous()
        chosen = rows(filled.histories, tokens, counts, at=at, shape=shape)
        if chosen:
            _here.shape = batch, length
            _choose(chosen)
        return step

    def _unknown(self, given: Mapping[str, Any], cache: Any, why: str) -> _Step:
        """Count the sequences of a step under a reason; from now on, the histories of the cache are unknown."""
        tokens = given.get("input_ids")
        tokens = tokens if tokens is not None else given.get("inputs_embeds")
        batch = tokens.shape[0] if tokens is not None and tokens.dim() > 0 else 1
        lost = [History() for _ in range(batch)]
        for each in lost:
            each.lose(why)
        rows(lost, _NO_TOKENS, [0] * batch)
        return _Step(batch, 0, cache, _Filled(self, why, [], []))

    def _end(self, step: _Step, result: Any) -> None:
        """Note which step filled the cache."""
        try:
            cache, filled = step.cache if step.cache is not None else returned(result), step.filled
            if cache is None:
                return
            for history in step.lost:
                history.lose(MASK)
            filled.length = step.length
            if filled.why is None:
                filled.why = why_not(cache)
            if filled.why is None:
                filled.marks = marks(cache)
                if not fits(cache, step.batch, step.length):
                    filled.why = EDITED
            _filled[cache] = filled
        except Exception:
            self._forget(step)

    def _forget(self, step: _Step | None) -> None:
        try:
            if step is not None and step.cache is not None:
                _filled.pop(step.cache, None)
        except Exception:
            return


def follow(model: Any, outermost: Sequence[Any]) -> dict[Any, Followed]:
    """Return the modules of a model whose calls are followed."""
    return {module: Followed(module, names) for module, names in entries(model, outermost)}


def _new(left: int, shift: int) -> History:
    """Return a new history. Padding before the first token changes how a row is rounded."""
    return History(left << 32 | max(shift, 0)) if left else History()


def _is_usual(argument: tuple[str, Any]) -> bool:
    """Whether an argument is known to change nothing, or is checked elsewhere."""
    name, value = argument
    if name in ("input_ids", "attention_mask", "position_ids", "cache_position", *CACHES):
        return True
    return value is None or (name in _HARMLESS and isinstance(value, (bool, int))) or value is False
