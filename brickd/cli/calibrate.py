"""The verb `calibrate`.

Owns: the options that replace a measurement, the screen of peaks. Must not know: how a peak is measured, the form of
the file. Invariants: the known peaks stay until everything is measured; given values are shown as given.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from brickd.analysis.roofline import peaks
from brickd.analysis.roofline.peaks import ANY, MEMORY, Bandwidth, Device, Skipped
from brickd.base import escape, units
from brickd.base.paths import runtime
from brickd.base.timestamps import rfc3339
from brickd.cli import progress
from brickd.cli import table as tables
from brickd.cli.output import Screen, emit, output_options, print_message
from brickd.cli.table import Column
from brickd.errors import BrickdError, PeaksRefused

_COLUMNS = (
    Column("DEVICE"),
    Column("PEAK OF"),
    Column("RATE", "right"),
    Column("WORKING SET", "right", spare=1),
    Column("SOURCE", spare=2),
)


class Rate(click.ParamType[float]):
    """A rate of a device."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to a number, or raise a usage error."""
        try:
            return peaks.rate(float(value))
        except ValueError:
            self.fail(f"{value} is not a number from 1 to 1e30, such as 1.2e12", param, ctx)


@click.command()
@click.option("--quick", is_flag=True, help="Measure for a few seconds only, less exactly.")
@click.option("--peak-flops", type=Rate(), metavar="N", help="The FLOP/s of a device, from its data sheet.")
@click.option("--bandwidth", type=Rate(), metavar="N", help="The bytes per second of the memory of that device.")
@click.option("--device", metavar="NAME", help="The name of that device.  [default: given]")
@output_options
def calibrate(quick: bool, peak_flops: float | None, bandwidth: float | None, device: str | None, output: str) -> None:
    """Measure the peak performance of this machine.

    Measures operations and bytes per second of one core and of all cores. With torch, it also measures a GPU. Saves the
    results for "brickd roofline". Takes less than half a minute. With --peak-flops and --bandwidth, it measures nothing
    and saves the values that you give.

    \b
    Examples:
      brickd calibrate
      brickd calibrate --device H100 --peak-flops 9.89e14 --bandwidth 3.35e12
    """  # noqa: D301
    giving = peak_flops is not None and bandwidth is not None
    if not giving and (peak_flops, bandwidth, device) != (None, None, None):
        raise click.UsageError("expected both --peak-flops and --bandwidth, or neither of them and no --device")
    if giving and quick:
        raise click.UsageError("--quick contradicts --peak-flops: give one of them")
    if device == "":
        raise click.UsageError("--device is empty, expected a name")
    path = peaks.place(runtime())
    known = _known(path)
    peaks.may_save(path)
    skipped: list[Skipped] = []
    if peak_flops is not None and bandwidth is not None:
        at = rfc3339(time.time_ns())
        found = [
            Device(device or "given", "given", at, None, None, None, {ANY: peak_flops}, (Bandwidth(MEMORY, bandwidth),))
        ]
    else:
        found, skipped = _measured(quick)
    devices = peaks.beside(found, known)
    peaks.save(path, devices)
    document = {
        "schema_version": 1,
        "path": str(path),
        "devices": [each.document() for each in devices],
        "skipped": [each._asdict() for each in skipped],
    }
    emit(document, output, table=lambda screen: _render(devices, skipped, screen), rows="devices")


def _known(path: Path) -> Sequence[Device]:
    try:
        return peaks.load(path)
    except PeaksRefused as error:
        print_message(f"{error}; this measurement replaces it")
        return ()


def _measured(quick: bool) -> tuple[list[Device], list[Skipped]]:
    # Loaded only for a measurement.
    from brickd.analysis.roofline.calibration import measure

    try:
        found = measure(quick=quick, progress=lambda device, what: progress.show(f"calibrating: {device}, {what}"))
    finally:
        progress.show("")
    if not found.devices:
        why = "; ".join(f"{what}: {why}" for what, why in found.skipped)
        raise BrickdError(f"nothing could be measured ({why}); the saved peaks are unchanged")
    return found.devices, found.skipped


def _render(devices: Sequence[Device], skipped: Sequence[Skipped], screen: Screen) -> list[str]:
    lines = tables.lines(_COLUMNS, [row for device in devices for row in _rows(device)], screen.width)
    notes = [f"{device.name}: {device.by}; {_where(device)}" for device in devices if device.by is not None]
    notes += [f"{device.name}, {what}: not measured: {why}" for device in devices for what, why in device.skipped]
    notes += [f"{what}: not measured: {why}" for what, why in skipped]
    return [*lines, *(escape.text(note, screen.width) for note in notes)]


def _rows(device: Device) -> Iterator[list[str]]:
    for kind, rate in device.flops_per_second.items():
        yield [device.name, kind, f"{units.count(rate)}FLOP/s", "", device.source]
    for level, rate, size_bytes in device.bandwidths:
        size = "" if size_bytes is None else units.size(size_bytes)
        yield [device.name, level, f"{units.count(rate)}B/s", size, device.source]


def _where(device: Device) -> str:
    assert device.machine is not None
    where = f"{device.machine.cpu_model}, {units.plural(device.machine.cpus, 'processor')}, {device.at[:10]}"
    if not device.beside_others:
        return where
    return f"{where}, next to other work that took {units.percent(device.others_percent)} of them: it can do more"
