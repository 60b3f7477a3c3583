"""The one table of the CLI.

Owns: alignment, padding, and what is cut when a table is too wide. Must not know: what the cells mean, terminals,
colours (a caller paints whole lines). Invariants: every cell is escaped here, so callers hand over raw strings; columns
line up by display width; with a width given, no line is wider; numbers (right-aligned columns) are never cut as long as
there is text to cut instead, or a column that can be spared.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from brickd.base import escape

_GAP = "  "
# A name cut below this tells nothing: then the end of the line is cut instead.
_NARROWEST = 4
# A name this wide tells more than a column that can be spared.
_READABLE = 16


class Column(NamedTuple):
    """One column.

    Attributes:
        title: what stands above its cells.
        align: the side its cells keep to: text left, numbers right.
        spare: where not all columns fit, those of the highest number are left out first; 0: never.
    """

    title: str
    align: Literal["left", "right"] = "left"
    spare: int = 0


class Figure(NamedTuple):
    """A column of a document's entries.

    Attributes:
        column: its column.
        key: what it shows of an entry; an entry without it has an empty cell.
        cell: writes the value, as a raw string.
    """

    column: Column
    key: str
    cell: Callable[[Any], str]


def figures(shown: Sequence[Figure], entries: Iterable[Mapping[str, Any]], width: int | None = None) -> list[str]:
    """Lay out entries of a document, as `lines` does."""
    rows = [[cell(entry[key]) if key in entry else "" for _, key, cell in shown] for entry in entries]
    return lines([figure.column for figure in shown], rows, width)


def lines(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Lay the table out: titles, then a line for each row of raw strings, without end blanks.

    `width` is the largest display width of a line; None cuts nothing.
    """
    cells = [[escape.text(column.title) for column in columns]]
    for row in rows:
        cells.append([escape.text(cell) for _, cell in zip(columns, row, strict=True)])
    widths = [max(map(escape.width, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        kept = _kept(widths, columns, width)
        columns, widths = [columns[index] for index in kept], [widths[index] for index in kept]
        cells = [[row[index] for index in kept] for row in cells]
        _narrow(widths, columns, width)
    laid_out = [_line(row, columns, widths) for row in cells]
    return laid_out if width is None else [escape.text(line, width) for line in laid_out]


def _kept(widths: Sequence[int], columns: Sequence[Column], width: int) -> list[int]:
    """Leave columns out until the others fit, their text cut to what can still be read."""
    wanted = [
        min(each, _READABLE) if column.align == "left" else each for each, column in zip(widths, columns, strict=True)
    ]
    kept = list(range(len(columns)))
    while sum(wanted[index] + len(_GAP) for index in kept) - len(_GAP) > width:
        least = max(kept, key=lambda index: columns[index].spare)
        if columns[least].spare == 0:
            break
        kept.remove(least)
    return kept


def _narrow(widths: list[int], columns: Sequence[Column], width: int) -> None:
    """Narrow the widest left-aligned column, then the next, until all fits or none can shrink."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    left = [index for index, column in enumerate(columns) if column.align == "left"]
    while excess > 0 and left:
        widest = max(left, key=lambda index: widths[index])
        if widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1
        excess -= 1


def _line(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = []
    for cell, column, room in zip(row, columns, widths, strict=True):
        fitted = escape.text(cell, room)
        blanks = " " * (room - escape.width(fitted))
        padded.append(blanks + fitted if column.align == "right" else fitted + blanks)
    return _GAP.join(padded).rstrip(" ")
