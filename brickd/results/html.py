"""A table in HTML, for notebooks.

Owns: how a cell is written, how many rows are shown. Must not know: individual results. Invariants: A worker's text
never acts as markup, moves a cursor or changes the order of other text. Omitted rows are counted. A figure has its
exact value as its title.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape as escaped
from typing import Any

from brickd.base import units
from brickd.base.escape import text as visible
from brickd.base.timestamps import rfc3339
from brickd.results.schema import COUNT, NUMBER, TEXTS, WHOLE, TableColumn

ROWS_MAX = 50
_WIDTH = 80  # the width of a text, in columns of a terminal
_RIGHT = (COUNT, WHOLE, NUMBER)


def table(title: str, columns: Sequence[TableColumn], rows: Sequence[Mapping[str, Any]], words: Sequence[str]) -> str:
    """Return the HTML of some columns of a table, and of the notes."""
    readers = [(column, column.reader()) for column in columns]
    lines = [f"<caption>{_text(title)}</caption>", _row(f"<th>{_text(column.name)}</th>" for column in columns)]
    lines += [_row(_cell(column, read(row)) for column, read in readers) for row in rows[:ROWS_MAX]]
    notes = [*words, *([f"…{units.many(len(rows) - ROWS_MAX, 'more row')}"] if len(rows) > ROWS_MAX else [])]
    return "\n".join(["<table>", *lines, "</table>", *(f"<p>{_text(note, None)}</p>" for note in notes)])


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(column: TableColumn, value: Any) -> str:
    if column.kind in _RIGHT:
        exact = "" if value is None else f' title="{value}"'
        return f'<td style="text-align: right"{exact}>{_text(_figure(column, value))}</td>'
    return f'<td style="text-align: left">{_text(_words(column, value))}</td>'


def _figure(column: TableColumn, value: int | float | None) -> str:
    """Return a number with its unit, as on the screens of brickd.

    A number that identifies something, such as a pid, keeps all its digits.

    >>> _figure(TableColumn("self_ns", COUNT), 5_300_000), _figure(TableColumn("pid", WHOLE), 1_234_567)
    ('5.3 ms', '1234567')
    """
    name = column.name
    if value is None:
        return "-"
    if name.endswith("_unix_ns"):
        return rfc3339(int(value))
    if name.endswith("_ns"):
        return units.duration(value)
    if name.endswith("bytes"):
        return units.size(value)
    if name.endswith("_percent"):
        return units.percent(value)
    if name.endswith("_per_second") or column.kind is COUNT:
        return units.count(value)
    return str(value) if column.kind is WHOLE else f"{value:.4g}"


def _words(column: TableColumn, value: Any) -> str:
    if value is None:
        return "-"
    if column.kind is TEXTS:
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _text(text: str, limit: int | None = _WIDTH) -> str:
    return escaped(visible(text, limit))
