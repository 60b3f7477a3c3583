"""The characters of the screen on a terminal that shows only ASCII.

Owns: how such a terminal is recognized, and the ASCII replacement of each other character that brickd uses. Must not
know: textual, documents. Invariants: A replaced line has the same width. Names of workers and bricks stay as they are.
"""

from __future__ import annotations

import locale
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from brickd.top.lines import Line, StyledText

_CELLS = str.maketrans({"…": "+", "│": "|", "·": "-", "µ": "u", "×": "x", "→": ">"})
_BOUNDS = {"≤ ": "<=", "≥ ": ">="}
_KEYS = {"↑ ↓": "Up Down", "← →": "Left Right", "←→": "Left/Right"}


def in_ascii(of: Line) -> Line:
    """Return a line with ASCII characters in place of brickd's other characters, as wide as before.

    >>> in_ascii((StyledText("moe_ge…  ≤ 421 µs │ ", "dim"),))
    (StyledText(text='moe_ge+  <=421 us | ', style='dim'),)
    """
    return tuple(StyledText(_replaced(span.text, _BOUNDS).translate(_CELLS), span.style) for span in of)


def key_name(name: str, *, ascii_only: bool) -> str:
    """Return the name of a key on the keyboard, as this screen shows it.

    >>> key_name("← →", ascii_only=True), key_name("← →", ascii_only=False)
    ('Left Right', '← →')
    """
    return _replaced(name, _KEYS) if ascii_only else name


def _replaced(text: str, others: Mapping[str, str]) -> str:
    for each, other in others.items():
        text = text.replace(each, other)
    return text


def is_ascii_only(output: TextIO) -> bool:
    """Whether a terminal or a file shows only ASCII, according to the locale and to the encoding of its text."""
    encodings = [output.encoding or "ascii", locale.getencoding()]
    return locale_name(_environment_at_start()) in ("C", "POSIX") or not _are_utf8(encodings)


def _are_utf8(encodings: Iterable[str]) -> bool:
    return all(each.replace("-", "").replace("_", "").lower() == "utf8" for each in encodings)


def locale_name(environment: Mapping[str, str]) -> str:
    """Return the name of the locale of characters, as the C library finds it.

    >>> locale_name({"LC_CTYPE": "", "LANG": "C.UTF-8"}), locale_name({"LC_ALL": "POSIX", "LANG": "C.UTF-8"})
    ('C.UTF-8', 'POSIX')
    >>> locale_name({"LC_CTYPE": "C.UTF-8", "LANG": "C"}), locale_name({})
    ('C.UTF-8', 'C')
    """
    return next((found for each in ("LC_ALL", "LC_CTYPE", "LANG") if (found := environment.get(each))), "C")


def _environment_at_start() -> Mapping[str, str]:
    """Return the environment with which this process started: in the locale C, Python then sets LC_CTYPE."""
    with suppress(OSError):
        pairs = (each.partition(b"=") for each in Path("/proc/self/environ").read_bytes().split(b"\0"))
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return os.environ
