"""The selection of a model's parts, and their names.

Owns: names, layers, categories, and the selection under a limit. Must not know: torch, the use of the parts.
Invariants: workers with the same model select the same parts; a name contains no layer number.
"""

from __future__ import annotations

import fnmatch
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

# Attributes in which a wrapper keeps the module that it wraps. A part gets the same name with and without such a
# wrapper.
_WRAPPED = frozenset(("module", "_orig_mod", "_fsdp_wrapped_module"))
_AROUND = _WRAPPED | {"model"}  # components of a name that have no meaning
_HEADS = frozenset(("lm_head", "head", "classifier", "score", "embed_out", "output_layer"))
_CATEGORIES = (  # the first matching pattern counts, so a norm after an attention is a norm
    ("norm", re.compile(r"norm|(?<![a-z])ln(?![a-z])")),
    ("attention", re.compile(r"attention|attn")),
    # "MoE" may be the name of a whole family: a Qwen3MoeDecoderLayer is not an expert.
    ("ffn", re.compile(r"mlp|ffn|feed_?forward|moe(?=block|layer|mlp|$)|(?<![a-z])experts?(?![a-z])")),
)


class Part:
    """A part of a model."""

    __slots__ = ("category", "closed", "depth", "layer", "module", "name", "qualified")

    def __init__(self, qualified: str, module: Any, *, closed: bool = False) -> None:
        self.name, self.layer = called(qualified)
        self.closed = closed  # whether the part is inside a module that must not be changed
        self.qualified = qualified  # torch's name of the part
        self.module = module
        self.category = category(qualified.rpartition(".")[2], type(module).__name__)
        self.depth = self.name.count(".") + 1


def called(qualified: str) -> tuple[str, int | None]:
    """The name and the layer of a part: "model.layers.17.mlp" gives "layers.*.mlp" and 17."""
    *above, own = qualified.split(".")
    words = [word for word in above if word not in _AROUND] + [own]
    layer = next((n for n, word in enumerate(words) if word.isdecimal() and word.isascii()), None)
    if layer is None:
        return ".".join(words), None
    return ".".join((*words[:layer], "*", *words[layer + 1 :])), int(words[layer])


def category(name: str, kind: str) -> str | None:
    """The category of a part, by its name, else by its class."""
    for text in (name.lower(), kind.lower()):
        for known, words in _CATEGORIES:
            if words.search(text):
                return known
    return None


def parts(model: Any) -> list[Part]:
    """Return all callable parts once, in the model's order."""
    found: list[Part] = []
    closed = [""] if _is_closed(model) else []
    around: dict[str, str | None] = {}
    for qualified, module in model.named_modules():
        if not qualified or not _has_forward(module):
            continue
        part = Part(qualified, module, closed=any(qualified.startswith(one) for one in closed))
        if _is_closed(module):
            closed.append(f"{qualified}.")
        if qualified.rpartition(".")[2] in _WRAPPED:
            continue
        above = around.get(qualified.rpartition(".")[0])
        if part.category is not None and part.category == above:
            part.category = None  # a part inside an attention is not an attention
        around[qualified] = part.category or above
        found.append(part)
    return found


def around_layers(model: Any) -> list[Any]:
    """Return the modules that contain all layers. Engines that keep the head separate call these modules directly."""
    return [part.module for part in _holders([part for part in parts(model) if not part.closed])]


def _holders(every: Sequence[Part]) -> list[Part]:
    """Return the parts that contain all layers, the outermost first."""
    layers = [f"{part.qualified}." for part in every if part.layer is not None]
    above = [part for part in every if part.layer is None] if layers else []
    return [part for part in above if all(layer.startswith(f"{part.qualified}.") for layer in layers)]


def is_compiled(module: Any) -> bool:
    """Whether torch has compiled a module or will compile it when it is called; compiling hides the module's parts."""
    return type(module).__name__ == "OptimizedModule" or vars(module).get("_compiled_call_impl") is not None


def how_computed(module: Any) -> str:
    """Return "compiled" if torch compiles a part of the module, else "eager"."""
    return "compiled" if any(map(is_compiled, module.modules())) else "eager"


def _is_closed(module: Any) -> bool:
    """Whether parts of a module must not be changed, because torch compiles them or copies them to several devices.

    Such a copy is shallow: a method that was replaced would still call the original part, on the original device.
    """
    copies = type(module).__name__ == "DataParallel" and len(getattr(module, "device_ids", None) or ()) > 1
    return copies or is_compiled(module)


def _has_forward(module: Any) -> bool:
    forward = vars(module).get("forward") or getattr(type(module), "forward", None)
    return forward is not None and getattr(forward, "__name__", "") != "_forward_unimplemented"


def chosen(model: Any, most: int, only: Sequence[str] = ()) -> list[Part]:
    """Select parts, or the whole model if it has no parts.

    Args:
        model: the model.
        most: the limit, counted layer by layer.
        only: patterns of names, such as "layers.*.mlp"; empty: the most informative parts.
    """
    every = [part for part in parts(model) if not part.closed]
    if not every and not only and most > 0:
        return [Part(type(getattr(model, "_orig_mod", model)).__name__, model)]
    return _choice(every, most, only)


def closed(model: Any, most: int, only: Sequence[str] = ()) -> list[Part]:
    """Return the parts that would be selected if they were not closed."""
    return [part for part in _choice(parts(model), most, only) if part.closed]


def _choice(every: Sequence[Part], most: int, only: Sequence[str]) -> list[Part]:
    if only:
        groups = _groups(part for part in every if any(fnmatch.fnmatchcase(part.name, one) for one in only))
    else:
        rank = _Rank(every)
        groups = sorted(_groups(part for part in every if _counts(part)), key=rank)
        ranked = [group for group in groups if rank(group)[0] < _REST]
        groups = ranked if len(ranked) > 1 else groups
    found: list[Part] = []
    for group in groups:
        found += spread(group, most - len(found))
    return found


def _groups(every: Iterable[Part]) -> list[list[Part]]:
    groups: dict[str, list[Part]] = {}
    for part in every:
        groups.setdefault(part.name, []).append(part)
    return list(groups.values())


def _counts(part: Part) -> bool:
    """Whether a part has parameters, or contains parts that do."""
    return next(iter(part.module.parameters()), None) is not None


_REST = 4


class _Rank:
    """The order of selection: head, attentions, MLPs, parents of norms and attentions, closed parts, other parts.

    The other parts are ordered by depth. The part that contains all layers (the model without its head) ranks like a
    parent.
    """

    def __init__(self, every: Sequence[Part]) -> None:
        inside = {part.module for part in every if part.category in ("norm", "attention")}
        self._above = {
            id(part.module)
            for part in every
            if _is_closed(part.module) or any(child in inside for child in part.module.children())
        }
        self._above.update(id(part.module) for part in _holders(every)[:1])

    def __call__(self, group: list[Part]) -> tuple[int, int]:
        part = group[0]
        if part.depth == 1 and part.name in _HEADS:
            return 0, part.depth
        rank = {"attention": 1, "ffn": 2}.get(part.category or "", _REST)
        return (3 if rank == _REST and id(part.module) in self._above else rank), part.depth


def spread(group: list[Part], most: int) -> list[Part]:
    """Return at most `most` parts, spread evenly."""
    if len(group) <= most:
        return group
    if most <= 1:
        return group[: max(0, most)]
    return [group[n * (len(group) - 1) // (most - 1)] for n in range(most)]
