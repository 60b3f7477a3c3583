"""A terminal's screen as an SVG: every character is text, with its colours.

Owns: the escape sequences of colours (SGR), the palette, the layout. Must not know: brickd, how a screen was captured.
Invariants: The text of the picture is the text of the screen, a `<text>` for each line. A cell has the same place in
each font, because each piece of a line states its width. Other escape sequences are dropped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

SIZE, LINE, GLYPH, MARGIN = 13, 18, 7.83, 14
GROUND, TEXT = "#0d1117", "#c9d1d9"
# The sixteen colours that a terminal names; the rest of the 256 is a cube of colours and a row of greys.
PALETTE = (
    *("#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4"),
    *("#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc"),
)
_SGR = re.compile("\x1b\\[([0-9;:]*)m")
_OTHER = re.compile("\x1b(\\[[0-9;:?<=>]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)|[ -/]*[0-~])|[\x0e\x0f]")
_LEVELS = (0, 95, 135, 175, 215, 255)


class Ink(NamedTuple):
    """How characters look: their colour and that of the ground; None is the default of the terminal."""

    colour: str | None = None
    ground: str | None = None
    bold: bool = False
    dim: bool = False
    underline: bool = False
    reverse: bool = False

    @property
    def shown(self) -> tuple[str, str | None]:
        """The colour of the text and of the ground, as they are drawn."""
        if self.reverse:
            return self.ground or GROUND, self.colour or TEXT
        return self.colour or TEXT, self.ground


class Piece(NamedTuple):
    """A part of a line that looks the same throughout."""

    text: str
    ink: Ink = Ink()


def numbered(number: int) -> str:
    """Return one of the 256 colours.

    >>> numbered(1), numbered(16), numbered(196), numbered(255)
    ('#ff7b72', '#000000', '#ff0000', '#eeeeee')
    """
    if number < 16:
        return PALETTE[number]
    if number >= 232:
        return f"#{8 + 10 * (number - 232):02x}" + f"{8 + 10 * (number - 232):02x}" * 2
    red, green, blue = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
    return "#" + "".join(f"{_LEVELS[each]:02x}" for each in (red, green, blue))


def _extended(codes: Iterator[int]) -> str | None:
    """Return the colour after 38 or 48: `5;N`, or `2;R;G;B`."""
    kind = next(codes, 0)
    if kind == 5:
        return numbered(next(codes, 0) & 255)
    if kind == 2:
        return "#" + "".join(f"{next(codes, 0) & 255:02x}" for _ in range(3))
    return None


def _coloured(ink: Ink, sequence: str) -> Ink:
    """Return the ink after a sequence of SGR."""
    codes = iter([int(each or 0) for each in re.split("[;:]", sequence)])
    for code in codes:
        match code:
            case 0:
                ink = Ink()
            case 1:
                ink = ink._replace(bold=True)
            case 2:
                ink = ink._replace(dim=True)
            case 4:
                ink = ink._replace(underline=True)
            case 7:
                ink = ink._replace(reverse=True)
            case 22:
                ink = ink._replace(bold=False, dim=False)
            case 24:
                ink = ink._replace(underline=False)
            case 27:
                ink = ink._replace(reverse=False)
            case 38:
                ink = ink._replace(colour=_extended(codes))
            case 48:
                ink = ink._replace(ground=_extended(codes))
            case 39:
                ink = ink._replace(colour=None)
            case 49:
                ink = ink._replace(ground=None)
            case _ if 30 <= code <= 37 or 90 <= code <= 97:
                ink = ink._replace(colour=PALETTE[code - 30 if code < 90 else code - 82])
            case _ if 40 <= code <= 47 or 100 <= code <= 107:
                ink = ink._replace(ground=PALETTE[code - 40 if code < 100 else code - 92])
    return ink


def pieces(screen: str) -> list[list[Piece]]:
    """Return the lines of a screen, each in pieces. A colour lasts until it is changed, even over the end of a line."""
    ink, found = Ink(), []
    for line in screen.rstrip("\n").expandtabs().split("\n"):
        of: list[Piece] = []
        for index, part in enumerate(_SGR.split(line)):
            if index % 2:
                ink = _coloured(ink, part)
            elif text := _OTHER.sub("", part):
                of.append(Piece(text, ink))
        while of and of[-1].ink.shown[1] is None and not of[-1].text.rstrip():
            of.pop()
        if of and of[-1].ink.shown[1] is None:
            of[-1] = of[-1]._replace(text=of[-1].text.rstrip())
        found.append(of)
    return found


def width(text: str) -> int:
    """Return the number of cells of a text.

    >>> width("a▁█"), width("日本"), width("e\\u0301")
    (3, 4, 1)
    """
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


# How lines without any colour are shown, by their beginning: commands, problems, heads of tables.
_PLAIN = (
    (re.compile(r"\$ "), Ink("#ffffff", bold=True)),
    (re.compile(r"! "), Ink(PALETTE[1])),
    (re.compile(r"[A-Z]{3,} "), Ink("#8b949e")),
)


def _highlighted(lines: Sequence[list[Piece]]) -> list[list[Piece]]:
    def ink(text: str) -> Ink:
        return next((ink for start, ink in _PLAIN if start.match(text)), Ink())

    return [[Piece(each.text, ink(each.text)) for each in line] for line in lines]


def _style(ink: Ink) -> str:
    colour, _ = ink.shown
    weight = ' font-weight="bold"' if ink.bold else ""
    line = ' text-decoration="underline"' if ink.underline else ""
    faint = ' fill-opacity="0.6"' if ink.dim else ""
    return f"{weight}{line}{faint}" + (f' fill="{colour}"' if colour != TEXT else "")


def _at(cells: int) -> str:
    return f"{MARGIN + cells * GLYPH:.1f}".removesuffix(".0")


def _row(of: Sequence[Piece], number: int) -> list[str]:
    """Return the grounds of a line, and its text."""
    top, cell, drawn, spans = MARGIN + number * LINE, 0, [], []
    for text, ink in of:
        size = width(text)
        if (ground := ink.shown[1]) is not None:
            drawn.append(
                f'<rect x="{_at(cell)}" y="{top - 1}" width="{size * GLYPH:.1f}" height="{LINE}" fill="{ground}"/>'
            )
        place = f' x="{_at(cell)}" textLength="{size * GLYPH:.1f}"' if size else ""
        spans.append(f"<tspan{place}{_style(ink)}>{escape(text)}</tspan>")
        cell += size
    return [*drawn, f'<text x="{MARGIN}" y="{top + SIZE}">{"".join(spans)}</text>']


def drawn(screen: str, columns: int = 0) -> str:
    """Return the SVG of a screen, with at least this many columns."""
    lines = pieces(screen)
    if not _SGR.search(screen):
        lines = _highlighted(lines)
    cells = max(columns, *(sum(width(each.text) for each in line) for line in lines))
    across, down = round(cells * GLYPH) + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" width="{across}" height="{down}"'
            f' xml:space="preserve" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}"'
            f' fill="{TEXT}">',
            f'<rect width="{across}" height="{down}" rx="8" fill="{GROUND}"/>',
            *(each for number, line in enumerate(lines) for each in _row(line, number)),
            "</svg>\n",
        ]
    )
