"""The verb `roofline`.

Owns: its options, the file of the picture, the messages about the peaks. Must not know: segments, how a distance is
computed, the screen. Invariant: a message says if the peaks belong to another machine, or are lower than a rate that a
brick reached.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from brickd.analysis.roofline import peaks_file
from brickd.analysis.roofline.roofline import chosen, document
from brickd.base import state_file, units
from brickd.base.paths import runtime
from brickd.base.processors import here
from brickd.cli import roofline_svg
from brickd.cli.ask import asked
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import asks
from brickd.errors import BrickdError
from brickd.query.queries import BricksQuery, RooflineQuery
from brickd.screens import peak_words
from brickd.screens.roofline import render


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
    emit(found, output, table=lambda screen: render(found, screen), rows="bricks")


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
