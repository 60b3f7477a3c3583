"""The screen of a hang.

Owns: the order of its lines, its columns. Must not know: how a verdict is reached. Invariant: the verdicts come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brickd.base import escape, units
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import WORKER, Column, EntryTable, Figure

_NEAREST = 8  # the number of outer bricks in a cell


def render(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen."""
    if not document["open"]:
        return [wording.no_workers(document)]
    lines = []
    for service in document["services"]:
        line = escape.text(f"{service['service']}: {service['text']}")
        lines.append(screen.paint(line, "red") if service["odd"] else line)
    return lines + table_of(document).lines(screen.width)


def table_of(document: dict[str, Any]) -> EntryTable:
    """Return the table of the open spans, in the order of the document."""
    return EntryTable(_FIGURES, document["open"])


def _inside(path: Sequence[str]) -> str:
    """Return the outer bricks, the innermost one first. A cell is cut at its end, so these stay visible."""
    around = path[-2::-1]
    return " < ".join([*around[:_NEAREST], *(["…"] if len(around) > _NEAREST else [])])


_FIGURES = (
    Figure(WORKER, "worker", str),
    Figure(Column("LANE", "right", spare=3), "lane", units.count),
    Figure(Column("THREAD", "right", spare=2), "thread", wording.identifier),
    Figure(Column("STATE"), "state", str),
    Figure(Column("FOR", "right"), "since_ns", units.duration),
    Figure(Column("BRICK", differs="end"), "brick", lambda brick: brick or "-"),
    Figure(Column("LAYER", "right", spare=4), "layer", wording.identifier),
    Figure(Column("OPEN", "right", spare=5), "open", units.count),
    Figure(Column("INSIDE", spare=1), "path", _inside),
)
