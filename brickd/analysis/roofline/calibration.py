"""Every device of this machine measured, one after the other, each in a program of its own.

Owns: the devices to measure, how the programs' lines become devices. Must not know: how anything is measured, where it
is kept, screens. Invariants: no two devices are measured at once; if a program ends early, the rest of its
measurements are skipped, with how it ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from brickd.analysis.roofline.measure import Begun, Flops, Line, Next, decode
from brickd.analysis.roofline.peaks import Bandwidth, Device, Skipped
from brickd.base.machine import here, read
from brickd.base.timestamps import rfc3339

_WHAT = ("core", "machine", "gpu")
# How many processors a BLAS is to use, where somebody said: that tells nothing of what the machine can.
_LIMITS = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"}

_STAT = Path("/proc/stat")


@dataclass(slots=True)
class Calibration:
    """The measured devices, and what is skipped because no device was found for it."""

    devices: list[Device] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, line: Begun | Flops | Bandwidth | Skipped) -> None:
        """Add a line to the device that it belongs to."""
        if isinstance(line, Begun):
            self.devices.append(Device(line.name, "measured", rfc3339(time.time_ns()), line.by, here(), None, {}, ()))
            return
        if not self.devices:
            assert isinstance(line, Skipped)
            self.skipped.append(line)
            return
        last = self.devices[-1]
        match line:
            case Flops(kind, rate):
                last = replace(last, flops_per_second={**last.flops_per_second, kind: rate})
            case Bandwidth():
                last = replace(last, bandwidths=(*last.bandwidths, line))
            case Skipped():
                last = replace(last, skipped=(*last.skipped, line))
        self.devices[-1] = last


class _Use(NamedTuple):
    """Processor seconds: all of them, those taken by any process or machine, and by ours."""

    passed: float
    taken: float
    ours: float

    @classmethod
    def now(cls) -> _Use:
        first, *_ = (read(_STAT) or "").splitlines() or [""]
        ticks = [int(each) for each in first.split()[1:9] if each.isdigit()] or [0]
        idle = sum(ticks[3:5])  # with what waits for a disk
        second = os.sysconf("SC_CLK_TCK")
        return cls(sum(ticks) / second, (sum(ticks) - idle) / second, sum(os.times()[:4]))

    def others_percent(self, before: _Use) -> float | None:
        """The share that others took since then; None if the kernel does not say."""
        passed, taken, ours = (now - then for now, then in zip(self, before, strict=True))
        return round(100 * max(0.0, taken - ours) / passed, 1) if passed > 0 else None


def measure(*, quick: bool, progress: Callable[[str, str], object]) -> Calibration:
    """Measure all devices; `progress` receives the device and the measurement that begins."""
    whole = Calibration()
    for what in _WHAT:
        part, before = Calibration(), _Use.now()
        for line in _output(what, quick):
            if isinstance(line, Next):
                progress(part.devices[-1].name, line.what)
            else:
                part.add(line)
        others = _Use.now().others_percent(before)
        whole.skipped += part.skipped
        for device in part.devices:
            if device.flops_per_second or device.bandwidths:
                whole.devices.append(replace(device, others_percent=others))
            else:
                whole.skipped += [Skipped(f"{device.name}, {each.what}", each.why) for each in device.skipped]
    return whole


def _output(what: str, quick: bool) -> Iterator[Line]:
    """Run the program that measures, and yield its lines up to its end."""
    command = [sys.executable, "-P", "-m", "brickd.analysis.roofline.measure", what, *(["quick"] if quick else [])]
    environment = {name: value for name, value in os.environ.items() if name not in _LIMITS}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment,
        encoding="utf-8",
        process_group=0,  # a Ctrl-C is for who asked, who ends it; it would tell where it was interrupted
    ) as program:
        try:
            assert program.stdout is not None
            yield from map(decode, program.stdout)
        except BaseException:
            program.kill()
            raise
    if status := program.returncode:
        ended = f"exited with {status}" if status > 0 else f"was ended by {signal.Signals(-status).name}"
        yield Skipped(what, f"the program that measured it {ended}")
