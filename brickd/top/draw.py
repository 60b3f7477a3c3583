"""The screen as lines: the header, the workers, the problems, the open panel, the keys.

Owns: the layout for any size, the signs, what is cut. Must not know: textual, how documents are asked, what a key does.
Invariants: The result has exactly the requested height, and no line is wider than the requested width. A list that is
cut says which of its rows are shown. A sign shows everything that a colour shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from brickd.base import escape, units
from brickd.errors import BrickdError
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.top import lines as texts
from brickd.top import panels
from brickd.top.characters import in_ascii, key_name
from brickd.top.frame import Frame, KeptAnswer
from brickd.top.header import LEAST_ERROR, TITLE, Cells, failed, header, notices, shown_at
from brickd.top.keys import help_lines
from brickd.top.lines import Line, fitted, line, painted, styled
from brickd.top.list_block import Block, block, title
from brickd.top.panel_queries import services
from brickd.top.panel_rows import COLOURED, Content, Look, PanelRow, filtered
from brickd.top.places import ListName, OnScreen, ShownList
from brickd.top.state import State
from brickd.top.upper import upper

Document = dict[str, Any]

_SLACK = 1.0  # snapshots of a recording are 10 s apart, or a little more or less


class Drawn(NamedTuple):
    """A drawn screen.

    Attributes:
        lines: the lines from the top.
        shown: the lists on the screen.
        trends: the workers and services whose histories are on the screen.
        frame: the frame without the documents that cannot be drawn.
    """

    lines: Sequence[Line]
    shown: OnScreen
    trends: Sequence[str] = ()
    frame: Frame | None = None


def draw(
    state: State,
    frame: Frame | None,
    size: Cells,
    look: Look = COLOURED,
    message: str = "",
    late: float = 0.0,
) -> Drawn:
    """Draw the screen.

    Args:
        state: what the operator chose.
        frame: the newest documents; None before the first ones.
        size: the size of the screen.
        look: how it looks.
        message: what the newest key did; it is shown instead of the keys.
        late: for how many seconds an answer has been outstanding; 0 if it is not late.
    """
    drawn = _drawn(state, frame, size, look, message, late)
    return drawn._replace(lines=[*map(in_ascii, drawn.lines)]) if look.ascii_only else drawn


def _drawn(state: State, frame: Frame | None, size: Cells, look: Look, message: str, late: float) -> Drawn:
    waits = [line(escape.text(f"~ no answer for {units.duration(late * 1e9)}", size.width), "yellow")] if late else []
    if frame is None:
        waiting = [line(TITLE, "title"), *(waits or [line("waiting for the first answer")])]
        return Drawn(_page(waiting, line("q quit"), size), OnScreen({}))
    try:
        return _draw(state, frame, size, look, message, waits)
    except Exception as error:  # the answer of another process may have any structure
        frame = frame._replace(panel=KeptAnswer(error=_undrawable(error)))
    try:
        return _draw(state, frame, size, look, message, waits)
    except Exception as error:
        frame = frame._replace(status=KeptAnswer(error=_undrawable(error)))
    return _draw(state, frame, size, look, message, waits)


def _undrawable(error: Exception) -> str:
    what = str(error) if isinstance(error, BrickdError) else f"{type(error).__name__}: {error}"
    return f"cannot show the answer: {what}"


def _draw(state: State, frame: Frame, size: Cells, look: Look, message: str, waits: list[Line]) -> Drawn:
    above = [header(state, frame, size.width), *(waits or notices(state, frame, size))]
    below = _footer(state, message, size.width, look)
    document = frame.status.document
    lists: dict[ListName, ShownList] = {}
    trends: Sequence[str] = ()
    room = None if size.height is None else max(0, size.height - len(above) - 1)
    if document is not None:
        above_panel = upper(state, frame, document, size.width, room, look)
        trends = above_panel.trends
    if state.help:
        keys = _help(state, size.width, room, look)
        lists["help"] = keys.shown
        above += keys.lines
    elif document is not None:
        above, lists = above + above_panel.lines, above_panel.lists
        room = None if room is None else room - len(above_panel.lines)
        panel = _panel(state, frame, document, size.width, room, look)
        lists["panel"] = panel.shown
        above += panel.lines
    names = [name for name in trends if isinstance(name, str)]  # a daemon may send any value
    sorts = panels.shown(state, recorded=frame.recorded).sorts
    slack = _SLACK if frame.recorded else 0.0
    shown = OnScreen(lists, sorts, shown_at(state, frame), frame.newest, slack)
    return Drawn(_page(above, below, size), shown, names, frame)


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


def _footer(state: State, message: str, width: int, look: Look) -> Line:
    if state.typing:
        return line(escape.text(f"filter: {state.filter}_", width), "bold")
    if message:
        return line(escape.text(message, width), "bold")
    keys = [key_name(each, ascii_only=look.ascii_only) for each in _KEYS]
    shown = next((shown for n in range(len(keys), 0, -1) if len(shown := "  ".join(keys[:n])) <= width), "")
    return line(shown, "dim")


# The most important ones first: a narrow screen has no room for the last ones.
_KEYS = (
    *("? help", "q quit", "tab list", "enter choose", "0-9 panel", "s sort", "/ filter", "p pause", "←→ time"),
    *("x pick", "d diff"),
)


def _help(state: State, width: int, room: int | None, look: Look) -> Block:
    """Return the keys, which scroll like any list, in place of all other lists."""
    rows = [PanelRow(each) for each in help_lines(width, ascii_only=look.ascii_only)]
    of = block(state, "help", rows, None if room is None else max(0, room - 1))
    return Block([title(state, "help", "KEYS", of.shown, width), *of.lines], of.shown)


# ---- the panel


def _panel(state: State, frame: Frame, document: Document, width: int, room: int | None, look: Look) -> Block:
    panel = panels.shown(state, recorded=frame.recorded)
    content, note = _content(panel, state, frame, document, Screen(width, look.colour))
    head = [styled(painted(text), "bold") for text in content.head]
    note = [*_without_workers(document, content), *note]
    notices = [line(escape.text(text, width), style) for text, style in note]
    left = None if room is None else max(0, room - 1 - len(head) - len(notices))
    of = block(state, "panel", content.rows, left, content.omitted)
    bar = title(state, "panel", _panel_title(panel, state, document, width), of.shown, width)
    shown = [bar, *notices, *head, *of.lines]
    return Block(shown if room is None else shown[: max(0, room)], of.shown)


def _content(
    panel: panels.Panel, state: State, frame: Frame, status: Document, screen: Screen
) -> tuple[Content, list[tuple[str, texts.Style]]]:
    """Return the rows of the panel, and the notes about them."""
    kept = frame.status if panel.view is None else frame.panel
    notes: list[tuple[str, texts.Style]] = []
    if panel.name != state.panel:
        notes.append((f"~ {state.panel} cannot show a past time: these are the events until then", "yellow"))
    if kept.error is not None and panel.view is not None:
        notes.append((failed(kept.error, _age(kept, frame), screen.width or 1000), "red"))
    asked = panels.shown(frame.state, recorded=frame.recorded)
    other = asked.name != panel.name or frame.state.about != state.about
    # the first rows alone would look as if no other row had the filter's text
    part = state.selects_rows and not frame.state.needs_all_rows
    if kept.document is None or (panel.view is not None and (other or part)):
        waits = () if kept.error is not None else (PanelRow("waiting for the answer"),)
        return Content((), waits), notes
    # the notes about a live period say what the head of the table says, too: how long the period is
    if not panel.timed and panel.view is not None and kept.error is None and kept.words[:1] != frame.status.words[:1]:
        notes += [(f"~ {words}", "yellow") for words in kept.words[:1]]
    # a recording ends at the cursor, so its document needs no other limit
    until = state._replace(cursor=None) if frame.recorded else state
    drawn = panel.draw(kept.document, screen, until)
    # what the operator types may be in the part of a name that does not fit
    uncut = panel.draw(kept.document, Screen(None, colour=False), until) if state.filter else drawn
    return filtered(drawn, uncut, state), notes


def _without_workers(status: Document, content: Content) -> list[tuple[str, texts.Style]]:
    """Return the note that there are no workers, with the next command, unless the panel says so itself."""
    if status["workers"] or wording.is_past(status):
        return []
    none = wording.no_workers(status)
    texts_shown = [*content.head, *(row.text for row in content.rows)]
    return [] if any(each.startswith(none[:LEAST_ERROR]) for each in texts_shown) else [(none, "yellow")]


def _age(kept: KeptAnswer, frame: Frame) -> str:
    if kept.document is None or frame.recorded:
        return ""
    return f"; the data is {units.duration((frame.newest - kept.received) * 1e9)} old"


def _panel_title(panel: panels.Panel, state: State, status: Document, width: int) -> str:
    names = services(state, status) if panel.by_service else state.about
    names = state.picked or names if panel.name == "diff" else names
    about = f" of {', '.join(escape.both_ends(each, width // 3) for each in names)}" if names else ""
    parts = [f"{panel.name.upper()}{about}"]
    if panel.sorts:
        parts.append(f"by {state.sort or panel.sorts[0]}{', reversed' if state.reverse else ''}")
    if state.filter:
        parts.append(f"with {escape.text(state.filter)}")
    return ", ".join(parts)
