"""What may be given for a trace, and what is seen of it.

Owns: how much of each there may be, and what is shown of what is refused. Must not know: what a trace is. Invariants:
whatever a host's object does when it is asked, nothing here raises; no text and no number of a tensor is shown.
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
    """What was given, as far as it may be shown: a text may be a customer's, and a host's repr may do anything."""
    is_short = value is None or type(value) is float or (type(value) is int and abs(value) <= NUMBER_MAX)
    return repr(value) if is_short else f"a value of type {type(value).__name__}"


def why(error: Exception) -> str:
    """What a host's object, or the agent, said of it."""
    try:
        return printable(str(error).removeprefix("brick_agent: "))
    except Exception:
        return f"{type(error).__name__} was raised"


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """The sizes of a tensor's dimensions; None: they are not known."""
    try:
        sizes: Any = getattr(tensor, "shape", None)
        if sizes is None:
            sizes = memoryview(tensor).shape
        return tuple(int(each) for each in sizes)
    except Exception:  # whatever it is that a host's object does
        return None


def rows_of(tensor: Any) -> int | None:
    """How many rows a tensor has, if it has any dimension."""
    shape = shape_of(tensor)
    return shape[0] if shape else None
