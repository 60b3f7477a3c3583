"""One canary, cut into slices: each slice is one forward of the model.

Owns: what each forward is given, in which modes of torch, and what of it is recorded. Must not know: when a slice runs,
threads. Invariants: never `generate()`; the cache is one that the forward itself makes; the canary computes what a
request alone in its batch would, but through a shadow of the model; nothing is recorded in the segment.
"""

from __future__ import annotations

import contextlib
import inspect
import sys

from brick_agent._torch.backend import Backend
from brick_agent._torch.call_tensors import given, is_cache
from brick_agent._torch.canary.guard import guard_of
from brick_agent._torch.canary.refusal import RefusalError, check
from brick_agent._torch.canary.result import SiteDigests, digest_of_input, digest_of_model
from brick_agent._torch.canary.shadow import ModelValues, shadow_of
from brick_agent._torch.module_selection import chosen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from brick_agent._torch.canary.gate import Settings
    from brick_agent._torch.module_selection import Part

CHUNK_MAX = 64
_OUTPUTS_MAX = 4


class CanarySlices:
    """A canary on its way through a model."""

    def __init__(
        self, model: Any, settings: Settings, tokens: Sequence[int], forced: Sequence[int], chunk: int, sites: int
    ) -> None:
        check(model, tokens, forced)
        self._model, self._settings, self._digests = model, settings, SiteDigests()
        self.input, self.model = digest_of_input(tokens, forced, chunk), digest_of_model(model)
        self.context = _context(model, settings)
        self._shadow, shadows = shadow_of(model)
        self._values = ModelValues(self._shadow)
        self._guard = guard_of(model, self._values.values())
        parameters = inspect.signature(type(model).forward).parameters
        self._named = "input_ids" if "input_ids" in parameters else None
        # The parameter for the cache, if the model keeps one and returns it.
        caches = (each for each in parameters if is_cache(each, None))
        self._cache = next(caches, None) if "use_cache" in parameters else None
        self._extra: dict[str, Any] = {} if self._cache is None else {"use_cache": True}
        self._left = _plan(list(tokens), list(forced), len(tokens) if self._cache is None else chunk)
        self._given: list[int] = []  # the tokens so far, for a model without a cache
        self._is_forced = False
        self.slice_bytes = 0  # what the largest slice so far needed, at most
        for part in chosen(model, sites):
            shadows[part.module].register_forward_hook(self._recorder(part))

    def more(self) -> bool:
        """Return whether slices are left."""
        return bool(self._left)

    def run(self) -> None:
        """Run the next slice. Raise a RefusalError if the canary must not go on."""
        self._is_forced, tokens = self._left.pop(0)
        self._given = [*self._given, *tokens] if self._cache is None else tokens
        self._guard.bytes = 0
        result = self._forward(self._given)
        self.slice_bytes = max(self.slice_bytes, self._guard.bytes)
        if self._guard.refusal is not None:
            raise self._guard.refusal
        if (name := self._values.changed(ModelValues(self._shadow))) is not None:
            raise RefusalError("stateful", f"{name} keeps values that a call changes")
        if self._cache is not None:
            caches = given(sys.modules["torch"].Tensor, (result,), {}).caches
            if len(caches) != 1:
                raise RefusalError("cache", f"the model returned {len(caches)} caches")
            self._extra[self._cache] = caches[0]

    def end(self) -> SiteDigests:
        """Return what was recorded, if the model is still the one that the canary began with."""
        if digest_of_model(self._model) != self.model:
            raise RefusalError("reloaded", "the parameters changed while the canary ran")
        return self._digests

    def _forward(self, tokens: list[int]) -> Any:
        torch, settings = sys.modules["torch"], self._settings
        with contextlib.ExitStack() as modes:
            modes.enter_context(torch.inference_mode(settings.inference))
            modes.enter_context(torch.set_grad_enabled(settings.grad))
            if settings.autocast is not None:
                modes.enter_context(torch.autocast("cpu", settings.autocast, cache_enabled=False))
            ids = torch.tensor([tokens])
            modes.enter_context(self._guard)
            return (
                self._shadow(ids, **self._extra) if self._named is None else self._shadow(input_ids=ids, **self._extra)
            )

    def _recorder(self, part: Part) -> Callable[[Any, Any, Any], None]:
        kind = sys.modules["torch"].Tensor

        def record(_: Any, __: Any, output: Any) -> None:
            found = given(kind, (output,), {}, part.layer).tensors[:_OUTPUTS_MAX]
            self._digests.add(part.name, part.layer, self._is_forced, [each.detach() for each in found])

        return record


def _plan(tokens: list[int], forced: list[int], chunk: int) -> list[tuple[bool, list[int]]]:
    """Return the slices: whether its tokens are forced, and its tokens."""
    prompt = [(False, tokens[n : n + chunk]) for n in range(0, len(tokens), chunk)]
    return [*prompt, *((True, [each]) for each in forced)]


def _context(model: Any, settings: Settings) -> str:
    dtypes = sorted({str(each.dtype).removeprefix("torch.") for each in model.parameters()})
    return ", ".join([Backend(model, None).describe_exactly("eager"), *dtypes, str(settings)])
