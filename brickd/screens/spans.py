"""The screen of spans.

Owns: its columns. Must not know: how spans are read. Invariant: spans that are not shown are counted.
"""

from __future__ import annotations

from typing import Any

from brickd.base import escape, units
from brickd.base.timestamps import rfc3339
from brickd.base.units import plural
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import WORKER, Column, EntryTable, Figure

NO_SPANS = "the recording has no spans: `brickd record --spans` records each span"
_FIGURES = (
    Figure(WORKER, "worker", str),
    Figure(Column("BRICK"), "brick", lambda name: name or "?"),
    Figure(Column("LAYER", "right", spare=3), "layer", wording.identifier),
    Figure(Column("BEGIN (UTC)", spare=2), "begin", str),
    Figure(Column("DURATION", "right"), "duration_ns", units.duration),
    Figure(Column("SELF", "right", spare=1), "self_ns", units.duration),
    Figure(Column("STEP", spare=4), "step", lambda step: step or ""),
    Figure(Column("ELEMENTS", "right", spare=5), "elements", units.count),
    Figure(Column("BYTES", "right", spare=6), "bytes", units.size),
    Figure(Column("LANE", "right", spare=7), "place", str),
    Figure(Column("KIND", spare=8), "kind", str),
)


def render(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen."""
    shown = document["spans"]
    if not shown:
        return [NO_SPANS if document["spans_recorded"] is False else "no span matches"]
    lines = table_of(document).lines(screen.width)
    if more := document["spans_total"] - len(shown):
        lines.append(
            escape.text(f"…{plural(more, 'shorter span')} (-n {len(shown) * 10:,})".replace(",", ""), screen.width)
        )
    return lines


def table_of(document: dict[str, Any]) -> EntryTable:
    """Return the table of the spans, in the order of the document."""
    entries = [
        wording.with_step(each) | {"begin": _begin(each["begin_unix_ns"]), "place": _place(each)}
        for each in document["spans"]
    ]
    return EntryTable(_FIGURES, entries)


def _begin(ns: int) -> str:
    return f"{rfc3339(ns)[11:19]}.{ns // 1000 % 1_000_000:06}"


def _place(span: dict[str, Any]) -> str:
    if span["stream"] is not None:
        return f"stream {span['stream'].lstrip('0') or '0'}"
    return str(span["lane"])
