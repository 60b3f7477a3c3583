"""The screen of a history.

Owns: its columns. Must not know: slots of the last day. Invariant: a period without a slot has no row. Each row shows
when it begins, so the gap is visible.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from brickd.base import units
from brickd.screens.screen import Screen
from brickd.screens.table import Column, EntryTable, Figure

_FIGURES = (
    Figure(Column("WORKERS", "right", spare=3), "workers", units.count),
    Figure(Column("COUNT", "right", spare=2), "count", units.count),
    Figure(Column("COUNT/S", "right"), "count_per_second", units.count),
    Figure(Column("MEDIAN", "right"), "p50_ns", units.duration),
    Figure(Column("P99", "right"), "p99_ns", units.duration),
    Figure(Column("SELF", "right", spare=1), "self_ns", units.duration),
    Figure(Column("LOST", "right"), "lost", units.count),
)


def render(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen."""
    return table_of(document).lines(screen.width) if document["slots"] else ["no slots yet"]


def table_of(document: dict[str, Any]) -> EntryTable:
    """Return the table of the slots, in the order of the document. The dates are shown if there are several."""
    slots = document["slots"]
    times = [datetime.fromisoformat(each["from"]).astimezone() for each in slots]
    dated = "%Y-%m-%d " if times and times[0].date() != times[-1].date() else ""
    of = "ALL BRICKS" if document["brick"] is None else document["brick"]
    begin = Figure(Column(f"FROM ({of})"), "begin", str)
    rows = [each | {"begin": f"{time:{dated}%H:%M:%S}"} for each, time in zip(slots, times, strict=True)]
    return EntryTable((begin, *_FIGURES), rows)
