"""How the document of each panel becomes rows.

Owns: the subject of each row, what a panel shows of its document. Must not know: textual, when documents are asked.
Invariants: Every figure is one of the view's document. The text is that of `brickd.screens`, so a row here reads as it
does in the verb of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from brickd.base import escape, units
from brickd.base.timestamps import local_clock
from brickd.screens.screen import Screen
from brickd.screens.table import WORKER, Column, Figure
from brickd.top.panel_rows import Content, PanelRow
from brickd.top.state import State

Document = dict[str, Any]

_EVENTS = 200  # the newest events that are listed


def _table(lines: Sequence[str], before: int, keys: Sequence[str]) -> Content:
    """Split a screen whose table has a row for each key, after `before` lines."""
    rows = [PanelRow(line, key) for line, key in zip(lines[before:], keys, strict=False)]
    notes = [PanelRow(line) for line in lines[before + len(keys) :]]
    return Content(lines[:before], [*rows, *notes])


def _texts(lines: Sequence[str]) -> Content:
    return Content((), [PanelRow(line) for line in lines])


def bricks(document: Document, screen: Screen, state: State) -> Content:
    """Return a row for each brick."""
    from brickd.screens import bricks

    table = _table(bricks.render(document, screen), 1, [each["name"] for each in document["bricks"]])
    return table._replace(omitted=document["rest"]["bricks"])


def tree(document: Document, screen: Screen, state: State) -> Content:
    """Return a row for each node."""
    from brickd.screens import tree

    lines = tree.render(document, screen)
    return Content(lines[:1], [PanelRow(line) for line in lines[1:]])


def stragglers(document: Document, screen: Screen, state: State) -> Content:
    """Return the lines of `brickd stragglers`."""
    from brickd.screens import stragglers

    return _texts(stragglers.render(document, screen))


def coverage(document: Document, screen: Screen, state: State) -> Content:
    """Return the lines of `brickd coverage`."""
    from brickd.screens import coverage

    return _texts(coverage.render(document, screen))


def problems(document: Document, screen: Screen, state: State) -> Content:
    """Return the lines of each problem, then those of each silenced one."""
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


def hang(document: Document, screen: Screen, state: State) -> Content:
    """Return a row for each lane with an open span."""
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


def ledger(document: Document, screen: Screen, state: State) -> Content:
    """Return a row for all workers, then one for each."""
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


def history(document: Document, screen: Screen, state: State) -> Content:
    """Return a row for each piece of time, the newest first."""
    from brickd.screens import history

    slots = document["slots"][::-1]  # the newest first, so that it is on the screen
    lines = history.render({**document, "slots": slots}, screen)
    return _table(lines, 1, [each["from"] for each in slots])


def events(document: Document, screen: Screen, state: State) -> Content:
    """Return the lines of each event, the newest first."""
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
    return Content((), rows or [PanelRow(f"the log has no events{of}" + ("" if until is None else " until this time"))])


def workers(document: Document, screen: Screen, state: State) -> Content:
    """Return a row for each worker."""
    from brickd.screens import workers

    return _table(workers.render(document, screen), 1, [each["name"] for each in document["workers"]])


def diff(document: Document, screen: Screen, state: State) -> Content:
    """Return the lines of `brickd diff`, after the reasons why it compares nothing."""
    from brickd.screens import diff

    lines = diff.render(document, screen, False, None, times=True)
    comparable = document["verdict"] != "not_comparable"
    why = () if comparable else [escape.text(f"~ {reason}", screen.width) for reason in document["reasons"]]
    return Content((), [*(PanelRow(line, sign="~") for line in why), *(PanelRow(line) for line in lines)])
