"""What keys do outside of the screen.

Owns: the orders to the daemon. Must not know: textual, the layout. Invariant: every action returns a sentence that says
what happened, also if it failed.
"""

from __future__ import annotations

from typing import Any

from brickd.base import units
from brickd.client import client
from brickd.errors import BrickdError
from brickd.query.orders import Silencing
from brickd.query.query import to_query
from brickd.top.frame import Frame
from brickd.top.state import State

NO_PROBLEM = "no problem is selected: Tab goes to the problems, 5 lists them"

NOT_NOW = "S silences problems of now: n goes to now (a recording has no now)"


def is_now(state: State, frame: Frame | None) -> bool:
    """Whether the screen shows this machine now, so that an order to its daemon is about what the operator sees."""
    return state.cursor is None and not (frame is not None and frame.recorded)


def selected_problem(status: dict[str, Any] | None, selected: str | None) -> str | None:
    """Return the id of the selected problem; None if the selected row is no problem."""
    known = () if status is None else (*(status["problems"] or ()), *(status["silenced"] or ()))
    return selected if any(each["id"] == selected for each in known) else None


def silence(status: dict[str, Any], problem: str) -> str:
    """Silence a problem, or end its silence if it is silenced.

    Args:
        status: the status document that lists the problem.
        problem: the id of the problem.
    """
    off = any(each["id"] == problem for each in status["silenced"] or ())
    order = Silencing(id=problem, off=off)
    try:
        client.ask("silence", to_query(order), post=True).document()
    except (BrickdError, OSError) as error:
        return f"not silenced: {error}"
    if off:
        return f"problem {problem} is no longer silenced"
    return f"problem {problem} is silenced for {units.write_duration(order.length)} (S ends the silence: panel 5)"
