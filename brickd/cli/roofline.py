"""The verb `roofline`.

Owns: the screen of distances, the file of the picture. Must not know: segments, how a distance is computed. Invariants:
bricks that are cut off, unknown or above their roof are counted; a message says if the peaks are another machine's.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from brickd.analysis.roofline import peaks
from brickd.analysis.roofline.roofline import chosen, document
from brickd.base import escape, state_file, units
from brickd.base.machine import here
from brickd.base.paths import runtime
from brickd.cli import roofline_svg, wording
from brickd.cli import table as tables
from brickd.cli.ask import asked
from brickd.cli.output import Screen, emit, output_options, print_message
from brickd.cli.query_options import asks
from brickd.cli.table import Column, Figure
from brickd.errors import BrickdError
from brickd.query.queries import BricksQuery, RooflineQuery

_FIGURES = (
    Figure(Column("TOTAL", "right", spare=1), "total_ns", units.duration),
    Figure(Column("FLOP/S", "right", spare=3), "flops_per_second", units.count),
    Figure(Column("FLOP/BYTE", "right", spare=4), "flops_per_byte", lambda ratio: f"{ratio:.3g}"),
    Figure(Column("ROOF", "right", spare=5), "roof_flops_per_second", units.count),
    Figure(Column("LIMIT", spare=2), "limit", str),
    Figure(Column("OF ROOF", "right", spare=6), "of_roof_percent", units.percent),
    Figure(Column("OF PEAK", "right", spare=7), "of_peak_percent", units.percent),
    Figure(Column("DISTANCE", "right"), "distance", str),
    Figure(Column("TO GAIN", "right"), "to_gain_ns", units.duration),
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
def roofline(question: RooflineQuery, recordings: Sequence[str], svg: Path | None, output: str) -> None:
    """Compare each brick with the peak performance of a device.

    For each brick that reports operations and bytes, shows how close it is to the roof, what limits it, and how much
    time you can gain. Counts the other bricks, with the reason. Needs the peaks from "brickd calibrate".

    \b
    Examples:
      brickd roofline
      brickd roofline --by layer --top 10
      brickd roofline --device gpu0 --type bfloat16
    """  # noqa: D301
    bricks = BricksQuery(question.names, by=question.by, category=question.category, over=question.over)
    totals = asked("bricks", bricks, recordings=recordings)
    device = chosen(peaks.load(peaks.place(runtime())), question)
    found = document(totals, device, question, here())
    for line in _elsewhere(found):
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
        machine = device["machine"]
        cpus = units.plural(machine["cpus"], "processor")
        lines.append(f"the peaks are those of another machine, {machine['cpu_model']}, {cpus}: brickd calibrate")
    if recording is not None and recording["host"] not in (None, os.uname().nodename):
        lines.append(f"this was recorded on {recording['host']}, and the peaks are not known to be those of it")
    return lines


def _render(found: dict[str, Any], screen: Screen) -> list[str]:
    if not found["workers"]:
        return [wording.no_workers(found)]
    entries, rest, unknown = found["bricks"], found["rest"], found["unknown"]
    if not entries and not unknown:
        return [wording.nothing(found)]
    lines = [escape.text(_roof(found), screen.width)]
    if entries:
        shown = [
            entry
            | {"name": wording.brick(entry)}
            | {"distance": "above" if entry["above_roof"] else units.percent(entry["distance_percent"])}
            for entry in entries
        ]
        lines += tables.figures([*wording.brick_figures(found), *_FIGURES], shown, screen.width)
        lines += wording.bounds(entries, screen)
    if rest["bricks"]:
        lines.append(f"…{units.count(rest['bricks'])} more: {units.duration(rest['to_gain_ns'])} to gain")
    lines += [escape.text(line, screen.width) for line in (*_above(entries, found["device"]), *_unknown(unknown))]
    return lines


def _roof(found: dict[str, Any]) -> str:
    device, peak, level = found["device"], found["peak_flops_per_second"], found["level"]
    (rate,) = (each["bytes_per_second"] for each in device["bandwidths"] if each["level"] == level)
    figures = f"{found['type']} {units.count(peak)}FLOP/s, {level} {units.count(rate)}B/s"
    others = ", next to other work" if device["beside_others"] else ""
    return f"{device['name']}: {figures}; {device['source']} {device['at'][:10]}{others}"


def _above(entries: Sequence[dict[str, Any]], device: dict[str, Any]) -> list[str]:
    more = "it can do more than was measured next to other work" if device["beside_others"] else "another device"
    above = [entry for entry in entries if entry["above_roof"]]
    lines = []
    for level, number in sorted(Counter(entry["served_by"] or "" for entry in above).items(), reverse=True):
        bricks = units.plural(number, "brick is", "bricks are")
        if level:
            lines.append(f"{bricks} above this roof and below that of {level}, from where the bytes may have come")
        else:
            lines.append(f"{bricks} above every roof: operations or bytes are not as given, or {more}")
    return lines


def _unknown(unknown: Sequence[dict[str, Any]]) -> list[str]:
    if not unknown:
        return []
    kinds = Counter(" and ".join(_LACKING[key] for key in entry["missing"]) for entry in unknown)
    counts = "; ".join(f"{units.count(number)} without {what}" for what, number in sorted(kinds.items()))
    return [f"{units.plural(len(unknown), 'brick is', 'bricks are')} unknown, and in no order: {counts}"]
