"""The screen of distances from the roof.

Owns: the order of its lines, its columns. Must not know: segments, how a distance is computed. Invariants: Bricks that
are omitted, unknown or above their roof are counted. A line says if peaks were measured under load, or are only lower
bounds. All figures in a column have the same unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from brickd.base import escape, units
from brickd.screens import brick_columns, peak_words, wording
from brickd.screens import table as tables
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

_FIGURES = (
    Figure(Column("TOTAL", "right", spare=1), "total", str),
    Figure(Column("FLOP/S", "right", spare=3), "speed", str),
    Figure(Column("FLOP/BYTE", "right", spare=4), "flops_per_byte", lambda ratio: f"{ratio:.3g}"),
    Figure(Column("ROOF", "right", spare=5), "roof", str),
    Figure(Column("LIMIT", spare=2), "limit", str),
    Figure(Column("OF ROOF", "right", spare=6), "of_roof", str),
    Figure(Column("OF PEAK", "right", spare=7), "of_peak", str),
    Figure(Column("DISTANCE", "right"), "distance", str),
    Figure(Column("TO GAIN", "right"), "to_gain", str),
)
_LACKING = {"flops": "operations", "bytes": "bytes", "total_ns": "time"}


def render(found: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen."""
    if not found["workers"]:
        return [wording.no_workers(found)]
    entries, rest, unknown = found["bricks"], found["rest"], found["unknown"]
    if not entries and not unknown:
        return [brick_columns.nothing(found)]
    lines = escape.wrapped(_roof(found), screen.width)
    if entries:
        shown = _cells(entries, found["peak_bounded"])
        lines += tables.figures([*brick_columns.identity_columns(found), *_FIGURES], shown, screen.width)
        lines += brick_columns.bounds(entries, screen)
    if rest["bricks"]:
        to_gain = peak_words.at_least(units.duration(rest["to_gain_ns"]), rest["roof_bounded"])
        lines.append(f"…{units.count(rest['bricks'])} more: {to_gain} to gain")
    notes = (*peak_words.bounds(found["device"], (found["type"], found["level"])), *_above(found), *_unknown(unknown))
    return [*lines, *(line for note in notes for line in escape.wrapped(note, screen.width))]


def _cells(entries: Sequence[dict[str, Any]], peak_bounded: bool) -> list[dict[str, Any]]:
    """Return the entries with their cells. Cells that are computed from a lower bound have a mark."""
    total, to_gain = (units.durations(entry[of] for entry in entries) for of in ("total_ns", "to_gain_ns"))
    speed, roof = (units.counts(entry[of] for entry in entries) for of in ("flops_per_second", "roof_flops_per_second"))
    shown = []
    for entry in entries:
        bounded, distance = entry["roof_bounded"], units.percent(entry["distance_percent"])
        cells = {
            "name": brick_columns.name(entry),
            "total": total(entry["total_ns"]),
            "speed": speed(entry["flops_per_second"]),
            "roof": peak_words.at_least(roof(entry["roof_flops_per_second"]), bounded),
            "of_roof": peak_words.at_most(units.percent(entry["of_roof_percent"]), bounded),
            "of_peak": peak_words.at_most(units.percent(entry["of_peak_percent"]), peak_bounded),
            "distance": "above" if entry["above_roof"] else peak_words.at_least(distance, bounded),
            "to_gain": peak_words.at_least(to_gain(entry["to_gain_ns"]), bounded),
        }
        shown.append(entry | cells)
    return shown


def _roof(found: dict[str, Any]) -> str:
    device, level = found["device"], found["level"]
    (rate,) = (each["bytes_per_second"] for each in device["bandwidths"] if each["level"] == level)
    evidence = device["evidence"].get(level)
    peak = peak_words.at_least(f"{units.count(found['peak_flops_per_second'])}FLOP/s", found["peak_bounded"])
    bandwidth = peak_words.at_least(f"{units.count(rate)}B/s", evidence is not None and evidence["lower_bound"])
    figures = f"{found['type']} {peak}, {level} {bandwidth}"
    used = [device["evidence"][of]["at"] for of in (found["type"], level) if of in device["evidence"]]
    at = min(used, default=device["at"])[:10]
    return f"{device['name']}: {figures}; {device['source']} {at}{peak_words.load(device, (found['type'], level))}"


def _above(found: dict[str, Any]) -> list[str]:
    """Say that some bricks may have read their bytes from a level that is nearer to the processor."""
    return [
        f"{units.plural(number, 'brick is', 'bricks are')} above this roof and below that of {level}: the bytes may "
        f"have come from there"
        for level, number in sorted(found["above"]["served_by"].items())
    ]


def _unknown(unknown: Sequence[dict[str, Any]]) -> list[str]:
    if not unknown:
        return []
    kinds = Counter(" and ".join(_LACKING[key] for key in entry["missing"]) for entry in unknown)
    counts = "; ".join(f"{units.count(number)} without {what}" for what, number in sorted(kinds.items()))
    return [f"{units.plural(len(unknown), 'brick is', 'bricks are')} not rated: {counts}"]
