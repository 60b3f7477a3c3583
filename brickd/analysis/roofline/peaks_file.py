"""The file of peaks, in the user's state directory.

Owns: the format of the file. Must not know: methods of measurement, and which rates are lower bounds. Invariants: A
damaged or invalid file is refused. The file is replaced atomically.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from brickd.analysis.roofline.peaks import Bandwidth, Device, Evidence, Skipped, Source, rate
from brickd.base import state_file
from brickd.base.json_values import number, optional, parsed, text, validating, whole
from brickd.base.paths import Runtime
from brickd.base.processors import Machine
from brickd.base.state_file import framed, unframed
from brickd.errors import BrickdError, CheckpointRefused, CheckpointTooNew, PeaksRefused

VERSION = 1


def place(runtime: Runtime) -> Path:
    """Return the path of the file in the current user's state directory."""
    return runtime.state / "peaks"


def may_save(path: Path) -> None:
    """Raise a BrickdError if the file cannot be written. This check avoids a measurement that would be useless."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _unwritable(path, error) from None


def save(path: Path, devices: Sequence[Device]) -> None:
    """Replace the devices in the file. If this raises a BrickdError, the file is unchanged."""
    body = json.dumps({"devices": [each.document() for each in devices]}, indent=1).encode()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        state_file.replace(path, framed("peaks", VERSION, [body]))
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> BrickdError:
    why = f"{path}: cannot be written: {error.strerror}"
    return BrickdError(f"{why} (set BRICKD_STATE_DIR to a directory of yours)")


def load(path: Path) -> tuple[Device, ...]:
    """Return the devices in the file; empty if there is no file.

    Raises:
        PeaksRefused: the file is damaged.
        BrickdError: the file cannot be read, or a later version of brickd wrote it.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise BrickdError(f"{path}: cannot be read: {error.strerror} (check its mode, or remove it)") from None
    try:
        body = unframed("peaks", VERSION, content)
        with validating():
            return tuple(_device(each) for each in parsed(body)["devices"])
    except CheckpointTooNew as error:
        raise BrickdError(f"{path}: {error}, or remove it and measure again (brickd calibrate)") from None
    except (CheckpointRefused, ValueError) as error:
        raise PeaksRefused(f"{path}: {error}: measure again (brickd calibrate)") from None


def _device(document: dict[str, Any]) -> Device:
    machine, source = document["machine"], document["source"]
    if source not in get_args(Source):
        raise ValueError(f"source is {source}, expected one of {', '.join(get_args(Source))}")
    device = Device(
        text(document["name"]),
        source,
        text(document["at"]),
        optional(document["by"], text),
        None if machine is None else Machine(text(machine["cpu_model"]), whole(machine["cpus"])),
        {text(kind): rate(value) for kind, value in document["flops_per_second"].items()},
        tuple(
            Bandwidth(text(each["level"]), rate(each["bytes_per_second"]), optional(each["working_set_bytes"], whole))
            for each in document["bandwidths"]
        ),
        tuple(Skipped(text(each["what"]), text(each["why"])) for each in document["skipped"]),
    )
    if len(device.rates) < len(device.flops_per_second) + len(device.bandwidths):
        seen = len(device.flops_per_second) + len(device.bandwidths)
        raise ValueError(f"has {seen} rates named {', '.join(device.rates)}, expected one rate for each name")
    # Earlier versions of brickd stored no evidence, so nothing confirms their rates.
    without = Evidence(device.at, None)
    if source == "given":
        return device
    written = document.get("evidence", {})
    return replace(
        device,
        evidence={of: _evidence(written[of], per) if of in written else without for of, per in device.rates.items()},
    )


def _evidence(document: dict[str, Any], per_second: float) -> Evidence:
    rounds, undisturbed = whole(document["rounds"]), whole(document["undisturbed_rounds"])
    reached = optional(document["undisturbed_per_second"], rate)
    if undisturbed > rounds or (reached is None) != (not undisturbed) or (reached or 0) > per_second:
        raise ValueError(
            f"has {undisturbed} undisturbed rounds with a best rate of {reached}, expected at most {rounds} rounds and"
            f" a rate of at most {per_second}"
        )
    return Evidence(
        text(document["at"]),
        optional(document.get("others_processors"), number),  # earlier versions stored a share of the machine
        rounds,
        undisturbed,
        reached,
        {text(what): whole(count) for what, count in document["disturbed_by"].items()},
    )
