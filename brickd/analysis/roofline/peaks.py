"""Peaks: what a device computes and reads in a second at most, and the file that keeps them.

Owns: what is known of a device, the file's form. Must not know: how anything was measured, bricks, screens. Invariants:
what a person gave is never shown as measured; a file that is damaged, or that holds what no peak is, is refused; it is
replaced as a whole.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from brickd.base.json_values import number, optional, parsed, text, validating, whole
from brickd.base.machine import Machine
from brickd.base.paths import Runtime
from brickd.base.state_file import framed, replace, unframed
from brickd.errors import BrickdError, CheckpointRefused, CheckpointTooNew, PeaksRefused

VERSION = 1
MEMORY = "memory"
# The peak of a device of which nobody says for which type of number it holds.
ANY = "any"

# What no device is slower or faster than; sums and quotients of what lies between are numbers.
_LEAST, _MOST = 1.0, 1e30

# What others took of the processors' time, from which on a peak may be higher than what was seen.
_BUSY_PERCENT = 5

Source = Literal["measured", "given"]


class Bandwidth(NamedTuple):
    """How fast a level gives what it holds: "L1" and so on, or MEMORY."""

    level: str
    bytes_per_second: float
    working_set_bytes: int | None = None


class Skipped(NamedTuple):
    """What was not measured, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Device:
    """What computes.

    Attributes:
        at: the time of the measurement, in RFC 3339.
        by: the device and the library that computed; None: not given.
        machine: where it was measured; None: given, so that it may be anywhere.
        others_percent: what others took of that machine's processors meanwhile; None: not known.
        flops_per_second: by type of number.
        bandwidths: the nearest level first.
    """

    name: str
    source: Source
    at: str
    by: str | None
    machine: Machine | None
    others_percent: float | None
    flops_per_second: Mapping[str, float]
    bandwidths: tuple[Bandwidth, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def beside_others(self) -> bool:
        """Whether other work ran during the measurement, so that the true peak may be higher."""
        return self.others_percent is not None and self.others_percent >= _BUSY_PERCENT

    def document(self) -> dict[str, Any]:
        """As JSON has it, in the file too."""
        return {
            "name": self.name,
            "source": self.source,
            "at": self.at,
            "by": self.by,
            "machine": None if self.machine is None else asdict(self.machine),
            "others_percent": self.others_percent,
            "beside_others": self.beside_others,
            "flops_per_second": dict(self.flops_per_second),
            "bandwidths": [each._asdict() for each in self.bandwidths],
            "skipped": [each._asdict() for each in self.skipped],
        }


def beside(devices: Iterable[Device], known: Iterable[Device]) -> tuple[Device, ...]:
    """The devices, and the known ones that they do not replace.

    A measured device replaces all measured ones, for the machine may be another; a given one replaces that of its name.
    """
    devices = tuple(devices)
    names = {each.name for each in devices}
    measured = any(each.source == "measured" for each in devices)
    kept = (each for each in known if each.name not in names and not (measured and each.source == "measured"))
    return (*devices, *kept)


def place(runtime: Runtime) -> Path:
    """The file in the state directory of the user who asks."""
    return runtime.state / "peaks"


def may_save(path: Path) -> None:
    """Raise a BrickdError if the file cannot be written, before a measurement takes time."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _unwritable(path, error) from None


def save(path: Path, devices: Sequence[Device]) -> None:
    """Replace the file's devices; on a BrickdError the file is unchanged."""
    body = json.dumps({"devices": [each.document() for each in devices]}, indent=1).encode()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(path, framed("peaks", VERSION, [body]))
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> BrickdError:
    why = f"{path}: cannot be written: {error.strerror}"
    return BrickdError(f"{why} (set BRICKD_STATE_DIR to a directory of yours)")


def load(path: Path) -> tuple[Device, ...]:
    """What is known of devices; nothing where there is no file.

    Raises:
        PeaksRefused: the file is damaged.
        BrickdError: it cannot be read, or is of another version.
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
    return Device(
        text(document["name"]),
        source,
        text(document["at"]),
        optional(document["by"], text),
        None if machine is None else Machine(text(machine["cpu_model"]), whole(machine["cpus"])),
        optional(document["others_percent"], number),
        {text(kind): rate(value) for kind, value in document["flops_per_second"].items()},
        tuple(
            Bandwidth(text(each["level"]), rate(each["bytes_per_second"]), optional(each["working_set_bytes"], whole))
            for each in document["bandwidths"]
        ),
        tuple(Skipped(text(each["what"]), text(each["why"])) for each in document["skipped"]),
    )


def rate(value: object) -> float:
    """Return a rate, or raise a ValueError if no device can have it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST <= value <= _MOST:
        raise ValueError(f"rate is {str(value)[:60]}, expected a number from 1 to 1e30")
    return float(value)
