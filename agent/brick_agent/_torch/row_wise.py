"""Parts that compute each row of their output only from the row of their input at the same index.

Such a part is called row-wise: the rest of the batch has no effect on a row. Owns: which parts are row-wise, which of
them take turns, and why a part or a call has no rows. Must not know: which rows are recorded. Invariants: workers with
the same model find the same parts; a part is not row-wise if anything inside it may mix rows; for each part or call
without rows, a reason is given; this module keeps no part alive and never imports torch.
"""

from __future__ import annotations

import re
import sys
import weakref

from brick_agent._torch.module_selection import is_compiled, parts, spread
from brick_agent._torch.module_state import attends, dropouts, drops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from brick_agent._core import Brick
    from brick_agent._torch.backend import Backend
    from brick_agent._torch.module_selection import Part

# Why a part or a call has no rows: its output may depend on more than the row, or the row cannot be read.
# Further reasons are in backend.py and in src/python/rows.c.
TRAINING = "training"
COMPILED = "compiled"
QUANTIZED = "quantized"
STATEFUL = "stateful"
NOT_ROW_WISE = "not_row_wise"
CAPTURE = "capture"
UNREADABLE = "unreadable"

_COMPILED_AS = "_compiled_call_impl"  # an attribute of a compiled module
_IN_TURN_MAX = 1024  # half of the sites of a segment
_NORM = re.compile(r"RMSNorm$")  # names of classes outside of torch
_ROUTER = re.compile(r"Top[kK]Router$")  # also matches a subclass of Linear with its own forward
_EXPERT = re.compile(r"experts?[._]\d")  # a layer may have hundreds of experts; only the block of experts is a part
# Classes whose result for a row may depend on other rows or on the request: they scale the whole batch, choose the
# tokens that an expert gets, read earlier tokens or other places of an image, or have a separate adapter for each row.
_SCALED = re.compile(r"quant|[48]bit|int8|fp8", re.IGNORECASE)
_MIXING = re.compile(r"expert_?choice|shift|spatial|globalresponse|lora|adapter", re.IGNORECASE)
_PACKAGES = re.compile(r"quantized|^bitsandbytes|^peft")
_LIMITED = re.compile(r"capacity", re.IGNORECASE)  # such an attribute means that experts may drop tokens


def _is_usual(part: Part) -> bool:
    """Whether a part is a norm, a projection, a router, an MLP or a mixture of experts: these are usually row-wise."""
    nn, name = sys.modules["torch"].nn, type(part.module).__name__
    if isinstance(part.module, (nn.Linear, nn.LayerNorm, nn.RMSNorm)) or _NORM.search(name) or _ROUTER.search(name):
        return True
    return part.category == "ffn" and next(part.module.parameters(), None) is not None


def why_no_rows(part: Part) -> str | None:
    """Return why a part has no rows; None: it is row-wise."""
    inside = list(part.module.named_modules())
    found = [why for name, each in inside if (why := _why(name, each)) is not None]
    if not all(map(_is_plain, part.module.parameters())):
        found.append(QUANTIZED)
    if not found and not _is_usual(part):
        found.append(NOT_ROW_WISE)
    return min(found, key=_ORDER.index, default=None)


# If several reasons apply, the first one is given.
_ORDER = (COMPILED, QUANTIZED, STATEFUL, NOT_ROW_WISE)


def _why(name: str, module: Any) -> str | None:
    """Return why a module may mix the rows of a batch; None: it does not."""
    nn, kind = sys.modules["torch"].nn, type(module)
    if is_compiled(module):
        return COMPILED
    if _is_scaled(kind):
        return QUANTIZED
    if attends(name.rpartition(".")[2], module) or kind.__module__ == "torch.nn.modules.rnn":
        return STATEFUL
    known = next((each for each in (nn.Linear, nn.LayerNorm, nn.RMSNorm) if isinstance(module, each)), None)
    if known is not None and not _ROUTER.search(kind.__name__):
        mixes = kind.forward is not known.forward or len(getattr(module, "normalized_shape", (1,))) != 1
    else:
        mixes = _is_torchs(kind) and not _is_of_rows(module)
    mixes = mixes or "forward" in vars(module)  # the host has replaced the forward
    return NOT_ROW_WISE if mixes or _MIXING.search(kind.__name__) or any(map(_LIMITED.search, vars(module))) else None


def is_quantized(model: Any) -> bool:
    """Whether a part of a model has a scale or an adapter, or parameters that are no ordinary tensors."""
    return any(_is_scaled(type(each)) for each in model.modules()) or not all(map(_is_plain, model.parameters()))


def _is_scaled(kind: type) -> bool:
    return bool(_SCALED.search(kind.__name__) or _PACKAGES.search(kind.__module__))


# Files of torch whose classes compute each element, or each row, on its own. If such a class works along a dimension,
# this must be the last one.
_ELEMENTWISE = tuple(f"torch.nn.modules.{name}" for name in ("activation", "container", "dropout", "linear", "module"))


def _is_torchs(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.modules.")


def _is_of_rows(module: Any) -> bool:
    kind = type(module)
    return kind.__module__ in _ELEMENTWISE and not kind.__name__.endswith("2d") and getattr(module, "dim", -1) == -1


def is_presumed(part: Part) -> bool:
    """Whether only the name of a part suggests that it is row-wise.

    This is so if the part runs code of the host or of another library.
    """
    forwards = (type(each).forward for each in part.module.modules())
    return any(not getattr(forward, "__module__", "").startswith("torch.nn.modules.") for forward in forwards)


def _is_plain(parameter: Any) -> bool:
    """Whether a parameter is an ordinary tensor. A quantized parameter is not: its class defines its product."""
    torch = sys.modules["torch"]
    return type(parameter) in (torch.nn.Parameter, torch.Tensor)


def is_row_wise(part: Part) -> bool:
    """Whether a part mixes no rows."""
    return why_no_rows(part) is None


def in_turn(model: Any, chosen: Iterable[Part], most: int) -> list[tuple[Part, int, int]]:
    """Return further row-wise parts, each with its turn and the number of turns.

    At most `most` parts have the same turn, and the parts of a turn are spread over the layers. So every layer is
    observed, even in a deep model.
    """
    every = [part for part in _others(model, chosen) if _is_usual(part) and is_row_wise(part)]
    found = spread(every, _IN_TURN_MAX if most > 0 else 0)
    turns = -(-len(found) // max(1, most))
    return [(part, number % turns, turns) for number, part in enumerate(found)]


def refused(model: Any, chosen: Iterable[Part], most: int) -> list[tuple[Part, str]]:
    """Return further parts that would take turns if they were row-wise, each with the reason why it has no rows."""
    found = [
        (part, why)
        for part in _others(model, chosen)
        if (why := why_no_rows(part)) is not None and (_is_usual(part) or (why == QUANTIZED and _is_packed(part)))
    ]
    return found[: _IN_TURN_MAX if most > 0 else 0]


def _is_packed(part: Part) -> bool:
    """Whether a quantized part replaces a usual part; the replacement need not be a subclass or have parameters."""
    return part.category == "ffn" or "Linear" in type(part.module).__name__


def _others(model: Any, chosen: Iterable[Part]) -> list[Part]:
    known = {part.module for part in chosen}
    every = (part for part in parts(model) if not part.closed and part.module not in known)
    return [part for part in every if not _EXPERT.search(part.qualified)]


class RowContext:
    """Decides whether a call may be recorded."""

    def __init__(self, part: Part, backend: Backend) -> None:
        self._module, self._backend = weakref.ref(part.module), backend
        self._dropouts = dropouts(part.module)

    def __call__(self, *unreadable: Any) -> Brick | str:
        """Return the backend, or why the call has no rows; `unreadable`: the arguments that the writer cannot read."""
        module = self._module()
        if module is None or module.training or (self._dropouts and any(map(drops, self._dropouts))):
            return TRAINING
        if unreadable:
            return CAPTURE if _is_captured() else UNREADABLE
        if "torch._dynamo" in sys.modules and _is_compiled_now(module):
            return COMPILED
        return self._backend.of_rows()


def _is_compiled_now(module: Any) -> bool:
    """Whether the host has compiled a module or one of its children since the part was selected."""
    if vars(module).get(_COMPILED_AS) is not None:
        return True
    for each in module._modules.values():
        if each is not None and (vars(each).get(_COMPILED_AS) is not None or type(each).__name__ == "OptimizedModule"):
            return True
    return False


def _is_captured() -> bool:
    """Whether the call is recorded into a graph of a device, and not computed now."""
    cuda = sys.modules["torch"].cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def rows_of(part: Part, backend: Backend) -> RowContext | str:
    """Return the object that decides about a part's calls, or the reason why the part has no rows."""
    why = why_no_rows(part)
    return RowContext(part, backend) if why is None else why
