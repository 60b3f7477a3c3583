"""The screen of the sources of kernels.

Owns: the order of its lines, its columns. Must not know: where sources come from. Invariant: sources that are left out
or not kept are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from brickd.base import escape, units
from brickd.base.units import plural
from brickd.screens import table as tables
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

_UNUSED = 10  # how many sources without a kernel the screen shows; JSON has all
_NOT_KEPT = {
    "dropped": ("source", "that did not fit into a ring"),
    "refuted": ("source", "whose text does not match its hash"),
    "refused": ("part", "with invalid content"),
    "removed": ("file", "that was unused for the longest time"),
}
_FIGURES = (
    Figure(Column("SOURCE"), "hash", str),
    Figure(Column("SIZE", "right"), "size_bytes", lambda size: "" if size is None else units.size(size)),
    Figure(Column("LAUNCHES", "right"), "launches", units.count),
    Figure(Column("KERNELS", spare=2), "kernels", str),
    Figure(Column("WORKERS", spare=3), "workers", str),
    Figure(Column("NAME", spare=1), "name", lambda name: name or ""),
    Figure(Column("PATH", spare=4), "path", lambda path: path or ""),
)


def render(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen."""
    entries = document["sources"]
    lost = [escape.text(line, screen.width) for line in _lost(document["not_kept"])]
    if not entries:
        return lost or ["no sources: no kernel refers to one (brick.kernel(..., source=brick.source(text)))"]
    shown = entries[: sum(entry["launches"] > 0 for entry in entries) + _UNUSED]  # the entries are sorted by launches
    rows = [
        entry | {"kernels": _first([each["name"] for each in entry["kernels"]]), "workers": _first(entry["workers"])}
        for entry in shown
    ]
    lines = tables.figures(_FIGURES, rows, screen.width)
    if more := len(entries) - len(shown):
        lines.append(escape.text(f"…{units.count(more)} more that no kernel refers to", screen.width))
    return lines + [escape.text(line, screen.width) for line in _unlike(shown)] + lost


def _first(names: Sequence[str]) -> str:
    return "" if not names else names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1:,}"


def _lost(counts: dict[str, int]) -> list[str]:
    """Count the sources that were sent but not kept. Different texts with the same hash are reported elsewhere."""
    reasons = [f"{plural(counts[what], one)} {why}" for what, (one, why) in _NOT_KEPT.items() if counts[what]]
    return [f"not kept: {', '.join(reasons)} (brickd events)"] if reasons else []


def _unlike(entries: Iterable[dict[str, Any]]) -> list[str]:
    """List the sources whose text is unknown, and the hashes with several texts."""
    lines = []
    for entry in entries:
        if entry["lacking"] is not None:
            lines.append(f"{entry['hash']}: {entry['lacking']}")
        if entry["differing"]:
            senders = plural(entry["differing"], "worker")
            lines.append(f"{entry['hash']}: another text with this hash was sent by {senders}")
    return lines
