"""Parts that compute each row of their output from the same row of their input, whatever the rest of the batch is.

Owns: which parts are row-wise, which of them take turns, and whether a call may be recorded. Must not know: which rows
are recorded. Invariants: workers with the same model find the same parts; a part is not row-wise if anything inside it
may mix rows; this module keeps no part alive and never imports torch.
"""

from __future__ import annotations

import re
import sys
import weakref

from brick_agent._torch.module_selection import how_computed, parts, spread
from brick_agent._torch.module_state import attends, dropouts, drops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from brick_agent._core import Brick
    from brick_agent._torch.backend import Backend
    from brick_agent._torch.module_selection import Part

_IN_TURN_MAX = 1024  # half of the sites of a segment
_NORM = re.compile(r"RMSNorm$")  # names of classes outside of torch
_ROUTER = re.compile(r"Top[kK]Router$")  # also matches a subclass of Linear with its own forward
_EXPERT = re.compile(r"experts?[._]\d")  # a layer may have hundreds of experts; only their block is a part
# Classes whose result for a row may depend on other rows or on the request: they scale the whole batch, choose the
# tokens of an expert, read earlier tokens or the places of an image, or have an adapter for each row.
_MIXING = re.compile(r"quant|[48]bit|int8|fp8|expert_?choice|shift|spatial|globalresponse|lora|adapter", re.IGNORECASE)
_PACKAGES = re.compile(r"quantized|^bitsandbytes|^peft")
_LIMITED = re.compile(r"capacity", re.IGNORECASE)  # such an attribute means that experts may drop tokens


def is_row_wise(part: Part) -> bool:
    """Whether a part mixes no rows, like a norm of the last dimension, a projection, a router or an MLP."""
    nn, module = sys.modules["torch"].nn, part.module
    if any(_mixes(name, each) for name, each in module.named_modules()) or not all(map(_is_plain, module.parameters())):
        return False
    name = type(module).__name__
    if isinstance(module, (nn.Linear, nn.LayerNorm, nn.RMSNorm)) or _NORM.search(name) or _ROUTER.search(name):
        return True
    return part.category == "ffn" and next(module.parameters(), None) is not None


def _mixes(name: str, module: Any) -> bool:
    """Whether a module may mix the rows of a batch."""
    nn, kind = sys.modules["torch"].nn, type(module)
    known = next((each for each in (nn.Linear, nn.LayerNorm, nn.RMSNorm) if isinstance(module, each)), None)
    if known is not None and not _ROUTER.search(kind.__name__):
        mixes = kind.forward is not known.forward or len(getattr(module, "normalized_shape", (1,))) != 1
    else:
        mixes = kind.__module__.startswith("torch.nn.modules.") and kind.__module__.rpartition(".")[2] in _TORCHS
    return (
        mixes
        or "forward" in vars(module)  # the host has replaced the forward
        or attends(name.rpartition(".")[2], module)
        or _MIXING.search(kind.__name__) is not None
        or _PACKAGES.search(kind.__module__) is not None
        or any(map(_LIMITED.search, vars(module)))
    )


# Files of torch.nn.modules whose classes mix rows or are not made for rows.
_TORCHS = ("adaptive", "batchnorm", "conv", "instancenorm", "normalization", "padding", "pooling", "rnn", "transformer")


def _is_plain(parameter: Any) -> bool:
    """Whether a parameter is an ordinary tensor. A quantized one, for example, decides itself how it is multiplied."""
    torch = sys.modules["torch"]
    return type(parameter) in (torch.nn.Parameter, torch.Tensor)


def in_turn(model: Any, chosen: Iterable[Part], most: int) -> list[tuple[Part, int, int]]:
    """Return further row-wise parts; each has a turn and the number of turns.

    At most `most` parts have the same turn, and they are spread over the layers. So every layer is observed, even in a
    deep model.
    """
    known = {part.module for part in chosen}
    every = [
        part
        for part in parts(model)
        if not part.closed and part.module not in known and not _EXPERT.search(part.qualified) and is_row_wise(part)
    ]
    found = spread(every, _IN_TURN_MAX if most > 0 else 0)
    turns = -(-len(found) // max(1, most))
    return [(part, number % turns, turns) for number, part in enumerate(found)]


class RowContext:
    """Decides whether a call may be recorded."""

    def __init__(self, part: Part, backend: Backend) -> None:
        self._module, self._backend = weakref.ref(part.module), backend
        self._dropouts = dropouts(part.module)
        self._how = how_computed(part.module)

    def __call__(self) -> Brick | None:
        """Return the backend; None: the call may not be recorded."""
        module = self._module()
        if module is None or module.training:
            return None
        if self._dropouts and any(map(drops, self._dropouts)):
            return None
        return self._backend.of_rows(self._how)
