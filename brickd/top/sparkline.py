"""A row of bars that shows how a rate changed: one cell for each slot of a history.

Owns: the bars, the scale, where gaps are. Must not know: documents other than `history`, screens. Invariants: The
result has exactly the requested width. A slot without data is a blank, and a rate above zero is never a blank. Drawing
a bar scales a figure of the view; it computes no new figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"
SECOND = 1_000_000_000


def bars(values: Sequence[float | None], width: int, *, ascii_only: bool = False) -> str:
    """Draw the newest `width` values; None is a gap. The largest value of them has the highest bar.

    >>> bars([0, 1, None, 7, 8], 6)
    ' ▁▂ ▇█'
    >>> bars([5, 5], 2), bars([0, 0], 2), bars([], 2), bars([0, 8], 2, ascii_only=True)
    ('██', '▁▁', '  ', '_#')
    >>> bars([1, 100], 2), bars([1], 0)
    ('▂█', '')
    """
    levels = ASCII_BARS if ascii_only else BARS
    newest = values[-width:] if width > 0 else []
    most = max((each for each in newest if each is not None), default=0)
    top = len(levels) - 1

    def bar(value: float | None) -> str:
        if value is None:
            return " "
        return levels[min(top, max(1, round(value / most * top)) if value > 0 and most > 0 else 0)]

    return "".join(map(bar, newest)).rjust(max(0, width))


def rates(history: dict[str, Any]) -> list[float | None]:
    """Return the rate of each piece of time in a history, the oldest first. A missing piece is None.

    >>> slots = [{"from": f"2026-01-01T00:00:0{n}Z", "count_per_second": n} for n in (1, 3)]
    >>> rates({"every_ns": SECOND, "slots": slots})
    [1, None, 3]
    """
    slots = history["slots"]
    every_s = history["every_ns"] / SECOND
    found: list[float | None] = []
    began: datetime | None = None
    for slot in slots:
        at = datetime.fromisoformat(slot["from"])
        if began is None:
            began = at
        index = round((at - began).total_seconds() / every_s) if every_s else len(found)
        found += [None] * min(index - len(found), _MOST_GAPS)
        found.append(slot["count_per_second"])
    return found[-_MOST:]


_MOST, _MOST_GAPS = 512, 512  # wider than any screen needs


def trend(history: dict[str, Any] | None, width: int, *, ascii_only: bool = False) -> str:
    """Draw a history. Without one, draw blanks."""
    return " " * width if history is None else bars(rates(history), width, ascii_only=ascii_only)
