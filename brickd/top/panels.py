"""The panels: what each asks, and how its document becomes rows.

Owns: the table of panels. Must not know: textual, when documents are asked. Invariant: A panel that knows no past time
shows the events until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from brickd.query.queries import EventsQuery
from brickd.query.query import Query
from brickd.screens.screen import Screen
from brickd.top import panel_drawing as drawing
from brickd.top import panel_queries as queries
from brickd.top.panel_rows import Content
from brickd.top.source import Request
from brickd.top.state import PANEL_KEYS, State

Document = dict[str, Any]


class Panel(NamedTuple):
    """A panel.

    Attributes:
        key: the key that opens it.
        name: its name, which is also its title.
        view: the view that answers `ask`; None if the status document has all that the panel shows.
        ask: makes the query from the state and the status document.
        draw: makes the rows from the document.
        timed: whether the query can be about a past time of this machine.
        sorts: the orders that it offers; the first one is the default.
        by_service: whether it is always about whole services, because the view compares their workers.
    """

    key: str
    name: str
    view: str | None
    ask: Callable[[State, Document], Query]
    draw: Callable[[Document, Screen, State], Content]
    timed: bool = False
    sorts: Sequence[str] = ()
    by_service: bool = False


def request(state: State, status: Document, *, recorded: bool) -> Request | None:
    """Return what the open panel asks; None if the status document is enough.

    Raises:
        WrongQuestion: the choices exclude each other.
    """
    panel = PANELS[state.panel]
    if panel.view is None:
        return None
    if recorded:
        return Request(panel.view, panel.ask(state._replace(cursor=None), status), state.cursor)
    if state.cursor is not None and not panel.timed:
        return Request("events", EventsQuery())
    return Request(panel.view, panel.ask(state, status))


def shown(state: State, *, recorded: bool) -> Panel:
    """Return the panel whose rows are shown. If the open panel knows no past time, these are the events."""
    panel = PANELS[state.panel]
    past = state.cursor is not None and not recorded and panel.view is not None
    return PANELS["events"] if past and not panel.timed else panel


PANELS = {
    panel.name: panel
    for panel in (
        Panel(
            PANEL_KEYS["bricks"],
            "bricks",
            "bricks",
            queries.bricks,
            drawing.bricks,
            timed=True,
            sorts=queries.BRICK_SORTS,
        ),
        Panel(PANEL_KEYS["tree"], "tree", "tree", queries.tree, drawing.tree, timed=True),
        Panel(
            PANEL_KEYS["stragglers"],
            "stragglers",
            "stragglers",
            queries.stragglers,
            drawing.stragglers,
            by_service=True,
        ),
        Panel(
            PANEL_KEYS["numerics"],
            "numerics",
            "coverage",
            queries.coverage,
            drawing.coverage,
            by_service=True,
        ),
        Panel(PANEL_KEYS["problems"], "problems", None, queries.workers, drawing.problems),
        Panel(PANEL_KEYS["hang"], "hang", "hang", queries.hang, drawing.hang),
        Panel(PANEL_KEYS["ledger"], "ledger", None, queries.workers, drawing.ledger),
        Panel(PANEL_KEYS["history"], "history", "history", queries.history, drawing.history, timed=True),
        Panel(PANEL_KEYS["events"], "events", "events", queries.events, drawing.events),
        Panel(PANEL_KEYS["workers"], "workers", "workers", queries.workers, drawing.workers),
        Panel("d", "diff", "diff", queries.diff, drawing.diff),
    )
}
