"""The rows of a panel, and which of them a filter and an order show.

Owns: rows, the filter, the reversed order. Must not know: textual, documents, which panel the rows are of. Invariant:
Rows with a subject come first, notes after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brickd.base import escape
from brickd.top import lines as texts
from brickd.top.state import State


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
