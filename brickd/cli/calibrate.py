"""The verb `calibrate`.

Owns: the options that replace a measurement, the screen of peaks. Must not know: how a peak is measured, the format of
the file. Invariants: The saved peaks are replaced only after a complete measurement without contradictions. Values that
the user gave are shown as given, and lower bounds are shown as lower bounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from brickd.analysis.roofline import peaks, peaks_file
from brickd.analysis.roofline.peaks import ANY, MEMORY, Bandwidth, Device, Kept, Skipped
from brickd.base import escape, units
from brickd.base.paths import runtime
from brickd.base.processors import here
from brickd.base.timestamps import rfc3339
from brickd.cli import progress
from brickd.cli.output import emit, output_options, print_message
from brickd.errors import BrickdError, PeaksRefused
from brickd.screens import peak_words
from brickd.screens import table as tables
from brickd.screens.screen import Screen
from brickd.screens.table import Column

_COLUMNS = (
    Column("DEVICE"),
    Column("PEAK OF"),
    Column("RATE", "right"),
    Column("UNDISTURBED", "right", spare=1),
    Column("WORKING SET", "right", spare=2),
    Column("SOURCE"),
)


class Rate(click.ParamType[float]):
    """A rate of a device, in a unit such as FLOP/s."""

    name = "rate"

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the rate as a number, or raise a usage error."""
        try:
            return peaks.rate(units.parse_rate(value, self.unit) if isinstance(value, str) else value)
        except (ValueError, OverflowError):
            wanted = f"a rate of 1 to 1e30 {self.unit}, such as 1.2e12, 1.2T or 1.2T{self.unit}"
            self.fail(f"{value or repr(value)} is not {wanted}", param, ctx)


@click.command()
@click.option("--quick", is_flag=True, help="Measure for only a few seconds, with less precision.")
@click.option("--replace", is_flag=True, help="Also replace higher results of earlier measurements.")
@click.option(
    "--peak-flops", type=Rate("FLOP/s"), metavar="RATE", help="Save this peak of a device in FLOP/s, such as 989T."
)
@click.option(
    "--bandwidth",
    type=Rate("B/s"),
    metavar="RATE",
    help="Save this memory bandwidth of the device in bytes/s, such as 3.35T.",
)
@click.option("--device", metavar="NAME", help="Save the values under this name.  [default: given]")
@output_options
def calibrate(
    quick: bool, replace: bool, peak_flops: float | None, bandwidth: float | None, device: str | None, output: str
) -> None:
    """Measure the peak performance of this machine.

    Measures operations and bytes per second of one core and of all cores. With torch, it also measures a GPU. A result
    is the best of many short rounds. If other work disturbed all rounds, the result is shown as a lower bound. The
    results are saved for "brickd roofline". Higher results of earlier measurements are kept unless you give --replace.
    The measurement takes less than half a minute. With --peak-flops and --bandwidth, the command measures nothing and
    saves the values that you give.

    \b
    Examples:
      brickd calibrate
      brickd calibrate --replace
      brickd calibrate --device H100 --peak-flops 989T --bandwidth 3.35T
    """  # noqa: D301
    giving = peak_flops is not None and bandwidth is not None
    if not giving and (peak_flops, bandwidth, device) != (None, None, None):
        seen = next(
            name
            for name, value in (("--peak-flops", peak_flops), ("--bandwidth", bandwidth), ("--device", device))
            if value is not None
        )
        raise click.UsageError(f"{seen} is given alone, expected --peak-flops and --bandwidth together")
    if giving and quick:
        raise click.UsageError("--quick contradicts --peak-flops: give one of them")
    if giving and replace:
        raise click.UsageError("--replace contradicts --peak-flops: give one of them")
    if device == "":
        raise click.UsageError("--device is empty, expected a name")
    path = peaks_file.place(runtime())
    known = _known(path)
    peaks_file.may_save(path)
    if not giving and not replace:
        _require_this_machine(known)
    skipped: list[Skipped] = []
    if peak_flops is not None and bandwidth is not None:
        at = rfc3339(time.time_ns())
        found = [Device(device or "given", "given", at, None, None, {ANY: peak_flops}, (Bandwidth(MEMORY, bandwidth),))]
    else:
        found, skipped = _measured(quick)
    devices, kept = peaks.merged(found, [each for each in known if each.source == "given"] if replace else known)
    _refuse(devices)
    peaks_file.save(path, devices)
    document = {
        "schema_version": 1,
        "path": str(path),
        "devices": [each.document() for each in devices],
        "skipped": [each._asdict() for each in skipped],
        "kept": [each._asdict() for each in kept],
    }
    emit(document, output, table=lambda screen: _render(devices, skipped, kept, screen), rows="devices")


def _known(path: Path) -> Sequence[Device]:
    try:
        return peaks_file.load(path)
    except PeaksRefused as error:
        print_message(f"{error}; this measurement replaces it")
        return ()


def _require_this_machine(known: Sequence[Device]) -> None:
    """Raise a BrickdError if the saved peaks belong to another machine, because the machines cannot be compared."""
    for device in known:
        if device.source == "measured" and device.machine is not None and device.machine != here():
            other, this = peak_words.machine(asdict(device.machine)), peak_words.machine(asdict(here()))
            raise BrickdError(
                f"the saved peaks are of another machine ({other}), expected peaks of this machine ({this}): replace"
                " them (brickd calibrate --replace)"
            )


def _measured(quick: bool) -> tuple[list[Device], list[Skipped]]:
    # Imported here, because only a measurement needs it.
    from brickd.analysis.roofline.calibration import measure

    try:
        found = measure(quick=quick, progress=lambda device, what: progress.show(f"calibrating: {device}, {what}"))
    finally:
        progress.show("")
    if not found.devices:
        why = "; ".join(f"{what}: {why}" for what, why in found.skipped)
        raise BrickdError(
            f"nothing could be measured ({why}); the saved peaks are unchanged (to save peaks of a data sheet: brickd"
            " calibrate --device NAME --peak-flops N --bandwidth N)"
        )
    return found.devices, found.skipped


def _refuse(devices: Sequence[Device]) -> None:
    """Raise a BrickdError if all cores together were slower than one core, which is impossible."""
    from brickd.analysis.roofline.calibration import contradictions

    if not (found := contradictions(devices)):
        return
    load = max(
        (each.others_processors or 0 for each in devices if each.name == "machine" and each.under_load), default=0
    )
    why = f"other work took {peak_words.processors(load)}" if load else "not all cores ran at full speed"
    then = "repeat it on a quieter machine" if load else "repeat it"
    raise BrickdError(
        f"the results contradict each other: {'; '.join(found)}: {why}; the saved peaks are unchanged: {then}"
    )


def _render(devices: Sequence[Device], skipped: Sequence[Skipped], kept: Sequence[Kept], screen: Screen) -> list[str]:
    lines = tables.lines(_COLUMNS, [row for device in devices for row in _rows(device)], screen.width)
    notes = [f"{device.name}: {device.by}; {_where(device)}" for device in devices if device.by is not None]
    notes += [line for device in devices for line in peak_words.bounds(device.document())]
    notes += [
        f"{device}, {of}: the higher result of {at[:10]} is kept, {units.count(before)}/s; the new result is"
        f" {units.count(now)}/s"
        for device, of, before, now, at in kept
    ]
    if kept:
        notes.append("to replace higher results of earlier measurements: brickd calibrate --replace")
    notes += [f"{device.name}, {what}: not measured: {why}" for device in devices for what, why in device.skipped]
    notes += [f"{what}: not measured: {why}" for what, why in skipped]
    return [*lines, *(line for note in notes for line in escape.wrapped(note, screen.width))]


def _rows(device: Device) -> Iterator[list[str]]:
    sizes = {level: size_bytes for level, _, size_bytes in device.bandwidths}
    for of, rate in device.rates.items():
        unit = "B/s" if of in sizes else "FLOP/s"
        evidence, size_bytes = device.evidence.get(of), sizes.get(of)
        yield [
            device.name,
            of,
            peak_words.at_least(f"{units.count(rate)}{unit}", bounded=device.is_bound(of)),
            f"{evidence.undisturbed_rounds:,} of {evidence.rounds:,}" if evidence else "",
            "" if size_bytes is None else units.size(size_bytes),
            "lower bound" if device.is_bound(of) else device.source,
        ]


def _where(device: Device) -> str:
    assert device.machine is not None
    where = f"{peak_words.machine(asdict(device.machine))}, {device.at[:10]}"
    return f"{where}{peak_words.load(device.document())}"
