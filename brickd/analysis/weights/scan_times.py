"""When a worker read its weights, which tensors it reads again, and how much time passes between its scans.

Owns: the estimate of the time between scans, the limits of the plan in a worker's segment. Must not know: contents of
tensors, other workers, screens. Invariants: Tensors that are read only at load do not affect the times of other
tensors. The time between scans is never longer than an agent can plan.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

from brickd.analysis.weights.worker_tensors import Holds
from brickd.model.workers import Worker

RESCAN_NS = 300_000_000_000  # the agent's default time from one scan to the next; the host may set another
_RESCAN_TIMES = 200  # the next scan waits this many times the duration of the last one, if that is longer
# The longest time that a host can set, 1e9 s. A longer time in a worker's memory is reduced to this.
PERIOD_MAX_NS = 1_000_000_000_000_000_000


class ScanTimes(NamedTuple):
    """The times at which a worker read its weights. A set of tensors is an integer with one byte (0 or 1) per tensor.

    Attributes:
        age_ns: how long ago the tensor with the oldest reading was read; None if unknown.
        rescanned_age_ns: the same, but without the tensors in `at_load`; None if it is unknown, or if all known tensors
            are in `at_load`.
        every_ns: the time between scans that the host set; 0 if the host set none.
        interval_ns: the time between scans as estimated from the readings.
        at_load: the known tensors that the host reads only at load.
        unrepeated: the known tensors that the worker did not read again after their load.
    """

    age_ns: int | None = None
    rescanned_age_ns: int | None = None
    every_ns: int = 0
    interval_ns: int = 0
    at_load: int = 0
    unrepeated: int = 0

    @property
    def period_ns(self) -> int:
        """The time between scans. It is the planned time, or a longer one if the readings show that it is longer."""
        return max(self.every_ns or RESCAN_NS, self.interval_ns)

    @property
    def overdue(self) -> bool:
        """Whether the worker planned to read some tensors again, but did not."""
        return self.rescanned_age_ns is not None and self.rescanned_age_ns > 2 * self.period_ns

    @property
    def load_only(self) -> int:
        """The known tensors that are read only at load, because the host wants this or because no further scan came."""
        return self.at_load | (self.unrepeated if self.overdue else 0)

    def later(self, by_ns: int) -> ScanTimes:
        """The times as they are `by_ns` later, if the worker has read nothing since."""
        age_ns, rescanned_age_ns = (None if age is None else age + by_ns for age in self[:2])
        return self._replace(age_ns=age_ns, rescanned_age_ns=rescanned_age_ns)


def scan_times(worker: Worker, holds: Holds) -> ScanTimes:
    """Return when a worker read its weights. `holds` are the worker's tensors."""
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
    """Return the time between scans that the host set, or 0, and the number of weights that are read only at load."""
    lanes = (lane for number, lane, _ in worker.reading.lanes if number == 0)
    every_ns, once = next(((lane["weights_every"], lane["weights_once"]) for lane in lanes), (0, 0))
    return min(PERIOD_MAX_NS, every_ns), once


def _set(flags: Iterable[bool]) -> int:
    return int.from_bytes(bytes(flags), "little")


def _oldest(holds: Holds, count: int) -> int:
    """The `count` known tensors that were read longest ago. All other tensors were read again later."""
    flags = bytearray(len(holds))
    for number in sorted(holds.numbers(), key=holds.ticks.__getitem__)[:count] if count else ():
        flags[number] = 1
    return int.from_bytes(flags, "little")


def _interval(ticks: list[int], first: list[int], scans: int, *, planned: bool) -> float:
    """The ticks from one scan to the next, estimated from the times of the readings; 0 if unknown.

    Just after the scan at load, this time cannot be estimated, because no weight was read twice. If the host set no
    time between scans, the next scan begins after 200 times as long as the scan at load took. A scan that is done in
    small parts between the worker's steps can take as long as the whole time from one scan to the next.
    """
    if scans < 2 or ticks == first:  # no tensor was read twice: only the duration of the scan at load is known
        return 0 if planned else _RESCAN_TIMES * (max(first) - min(first))
    return max(max(ticks) - min(ticks), (max(ticks) - min(first)) / (scans - 1))
