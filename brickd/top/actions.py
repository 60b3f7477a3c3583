"""What keys do outside the screen.

Owns: the orders to the daemon. Must not know: textual, the layout. Invariant: every action returns a sentence that says
what happened, also if it failed.
"""

from __future__ import annotations

import re
from typing import Any

from brickd.base import units
from brickd.client import client
from brickd.errors import BrickdError
from brickd.query.orders import Silencing
from brickd.query.query import to_query
from brickd.top import lines
from brickd.top.draw import draw
from brickd.top.frame import Frame
from brickd.top.header import Cells
from brickd.top.panel_rows import Look
from brickd.top.places import OnScreen, ShownList
from brickd.top.state import State

NO_PROBLEM = "no problem is selected: Tab goes to the problems, 5 lists them"

NOT_NOW = "only present problems of this machine can be silenced: n returns to now"


NO_ROW = "nothing to copy: this list is empty"

_UNCUT = Cells(2000, None)  # wider than any row, except for one with a very long name


def whole_row(state: State, frame: Frame | None, shown: OnScreen, look: Look) -> str:
    """Return the text of the selected row, without what the width of the screen cuts; "" if there is no row."""
    of = shown.lists.get(state.focus)
    if of is None or not of.texts:
        return ""
    whole = draw(state, frame, _UNCUT, look).shown.lists.get(state.focus, ShownList())
    row, keys = of.place.row, list(of.keys)
    key = keys[row]
    texts = [text for each, text in zip(whole.keys, whole.texts, strict=True) if each == key]
    if len(texts) == keys.count(key):
        at = keys[:row].count(key)
        texts = texts[at : at + 1]
    elif key is None:  # a text that has fewer lines on a wide screen
        texts = [of.texts[row]]
    return "  ".join(_GAPS.sub("  ", lines.text(lines.painted(each)).strip()) for each in texts)


_GAPS = re.compile(" {3,}")  # between the columns of a wide screen


def is_now(state: State, frame: Frame | None) -> bool:
    """Whether the screen shows this machine now, so that an order to its daemon is about what the operator sees."""
    return state.cursor is None and not (frame is not None and frame.recorded)


def selected_problem(status: dict[str, Any] | None, selected: str | None) -> str | None:
    """Return the id of the selected problem; None if the selected row is not a problem."""
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
