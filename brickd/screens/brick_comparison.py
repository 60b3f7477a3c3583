"""The table that compares the bricks of a status with those of another day.

Owns: its columns. Must not know: which time is compared. Invariant: rows that are omitted are counted.
"""

from __future__ import annotations

from typing import Any

from brickd.base import units
from brickd.screens import brick_columns, wording
from brickd.screens import table as tables
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure


def _change(percent: float | None) -> str:
    """Format a change, always with its sign.

    >>> _change(12.3), _change(-4.0), _change(0.0), _change(None)
    ('+12 %', '-4.0 %', '0 %', '-')
    """
    return f"{'+' if percent is not None and percent > 0 else ''}{units.percent(percent)}"


_FIGURES = (
    Figure(Column("COUNT/S", "right"), "count_per_second", units.count),
    Figure(Column("CHANGE", "right"), "count_per_second_change", _change),
    Figure(Column("MEDIAN", "right"), "p50_ns", units.duration),
    Figure(Column("CHANGE", "right"), "p50_ns_change", _change),
    Figure(Column("P99", "right"), "p99_ns", units.duration),
    Figure(Column("CHANGE", "right"), "p99_ns_change", _change),
)


def lines(document: dict[str, Any], screen: Screen, most: int) -> list[str]:
    """Return the lines of the table, with at most `most` bricks."""
    against = document["against"]
    title = f"BRICK (against {against['day']}{brick_columns.over(against) if against['from'] else ', unknown'})"
    rows = [_row(each) for each in against["bricks"][:most]]
    if not rows:
        return [brick_columns.nothing(document)]
    figures = (Figure(Column(title), "name", str), *_FIGURES)
    return tables.figures(figures, rows, screen.width) + wording.more(
        len(against["bricks"]) - most, "more brick", ": --json"
    )


def _row(of: dict[str, Any]) -> dict[str, Any]:
    now = of["now"] or dict.fromkeys(of["change_percent"])
    changes = {f"{figure}_change": percent for figure, percent in of["change_percent"].items()}
    return {"name": brick_columns.name(of), **now, **changes}
