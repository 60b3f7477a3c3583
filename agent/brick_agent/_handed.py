"""Work that was handed to a device through one profiler, until a common sync says that it is over.

Owns: what pends, and how the time up to a sync is shared out. Must not know: clocks, devices, where else it is told.
Invariants: each start is pending, bounded, or counted as refused; the parts of one process's time are given once, so
that they never add up to more than the time that passed; what pends is limited.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from brick_agent._stats import BrickStats

WAITING_MAX = 16_384


@dataclass(frozen=True, slots=True)
class Handed:
    """One start.

    Attributes:
        start_ns: when, by the machine's monotonic clock.
        name: of the brick.
        elements: what it works on.
    """

    start_ns: int
    name: str
    elements: int


class Waiting:
    """What pends. Starts are added by any thread at any time; one at a time settles them."""

    def __init__(self) -> None:
        self._waiting: deque[Handed] = deque()
        self._given_ns = 0  # the time up to here has been shared out

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, start: Handed) -> bool:
        """Keep it; False: there is no room."""
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append(start)
        return True

    def forget(self) -> None:
        """Give up what pends."""
        self._waiting.clear()

    def settle(self, end_ns: int) -> list[BrickStats]:
        """What had started by the sync at that time is over: the part of each.

        Each has the time from its start to the next one's, the last one to the sync. A start before the last sync that
        is told after it has what is left of its part.
        """
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        over = sorted((each for each in taken if each.start_ns <= end_ns), key=lambda each: each.start_ns)
        self._waiting.extendleft(reversed([each for each in taken if each.start_ns > end_ns]))
        ends = [each.start_ns for each in over[1:]] + [end_ns] * bool(over)
        settled = [
            _bounded(each, max(0, end - max(each.start_ns, self._given_ns)), end_ns)
            for each, end in zip(over, ends, strict=True)
        ]
        if over:
            self._given_ns = max(self._given_ns, end_ns)
        return settled


def _bounded(start: Handed, part_ns: int, end_ns: int) -> BrickStats:
    return BrickStats(
        start.name,
        count=1,
        total_ns=part_ns,
        self_ns=part_ns,
        min_ns=part_ns,
        max_ns=part_ns,
        min_exact=False,
        max_exact=False,
        total_elements=start.elements,
        bounded=1,
        bounded_ns=part_ns,
        sync_latency_ns=end_ns - start.start_ns,
    )
