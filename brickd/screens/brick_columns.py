"""The columns of tables of bricks, shared by several verbs.

Owns: the brick's name, the columns that identify a row, the optional columns. Must not know: individual verbs.
Invariant: a requested column is shown on a screen of any width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from brickd.base import escape, units
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

_BOUND = "≤"
OPTIONAL = {
    "p95": Figure(Column("P95", "right"), "p95_ns", units.duration),
    "cv": Figure(Column("CV", "right"), "cv", lambda cv: "-" if cv is None else f"{cv:.2f}"),
}


def with_optional(figures: Sequence[Figure], more: Sequence[str], before: str = "p99_ns") -> list[Figure]:
    """Insert the requested columns before the column with the key `before`."""
    at = next(place for place, each in enumerate(figures) if each.key == before)
    return [*figures[:at], *(each for name, each in OPTIONAL.items() if name in more), *figures[at:]]


def name(entry: dict[str, Any]) -> str:
    """Return the name of a brick. It has a mark if the brick's times are only bounds."""
    return f"{entry['name']} {_BOUND}" if entry["bounded"] else str(entry["name"])


def bounds(entries: Iterable[dict[str, Any]], screen: Screen) -> list[str]:
    """Return the line that explains the mark, ready to print; [] if no brick is marked."""
    note = f"{_BOUND} an upper bound, not a measurement: the time until the program waited for the device"
    return [escape.text(note, screen.width)] if any(entry["bounded"] for entry in entries) else []


def over(document: dict[str, Any]) -> str:
    """Return the period of a document as a suffix; "" if the document covers all time since the start."""
    length_ns = document["over_ns"]
    if length_ns is None:
        return ""
    if document.get("from") is not None:
        began, ended = (datetime.fromisoformat(document[key]).astimezone() for key in ("from", "to"))
        date = "" if began.date() == ended.date() else "%Y-%m-%d "
        return f", {began:{date}%H:%M:%S} to {ended:{date}%H:%M:%S}"
    seconds = length_ns / units.SECOND
    return f", last {f'{seconds:.0f} s' if seconds >= 1 else units.duration(length_ns)}"


def identity_columns(document: dict[str, Any]) -> list[Figure]:
    """Return the columns that identify a row: the brick, and the worker, service or layer."""
    # names of bricks often differ at their ends: a layer's number, a projection
    brick, by = Figure(Column(f"BRICK{over(document)}", differs="end"), "name", str), document["by"]
    if by is None:
        return [brick]
    layer = by == "layer"
    return [brick, Figure(Column(by.upper(), "right" if layer else "left"), by, wording.identifier if layer else str)]


def nothing(document: dict[str, Any]) -> str:
    """Return the text to show if no span was counted."""
    if document["over_ns"] is None:
        return "no spans yet"
    return f"no spans {'in the' if document.get('from') is None else 'from'}{over(document)[1:]}"
