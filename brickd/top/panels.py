"""The panels: what each asks, and how its document becomes rows.

Owns: the table of panels, their keys on the keyboard, the subject of each row. Must not know: textual, when documents
are asked. Invariants: Every figure is one of the view's document. The text is that of `brickd.screens`, so a row here
reads as it does in the verb of the same name. Rows with a subject come first, notes after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from brickd.base import escape, units
from brickd.base.timestamps import local_clock
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
from brickd.screens.screen import Screen
from brickd.screens.table import WORKER, Column, Figure
from brickd.top import lines as texts
from brickd.top.source import Request
from brickd.top.state import ROWS_STEP, Selection, State

Document = dict[str, Any]

_WATCH_SECONDS = 0.2  # `hang` reads open spans twice; a span counts as stuck after a second in any case
_EVENTS = 200  # the newest events that are listed


class Look(NamedTuple):
    """How the screen looks: with colours or without, with ASCII characters only or not."""

    colour: bool = True
    ascii_only: bool = False


COLOURED = Look()


class PanelRow(NamedTuple):
    """A row of a list.

    Attributes:
        text: the painted text.
        key: the subject; None if the row has none.
        sign: "!" or "~" if brickd began the text with it; a name may begin with the same characters.
    """

    text: str
    key: str | None = None
    sign: str = ""


class Content(NamedTuple):
    """What a panel shows.

    Attributes:
        head: the lines that stay on the screen while the rows scroll.
        rows: the rows.
        omitted: how many more rows there are; if any, the last row counts them.
    """

    head: Sequence[str]
    rows: Sequence[PanelRow]
    omitted: int = 0


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


# ---- what panels ask


def _over(state: State, status: Document) -> float | str:
    """Return the period of totals; everything since the start if there is no window, or if a past slot is shown."""
    if state.cursor is not None or state.period is None or status["over_ns"] is None:
        return START
    return state.period


def _bricks(state: State, status: Document) -> Query:
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


def _tree(state: State, status: Document) -> Query:
    return TreeQuery(names=state.about, over=_over(state, status), at=state.cursor)


def _history(state: State, status: Document) -> Query:
    return HistoryQuery(names=state.about, over=state.rates_over, at=state.cursor)


def services(state: State, status: Document) -> tuple[str, ...]:
    """Return the services of the names that the panel is about."""
    of = {worker["name"]: worker["service"] for worker in status["workers"] or ()}
    return tuple(dict.fromkeys(of.get(name) or name for name in state.about))


def _stragglers(state: State, status: Document) -> Query:
    return StragglersQuery(names=services(state, status))


def _coverage(state: State, status: Document) -> Query:
    return CoverageQuery(names=services(state, status))


def _hang(state: State, status: Document) -> Query:
    return HangQuery(names=state.about, watch=_WATCH_SECONDS)


def _workers(state: State, status: Document) -> Query:
    return WorkersQuery(names=state.about)


def _events(state: State, status: Document) -> Query:
    return EventsQuery()


def _diff(state: State, status: Document) -> Query:
    return DiffQuery(names=state.picked or state.about)


# ---- how panels are drawn


def _table(lines: Sequence[str], before: int, keys: Sequence[str]) -> Content:
    """Split a screen whose table has a row for each key, after `before` lines."""
    rows = [PanelRow(line, key) for line, key in zip(lines[before:], keys, strict=False)]
    notes = [PanelRow(line) for line in lines[before + len(keys) :]]
    return Content(lines[:before], [*rows, *notes])


def _texts(lines: Sequence[str]) -> Content:
    return Content((), [PanelRow(line) for line in lines])


def _draw_bricks(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import bricks

    table = _table(bricks.render(document, screen), 1, [each["name"] for each in document["bricks"]])
    return table._replace(omitted=document["rest"]["bricks"])


def _draw_tree(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import tree

    lines = tree.render(document, screen)
    return Content(lines[:1], [PanelRow(line) for line in lines[1:]])


def _draw_stragglers(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import stragglers

    return _texts(stragglers.render(document, screen))


def _draw_coverage(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import coverage

    return _texts(coverage.render(document, screen))


def _draw_problems(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import status, wording

    if document["problems"] is None:
        return Content((), [PanelRow("the problems of this time are not known")])
    rows = [
        PanelRow(line, each["id"])
        for each in [*document["problems"], *document["silenced"]]
        if _names(state, each["service"], *each["workers"])
        for line in wording.problem(_with_local_time(each), screen)
    ]
    if not rows and state.subject is not None:
        return Content((), [PanelRow(f"no active problem names {escape.text(state.subject)}")])
    return Content((), rows or [PanelRow(status.verdict_line(document, screen))])


def _with_local_time(problem: Document) -> Document:
    until = problem["silenced_until"]
    return problem if until is None else {**problem, "silenced_until": local_clock(until)}


def _names(state: State, *names: str | None) -> bool:
    """Whether the chosen worker or service is one of the names. If none is chosen, all are shown."""
    return state.subject is None or state.subject in names


def _draw_hang(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import hang

    lines = hang.render(document, screen)
    return _table(lines, len(document["services"]) + 1, [each["worker"] for each in document["open"]])


_LEDGER = (
    Figure(WORKER, "name", str),
    Figure(Column("BEGUN", "right"), "begun", units.count),
    Figure(Column("SUMMARIZED", "right"), "summarized", units.count),
    Figure(Column("OPEN", "right", spare=2), "open", units.count),
    Figure(Column("ABANDONED", "right", spare=3), "abandoned", units.count),
    Figure(Column("REJECTED", "right", spare=1), "rejected", units.count),
    Figure(Column("DETAILS", "right", spare=5), "details", units.count),
    Figure(Column("EVENTS", "right", spare=4), "events", units.count),
    Figure(Column("PENDING", "right", spare=6), "pending", units.count),
    Figure(Column("LOST", "right"), "lost", str),
)


def _draw_ledger(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import table, wording

    if document["ledger"] is None:
        return Content((), [PanelRow("the ledger of this time is not kept")])
    about = [each for each in document["workers"] if _is_about(each, state)]
    whole = [] if state.subject is not None else [{"name": "all", **_ledger(document)}]
    rows = [*whole, *({"name": each["name"], **_ledger(each)} for each in about)]
    lines = table.figures(_LEDGER, rows, screen.width)
    keys = [str(row["name"]) for row in rows]
    removed = wording.removed(document["removed"], screen)
    return _table([*lines, *removed], 1, keys)


def _ledger(of: Document) -> Document:
    from brickd.screens import wording

    ledger = of["ledger"]
    return {
        **ledger["spans"],
        "details": ledger["details"]["consumed"],
        "events": ledger["events"]["consumed"],
        "pending": ledger["deferred"]["pending"],
        "lost": wording.lost(of) or "0",
    }


def _is_about(worker: Document, state: State) -> bool:
    return _names(state, worker["name"], worker["service"])


def _draw_history(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import history

    slots = document["slots"][::-1]  # the newest first, so that it is on the screen
    lines = history.render({**document, "slots": slots}, screen)
    return _table(lines, 1, [each["from"] for each in slots])


def _draw_events(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import events

    until = state.cursor
    newest = [
        each
        for each in reversed(document["events"])
        if (until is None or datetime.fromisoformat(each["time"]).timestamp() <= until)
        and _names(state, each["service"], each["worker"])
    ][:_EVENTS]
    rows = [
        PanelRow(line, str(each["number"]))
        for each in newest
        for line in events.lines({**each, "time": local_clock(each["time"])}, screen)
    ]
    of = "" if state.subject is None else f" of {escape.text(state.subject)}"
    return Content((), rows or [PanelRow(f"no event{of} is kept" + ("" if until is None else " until this time"))])


def _draw_workers(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import workers

    return _table(workers.render(document, screen), 1, [each["name"] for each in document["workers"]])


def _draw_diff(document: Document, screen: Screen, state: State) -> Content:
    from brickd.screens import diff

    lines = diff.render(document, screen, False, None, times=True)
    comparable = document["verdict"] != "not_comparable"
    why = () if comparable else [escape.text(f"~ {reason}", screen.width) for reason in document["reasons"]]
    return Content((), [*(PanelRow(line, sign="~") for line in why), *(PanelRow(line) for line in lines)])


BRICK_SORTS = ("self", "total", "count", "mean", "p50", "p99", "bytes", "spread", "name")

PANELS = {
    panel.name: panel
    for panel in (
        Panel("1", "bricks", "bricks", _bricks, _draw_bricks, timed=True, sorts=BRICK_SORTS),
        Panel("2", "tree", "tree", _tree, _draw_tree, timed=True),
        Panel("3", "stragglers", "stragglers", _stragglers, _draw_stragglers, by_service=True),
        Panel("4", "numerics", "coverage", _coverage, _draw_coverage, by_service=True),
        Panel("5", "problems", None, _workers, _draw_problems),
        Panel("6", "hang", "hang", _hang, _draw_hang),
        Panel("7", "ledger", None, _workers, _draw_ledger),
        Panel("8", "history", "history", _history, _draw_history, timed=True),
        Panel("9", "events", "events", _events, _draw_events),
        Panel("0", "workers", "workers", _workers, _draw_workers),
        Panel("d", "diff", "diff", _diff, _draw_diff),
    )
}


def filtered(content: Content, uncut: Content, state: State) -> Content:
    """Return the rows that the operator wants to see, in the wanted order. Notes stay at the end.

    Args:
        content: the rows as they are on the screen.
        uncut: the rows of the same document without a limit of width, in which the filter's text is searched.
        state: what the operator chose.
    """
    rows = [row for row in content.rows if row.key is not None]
    notes = [row for row in content.rows if row.key is None]
    is_reversed = state.reverse and bool(rows)
    if not rows:  # a text: its lines are the rows, and have one order
        rows, notes = notes, rows
    if state.filter:
        rows, notes = _matching(rows, uncut.rows, escape.text(state.filter).casefold()), []
        rows = rows or [PanelRow(f"no row has '{escape.text(state.filter)}'")]
    return content._replace(rows=[*(reversed(rows) if is_reversed else rows), *notes])


def _matching(rows: Sequence[PanelRow], uncut: Sequence[PanelRow], wanted: str) -> list[PanelRow]:
    """Return the rows whose subject has the text. Of a subject with several rows, all are returned."""
    full: dict[str, str] = {}
    for row in uncut:
        if row.key is not None:
            full[row.key] = f"{full.get(row.key, '')}{_plain(row)}\n"
    # a text may have more lines on a narrow screen, and then none of them is known uncut
    counterparts = uncut if len(uncut) == len(rows) else rows

    def searched(row: PanelRow, counterpart: PanelRow) -> str:
        return f"{_plain(row)}\n{_plain(counterpart)}" if row.key is None else full.get(row.key, "")

    pairs = zip(rows, counterparts, strict=True)
    return [row for row, counterpart in pairs if wanted in searched(row, counterpart).casefold()]


def _plain(row: PanelRow) -> str:
    return texts.text(texts.painted(row.text))
