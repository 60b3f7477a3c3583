"""The parts of a torch model are timed, and what they compute is compared.

Owns: what stands in the place of a part's forward, and how it is taken away again. Must not know: which parts are
worth it, where the tensors are in what is passed. Invariants: what the model computes, raises and looks like to
`inspect` is what it was; a part that torch compiles is compiled as it was, and nothing is recorded of it; nothing is
computed with tensors; torch is used where the host has imported it, and never imported here.
"""

from __future__ import annotations

import os
import sys
import types
import weakref

from brick_agent._core import _step_of, _watched, brick, checksum, step, take, weights
from brick_agent._parts import chosen, is_compiled
from brick_agent._passed import given

# typing takes longer to import than everything else here together: only type checkers see it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from brick_agent._parts import Part
    from brick_agent._passed import Passed

SITES = 64
RATE = 64  # of so many steps one, while nobody says
_OUTPUTS_MAX = 4
_instrumented: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()


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
    """Time parts of a torch model, and sample what they compute.

    Each call of the model is a step, unless one is open. A part is a brick that is called by its place in the model, as
    "layers.*.mlp", at its layer; its checksums are those of its tensors, one step of 64 unless BRICKD_FINGERPRINTS or
    `brickd set` says otherwise. What torch.compile compiles is timed where it is called, and not looked into. Never
    raises; said twice of a model, the last word counts.

    Args:
        model: a torch.nn.Module.
        sites: at most so many parts are looked at, counted layer by layer: those that tell most.
        only: patterns of names, instead.
        watch_weights: whether its parameters and buffers are watched too (see `weights`).
        rescan_s: as of `weights`.
        backend: what computes, where versions, threads and the kind of attention do not say it.

    >>> import torch  # doctest: +SKIP
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())  # doctest: +SKIP
    >>> brick.instrument(model, only="0", rescan_s=3600)  # doctest: +SKIP
    """
    try:
        uninstrument(model)
        _instrumented[model] = done = []
        patterns = (only,) if isinstance(only, str) else tuple(only)
        parts = chosen(model, sites, patterns)
        said = _backend(model) if backend is None else backend
        for part in parts:
            if part.module is not model:
                done.append(_Standing(part.module, _Site(part, said).watched))
        whole = _Site(parts[0], said).watched if parts and parts[0].module is model else None
        done.append(_Standing(model, lambda plain: _stepped(plain if whole is None else whole(plain))))
        if watch_weights:
            weights(model, rescan_s=rescan_s)
    except Exception as error:
        uninstrument(model)
        _complain(f"a model of the class {type(model).__name__} is not instrumented: {error}")


def uninstrument(model: Any, /) -> None:
    """Have a model as it was before `instrument`, but that its weights are watched still. Never raises.

    >>> brick.uninstrument(object())  # nothing was done to it
    """
    try:
        done = _instrumented.pop(model, ())
    except TypeError:  # nothing to which a reference can be weak
        return
    for standing in reversed(done):
        standing.remove()


def _complain(what: str) -> None:
    if os.environ.get("BRICKD_STRICT") == "1":
        raise RuntimeError(f"brick_agent: {what} (BRICKD_STRICT=1)")
    sys.stderr.write(f"brickd: {what}\n")


class _Standing:
    """What stands in the place of what a module is called by."""

    def __init__(self, module: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Have it there; `make`: of what is called now what is to be, which torch does not look into."""
        self._module = weakref.ref(module)
        self._name = "forward" if vars(module).get("_compiled_call_impl") is None else "_compiled_call_impl"
        self._before = vars(module).get(self._name)
        if self._before is None:
            self._ours: Any = types.MethodType(_guarded(type(module).forward, make), module)
        elif is_compiled(module):  # torch makes it anew in a copy, and where it is read from a file
            self._ours = make(self._before)
        else:
            return  # what another one's does in a copy nobody knows
        vars(module)[self._name] = self._ours

    def remove(self) -> None:
        """Have there what was."""
        module = self._module()
        if module is None or vars(module).get(self._name) is not getattr(self, "_ours", None):
            return
        if self._before is None:
            del vars(module)[self._name]
        else:
            vars(module)[self._name] = self._before


def _guarded(plain: Callable[..., Any], make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
    """Of a class's forward one that torch compiles as that; bound as that was, so that a copy has its own."""
    made, compiling = make(plain), sys.modules["torch"].compiler.is_compiling

    def forward(self: Any, /, *args: Any, **keywords: Any) -> Any:
        if compiling():
            return plain(self, *args, **keywords)
        return made(self, *args, **keywords)

    for name in ("__module__", "__qualname__", "__doc__", "__annotations__"):
        if hasattr(plain, name):
            setattr(forward, name, getattr(plain, name))
    forward.__wrapped__ = plain  # type: ignore[attr-defined]  # what `inspect` shows is its signature
    return forward


class _Site:
    """Where a part's numbers are compared."""

    def __init__(self, part: Part, backend: str) -> None:
        self._torch = sys.modules["torch"]
        self._brick = brick(part.name, part.category)
        self._name, self._layer, self._backend = part.name, part.layer, backend
        self._module = weakref.ref(part.module)
        self._remembers = _remembers(part)

    def watched(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Each call is a span, and in a step that is looked at checked."""

        def checked(*args: Any, **keywords: Any) -> Any:
            try:
                passed = given(self._torch.Tensor, args, keywords, self._layer)
                before = [take(self._brick, each, layer=self._layer) for each in passed.tensors]
            except Exception as error:
                _complain(f"what {self._name} was given is not recorded: {error}")
                return plain(*args, **keywords)
            result = plain(*args, **keywords)
            try:
                self._record(passed, before, result)
            except Exception as error:
                _complain(f"what {self._name} computed is not recorded: {error}")
            return result

        return _watched(plain, self._brick, self._layer, checked, (1 << 32) // RATE)

    def _record(self, passed: Passed, before: list[Any], result: Any) -> None:
        module = self._module()
        training = module is None or module.training
        outputs = given(self._torch.Tensor, (result,), {}).tensors[:_OUTPUTS_MAX]
        # What is drawn by chance in training, and what a cache holds, no input shows.
        cache = passed.cached()
        stateful = True if training or cache else False if cache is False else self._remembers
        for number, output in enumerate(outputs):
            checksum(
                self._brick if number == 0 else f"{self._name}[{number}]",
                output,
                input=before,
                layer=self._layer,
                backend=f"{self._backend}, {self._torch.get_num_threads()} threads",
                params={"training": training, "more": passed.more, "given": passed.plain},
                stateful=stateful,
            )


def _remembers(part: Part) -> bool | None:
    """Whether it may hold what it computed before, where nothing says so; None: its name tells."""
    inside = [type(each).__name__.lower() for each in part.module.modules()]
    caches = any("cache" in name.lower() for name, _ in part.module.named_buffers())
    return True if caches or any("attention" in kind for kind in inside) else None


def _stepped(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Each call is a step, unless one is open: made of what the model is given, the same in each worker."""
    torch = sys.modules["torch"]

    def stepped(*args: Any, **keywords: Any) -> Any:
        with _step(torch.Tensor, args, keywords):
            return plain(*args, **keywords)

    return stepped


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


_NOTHING = _Nothing()


def _step(kind: type, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    try:
        tensors = given(kind, args, keywords).tensors
        key = _step_of(tensors)
        if key is None:
            return _NOTHING
        return step(key, kind="forward", rows=tensors[0].shape[0] if tensors and tensors[0].dim() > 0 else 0)
    except Exception:
        return _NOTHING


def _backend(model: Any) -> str:
    """What else than weights and inputs decides the last bits of what is computed."""
    attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    said = [f"torch {sys.modules['torch'].__version__}", "compiled" if is_compiled(model) else "eager"]
    return ", ".join([*said, attention] if isinstance(attention, str) else said)
