"""The verb `roofline`.

Owns: the screen of distances, the file of the picture. Must not know: segments, how a distance is computed. Invariants:
Bricks that are omitted, unknown or above their roof are counted. A message says if the peaks belong to another machine,
were measured under load, are only lower bounds, or are lower than a rate that a brick reached. All figures in a column
have the same unit.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from brickd.analysis.roofline import peaks_file
from brickd.analysis.roofline.roofline import chosen, document
from brickd.base import escape, state_file, units
from brickd.base.paths import runtime
from brickd.base.processors import here
from brickd.cli import peak_words, roofline_svg
from brickd.cli.ask import asked
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import asks
from brickd.errors import BrickdError
from brickd.query.queries import BricksQuery, RooflineQuery
from brickd.screens import brick_columns, wording
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


@click.command()
@asks(RooflineQuery)
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also draw the roofline into this file.",
)
@output_options
def roofline(query: RooflineQuery, recordings: Sequence[str], svg: Path | None, output: str) -> None:
    """Compare each brick with the peak performance of a device.

    For each brick that reports operations and bytes, shows how close it is to the roof, what limits it, and how much
    time you can gain. Counts the other bricks, with the reason. Needs the peaks that "brickd calibrate" measures.

    \b
    Examples:
      brickd roofline
      brickd roofline --by layer --top 10
      brickd roofline --device gpu0 --type bfloat16
    """  # noqa: D301
    bricks = BricksQuery(
        query.names,
        by=query.by,
        category=query.category,
        over=query.over,
        at=query.at,
        since=query.since,
        until=query.until,
    )
    totals = asked("bricks", bricks, recordings=recordings)
    device = chosen(peaks_file.load(peaks_file.place(runtime())), query)
    found = document(totals, device, query, here())
    for line in (*_elsewhere(found), *_too_low(found)):
        print_message(line)
    if svg is not None:
        _draw(svg, found)
    emit(found, output, table=lambda screen: _render(found, screen), rows="bricks")


def _draw(path: Path, found: dict[str, Any]) -> None:
    try:
        state_file.replace(path, roofline_svg.svg(found).encode())
    except OSError as error:
        raise BrickdError(f"{path}: cannot be written: {error.strerror} (use another --svg FILE)") from None


def _elsewhere(found: dict[str, Any]) -> list[str]:
    device, recording = found["device"], found.get("recording")
    if device["machine"] is None:
        return []
    lines = []
    if not found["device_is_here"]:
        machine = peak_words.machine(device["machine"])
        lines.append(f"the peaks are those of another machine, {machine}: brickd calibrate --replace")
    if recording is not None and recording["host"] not in (None, os.uname().nodename):
        lines.append(f"this was recorded on {recording['host']}, the peaks may be of another machine")
    return lines


def _render(found: dict[str, Any], screen: Screen) -> list[str]:
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


def _too_low(found: dict[str, Any]) -> list[str]:
    """Say that bricks exceed the peak, and which command to run next."""
    above, device = found["above"], found["device"]
    measure = "measure it again: brickd calibrate"
    if device["source"] == "given":
        measure = f"give it again: brickd calibrate --device {shlex.quote(device['name'])} --peak-flops N --bandwidth N"
    lines = []
    if above["peak"]:
        bricks = units.plural(above["peak"], "brick", "bricks")
        most = units.percent(above["most_of_peak_percent"])
        peak = f"{units.count(found['peak_flops_per_second'])}FLOP/s"
        where = "" if device["name"] != "core" else ", or more than one core computed (--device machine)"
        lines.append(
            f"{bricks} reached up to {most} of the peak of {device['name']}, {found['type']} {peak}: the peak is too"
            f" low{where}, or the spans give too many operations; {measure}"
        )
    if above["every_roof"]:
        bricks = units.plural(above["every_roof"], "brick is", "bricks are")
        lines.append(
            f"{bricks} above the bandwidth of every known level of {device['name']}: the bandwidth is too low, or the"
            f" spans give too few bytes; {measure}"
        )
    return lines


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
