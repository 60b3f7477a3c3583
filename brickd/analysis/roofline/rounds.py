"""Rounds: the same work in successive time slots, and the disturbances in each slot.

Owns: the condition for an undisturbed round, and how many of them are enough. Must not know: the kind of work, where
peaks are stored. Invariants: A rate is the rate of one round, in which all threads worked in the same slot. The rate of
a round is the work of all threads, divided by the time from the first start to the last end, so a disturbance can only
lower the rate. A round is undisturbed only if every thread had its processor for the whole round.

A slot is a millisecond, which is shorter than the kernel's time slice. So even if twenty processes compete for a
processor, a thread gets some slots without interruption, and sometimes all threads get the same slot.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from brickd.base import cgroups
from brickd.base.files import read

# Threads never sleep. So a thread had to wait if its processor time is shorter than the round by more than this
# fraction.
_LOST = 0.01
# How long the threads work before their rounds are judged. The time starts at the first value and doubles with each
# trial, up to the second value.
_TRIAL_NS, _TRIAL_NS_MAX = 200_000_000, 800_000_000
# The interval between readings of the disturbances, and the kernel's largest delay in reporting them.
_LOOK_SECONDS, _TICK_NS = 0.01, 10_000_000

_STAT = "proc/stat"


class SlotWork(NamedTuple):
    """The work of one thread in a slot."""

    slot: int
    amount: int
    begun_ns: int
    ended_ns: int
    cpu_ns: int


# A function that works in at least one slot, and goes on until a time of CLOCK_MONOTONIC.
Work = Callable[[int], list[tuple[int, int, int, int, int]]]


class LostTime(NamedTuple):
    """The processor time that the hypervisor and the limits of our control groups have taken from us so far."""

    at_ns: int
    stolen_ticks: int
    throttled_ns: int

    @classmethod
    def now(cls, cpus: Collection[int], root: Path = Path("/")) -> LostTime:
        """Read the current values; a value is 0 if the kernel does not report it."""
        wanted = {f"cpu{cpu}" for cpu in cpus}
        lines = (line.split() for line in (read(root / _STAT) or "").splitlines() if line.startswith("cpu"))
        stolen = sum(int(line[8]) for line in lines if line[0] in wanted and len(line) > 8)
        return cls(time.monotonic_ns(), stolen, cgroups.throttled_ns(os.getpid(), root) or 0)


class Round(NamedTuple):
    """The rate of a round; `disturbed_by` is "throttled", "stolen" or "waited", or None for an undisturbed round."""

    per_second: float
    disturbed_by: str | None


def judged(parts: Iterable[SlotWork], threads: int, taken: Sequence[LostTime]) -> list[Round]:
    """Return the rounds in which all threads worked, each with its disturbance, if any."""
    slots: dict[int, list[SlotWork]] = defaultdict(list)
    for part in parts:
        slots[part.slot].append(part)
    losses = [
        (before.at_ns - _TICK_NS, after.at_ns, why) for before, after in pairwise(taken) if (why := _why(before, after))
    ]
    return [_round(each, losses) for each in slots.values() if len(each) == threads]


def _why(before: LostTime, after: LostTime) -> str | None:
    if after.throttled_ns > before.throttled_ns:
        return "throttled"
    return "stolen" if after.stolen_ticks > before.stolen_ticks else None


def _round(parts: Collection[SlotWork], losses: Iterable[tuple[int, int, str]]) -> Round:
    begun_ns, ended_ns = min(part.begun_ns for part in parts), max(part.ended_ns for part in parts)
    per_second = sum(part.amount for part in parts) / (ended_ns - begun_ns) * 1e9
    disturbed_by = next((why for since, until, why in losses if begun_ns < until and ended_ns > since), None)
    lost_ns = max(part.ended_ns - begun_ns - part.cpu_ns for part in parts)
    if disturbed_by is None and lost_ns > _LOST * (ended_ns - begun_ns):
        disturbed_by = "waited"
    return Round(per_second, disturbed_by)


def rounds(cpus: Sequence[int], prepare: Callable[[], Work], *, until_ns: int, enough: int) -> list[Round]:
    """Run a thread on each processor until there are enough undisturbed rounds, or until the deadline.

    Args:
        cpus: the processors.
        prepare: returns the work of the calling thread.
        until_ns: the deadline on CLOCK_MONOTONIC, after which no work begins.
        enough: the number of undisturbed rounds after which the measurement ends.

    Returns:
        All rounds; none if there was no slot in which all threads worked.

    Raises:
        OSError: there is not enough memory, or this process may not use one of the processors.
    """
    works: dict[int, Work] = {}

    def work(cpu: int, until_ns: int) -> list[SlotWork]:
        os.sched_setaffinity(0, {cpu})  # 0 is the calling thread
        if cpu not in works:
            works[cpu] = prepare()
            return []
        return [SlotWork(*each) for each in works[cpu](until_ns)]

    found: list[Round] = []
    trial_ns = _TRIAL_NS
    with ThreadPoolExecutor(len(cpus)) as threads:
        for ready in [threads.submit(work, cpu, 0) for cpu in cpus]:
            ready.result()
        while sum(each.disturbed_by is None for each in found) < enough:
            taken = [LostTime.now(cpus)]
            end_ns = min(taken[0].at_ns + trial_ns, until_ns)
            ended = [threads.submit(work, cpu, end_ns) for cpu in cpus]
            while wait(ended, _LOOK_SECONDS).not_done:
                taken.append(LostTime.now(cpus))
            taken.append(LostTime.now(cpus))
            found += judged((part for each in ended for part in each.result()), len(cpus), taken)
            trial_ns = min(2 * trial_ns, _TRIAL_NS_MAX)
            if time.monotonic_ns() >= until_ns:
                break
    return found


class ProcessorUse(NamedTuple):
    """The time, the processor time of all processes, and the processor time of this process, in seconds."""

    passed: float
    taken: float
    ours: float

    @classmethod
    def now(cls, root: Path = Path("/")) -> ProcessorUse:
        """Read the counters; zeros if the kernel does not report them."""
        first, *lines = (read(root / _STAT, 1 << 20) or "").splitlines() or [""]
        ticks = [int(each) for each in first.split()[1:9] if each.isdigit()] or [0]
        idle = sum(ticks[3:5])  # idle time, and time waiting for a disk
        second, cpus = os.sysconf("SC_CLK_TCK"), sum(each.startswith("cpu") for each in lines)
        return cls(sum(ticks) / second / max(1, cpus), (sum(ticks) - idle) / second, time.process_time())

    def others_processors(self, before: ProcessorUse) -> float | None:
        """The mean number of processors that other work used since `before`; None if it is unknown."""
        passed, taken, ours = (now - then for now, then in zip(self, before, strict=True))
        return round(max(0.0, taken - ours) / passed, 2) if passed > 0 else None


class Rounds(NamedTuple):
    """A summary of the rounds for a type of number or a memory level.

    Attributes:
        per_second: the best rate of all rounds.
        undisturbed_per_second: the best rate of the undisturbed rounds; None if there are none.
        shared: whether processors that were not measured use the same unit, cache or memory.
        others_processors: how many processors other work used on average since the device's first round; None if
            unknown.
    """

    of: str
    per_second: float
    rounds: int
    undisturbed_rounds: int
    undisturbed_per_second: float | None
    disturbed_by: dict[str, int]
    shared: bool
    others_processors: float | None

    @classmethod
    def best(cls, of: str, found: Sequence[Round], *, shared: bool, others_processors: float | None) -> Rounds:
        """Summarize the rounds, of which there must be at least one."""
        undisturbed = [each.per_second for each in found if each.disturbed_by is None]
        disturbed = Counter(each.disturbed_by for each in found if each.disturbed_by is not None)
        best = max(each.per_second for each in found)
        reached = max(undisturbed, default=None)
        return cls(of, best, len(found), len(undisturbed), reached, dict(disturbed), shared, others_processors)
