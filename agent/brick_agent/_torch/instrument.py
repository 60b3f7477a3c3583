"""The parts of a torch model are timed, and what they compute is compared.

Owns: what stands in the place of what torch calls of a part, and how it is taken away again. Must not know: which parts
are worth it, where the tensors are in what is passed. Invariants: what the model computes and raises is what it was; a
part's forward is its host's, who may look at it, keep it and put another there; no copy and no pickle has anything of
this; a part that torch compiles is compiled as it was, and nothing is recorded of it; nothing is computed with tensors;
nothing here keeps a model; torch is used where the host has it, and never imported here.
"""

from __future__ import annotations

import os
import sys
import types
import weakref

from brick_agent._core import _watched, brick, checksum, take, weights
from brick_agent._torch.call_tensors import given
from brick_agent._torch.module_selection import around_layers, chosen, closed, is_compiled
from brick_agent._torch.steps import stepped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from brick_agent._torch.call_tensors import Passed
    from brick_agent._torch.module_selection import Part

    _This = weakref.ReferenceType[Any] | None  # to the module that is given first
    _Make = Callable[[Callable[..., Any], _This], Callable[..., Any]]

SITES = 64
RATE = 64  # of so many steps one, while nobody says
_CLOSED = "closed"  # the category by which `coverage` tells what nobody can look at
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
        said = _Backend(model, backend)
        made = {part.module: _Site(part, said).watched for part in parts}
        beginning = {model, *around_layers(model)}
        for module in (*made, *(beginning - made.keys())):
            _stand(module, _both(stepped if module in beginning else None, made.get(module)))
        for part in closed(model, sites, patterns):
            take(brick(part.name, _CLOSED), b"", layer=part.layer)  # it is known as a site, of which nothing comes
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
        for name, each in _standing(vars(module)):
            each.remove(vars(module), name)


def _complain(what: str) -> None:
    if os.environ.get("BRICKD_STRICT") == "1":
        raise RuntimeError(f"brick_agent: {what} (BRICKD_STRICT=1)")
    if what not in _said and len(_said) < _SAID_MAX:
        _said.add(what)
        sys.stderr.write(f"brickd: {what}\n")


def _both(first: Callable[[Callable[..., Any]], Callable[..., Any]] | None, then: _Make | None) -> _Make:
    def made(plain: Callable[..., Any], of: _This) -> Callable[..., Any]:
        inner = _bound(plain, of) if then is None else then(plain, of)
        return inner if first is None else first(inner)

    return made


def _bound(plain: Callable[..., Any], of: _This) -> Callable[..., Any]:
    return plain if of is None else lambda *args, **keywords: plain(of(), *args, **keywords)


def _stand(module: Any, make: _Make) -> None:
    """Have what `make` makes of what torch calls of a module stand in its place."""
    held = vars(module)
    name = "_call_impl" if held.get("_compiled_call_impl") is None else "_compiled_call_impl"
    # What torch compiled, or somebody else put there; else the class's, which is given the module.
    held[name] = (_Around(held[name], make) if name in held else _Called(module, make)).call
    for each in _COPIED_BY:
        of_class: Any = getattr(type(module), each, None)
        if each not in held and of_class is not getattr(object, each, None):
            held[each] = _Copied(module, of_class).call


# What makes a copy of a module, or says what is to be packed of it, and is looked for on the module itself.
_COPIED_BY = ("__getstate__", "__reduce__", "__deepcopy__", "_replicate_for_data_parallel")
_PLACES = ("_compiled_call_impl", "_call_impl", *_COPIED_BY)


def _standing(held: Mapping[str, Any]) -> list[tuple[str, _Stand]]:
    """What stands here in what a module holds."""
    methods = ((name, held.get(name)) for name in _PLACES)
    found = ((name, each.__self__) for name, each in methods if type(each) is types.MethodType)
    return [(name, each) for name, each in found if isinstance(each, _Stand)]


class _Stand:
    """What stands in a module: a method of it, for that is called sooner than an object is.

    Who copies or packs by himself what a module holds has of it what stood there before.
    """

    def before(self) -> Any:
        raise NotImplementedError

    def remove(self, held: dict[str, Any], name: str) -> None:
        del held[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return types.SimpleNamespace, (), {"call": self.before()}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Stand:
        return self


class _Called(_Stand):
    """In the place of what torch calls of a module, which calls its forward, whatever that is by then."""

    def __init__(self, module: Any, make: _Make) -> None:
        plain, this = type(module)._call_impl, weakref.ref(module)
        self._usual = sys.modules["torch"].compiler.is_dynamo_compiling, plain, make(plain, this), this

    def call(self, *args: Any, **keywords: Any) -> Any:
        compiling, plain, made, module = self._usual
        if compiling():
            return plain(module(), *args, **keywords)
        return made(*args, **keywords) if keywords else made(*args)

    def before(self) -> Any:
        _, plain, _, module = self._usual
        return types.MethodType(plain, module())


class _Around(_Stand):
    """In the place of what a module holds itself."""

    def __init__(self, plain: Callable[..., Any], make: _Make) -> None:
        self._compiling = sys.modules["torch"].compiler.is_dynamo_compiling
        self._plain, self._made = plain, make(plain, None)

    def call(self, *args: Any, **keywords: Any) -> Any:
        if self._compiling():
            return self._plain(*args, **keywords)
        return self._made(*args, **keywords)

    def before(self) -> Any:
        return self._plain

    def remove(self, held: dict[str, Any], name: str) -> None:
        held[name] = self._plain


class _Copied(_Stand):
    """In the place of what makes a copy of a module: one that was called in place of itself would call the module."""

    def __init__(self, module: Any, plain: Callable[..., Any]) -> None:
        self._module, self._plain = weakref.ref(module), plain

    def call(self, *args: Any) -> Any:
        module = self._module()
        held = vars(module)
        away = {name: (each, held[name]) for name, each in _standing(held)}
        for name, (each, _) in away.items():
            each.remove(held, name)
        try:
            made = self._plain(module, *args)
            # What it holds, and not a copy: that has all of it again in a moment.
            if type(made) is tuple:
                return tuple(dict(held) if each is held else each for each in made)
            return dict(held) if made is held else made
        finally:
            held.update((name, stands) for name, (_, stands) in away.items())

    def before(self) -> Any:
        return types.MethodType(self._plain, self._module())


class _Site:
    """Where a part's numbers are compared."""

    def __init__(self, part: Part, backend: _Backend) -> None:
        self._torch = sys.modules["torch"]
        self._brick = brick(part.name, part.category)
        self._name, self._layer, self._backend = part.name, part.layer, backend
        self._module = weakref.ref(part.module)
        self._remembers = _remembers(part)
        self._how = "compiled" if any(map(is_compiled, part.module.modules())) else "eager"

    def watched(self, plain: Callable[..., Any], of: _This) -> Callable[..., Any]:
        """Each call is a span, and in a step that is looked at checked."""

        def checked(*args: Any, **keywords: Any) -> Any:
            taken = self._take(args, keywords)
            result = plain(*args, **keywords)
            if taken is not None:
                self._record(*taken, result)
            return result

        return _watched(plain, self._brick, self._layer, checked, (1 << 32) // RATE, of)

    def _take(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Passed, list[Any]] | None:
        """What it is given, and its fingerprints; None: it has none."""
        try:
            if _transformed(self._torch):
                return None
            own = bool(args) and args[0] is self._module()  # a method is given its module first
            passed = given(self._torch.Tensor, args[own:], keywords, self._layer)
            return passed, [take(self._brick, each, layer=self._layer) for each in passed.tensors]
        except Exception as error:
            _complain(f"what {self._name} was given is not recorded: {error}")
            return None

    def _record(self, passed: Passed, before: list[Any], result: Any) -> None:
        try:
            module = self._module()
            training = module is None or module.training
            outputs = given(self._torch.Tensor, (result,), {}).tensors[:_OUTPUTS_MAX]
            # What is drawn by chance in training, what a cache holds, and what is not looked into, no input shows.
            cache = passed.cached()
            stateful = True if training or cache or passed.more else False if cache is False else self._remembers
            for number, output in enumerate(outputs):
                checksum(
                    self._brick if number == 0 else f"{self._name}[{number}]",
                    output,
                    input=before,
                    layer=self._layer,
                    backend=self._backend.said(self._how),
                    params={"training": training, "more": passed.more, "given": passed.plain},
                    stateful=stateful,
                )
        except Exception as error:
            _complain(f"what {self._name} computed is not recorded: {error}")


def _transformed(torch: Any) -> bool:
    """Whether what is passed stands for many tensors, or for one and its derivative, and has no numbers of its own."""
    inside = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    return inside is not None and inside() is not None


def _remembers(part: Part) -> bool | None:
    """Whether it may hold what it computed before, where nothing says so; None: its name tells."""
    inside = [type(each).__name__.lower() for each in part.module.modules()]
    caches = any("cache" in name.lower() for name, _ in part.module.named_buffers())
    return True if caches or any("attention" in kind for kind in inside) else None


class _Backend:
    """What else than weights and inputs decides the last bits of what is computed."""

    def __init__(self, model: Any, said: str | None) -> None:
        every = list(model.modules())
        packages = sorted({type(each).__module__.partition(".")[0] for each in every} | {"torch"})
        versions = ((name, getattr(sys.modules.get(name), "__version__", None)) for name in packages)
        self._versions = [f"{name} {version}" for name, version in versions if isinstance(version, str)]
        configs = {id(config): config for each in every if (config := vars(each).get("config")) is not None}
        self._configs = list(configs.values())
        self._said = said

    def said(self, how: str) -> str:
        """Of what runs now, for its host may choose anew."""
        torch = sys.modules["torch"]
        threads = f"{torch.get_num_threads()} threads"
        if self._said is not None:
            return f"{self._said}, {threads}"
        kinds = {getattr(config, "_attn_implementation", None) for config in self._configs}
        attention = sorted(kind for kind in kinds if isinstance(kind, str))
        precision = torch.get_float32_matmul_precision()
        coarse = [] if precision == "highest" else [f"{precision} precision"]
        return ", ".join([how, *attention, *coarse, threads, *self._versions])
