"""When a worker read its weights: which of them it reads again, and how far apart its scans are.

Owns: the estimate of the time between scans, the limits of the plan in a worker's segment. Must not know: contents of
tensors, other workers, screens. Invariants: tensors that are read at load only do not affect the times of the others;
no time between scans is longer than an agent can plan.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

from brickd.analysis.weights.worker_tensors import Holds
from brickd.model.workers import Worker

RESCAN_NS = 300_000_000_000  # the agent's time from one scan to the next, unless the host sets another
_RESCAN_TIMES = 200  # or this many times the length of the last scan, if that is longer
# The longest time that a host can set, 1e9 s. A longer time in a worker's memory is limited to this.
PERIOD_MAX_NS = 1_000_000_000_000_000_000


class ScanTimes(NamedTuple):
    """The times of a worker's readings. A set of tensors has one byte for each number, which is 0 or 1.

    Attributes:
        age_ns: the time since the oldest reading of a tensor; None: unknown.
        rescanned_age_ns: the same for the tensors that are not `at_load`; None: unknown, or all are.
        every_ns: the time from one scan to the next that its host set; 0: none set.
        interval_ns: the time from one scan to the next that its readings show.
        at_load: the set of known tensors that its host reads only at load. unrepeated: the set of tensors that it did
            not read again after their load.
    """

    age_ns: int | None = None
    rescanned_age_ns: int | None = None
    every_ns: int = 0
    interval_ns: int = 0
    at_load: int = 0
    unrepeated: int = 0

    @property
    def period_ns(self) -> int:
        """The time from one scan to the next: as planned, or longer if its readings show that."""
        return max(self.every_ns or RESCAN_NS, self.interval_ns)

    @property
    def overdue(self) -> bool:
        """Whether the worker planned to read some tensors again, but did not."""
        return self.rescanned_age_ns is not None and self.rescanned_age_ns > 2 * self.period_ns

    @property
    def load_only(self) -> int:
        """The set of known tensors read at load only: as planned, or because no scan followed."""
        return self.at_load | (self.unrepeated if self.overdue else 0)

    def later(self, by_ns: int) -> ScanTimes:
        """The times after some more time without a reading."""
        age_ns, rescanned_age_ns = (None if age is None else age + by_ns for age in self[:2])
        return self._replace(age_ns=age_ns, rescanned_age_ns=rescanned_age_ns)


def scan_times(worker: Worker, holds: Holds) -> ScanTimes:
    """The times of a worker with these tensors."""
    reading, scans = worker.reading, worker.reading.process["scans"]
    every_ns, once = plan(worker)
    known = _set(map(bool, holds.now))
    at_load = known if once >= holds.known else _oldest(holds, once)
    unrepeated = known & _set(map(operator.eq, holds.ticks, holds.first_ticks))
    if not known or not reading.alive or reading.now_ticks is None:
        return ScanTimes(None, None, every_ns, 0, at_load, unrepeated)
    now, again = reading.now_ticks, (known & ~at_load).to_bytes(len(holds), "little")
    ticks, first = list(compress(holds.ticks, again)), list(compress(holds.first_ticks, again))
    interval_ns = round(_interval(ticks, first, scans, planned=every_ns > 0) * reading.tick_ns) if ticks else 0

    def age_ns(of: list[int]) -> int | None:
        return max(0, round((now - min(of)) * reading.tick_ns)) if of else None

    return ScanTimes(
        age_ns(list(compress(holds.ticks, holds.now))),
        age_ns(ticks),
        every_ns,
        min(PERIOD_MAX_NS, interval_ns),
        at_load,
        unrepeated,
    )


def plan(worker: Worker) -> tuple[int, int]:
    """The ns between scans that the host set (0: none); the number of weights read only at load."""
    lanes = (lane for number, lane, _ in worker.reading.lanes if number == 0)
    every_ns, once = next(((lane["weights_every"], lane["weights_once"]) for lane in lanes), (0, 0))
    return min(PERIOD_MAX_NS, every_ns), once


def _set(flags: Iterable[bool]) -> int:
    return int.from_bytes(bytes(flags), "little")


def _oldest(holds: Holds, count: int) -> int:
    """The known tensors whose last reading is the oldest: all others were read again since."""
    flags = bytearray(len(holds))
    for number in sorted(holds.numbers(), key=holds.ticks.__getitem__)[:count] if count else ():
        flags[number] = 1
    return int.from_bytes(flags, "little")


def _interval(ticks: list[int], first: list[int], scans: int, *, planned: bool) -> float:
    """The ticks from one scan to the next, estimated from the times of its readings; 0: unknown.

    Just after the scan at load, no reading shows this time. If the host set none, the next scan begins after 200 times
    the duration of the scan at load. A scan that runs between the worker's steps can last as long as the time from one
    scan to the next.
    """
    if scans < 2 or ticks == first:  # the next scan may have begun: the first readings show how long the load took
        return 0 if planned else _RESCAN_TIMES * (max(first) - min(first))
    return max(max(ticks) - min(ticks), (max(ticks) - min(first)) / (scans - 1))
