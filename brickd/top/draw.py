"""The screen as lines: the header, the workers, the problems, the open panel, the keys.

Owns: the layout for any size, the signs, what is cut. Must not know: textual, how documents are asked, what a key does.
Invariants: The result has exactly the requested height, and no line is wider than the requested width. A list that is
cut says which of its rows are shown. Whatever a colour says, a sign says, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from brickd.base import escape, units
from brickd.screens.screen import Screen
from brickd.top import lines as texts
from brickd.top import panels, worker_list
from brickd.top.keys import help_lines
from brickd.top.lines import SIGNS, Line, StyledText, ends, fitted, joined, line, painted, styled
from brickd.top.poll import Frame, KeptAnswer
from brickd.top.state import ListName, OnScreen, Selection, ShownList, State, resolved

Document = dict[str, Any]

_WIDE, _HIGH = 140, 30  # from this size on, the problems are at the right of the workers
_LEAST_PANEL = 4  # the panel keeps this many lines before the lists above it get any
_PROBLEMS = 3
_SLACK = 1.0  # snapshots of a recording are 10 s apart, or a little more or less
_STALE_SECONDS = 3.0  # data older than this many seconds, beyond the interval, is called old
_TITLE, _PANEL = "brickd top", " panel"


class Cells(NamedTuple):
    """The size of the screen in cells; `height` is None if every row is to be shown."""

    width: int
    height: int | None


class Look(NamedTuple):
    """How the screen looks: with colours or without, with bars of ASCII only or not."""

    colour: bool = True
    ascii_only: bool = False


class Drawn(NamedTuple):
    """A drawn screen.

    Attributes:
        lines: the lines from the top.
        shown: the lists on the screen.
        trends: the workers and services whose histories are on the screen.
    """

    lines: Sequence[Line]
    shown: OnScreen
    trends: Sequence[str] = ()


class _Block(NamedTuple):
    """A list of the screen: its lines, as many as `room`, and the list itself."""

    lines: list[Line]
    shown: ShownList


def draw(state: State, frame: Frame | None, size: Cells, look: Look = Look(), message: str = "") -> Drawn:  # noqa: B008
    """Draw the screen. `message` says what the newest key did; it is shown instead of the keys."""
    if frame is None:
        waiting = [line(_TITLE, "title"), line("asking for the first answer …")]
        return Drawn(_page(waiting, line("q quit"), size), OnScreen({}))
    above = [_header(state, frame, size.width), *_notices(state, frame, size.width)]
    below = _footer(state, message, size.width)
    document = frame.status.document
    lists: dict[ListName, ShownList] = {}
    trends: Sequence[str] = ()
    room = None if size.height is None else max(0, size.height - len(above) - 1)
    if document is not None:
        upper, trends = _upper(state, frame, document, size.width, room, look, lists)
        above += upper
        room = None if room is None else room - len(upper)
    if state.help:
        above += [line("keys", "title"), *map(line, help_lines(size.width))]
    elif document is not None:
        panel = _panel(state, frame, document, size.width, room, look)
        lists["panel"] = panel.shown
        above += panel.lines
    sorts = panels.shown(state, recorded=frame.recorded).sorts
    slack = _SLACK if frame.recorded else 0.0
    shown = OnScreen(lists, sorts, shown_at(state, frame), frame.newest, slack)
    return Drawn(_page(above, below, size), shown, trends)


def _page(above: Sequence[Line], below: Line, size: Cells) -> list[Line]:
    """Return the lines of a screen of exactly this size; the last line is `below`."""
    cut = [texts.cut(each, size.width) for each in above]
    if size.height is None:
        return cut
    if size.height < 2:
        return cut[: size.height]
    rows = cut[: size.height - 1]
    rows += [texts.EMPTY] * (size.height - 1 - len(rows))
    return [*rows, fitted(below, size.width)]


# ---- the header


def _header(state: State, frame: Frame, width: int) -> Line:
    document = frame.status.document
    left = [line(_TITLE, "title"), line(escape.text(" ".join(state.names)))]
    if document is None:
        return texts.cut(joined(left), width)
    problems, silenced = len(document["problems"]), len(document["silenced"])
    verdict = line(units.many(problems, "PROBLEM", "PROBLEMS"), "red") if problems else line("no problem", "green")
    hushed = line(f"{units.count(silenced)} silenced") if silenced else texts.EMPTY
    paused = line("PAUSED", "selected") if state.paused else texts.EMPTY
    # what must never be cut comes first
    parts = [*left[:1], paused, verdict, hushed, *left[1:], *_when(state, frame, document)]
    return texts.cut(joined(parts), width)


def shown_at(state: State, frame: Frame) -> float:
    """Return the time of the shown data: of a snapshot, of the cursor, or of the newest answer."""
    shown = ((frame.status.document or {}).get("recording") or {}).get("shown")
    if shown is not None:
        return datetime.fromisoformat(shown).timestamp()
    return state.cursor if state.cursor is not None else frame.status.received


def _when(state: State, frame: Frame, document: Document) -> list[Line]:
    at = shown_at(state, frame)
    stamp = time.strftime("%H:%M:%S" if _is_today(at) else "%Y-%m-%d %H:%M:%S", time.localtime(at))
    cursor = line(f"AT {stamp}", "selected") if state.cursor is not None else line(stamp)
    return [cursor, line(escape.text(str(document["source"]))), line(f"every {units.write_duration(state.interval)}")]


def _is_today(at: float) -> bool:
    return time.localtime(at)[:3] == time.localtime()[:3]


def _notices(state: State, frame: Frame, width: int) -> list[Line]:
    """Return at most one line: why the data is old, or a note about it."""
    kept = frame.status
    now = frame.newest if not frame.recorded else kept.received
    if kept.error is not None:
        age = f"; data of {units.duration((now - kept.received) * 1e9)} ago" if kept.document is not None else ""
        return [line(escape.text(f"! {kept.error}{age}", width), "red")]
    if frame.seconds > state.interval + _STALE_SECONDS:
        return [line(escape.text(f"~ slow: the answers took {units.duration(frame.seconds * 1e9)}", width), "yellow")]
    return [line(escape.text(f"~ {words}", width), "yellow") for words in kept.words[:1]]


def _footer(state: State, message: str, width: int) -> Line:
    if state.typing:
        return line(escape.text(f"filter: {state.filter}_", width), "bold")
    if message:
        return line(escape.text(message, width), "bold")
    keys = "? help  q quit  tab list  enter choose  0-9 panel  s sort  / filter  p pause  x pick  d diff  ←→ time"
    return line(escape.text(keys, width), "dim")


# ---- the workers and the problems


def _upper(
    state: State, frame: Frame, document: Document, width: int, room: int | None, look: Look,
    lists: dict[ListName, ShownList],
) -> tuple[list[Line], Sequence[str]]:  # fmt: skip
    """Return the lines above the panel; add their lists to `lists`."""
    rows = worker_list.rows(document, state)
    wide = width >= _WIDE and (room is None or room >= _HIGH)
    half = (width - 3) // 2 if wide else width
    screen = Screen(width - half - 3 if wide else width, look.colour)
    problems = [_problem_row(each, screen) for each in document["problems"]]
    if room is None:
        high, low = len(rows) + 1, len(problems)
    else:
        spare = max(0, room - _LEAST_PANEL)
        low = 0 if wide else min(len(problems), _PROBLEMS, spare // 2)
        high = min(len(rows) + 1, max(6, room // 3) if wide or room > 30 else 6, spare - low)
        if wide:
            high = min(max(high, min(len(problems) + 1, room // 3)), spare)
    if high < 2 and room is not None:
        high = 0
    above: list[Line] = []
    trends: Sequence[str] = ()
    if rows and high:
        block, trends = _workers(state, frame, rows, document, half, None if room is None else high - 1, look)
        lists["workers"] = block.shown
        above = block.lines
    if not wide:
        if problems and low:
            block = _list(state, "problems", problems, low if room is not None else None)
            lists["problems"] = block.shown
            above += block.lines
        return above, trends
    height = high if room is not None else max(len(above), len(problems) + 1)
    block = _list(state, "problems", problems, None if room is None else height - 1)
    if problems:
        lists["problems"] = block.shown
    none = [line("no problem", "green")]
    title = ends(_titled(state, "problems", "PROBLEMS"), line(_range(block.shown), "dim"), width - half - 3)
    return texts.beside(above, [title, *(block.lines or none)], half, height), trends


def _problem_row(problem: Document, screen: Screen) -> panels.PanelRow:
    """Return the one row of a problem: the list shows as many problems as possible, and panel 5 all of each."""
    text = escape.text(f"! {problem['id']} {problem['text']}", screen.width)
    return panels.PanelRow(screen.paint(text, "red"), problem["id"])


def _workers(
    state: State, frame: Frame, rows: Sequence[worker_list.ListedRow], document: Document, width: int,
    room: int | None, look: Look,
) -> tuple[_Block, Sequence[str]]:  # fmt: skip
    head, body = worker_list.drawn(rows, frame.histories, state, width, ascii_only=look.ascii_only)
    block = _list(
        state, "workers", [panels.PanelRow(text, row.name) for text, row in zip(body, rows, strict=True)], room
    )
    first = block.shown.place.first
    visible = rows if room is None else rows[first : first + block.shown.height]
    title = ends(_titled(state, "workers", head), line(_range(block.shown), "dim"), width)
    return _Block([title, *block.lines], block.shown), [row.name for row in visible]


# ---- the panel


def _panel(state: State, frame: Frame, document: Document, width: int, room: int | None, look: Look) -> _Block:
    panel = panels.shown(state, recorded=frame.recorded)
    content, note = _content(panel, state, frame, document, Screen(width, look.colour))
    content = panels.filtered(content, state)
    title = _panel_title(panel, state, frame)
    head = [styled(painted(text), "bold") for text in content.head]
    notices = [line(escape.text(text, width), style) for text, style in note]
    left = None if room is None else max(0, room - 1 - len(head) - len(notices))
    block = _list(state, "panel", content.rows, left)
    bar = ends(_titled(state, "panel", title), line(_range(block.shown), "dim"), width)
    shown = [bar, *notices, *head, *block.lines]
    return _Block(shown if room is None else shown[: max(0, room)], block.shown)


def _content(
    panel: panels.Panel, state: State, frame: Frame, status: Document, screen: Screen
) -> tuple[panels.Content, list[tuple[str, texts.Style]]]:
    """Return the rows of the panel, and what there is to say about them."""
    kept = frame.status if panel.view is None else frame.panel
    notes: list[tuple[str, texts.Style]] = []
    if panel.name != state.panel:
        notes.append((f"~ {state.panel} has no past: these are the events until then", "yellow"))
    if kept.error is not None and panel.view is not None:
        notes.append((f"! {kept.error}{_age(kept, frame)}", "red"))
    asked = panels.shown(frame.state, recorded=frame.recorded)
    if kept.document is None or (
        panel.view is not None and (asked.name != panel.name or frame.state.about != state.about)
    ):
        waits = () if kept.error is not None else (panels.PanelRow("…"),)
        return panels.Content((), waits), notes
    # the notes about a live period say what the head of the table says, too: how long the period is
    if not panel.timed and panel.view is not None and kept.error is None and kept.words[:1] != frame.status.words[:1]:
        notes += [(f"~ {words}", "yellow") for words in kept.words[:1]]
    # a recording ends at the cursor, so its document needs no other limit
    return panel.draw(kept.document, screen, state._replace(cursor=None) if frame.recorded else state), notes


def _age(kept: KeptAnswer, frame: Frame) -> str:
    if kept.document is None or frame.recorded:
        return ""
    return f"; data of {units.duration((frame.newest - kept.received) * 1e9)} ago"


def _panel_title(panel: panels.Panel, state: State, frame: Frame) -> str:
    names = state.picked if panel.name == "diff" else state.about
    about = f" of {escape.text(', '.join(names))}" if names else ""
    parts = [f"{panel.name.upper()}{about}"]
    if panel.sorts:
        parts.append(f"by {state.sort or panel.sorts[0]}{', reversed' if state.reverse else ''}")
    if state.filter:
        parts.append(f"with {escape.text(state.filter)}")
    return ", ".join(parts)


# ---- lists


def _titled(state: State, of: ListName, title: str) -> Line:
    """Return a title. A mark shows which list the arrow keys move in."""
    style: texts.Style = "title" if state.focus == of else "bold"
    return (StyledText(f"{'>' if state.focus == of else ' '} {title}", style),)


def _range(shown: ShownList) -> str:
    """Say which rows are shown, if not all are.

    >>> _range(ShownList(["a"] * 300, (), 12, Selection(None, 20, 12))), _range(ShownList(["a"], (), 12))
    ('13-24 of 300', '')
    """
    count = len(shown.keys)
    if count <= shown.height:
        return ""
    first = shown.place.first
    return f"{first + 1:,}-{min(count, first + shown.height):,} of {count:,}"


def _list(state: State, of: ListName, rows: Sequence[panels.PanelRow], room: int | None) -> _Block:
    keys = [row.key for row in rows]
    height = len(rows) if room is None else room
    place = resolved(state.places.get(of, Selection()), keys, max(1, height))
    visible = rows[place.first : place.first + height]
    selected = place.row if state.focus == of and room is not None and not state.help else -1
    drawn = [_row(row, selected=place.first + index == selected) for index, row in enumerate(visible)]
    return _Block(drawn, ShownList(keys, [row.text for row in rows], height, place))


def _row(row: panels.PanelRow, *, selected: bool) -> Line:
    spans = painted(row.text)
    if selected:
        return styled(spans or (StyledText(" "),), "selected")
    style = SIGNS.get(row.text[:1])
    return styled(spans, style) if style and all(not span.style for span in spans) else spans


def settled(state: State, shown: Mapping[ListName, ShownList]) -> State:
    """Return the state with the places as they are on the screen."""
    places = {**state.places, **{name: each.place for name, each in shown.items()}}
    focus: ListName = state.focus if state.focus in shown or not shown else "panel"
    return state._replace(places=places, focus=focus)
