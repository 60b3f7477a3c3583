"""Lines of text with styles, and how they are cut, padded and joined.

Owns: the styles, the translation of painted text. Must not know: textual, documents. Invariants: A line has only
visible characters, because every text is escaped before it comes here. The only escapes are those of `Screen.paint`,
and they become styles. A cut line is never wider than its limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from brickd.base import escape

Style = Literal["", "red", "yellow", "green", "dim", "bold", "title", "selected"]

# How each style looks: colours of the terminal's own palette, and attributes.
LOOKS: dict[Style, str] = {
    "": "",
    "red": "bold red",
    "yellow": "yellow",
    "green": "green",
    "dim": "dim",
    "bold": "bold",
    "title": "bold reverse",
    "selected": "reverse",
}

_PAINT = re.compile("\x1b\\[([0-9;]*)m")
_COLOURS: dict[str, Style] = {"31": "red", "32": "green", "33": "yellow"}
# "!" marks something wrong, "~" something not proven. A screen without colours shows only the sign.
SIGNS: dict[str, Style] = {"!": "red", "~": "yellow"}


class StyledText(NamedTuple):
    """A piece of a line in one style."""

    text: str
    style: Style = ""


Line = tuple[StyledText, ...]
EMPTY: Line = ()


def line(text: str, style: Style = "") -> Line:
    """Return a line of one span. The text must be escaped; if not, the terminal gets no control character."""
    return (StyledText(_visible(text), style),) if text else EMPTY


def _visible(text: str) -> str:
    return text if text.isprintable() else escape.text(text)


def painted(text: str) -> Line:
    r"""Return the line that `Screen.paint` and the texts next to it make.

    >>> painted("\x1b[33m! slow\x1b[0m  brickd stragglers")
    (StyledText(text='! slow', style='yellow'), StyledText(text='  brickd stragglers', style=''))
    >>> painted("as it is")
    (StyledText(text='as it is', style=''),)
    """
    spans: list[StyledText] = []
    style: Style = ""
    for index, part in enumerate(_PAINT.split(text)):
        if index % 2:
            style = _COLOURS.get(part, "")
        elif part:
            # any other control character would be a defect; the terminal must not get it
            spans.append(StyledText(_visible(part), style))
    return tuple(spans)


def text(of: Line) -> str:
    """Return the text of a line."""
    return "".join(span.text for span in of)


def width(of: Line) -> int:
    """Return the number of cells of a line."""
    return sum(escape.width(span.text) for span in of)


def cut(of: Line, limit: int | None) -> Line:
    """Return a line of at most `limit` cells. A cut line ends with an ellipsis.

    >>> cut((StyledText("abc"), StyledText("defg", "red")), 5)
    (StyledText(text='abc', style=''), StyledText(text='d…', style='red'))
    >>> text(cut((StyledText("abc"), StyledText("d")), 3))
    'ab…'
    """
    if limit is None or width(of) <= limit:
        return of
    kept: list[StyledText] = []
    room = limit
    for span in of:
        wide = escape.width(span.text)
        if wide < room or (wide == room and span is of[-1]):
            kept.append(span)
            room -= wide
            continue
        # the ellipsis is needed even if this span fits exactly, because more follows
        kept.append(
            StyledText(escape.text(span.text + " ", room) if wide == room else escape.text(span.text, room), span.style)
        )
        break
    return tuple(each for each in kept if each.text)


def fitted(of: Line, size: int) -> Line:
    """Return a line of exactly `size` cells: cut, or padded with blanks."""
    of = cut(of, size)
    lacking = size - width(of)
    return (*of, StyledText(" " * lacking)) if lacking else of


def styled(of: Line, style: Style) -> Line:
    """Return the line in one style."""
    return tuple(StyledText(span.text, style) for span in of)


def ends(left: Line, right: Line, size: int) -> Line:
    """Return a line with a text at each end. If both do not fit, the left one is cut, or the right one is omitted.

    >>> text(ends(line("workers"), line("1-6 of 9"), 20)), text(ends(line("workers"), line("1-6 of 9"), 14))
    ('workers     1-6 of 9', 'wor…  1-6 of 9')
    >>> text(ends(line("workers"), line("1-6 of 9"), 12))
    'workers     '
    """
    room = size - width(right) - _GAP
    if not right or room < _READABLE:
        return fitted(left, size)
    return (*fitted(left, room), StyledText(" " * _GAP), *right)


_GAP, _READABLE = 2, 4


def side_by_side(left: Sequence[Line], right: Sequence[Line], left_width: int, height: int, gap: str) -> list[Line]:
    """Return `height` lines with the left lines, a gap, and the right lines."""

    def nth(of: Sequence[Line], index: int) -> Line:
        return of[index] if index < len(of) else EMPTY

    return [(*fitted(nth(left, n), left_width), StyledText(gap, "dim"), *nth(right, n)) for n in range(height)]


def joined(parts: Iterable[Line], between: str = "  ") -> Line:
    """Return one line of all parts that are not empty."""
    spans: list[StyledText] = []
    for part in parts:
        if part:
            spans += [StyledText(between), *part] if spans else part
    return tuple(spans)
