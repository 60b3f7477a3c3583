"""The clock that workers read: the processor's counter, if the kernel trusts it.

Owns: the kernel's report on its clocks, and the workers' choice. Must not know: the content of a segment beyond its
header. Invariant: whether a counter can be trusted is decided by the kernel alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from brickd.base.files import read
from brickd.base.units import listed, plural
from brickd.doctor.check import CheckResult, fine

_FOLDER = "sys/devices/system/clocksource/clocksource0"
# For each architecture, the kernel's name of the processor's counter.
_COUNTERS = {"x86_64": "tsc", "aarch64": "arch_sys_counter"}
_FLAGS = ("constant_tsc", "nonstop_tsc")


@dataclass(frozen=True, slots=True)
class KernelClock:
    """The kernel's clock sources and the processor's flags; `current` is None if the clock source is unknown."""

    machine: str
    current: str | None
    available: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset(_FLAGS)

    @property
    def counter(self) -> str | None:
        """The name of this architecture's counter; None if workers have no counter on it."""
        return _COUNTERS.get(self.machine)

    @property
    def trusted(self) -> bool:
        """Whether a worker that starts now would use the counter."""
        return self.current is not None and self.current == self.counter and not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """The required flags that the processor does not have."""
        return tuple(flag for flag in _FLAGS if self.machine == "x86_64" and flag not in self.flags)


def observe(machine: str, root: Path = Path("/")) -> KernelClock:
    """Read the kernel's report; `machine` is the architecture as in uname."""
    current = read(root / _FOLDER / "current_clocksource")
    available = read(root / _FOLDER / "available_clocksource") or ""
    # Only the first processor is read, because all have the same flags and there may be hundreds.
    lines = (read(root / "proc/cpuinfo", 8192) or "").splitlines()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return KernelClock(
        machine, None if current is None else current.strip(), tuple(available.split()), frozenset(flags.split())
    )


def judge_source(clock: KernelClock) -> CheckResult:
    """Judge whether workers can read the processor's counter."""
    if clock.counter is None:
        return fine("clock", f"{clock.current or 'unknown'} on {clock.machine}", "the system's clock")
    wanted = " with ".join(filter(None, (clock.counter, " and ".join(_FLAGS) if clock.machine == "x86_64" else "")))
    why = "a span costs about twice as much, but the times are right"
    if clock.current is None:
        fix = "mount -t sysfs sysfs /sys"
        return CheckResult("clock", "advice", "unknown: /sys is not mounted", wanted, fix, why)
    if clock.current != clock.counter:
        fix = f"{clock.counter}=reliable on the kernel's command line, if the hypervisor guarantees it"
        if clock.counter in clock.available:
            fix = f"echo {clock.counter} > /{_FOLDER}/current_clocksource"
        return CheckResult("clock", "advice", clock.current, wanted, fix, why)
    if clock.missing:
        seen = f"{clock.current} without {' and '.join(clock.missing)}"
        fix = "give the virtual machine the host's invariant TSC: -cpu host,+invtsc in QEMU"
        return CheckResult("clock", "advice", seen, wanted, fix, why)
    return fine("clock", f"{clock.current}, trusted by the kernel", wanted)


def judge_choice(clock: KernelClock, counters: Mapping[str, bool]) -> CheckResult:
    """Judge whether each live worker uses the right clock; `counters` tells which workers read the counter."""
    wanted = "the processor's counter" if clock.trusted else "the system's clock"
    slow = [name for name, reads_counter in counters.items() if clock.trusted and not reads_counter]
    wrong = [name for name, reads_counter in counters.items() if reads_counter and clock.current != clock.counter]
    if wrong:
        seen = f"{listed(wrong)}: the processor's counter, which the kernel no longer trusts"
        fix, why = (
            "BRICKD_CLOCK=monotonic",
            "set this in the server's environment, or only restart the server: its times may be wrong",
        )
        return CheckResult("clock-choice", "broken", seen, wanted, fix, why, tuple(wrong))
    if slow:
        seen = f"{listed(slow)}: the system's clock"
        fix, why = (
            "BRICKD_CLOCK=auto",
            "set this in the server's environment; until then, a span costs about twice as much",
        )
        return CheckResult("clock-choice", "advice", seen, wanted, fix, why, tuple(slow))
    seen = f"{plural(len(counters), 'worker uses', 'workers use')} the right clock"
    return fine("clock-choice", seen, wanted, tuple(counters))
