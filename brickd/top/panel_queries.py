"""What each panel asks.

Owns: the queries. Must not know: textual, how an answer is drawn, when it is asked. Invariant: A query depends only on
what the operator chose and on the status document.
"""

from __future__ import annotations

from typing import Any

from brickd.query.queries import (
    BricksQuery,
    CoverageQuery,
    DiffQuery,
    EventsQuery,
    HangQuery,
    HistoryQuery,
    StragglersQuery,
    TreeQuery,
    WorkersQuery,
)
from brickd.query.query import START, Query
from brickd.top.places import Selection
from brickd.top.state import ROWS_STEP, State

Document = dict[str, Any]

_WATCH_SECONDS = 0.2  # `hang` reads open spans twice; a span counts as stuck after a second in any case
BRICK_SORTS = ("self", "total", "count", "mean", "p50", "p99", "bytes", "spread", "name")


def _over(state: State, status: Document) -> float | str:
    """Return the period of totals; everything since the start if there is no window, or if a past slot is shown."""
    if state.cursor is not None or state.period is None or status["over_ns"] is None:
        return START
    return state.period


def bricks(state: State, status: Document) -> Query:
    """Ask for the first bricks, or for all if the rows are chosen."""
    sort = state.sort or BRICK_SORTS[0]
    if state.cursor is not None and sort == "spread":  # the last day has no workers
        sort = BRICK_SORTS[0]
    rows = state.places.get("panel", Selection()).row // ROWS_STEP + 1
    return BricksQuery(
        names=state.about,
        sort=sort,
        over=_over(state, status),
        at=state.cursor,
        top=None if state.needs_all_rows else rows * ROWS_STEP,
    )


def tree(state: State, status: Document) -> Query:
    """Ask for the call tree."""
    return TreeQuery(names=state.about, over=_over(state, status), at=state.cursor)


def history(state: State, status: Document) -> Query:
    """Ask for the history of the chosen names."""
    return HistoryQuery(names=state.about, over=state.rates_over, at=state.cursor)


def services(state: State, status: Document) -> tuple[str, ...]:
    """Return the services of the names that the panel is about."""
    of = {worker["name"]: worker["service"] for worker in status["workers"] or ()}
    return tuple(dict.fromkeys(of.get(name) or name for name in state.about))


def stragglers(state: State, status: Document) -> Query:
    """Ask for the stragglers of whole services."""
    return StragglersQuery(names=services(state, status))


def coverage(state: State, status: Document) -> Query:
    """Ask for the evidence of whole services."""
    return CoverageQuery(names=services(state, status))


def hang(state: State, status: Document) -> Query:
    """Ask for the open spans."""
    return HangQuery(names=state.about, watch=_WATCH_SECONDS)


def workers(state: State, status: Document) -> Query:
    """Ask for the chosen workers."""
    return WorkersQuery(names=state.about)


def events(state: State, status: Document) -> Query:
    """Ask for all events: they are chosen when they are drawn."""
    return EventsQuery()


def diff(state: State, status: Document) -> Query:
    """Ask for the comparison of the picked workers."""
    return DiffQuery(names=state.picked or state.about)
