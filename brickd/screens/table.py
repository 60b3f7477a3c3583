"""The layout of all tables.

Owns: alignment, padding, and the cutting of wide tables. Must not know: the meaning of the cells, terminals, colours (a
caller paints complete lines). Invariants: This module escapes every cell, so callers must not escape them. Columns are
aligned by display width. If a width is given, no line is wider than that. Numbers (in right-aligned columns) are cut
only as a last resort, if no text can become shorter and no column can be omitted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from brickd.base import escape

_GAP = "  "
# A text is not cut below this width, because a shorter name is useless. Instead, the end of the line is cut.
_NARROWEST = 4
# Optional columns are omitted before names become narrower than this.
_READABLE = 16


class Column(NamedTuple):
    """One column.

    Attributes:
        title: the text above the cells.
        align: "left" for text, "right" for numbers.
        spare: if not all columns fit, those with the highest `spare` are omitted first; 0: the column is never omitted.
        differs: where the texts of the column differ. A text that does not fit keeps its beginning, or both ends.
    """

    title: str
    align: Literal["left", "right"] = "left"
    spare: int = 0
    differs: Literal["begin", "end"] = "begin"


WORKER = Column("WORKER", differs="end")  # names of workers begin with the service, and end with a number


class Figure(NamedTuple):
    """A column for the entries of a document.

    Attributes:
        column: the column.
        key: the key of the value in an entry; an entry without this key has an empty cell.
        cell: formats the value as a string, which is not escaped yet.
    """

    column: Column
    key: str
    cell: Callable[[Any], str]


class EntryTable(NamedTuple):
    """The entries of a document, and the columns that show them.

    Attributes:
        figures: the columns.
        entries: the entries in the order of their lines, with the cells that the screen adds to them.
    """

    figures: Sequence[Figure]
    entries: Sequence[Mapping[str, Any]]

    def lines(self, width: int | None = None) -> list[str]:
        """Lay out the table: a line of titles, then exactly one line for each entry."""
        return figures(self.figures, self.entries, width)


def figures(shown: Sequence[Figure], entries: Iterable[Mapping[str, Any]], width: int | None = None) -> list[str]:
    """Lay out the entries of a document, as `lines` lays out rows."""
    rows = [[cell(entry[key]) if key in entry else "" for _, key, cell in shown] for entry in entries]
    return lines([figure.column for figure in shown], rows, width)


def lines(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Lay out the table: titles, then one line per row, without trailing blanks. The cells must not be escaped yet.

    `width` is the largest display width of a line; with None, no line is cut.
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
    """Omit optional columns until the text has a readable width. Return the columns that remain."""
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
    """Narrow the widest left-aligned column repeatedly, until the line fits or no column can become narrower."""
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
        fitted = escape.both_ends(cell, room) if column.differs == "end" else escape.text(cell, room)
        blanks = " " * (room - escape.width(fitted))
        padded.append(blanks + fitted if column.align == "right" else fitted + blanks)
    return _GAP.join(padded).rstrip(" ")
