"""Instruments a torch model: times its parts, and fingerprints their outputs.

Owns: what is recorded of a part's call. Must not know: which parts are selected, how their calls are wrapped, where the
tensors are in the arguments. Invariants: the model gives the same results and raises the same exceptions as before;
this module computes nothing with tensors, keeps no model alive and never imports torch.
"""

from __future__ import annotations

import os
import sys
import weakref

from brick_agent._core import _note_rows, _presume_rows, _watched, brick, checksum, take, weights
from brick_agent._torch.backend import Backend
from brick_agent._torch.call_tensors import given
from brick_agent._torch.call_wrappers import unwrap, wrap
from brick_agent._torch.canary.gate import close_gates, reopen_gates
from brick_agent._torch.histories import follow
from brick_agent._torch.history_models import digest
from brick_agent._torch.history_site import history_site
from brick_agent._torch.module_selection import around_layers, chosen, closed, how_computed
from brick_agent._torch.module_state import ModuleState
from brick_agent._torch.row_wise import (
    COMPILED,
    RowContext,
    in_turn,
    is_presumed,
    is_row_wise,
    refused,
    rows_of,
)
from brick_agent._torch.steps import stepped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from brick_agent._torch.call_tensors import Passed
    from brick_agent._torch.call_wrappers import This
    from brick_agent._torch.histories import Followed
    from brick_agent._torch.module_selection import Part

    _Taken = tuple[Passed, list[Any], list[Any] | None]

SITES = 64
RATE = 64  # by default, one step in this many is recorded
_CLOSED = "closed"  # the category of parts that cannot be observed, for `coverage`
_OUTPUTS_MAX = 4
_LINES_MAX = 8  # the largest number of lines on stderr per process
_logged: set[str] = set()


def instrument(
    model: Any,
    /,
    *,
    sites: int = SITES,
    only: str | Sequence[str] = (),
    watch_weights: bool = True,
    rescan_s: float | None = None,
    backend: str | None = None,
) -> None:
    """Time the parts of a torch model, and fingerprint samples of their outputs.

    Each call of the model is a step, unless a step is already open. A part is recorded as a brick at its layer; its
    name is its path in the model, such as "layers.*.mlp". One step in 64 records fingerprints, unless
    BRICKD_FINGERPRINTS or `brickd set` changes this rate. A part that torch.compile compiles is timed as one brick.
    Never raises; a second call replaces the first.

    Args:
        model: a torch.nn.Module.
        sites: the largest number of parts, counted layer by layer; the most informative parts are selected.
        only: patterns of names; they select the parts instead of the automatic selection.
        watch_weights: whether to watch parameters and buffers as well (see `weights`).
        rescan_s: as for `weights`.
        backend: a name for the backend, instead of the versions and the kind of attention.

    >>> import torch  # doctest: +SKIP
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())  # doctest: +SKIP
    >>> brick.instrument(model, only="0", rescan_s=3600)  # doctest: +SKIP
    """
    try:
        _restore(model)
        patterns = (only,) if isinstance(only, str) else tuple(only)
        parts = chosen(model, sites, patterns)
        computing = Backend(model, backend)
        beginning = [model, *(each for each in around_layers(model) if each is not model)]
        followed = follow(model, beginning)
        config = digest(next(iter(followed))) if followed else None
        made = {part.module: _Site(part, computing, config).watched for part in parts}
        turns = [] if patterns else in_turn(model, parts, sites)
        made.update((part.module, _RowSite(part, computing, turn, of).watched) for part, turn, of in turns)
        for part in [*filter(is_row_wise, parts), *(part for part, _, _ in turns)]:
            if is_presumed(part):
                _presume_rows(brick(part.name, part.category), part.layer)
        for part, why in [] if patterns else refused(model, parts, sites):
            _note_rows(brick(part.name, part.category), part.layer, why)
        for module in (*made, *(each for each in beginning if each not in made)):
            wrap(module, _first(module, followed) if module in beginning else None, made.get(module))
        for part in closed(model, sites, patterns):
            take(brick(part.name, _CLOSED), b"", layer=part.layer)  # a known site without fingerprints
            _note_rows(brick(part.name, _CLOSED), part.layer, COMPILED)
        if watch_weights:
            weights(model, rescan_s=rescan_s)
    except Exception as error:
        _restore(model)
        _complain(f"a model of the class {type(model).__name__} is not instrumented: {error}")


def uninstrument(model: Any, /) -> None:
    """Undo `instrument` and `canaries`, but continue to watch the weights. Never raises.

    >>> brick.uninstrument(object())  # has no effect: the object was not instrumented
    """
    close_gates(model)


def _restore(model: Any) -> None:
    for module in list(model.modules()) if hasattr(model, "modules") else ():
        unwrap(module)
    reopen_gates(model)


def _complain(what: str) -> None:
    if os.environ.get("BRICKD_STRICT") == "1":
        raise RuntimeError(f"brick_agent: {what} (BRICKD_STRICT=1)")
    if what not in _logged and len(_logged) < _LINES_MAX:
        _logged.add(what)
        sys.stderr.write(f"brickd: {what}\n")


def _first(module: Any, followed: Mapping[Any, Followed]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the wrapper of a module that is called by the host."""
    following = followed.get(module)
    return stepped if following is None else lambda plain: stepped(following.around(plain))


class _Site:
    """The observation of a part."""

    def __init__(self, part: Part, backend: Backend, config: str | None) -> None:
        self._torch = sys.modules["torch"]
        self._rows = rows_of(part, backend)
        self._brick = brick(part.name, part.category)
        self._name, self._layer, self._backend = part.name, part.layer, backend
        self._module = weakref.ref(part.module)
        self._state = ModuleState(part)
        self._how = how_computed(part.module)
        self._history = history_site(part, backend, self._brick, self._rows, config)

    def watched(self, plain: Callable[..., Any], of: This) -> Callable[..., Any]:
        """Make each call a span; in a sampled step, also record fingerprints."""
        history, own = self._history, 0 if of is None else 1

        def followed(*args: Any, **keywords: Any) -> Any:
            if history is None:
                return plain(*args, **keywords)
            return history.call(plain, own, args, keywords)

        def checked(*args: Any, **keywords: Any) -> Any:
            taken = self._take(args, keywords)
            result = followed(*args, **keywords)
            if taken is not None:
                self._record(*taken, result)
            return result

        following = followed if history is not None else None
        return _watched(plain, self._brick, self._layer, checked, (1 << 32) // RATE, of, self._rows, 0, 0, following)

    def _take(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> _Taken | None:
        """Return the arguments, their fingerprints, and the part's state; None: the call is not recorded."""
        try:
            if _transformed(self._torch):
                return None
            own = bool(args) and args[0] is self._module()  # the first argument of a method
            passed = given(self._torch.Tensor, args[own:], keywords, self._layer)
            before = [take(self._brick, each, layer=self._layer) for each in passed.tensors]
            return passed, before, self._state.look(passed)
        except Exception as error:
            _complain(f"the inputs of {self._name} are not recorded: {error}")
            return None

    def _record(self, passed: Passed, before: list[Any], kept: list[Any] | None, result: Any) -> None:
        try:
            module = self._module()
            training = module is None or module.training
            returned = given(self._torch.Tensor, (result,), {})
            stateful = training or self._state.decides(kept, passed, returned)
            for number, output in enumerate(returned.tensors[:_OUTPUTS_MAX]):
                checksum(
                    self._brick if number == 0 else f"{self._name}[{number}]",
                    output,
                    input=before,
                    layer=self._layer,
                    backend=self._backend.describe(self._how),
                    params={"training": training, "more": passed.more, "given": passed.plain},
                    stateful=stateful,
                )
        except Exception as error:
            _complain(f"the output of {self._name} is not recorded: {error}")


def _transformed(torch: Any) -> bool:
    """Whether torch.func is at work.

    Its arguments stand for many tensors or for derivatives, and have no values to read.
    """
    inside = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    return inside is not None and inside() is not None


class _RowSite:
    """A part of which only rows are recorded, when it has its turn: no spans and no checksums."""

    def __init__(self, part: Part, backend: Backend, turn: int, turns: int) -> None:
        self._brick, self._layer = brick(part.name, part.category), part.layer
        self._rows = RowContext(part, backend), turn, turns

    def watched(self, plain: Callable[..., Any], of: This) -> Callable[..., Any]:
        """Record rows of sampled calls."""
        return _watched(plain, self._brick, self._layer, None, (1 << 32) // RATE, of, *self._rows)
