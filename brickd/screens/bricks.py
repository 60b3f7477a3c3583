"""The screen of the bricks.

Owns: its columns. Must not know: segments. Invariants: Omitted rows are counted. The column by which the bricks are
sorted is shown on any screen of at least 24 columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brickd.base import escape, units
from brickd.query.queries import SORTS
from brickd.screens import brick_columns, wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column, EntryTable, Figure


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


_FIGURES = (
    Figure(Column("CATEGORY", spare=10), "category", str),
    Figure(Column("COUNT", "right", spare=6), "count", units.count),
    Figure(Column("COUNT/S", "right", spare=10), "count_per_second", units.count),
    Figure(Column("SELF", "right", spare=1), "self_ns", units.duration),
    Figure(Column("SHARE", "right", spare=2), "share_percent", units.percent),
    Figure(Column("TOTAL", "right", spare=8), "total_ns", units.duration),
    Figure(Column("MEAN", "right", spare=9), "mean_ns", units.duration),
    Figure(Column("MEDIAN", "right", spare=7), "p50_ns", units.duration),
    Figure(Column("P90", "right", spare=12), "p90_ns", units.duration),
    Figure(Column("P99", "right", spare=5), "p99_ns", units.duration),
    Figure(Column("MAX", "right", spare=11), "max_ns", units.duration),
    Figure(Column("ELEMENTS", "right", spare=13), "elements", units.count),
    Figure(Column("BYTES", "right", spare=14), "bytes", units.size),
    Figure(Column("ELEMENTS/S", "right", spare=15), "elements_per_second", units.count),
    Figure(Column("ELEMENTS/S IN BRICK", "right", spare=16), "elements_per_second_in_brick", units.count),
    Figure(Column("FLOP/S IN BRICK", "right", spare=17), "flops_per_second_in_brick", units.count),
    Figure(Column("FLOP/BYTE", "right", spare=18), "flops_per_byte", _ratio),
)
# These columns are shown only if an entry has a value for them. There are rates only if a period is given, and FLOPs
# only if the program reports operations.
_SOMETIMES = {
    "count_per_second", "elements_per_second", "max_ns", "flops_per_second_in_brick", "flops_per_byte",
}  # fmt: skip
_WORST = (
    Figure(Column("WORST WORKER", spare=4, differs="end"), "worst_worker", str),
    Figure(Column("SPREAD", "right", spare=3), "spread", lambda spread: f"{spread:.2f}x"),
)


def render(document: dict[str, Any], screen: Screen, more: Sequence[str] = ()) -> list[str]:
    """Return the lines of the screen. `more` names the optional columns to show."""
    if not document["workers"]:
        return [wording.no_workers(document)]
    entries, rest = document["bricks"], document["rest"]
    if not entries:
        return [brick_columns.nothing(document)]
    lines = table_of(document, more).lines(screen.width) + brick_columns.bounds(entries, screen)
    if rest["bricks"]:
        share = units.percent(rest["share_percent"])
        left_out = f"…{units.count(rest['bricks'])} more: {units.duration(rest['self_ns'])} self, {share}"
        lines.append(escape.text(left_out, screen.width))
    return lines


def table_of(document: dict[str, Any], more: Sequence[str] = ()) -> EntryTable:
    """Return the table of the bricks, in the order of the document."""
    entries = document["bricks"]
    # A single worker has no worst worker; the last day has only totals of services.
    figures = [
        *brick_columns.identity_columns(document),
        *brick_columns.with_optional(_FIGURES, more),
        *(() if document["by"] == "worker" or document.get("from") is not None else _WORST),
    ]
    known = {key for entry in entries for key, value in entry.items() if value is not None}
    figures = [each for each in figures if each.key in known or each.key not in _SOMETIMES]
    sorted_by = SORTS[document["sort"]]
    kept = [each._replace(column=each.column._replace(spare=0)) if each.key == sorted_by else each for each in figures]
    return EntryTable(kept, [entry | {"name": brick_columns.name(entry)} for entry in entries])
