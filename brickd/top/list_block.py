"""A list on the screen: its title, the rows that fit, and where the operator is in it.

Owns: which rows are shown, how the selected row looks. Must not know: documents, what the rows mean. Invariant: A list
that is cut says which of its rows are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from brickd.top.lines import SIGNS, Line, StyledText, ends, line, painted, styled
from brickd.top.panel_rows import PanelRow
from brickd.top.places import ListName, Selection, ShownList, resolved
from brickd.top.state import State


class Block(NamedTuple):
    """The lines of a list on the screen, and the list itself."""

    lines: list[Line]
    shown: ShownList


def block(state: State, of: ListName, rows: Sequence[PanelRow], room: int | None, omitted: int = 0) -> Block:
    """Return the rows of a list that fit into `room` lines; None shows all. `omitted` rows are only counted."""
    keys = [row.key for row in rows]
    height = len(rows) if room is None else room
    place = state.places.get(of, Selection())
    if of == "panel" and state.all_rows and place.key is None:  # End was pressed before all rows had arrived
        place = place._replace(row=len(rows))
    place = resolved(place, keys, max(1, height))
    visible = rows[place.first : place.first + height]
    selected = place.row if state.focus == of and room is not None else -1
    drawn = [_row(row, selected=number == selected) for number, row in enumerate(visible, place.first)]
    return Block(drawn, ShownList(keys, [row.text for row in rows], height, place, omitted))


def _row(row: PanelRow, *, selected: bool) -> Line:
    texts = painted(row.text)
    if selected:
        return styled(texts or (StyledText(" "),), "selected")
    style = SIGNS.get(row.sign)
    return styled(texts, style) if style and all(not each.style for each in texts) else texts


def title(state: State, of: ListName, text: str, shown: ShownList, width: int, right: str = "") -> Line:
    """Return the title of a list: a mark if the arrow keys move in it, and at the right which rows are shown.

    `right` is shown at the right if all rows are.
    """
    is_focused = state.focus == of
    left = line(f"{'>' if is_focused else ' '} {text}", "title" if is_focused else "bold")
    rows = shown_rows(shown)
    return ends(left, line(rows, "dim") if rows else line(right, "bold"), width)


def shown_rows(shown: ShownList) -> str:
    """Say which rows are shown, if not all are.

    >>> shown_rows(ShownList(["a"] * 300, (), 12, Selection(None, 20, 12))), shown_rows(ShownList(["a"] * 12, (), 12))
    ('13-24 of 300', '')
    """
    count = len(shown.keys) + (shown.omitted - 1 if shown.omitted else 0)
    if count <= shown.height:
        return ""
    first = shown.place.first
    return f"{first + 1:,}-{min(count, first + shown.height):,} of {count:,}"


def settled(state: State, shown: Mapping[ListName, ShownList]) -> State:
    """Return the state with the places as they are on the screen."""
    places = {**state.places, **{name: each.place for name, each in shown.items()}}
    focus: ListName = state.focus if state.focus in shown or not shown else "panel"
    return state._replace(places=places, focus=focus)
