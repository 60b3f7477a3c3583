"""The arguments of traces: their limits, and how a refused one is shown.

Owns: the limits, and the text for a refused argument. Must not know: what a trace is. Invariants: nothing here raises,
whatever a host's object does; no text and no number of a tensor is shown.
"""

from __future__ import annotations

from brick_agent._compat.profiler.report import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INPUTS_MAX = 64
TEXT_MAX = 4096  # characters, of each
POSITION_MIN, NUMBER_MAX = -(1 << 63), (1 << 64) - 1
TIME_MAX_NS = (1 << 63) - 1


def shown(value: object) -> str:
    """Show a refused number; of the rest only the type, since a text may be a customer's."""
    is_short = value is None or type(value) is float or (type(value) is int and abs(value) <= NUMBER_MAX)
    return repr(value) if is_short else f"a value of type {type(value).__name__}"


def why(error: Exception) -> str:
    """The message of an error that a host's object or the agent raised."""
    try:
        return printable(str(error).removeprefix("brick_agent: "))
    except Exception:
        return f"{type(error).__name__} was raised"


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """The sizes of a tensor's dimensions; None: unknown."""
    try:
        sizes: Any = getattr(tensor, "shape", None)
        if sizes is None:
            sizes = memoryview(tensor).shape
        return tuple(int(each) for each in sizes)
    except Exception:  # a host's object may raise anything
        return None


def rows_of(tensor: Any) -> int | None:
    """The number of rows of a tensor that has a dimension."""
    shape = shape_of(tensor)
    return shape[0] if shape else None
