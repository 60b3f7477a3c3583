"""Measures all devices of this machine in turn, with one program for processors and one for GPUs.

Owns: the devices to measure, their time limits, the parsing of the programs' output, and which results contradict each
other. Must not know: methods of measurement, where peaks are stored, screens. Invariants: No two devices are measured
at the same time. If a program ends early or takes too long, the rest of its measurements are skipped, and the reason is
reported. All measurements together take less than 30 seconds.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from brickd.analysis.roofline.measure import Begun, Flops, Line, Next, decode
from brickd.analysis.roofline.peaks import Bandwidth, Device, Evidence, Skipped
from brickd.analysis.roofline.rounds import Rounds
from brickd.base.processors import cores, here, virtual
from brickd.base.timestamps import rfc3339

# The deadline in seconds from the start. An idle machine needs only a few seconds. The rest of the 30 seconds is for
# starting and ending the programs, which is slow under load.
_UNTIL_SECONDS = {"processors": 18.0, "gpus": 25.0}
_QUICK_SECONDS = {"processors": 4.0, "gpus": 10.0}
# A rate is sufficiently measured after this many undisturbed rounds.
_ENOUGH, _QUICK_ENOUGH = 100, 20
# The time in which a program must end after its deadline.
_GRACE_SECONDS = 2.0
# All cores together must reach at least this fraction of one core's rate. A smaller difference is noise.
_SAME = 0.95
# The memory levels that a core does not share with other cores.
_IN_CORE = {"L1", "L2"}

_NO_TORCH = "the Python of brickd has no torch: install it there, or give the peaks"


@dataclass(slots=True)
class Calibration:
    """The measured devices, and the measurements that were skipped because there is no device."""

    virtual: bool  # whether this is a virtual machine
    devices: list[Device] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    rounds: dict[tuple[str, str], Rounds] = field(default_factory=dict)

    def evidence(self, device: Device) -> dict[str, Evidence]:
        """The evidence for each rate of a device.

        If other processors share a unit, a round that uses the unit is undisturbed only while no other work runs. In a
        virtual machine, this is never certain, because other virtual machines may use the same memory and the shared
        caches.
        """
        evidence = {}
        rounds = [self.rounds[device.name, of] for of in device.rates]
        others_processors = rounds[-1].others_processors  # the value of the last rounds covers the whole measurement
        for each in rounds:
            found = Evidence(device.at, others_processors, *each[2:6])
            why = "shared" if each.shared and found.under_load else ""
            if self.virtual and each.of in {bandwidth.level for bandwidth in device.bandwidths} - _IN_CORE:
                why = why or "virtual"
            if why and found.undisturbed_rounds:
                disturbed = {**found.disturbed_by, why: found.undisturbed_rounds}
                found = Evidence(device.at, others_processors, found.rounds, disturbed_by=disturbed)
            evidence[each.of] = found
        return evidence

    def add(self, line: Begun | Flops | Bandwidth | Rounds | Skipped) -> None:
        """Add a line of output to its device."""
        if isinstance(line, Begun):
            self.devices.append(Device(line.name, "measured", rfc3339(time.time_ns()), line.by, here(), {}, ()))
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
            case Rounds():
                self.rounds[last.name, line.of] = line
            case Skipped():
                last = replace(last, skipped=(*last.skipped, line))
        self.devices[-1] = last


def measure(*, quick: bool, progress: Callable[[str, str], object]) -> Calibration:
    """Measure all devices; call `progress` with the device and the measurement when a measurement begins."""
    found, began = Calibration(virtual()), time.monotonic()
    for what, seconds in (_QUICK_SECONDS if quick else _UNTIL_SECONDS).items():
        if what == "gpus" and importlib.util.find_spec("torch") is None:
            found.skipped.append(Skipped("gpu", _NO_TORCH))
            continue
        part = Calibration(found.virtual)
        for line in _output(what, began + seconds, _QUICK_ENOUGH if quick else _ENOUGH):
            if isinstance(line, Next):
                progress(part.devices[-1].name, line.what)
            else:
                part.add(line)
        found.skipped += part.skipped
        for device in part.devices:
            if device.rates:
                found.devices.append(replace(device, evidence=part.evidence(device)))
            else:
                found.skipped += [Skipped(f"{device.name}, {each.what}", each.why) for each in device.skipped]
    names = [each.name for each in found.devices]
    if "core" in names and "machine" not in names and len(cores()) == 1:
        found.devices.insert(1, replace(found.devices[0], name="machine"))
    return found


def contradictions(devices: Iterable[Device]) -> list[str]:
    """Return the rates at which all cores were slower than one core, which is impossible."""
    by_name = {each.name: each for each in devices if each.source == "measured"}
    if not {"core", "machine"} <= set(by_name):
        return []
    core, machine = by_name["core"].rates, by_name["machine"].rates
    return [
        f"{of}: all cores reach {machine[of]:.3g} per second, one core reaches {core[of]:.3g}"
        for of in core
        if of in machine and machine[of] < _SAME * core[of]
    ]


def _output(what: str, until: float, enough: int) -> Iterator[Line]:
    """Run the measuring program and yield its lines; `until` is its deadline in CLOCK_MONOTONIC."""
    numbers = str(enough), str(round(until * 1e9))
    command = [sys.executable, "-P", "-m", "brickd.analysis.roofline.measure", what, *numbers]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        # Ctrl-C reaches only this process, which then ends the program. So the program prints no traceback.
        process_group=0,
    ) as program:
        late = threading.Event()

        def end() -> None:
            late.set()
            program.kill()

        timer = threading.Timer(until + _GRACE_SECONDS - time.monotonic(), end)
        timer.start()
        try:
            assert program.stdout is not None
            yield from map(decode, program.stdout)
        except BaseException:
            program.kill()
            raise
        finally:
            timer.cancel()
    if status := program.returncode:
        ended = f"exited with {status}" if status > 0 else f"was ended by {signal.Signals(-status).name}"
        if late.is_set():
            ended = "took too long"
        yield Skipped("the rest", f"the program that measures {what} {ended}")
