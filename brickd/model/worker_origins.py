"""The workers that were recently merged, and the sums that contain them. A window that includes a sum needs both.

Owns: the list of recently merged workers, and the origin of a worker's totals. Must not know: totals, callers.
Invariants: For each sum, the list has the workers that were merged last, in order and without a gap. The length of the
    list is limited.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from brickd.shm.segment_copy import Reading

KEPT_NS = 90_000_000_000  # longer than any window
ADDED_MAX = 8_192  # enough for ninety dead workers per second during that time


class Origin(NamedTuple):
    """The origin of a worker's totals.

    Attributes:
        took: the lost segment whose totals the worker took over, as in `brick_shm.h`; 0 if there is none.
        anchor_ticks: the worker's clock when its segment was created.
        anchor_ns: CLOCK_MONOTONIC_RAW at the same time.
    """

    uuid: str
    took: int
    anchor_ticks: int
    anchor_ns: int

    @classmethod
    def of(cls, reading: Reading) -> Origin:
        """Return the origin of a reading."""
        header = reading.header
        return cls(reading.uuid, reading.process["took"], header["anchor_ticks"], header["anchor_ns"])


class RecentlyMerged:
    """The list of recently merged workers."""

    def __init__(self) -> None:
        self._added: deque[tuple[int, str, Origin]] = deque(maxlen=ADDED_MAX)

    def add(self, now_ns: int, who: Origin, into: str) -> None:
        """Record that a worker was merged into the sum with the uuid `into`."""
        self._added.append((now_ns, into, who))

    def by_aggregate(self, now_ns: int) -> dict[str, tuple[Origin, ...]]:
        """Return the recently merged workers, keyed by the uuid of the sum that contains them."""
        while self._added and now_ns - self._added[0][0] > KEPT_NS:
            self._added.popleft()
        found: dict[str, list[Origin]] = {}
        for _, into, who in self._added:
            found.setdefault(into, []).append(who)
        return {into: tuple(added) for into, added in found.items()}
