"""The lists above the panel: services and workers, problems, and on a large screen the ledger.

Owns: how many lines each of them gets. Must not know: the open panel, the header. Invariants: The panel keeps a few
lines on a screen of any height. The problems are next to the workers if there is room. A screen without a limit of
lines has the whole text of each problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from brickd.base import escape
from brickd.screens import status
from brickd.screens.screen import Screen
from brickd.top import lines, panels, worker_list
from brickd.top.frame import Frame
from brickd.top.lines import Line, line
from brickd.top.list_block import Block, block, shown_rows, title
from brickd.top.panel_rows import Look, PanelRow
from brickd.top.places import ListName, ShownList
from brickd.top.state import State

Document = dict[str, Any]

_WIDE, _HIGH = 140, 30  # from this size on, the problems are at the right of the workers
_LEAST_PANEL = 4  # the panel keeps this many lines before the lists above it get any
_PROBLEMS, _WORKERS = 3, 6  # the most lines of problems and of workers on a small screen


class Upper(NamedTuple):
    """The lines above the panel, the lists in them, and the names whose histories they show."""

    lines: list[Line]
    lists: dict[ListName, ShownList]
    trends: Sequence[str]


def upper(state: State, frame: Frame, document: Document, width: int, room: int | None, look: Look) -> Upper:
    """Return the lines above the panel. `room` is the number of lines for these and the panel; None is no limit."""
    if room is not None and width >= _WIDE and room >= _HIGH:
        return _side_by_side(state, frame, document, width, room, look)
    rows = worker_list.rows(document, state)
    screen = Screen(width, look.colour)
    problems = _whole_problems(document, screen) if room is None else _problem_rows(document, screen)
    low: int | None = None
    high: int | None = None
    if room is not None:
        spare = max(0, room - _LEAST_PANEL)
        low = min(len(problems), _PROBLEMS, spare // 2)
        high = min(len(rows) + 1, _WORKERS if room < _HIGH else room // 3, spare - low)
    workers = _workers(state, frame, rows, width, high, look)
    if not problems or low == 0:
        return workers
    under = block(state, "problems", problems, low)
    if rest := shown_rows(under.shown):  # the list has no title that could say so
        under.lines[-1] = lines.ends(under.lines[-1], line(rest, "dim"), width)
    return Upper(workers.lines + under.lines, {**workers.lists, "problems": under.shown}, workers.trends)


def _side_by_side(state: State, frame: Frame, document: Document, width: int, room: int, look: Look) -> Upper:
    left = (width - lines.width(line(_GAP))) // 2
    right = width - left - lines.width(line(_GAP))
    rows = worker_list.rows(document, state)
    screen = Screen(right, look.colour)
    problems = _problem_rows(document, screen)
    ledger = panels.PANELS["ledger"].draw(document, screen, state._replace(subject=None))
    ledger_lines = [
        line("  LEDGER", "bold"),
        *(lines.styled(lines.painted(each), "bold") for each in ledger.head),
        *(lines.painted(each.text) for each in ledger.rows),
    ]
    # a list without problems has a line, too
    high = min(max(len(rows) + 1, max(1, len(problems)) + 1 + len(ledger_lines)), max(_WORKERS, room // 3))
    workers = _workers(state, frame, rows, left, high, look)
    # the ledger keeps its title and the sum of all workers
    found = block(state, "problems", problems, max(1, high - 1 - _LEAST_LEDGER))
    over = title(state, "problems", "PROBLEMS", found.shown, right)
    # an empty list is not the verdict: nothing may have been compared
    found_lines = [over, *(found.lines or [lines.painted(status.verdict_line(document, screen))]), *ledger_lines]
    lists = dict(workers.lists)
    if problems:
        lists["problems"] = found.shown
    return Upper(lines.side_by_side(workers.lines, found_lines, left, high, _GAP), lists, workers.trends)


_GAP, _LEAST_LEDGER = " │ ", 3


def _problem_rows(document: Document, screen: Screen) -> list[PanelRow]:
    """Return one row for each problem: the list shows as many problems as possible, and panel 5 all of each."""
    return [
        PanelRow(screen.paint(escape.text(f"! {each['id']} {each['text']}", screen.width), "red"), each["id"], "!")
        for each in document["problems"] or ()
    ]


def _whole_problems(document: Document, screen: Screen) -> list[PanelRow]:
    """Return all lines of each problem, with the next command, as the verb `status` prints them."""
    from brickd.screens import wording

    return [
        PanelRow(each, problem["id"])
        for problem in document["problems"] or ()
        for each in wording.problem(problem, screen)
    ]


def _workers(
    state: State, frame: Frame, rows: Sequence[worker_list.ListedRow], width: int, room: int | None, look: Look
) -> Upper:
    """Return the list of workers with its title, in at most `room` lines; nothing if there is no room for a row."""
    if not rows or (room is not None and room < 2):
        return Upper([], {}, ())
    head, body = worker_list.drawn(rows, frame.histories, state, width, ascii_only=look.ascii_only)
    of: Block = block(
        state,
        "workers",
        [PanelRow(text, row.name, row.sign) for text, row in zip(body, rows, strict=True)],
        None if room is None else room - 1,
    )
    first = of.shown.place.first
    visible = rows[first : first + of.shown.height]
    over = title(state, "workers", head, of.shown, width, worker_list.rates_title(state, width))
    return Upper([over, *of.lines], {"workers": of.shown}, [row.name for row in visible])
