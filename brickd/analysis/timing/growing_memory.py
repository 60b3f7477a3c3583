"""Workers whose memory only grows.

Owns: what counts as growth, its slope, the time until the memory is full. Must not know: how the memory of a process is
read, screens. Invariants: A worker is named only if its memory reaches a new level. So a worker whose memory grows and
falls in cycles is not named after the first fall. A worker whose memory has stopped growing is not named. A worker's
history has at most `_KEPT` values.

The time is divided into parts (each a tenth of `memory_over`). The memory of a part is the minimum of the resident
memory in it, so memory that is freed within the part does not count. The slope is computed by the method of Theil and
Sen over the last ten parts. A worker is named if all of this is true:

- The slope is at least `memory_growth`. The slope of the second half of the parts is at least half of this slope;
  less is required there, because five parts give a less certain slope.
- No part is lower than an earlier part by more than a tenth of the whole growth.
- The last part is above all earlier memory, up to six times `memory_over` ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from brickd.analysis.timing.alarms import Alarm
from brickd.analysis.timing.stats import median
from brickd.base.cgroups import Room, room
from brickd.base.thresholds import Thresholds
from brickd.base.units import duration, size
from brickd.model.survey_snapshot import Snapshot
from brickd.model.worker_names import as_argument
from brickd.model.workers import Worker

_PARTS = 10
_KEPT = 6 * _PARTS
_STAYS = 0.5  # a named worker stays named while it has this fraction of the slope
_FALLS = 0.1  # memory may fall by this fraction of the growth
_MIB = 1 << 20
_MINUTE_NS = 60_000_000_000


@dataclass(slots=True)
class _History:
    """The minimum of the resident memory in each part of the observed time. The last part is still in progress.

    Attributes:
        part: the index of the last part.
    """

    part: int
    least: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT + 1))

    def add(self, part: int, rss_bytes: int) -> None:
        """Add a value. After a part without values, the history starts again."""
        if self.least and part == self.part:
            self.least[-1] = min(self.least[-1], rss_bytes)
            return
        if part != self.part + 1:
            self.least.clear()
        self.least.append(rss_bytes)
        self.part = part


class GrowingMemory:
    """Finds workers whose memory only grows; `room` returns the memory that is left for a process."""

    def __init__(self, room: Callable[[int], Room | None] = room) -> None:
        self._room = room
        self._part_ns = 0
        self._histories: dict[str, _History] = {}
        self._named: set[str] = set()

    def look(self, snapshot: Snapshot, thresholds: Thresholds) -> list[Alarm]:
        """Return the alarms of a snapshot."""
        part_ns = thresholds.ns("memory_over") // _PARTS
        if part_ns != self._part_ns:
            self._part_ns, self._histories = part_ns, {}
        part, histories = snapshot.now_ns // part_ns, {}
        found = []
        for worker in snapshot.survey.workers:
            if worker.usage is None or not worker.reading.alive:
                continue
            uuid = worker.reading.uuid
            history = histories[uuid] = self._histories.get(uuid) or _History(part)
            history.add(part, worker.usage.rss_bytes)
            ease = _STAYS if uuid in self._named else 1.0
            *least, now = history.least
            slope = grows(least, now)  # in bytes per part
            if slope * _MINUTE_NS / part_ns >= ease * thresholds.memory_growth * _MIB:
                found.append((worker, slope / part_ns))
        self._histories = histories
        self._named = {worker.reading.uuid for worker, _ in found}
        return [self._alarm(worker, slope, thresholds) for worker, slope in found]

    def _alarm(self, worker: Worker, bytes_per_ns: float, thresholds: Thresholds) -> Alarm:
        assert worker.usage is not None
        left = self._room(worker.reading.pid or 0)
        until = "how much memory is left is unknown"
        if left is not None:
            lasts = duration(left.bytes / bytes_per_ns)
            until = f"{size(left.bytes)} are left ({left.of}), enough for {lasts} at this rate"
        text = (
            f"{worker.name}: memory grows by {bytes_per_ns * _MINUTE_NS / _MIB:.1f} MiB/min for at least "
            f"{duration(thresholds.ns('memory_over'))}, now {size(worker.usage.rss_bytes)}; {until}"
        )
        command = f"brickd workers {as_argument(worker.service)}"
        return Alarm("memory", worker.service, (worker.name,), worker.name, text, command)


def grows(least: Sequence[int], now: int) -> float:
    """Return the slope of the last ten parts if the values grow, else 0.

    They may fall only a little, also from the last part to the value `now`.

    >>> grows([5] * 3 + list(range(10)), 9), grows(range(10), 9), grows(range(10), 7), grows(range(9), 9)
    (1.0, 1.0, 0.0, 0.0)
    """
    last, before = least[-_PARTS:], least[:-_PARTS]
    if len(last) < _PARTS or last[-1] <= max(before, default=0):
        return 0.0
    highest, fall = last[0], 0
    for value in (*last, now):
        highest = max(highest, value)
        fall = max(fall, highest - value)
    slope = _slope(last)
    steady = _slope(last[_PARTS // 2 :]) >= slope / 2
    return slope if steady and fall <= _FALLS * (last[-1] - last[0]) else 0.0


def _slope(values: Iterable[int]) -> float:
    """Return the median of the slopes between all pairs of values (the method of Theil and Sen)."""
    return median([(after - before) / (j - i) for (i, before), (j, after) in combinations(enumerate(values), 2)])
