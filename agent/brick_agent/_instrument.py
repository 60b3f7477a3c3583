"""The parts of a torch model are timed, and what they compute is compared.

Owns: what stands in the place of a part's forward, and how it is taken away again. Must not know: which parts are
worth it, where the tensors are in what is passed. Invariants: what the model computes, raises and looks like to
`inspect` is what it was; a part that torch compiles is compiled as it was, and nothing is recorded of it; nothing is
computed with tensors; nothing here keeps a model; torch is used where the host has it, and never imported here.
"""

from __future__ import annotations

import copy
import os
import sys
import types
import weakref

from brick_agent._core import _step_of, _watched, brick, checksum, step, take, weights
from brick_agent._parts import around_layers, chosen, is_compiled
from brick_agent._passed import given

# typing takes longer to import than everything else here together: only type checkers see it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from brick_agent._parts import Part
    from brick_agent._passed import Passed

    _Make = Callable[[Callable[..., Any]], Callable[..., Any]]

SITES = 64
RATE = 64  # of so many steps one, while nobody says
_OUTPUTS_MAX = 4
_SAID_MAX = 8  # lines of a process; then silence
_said: set[str] = set()


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
        patterns = (only,) if isinstance(only, str) else tuple(only)
        parts = chosen(model, sites, patterns)
        said = _backend(model) if backend is None else backend
        made = {part.module: _Site(part, said).watched for part in parts}
        beginning = {model, *around_layers(model)}
        for module in (*made, *(beginning - made.keys())):
            _stand(module, _both(_stepped if module in beginning else None, made.get(module)))
        if watch_weights:
            weights(model, rescan_s=rescan_s)
    except Exception as error:
        uninstrument(model)
        _complain(f"a model of the class {type(model).__name__} is not instrumented: {error}")


def uninstrument(model: Any, /) -> None:
    """Have a model as it was before `instrument`, but that its weights are watched still. Never raises.

    >>> brick.uninstrument(object())  # nothing was done to it
    """
    for module in list(model.modules()) if hasattr(model, "modules") else ():
        for name in _NAMES:
            if issubclass(type(vars(module).get(name)), _Standing):
                vars(module)[name].remove(module, name)


def _complain(what: str) -> None:
    if os.environ.get("BRICKD_STRICT") == "1":
        raise RuntimeError(f"brick_agent: {what} (BRICKD_STRICT=1)")
    if what not in _said and len(_said) < _SAID_MAX:
        _said.add(what)
        sys.stderr.write(f"brickd: {what}\n")


def _both(first: _Make | None, then: _Make | None) -> _Make:
    def made(plain: Callable[..., Any]) -> Callable[..., Any]:
        inner = plain if then is None else then(plain)
        return inner if first is None else first(inner)

    return made


_NAMES = ("_compiled_call_impl", "forward")  # what a module is called by, the first that it has


def _stand(module: Any, make: _Make) -> None:
    """Have what `make` makes of what a module is called by stand in its place."""
    name = next((each for each in _NAMES if vars(module).get(each) is not None), None)
    if name is None:
        vars(module)["forward"] = _Bound(module, type(module).forward, make)
    elif not issubclass(type(vars(module)[name]), _Standing):
        vars(module)[name] = _Around(vars(module)[name], make)


class _Standing:
    """What stands in the place of what a module is called by; torch compiles it as that.

    Asked for anything else, it is that; in a copy and a pickle it is what that would be.
    """

    def __init__(self, plain: Callable[..., Any], make: _Make) -> None:
        self._plain, self._make, self._made = plain, make, make(plain)
        self._compiling = sys.modules["torch"].compiler.is_dynamo_compiling
        self.__doc__, self.__module__ = plain.__doc__, getattr(plain, "__module__", "")

    def _method(self) -> Any:
        return self._plain

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # where its text is looked for
            return self._plain
        if name == "__signature__":
            import inspect  # who asks has it

            return inspect.signature(self._method())
        return getattr(self._method(), name)


class _Bound(_Standing):
    """Of a class's forward, bound to a module as a method is; but it does not keep the module."""

    def __init__(self, module: Any, plain: Callable[..., Any], make: _Make) -> None:
        super().__init__(plain, make)
        self._module = weakref.ref(module)
        # In one piece: where __getattr__ is, each attribute costs as much as the span.
        self._usual = self._compiling, self._plain, self._made, self._module

    @property  # type: ignore[misc]  # to `inspect` and torch.jit it is a method
    def __class__(self) -> type:
        return types.MethodType

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        compiling, plain, made, module = self._usual
        if compiling():
            return plain(module(), *args, **keywords)
        return made(module(), *args, **keywords)

    def _method(self) -> Any:
        return types.MethodType(self._plain, self._module())

    def remove(self, module: Any, name: str) -> None:
        del vars(module)[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module(), "forward")

    def __deepcopy__(self, memo: dict[int, Any]) -> _Bound:
        return _Bound(copy.deepcopy(self._module(), memo), self._plain, self._make)


class _Around(_Standing):
    """Of what torch compiled, or somebody else put there."""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self._compiling():
            return self._plain(*args, **keywords)
        return self._made(*args, **keywords)

    def remove(self, module: Any, name: str) -> None:
        vars(module)[name] = self._plain

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._plain,)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Around:
        return _Around(copy.deepcopy(self._plain, memo), self._make)


def _itself(what: Any) -> Any:
    return what


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
                self._record(args, passed, before, result)
            except Exception as error:
                _complain(f"what {self._name} computed is not recorded: {error}")
            return result

        return _watched(plain, self._brick, self._layer, checked, (1 << 32) // RATE)

    def _record(self, args: Sequence[Any], passed: Passed, before: list[Any], result: Any) -> None:
        # What a class's forward is given first is its module, or a copy of that.
        module = args[0] if args and isinstance(args[0], self._torch.nn.Module) else self._module()
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
