"""Escapes a worker's strings, so that they are safe to show.

Owns: which characters are visible, the escapes of all other characters, the width on a terminal. Must not know: the
origin and meaning of a string. Invariants: The result of `text` has only visible characters and ASCII spaces, so it
cannot move a cursor, hide text or reorder text. `text` leaves its own output unchanged. A cut string is never longer
than its limit. The result is ambiguous, because a backslash is not escaped: only JSON has the exact string.
"""

import functools
import unicodedata
from collections.abc import Sequence

_ELLIPSIS = "…"

# Characters that str.isprintable() accepts but terminals do not draw. Unicode calls characters of this kind
# Default_Ignorable_Code_Point.
_INVISIBLE = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),  # combining grapheme joiner
        (0x115F, 0x1160),  # Hangul fillers
        (0x17B4, 0x17B5),  # Khmer inherent vowels
        (0x180B, 0x180F),  # Mongolian variation selectors
        (0x3164, 0x3164),  # Hangul filler
        (0xFE00, 0xFE0F),  # variation selectors
        (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
        (0xE0100, 0xE01EF),  # variation selectors supplement
    )
    for code in range(first, last + 1)
)

# Characters that start a formula in a spreadsheet. East Asian editions also accept their fullwidth forms.
_FORMULA = tuple("=+-@\t\r＝＋－＠")


def text(value: str, limit: int | None = None) -> str:
    r"""Return any string, even with lone surrogates, in a form that is safe on a terminal.

    A string wider than `limit` cells is cut and then ends with an ellipsis. An escape is never cut in two.

    >>> text("red \x1b[31m\n")
    'red \\x1b[31m\\n'
    >>> text("moe_gemm_with_a_long_name", 10)
    'moe_gemm_…'
    """
    parts: Sequence[str] = value
    if not (value.isascii() and value.isprintable()):
        parts = [*map(_visible, value)]
    visible = "".join(parts)
    if limit is None or width(visible) <= limit:
        return visible
    kept: list[str] = []
    room = limit - 1
    for part in parts:
        room -= width(part)
        if room < 0:
            break
        kept.append(part)
    return "".join(kept) + _ELLIPSIS if limit > 0 else ""


def both_ends(value: str, limit: int) -> str:
    r"""Return any string in a form that is safe on a terminal; if it is wider than `limit` cells, its middle is cut.

    Names of workers differ at their ends, so both ends of them must be visible.

    >>> both_ends("a-long-name-of-a-service/12", 14), both_ends("api/12", 14)
    ('a-long…vice/12', 'api/12')
    >>> both_ends("模型模型模型/12", 9), both_ends("abc", 2), both_ends("abc", 0)
    ('模型…/12', '…c', '')
    """
    parts = [_visible(char) for char in value]
    if limit < 2 or width("".join(parts)) <= limit:
        return text(value, limit)
    end = limit // 2
    return "".join((*_fitting(parts, limit - 1 - end), _ELLIPSIS, *_fitting(parts[::-1], end)[::-1]))


def _fitting(parts: Sequence[str], room: int) -> Sequence[str]:
    """Return the first parts that fit into `room` cells."""
    cells = 0
    for count, part in enumerate(parts):
        cells += width(part)
        if cells > room:
            return parts[:count]
    return parts


def wrapped(value: str, limit: int | None) -> list[str]:
    r"""Return any string in a form that is safe on a terminal, in lines of at most `limit` cells.

    Lines break at spaces. A word is broken only if it is wider than a line.

    >>> wrapped("raise BRICKD_EVENTS: 8,420 events dropped", 20)
    ['raise BRICKD_EVENTS:', '8,420 events dropped']
    >>> wrapped("of moe_gemm", 4), wrapped("as it is", None), wrapped("", 9)
    (['of', 'moe_', 'gemm'], ['as it is'], [''])
    """
    if limit is None:
        return [text(value)]
    lines = [""]
    for word in text(value).split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if width(joined) <= limit:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for char in word:
            if lines[-1] and width(lines[-1]) + width(char) > limit:
                lines.append("")
            lines[-1] += char
    return lines


def width(value: str) -> int:
    """Return the number of terminal cells that an escaped string takes.

    >>> width("moe"), width("模型"), width("e\u0301")
    (3, 4, 1)
    """
    if value.isascii():
        return len(value)
    return sum(map(_cells, value))


def csv_cell(value: str) -> str:
    r"""Return a string as a CSV cell that no spreadsheet and no terminal executes.

    Numbers must not be passed, because a negative number would become text.

    >>> csv_cell("=HYPERLINK(1)"), csv_cell("\trope"), csv_cell("rope")
    ("'=HYPERLINK(1)", "'\\trope", 'rope')
    """
    return ("'" if value.startswith(_FORMULA) else "") + text(value)


# A screen asks for the same few characters thousands of times. The limit is for hostile names.
_KNOWN_CHARACTERS = 4096


@functools.lru_cache(_KNOWN_CHARACTERS)
def _visible(char: str) -> str:
    if char.isprintable() and char not in _INVISIBLE:
        return char
    return char.encode("unicode_escape").decode("ascii")


@functools.lru_cache(_KNOWN_CHARACTERS)
def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
