"""Recently merged workers and the sum that holds them: the sum's earlier totals need it.

Owns: that list, and what tells where a worker's totals began. Must not know: totals, who asks. Invariants: of each
sum those that are known are the last that were added to it, in their order, without a gap; they are limited.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from brickd.shm.segment_copy import Reading

KEPT_NS = 90_000_000_000  # longer than any window
ADDED_MAX = 8_192  # in that time: ninety dead each second


class Origin(NamedTuple):
    """Where a worker's totals began.

    Attributes:
        took: the lost segment whose totals it has, as in `brick_shm.h`; 0: none.
        anchor_ticks: its clock when its segment was made.
        anchor_ns: the same by CLOCK_MONOTONIC_RAW.
    """

    uuid: str
    took: int
    anchor_ticks: int
    anchor_ns: int

    @classmethod
    def of(cls, reading: Reading) -> Origin:
        """The origin in a reading."""
        header = reading.header
        return cls(reading.uuid, reading.process["took"], header["anchor_ticks"], header["anchor_ns"])


class Lately:
    """The list."""

    def __init__(self) -> None:
        self._added: deque[tuple[int, str, Origin]] = deque(maxlen=ADDED_MAX)

    def add(self, now_ns: int, who: Origin, into: str) -> None:
        """Note that a worker was added to the sum with the uuid `into`."""
        self._added.append((now_ns, into, who))

    def by_sum(self, now_ns: int) -> dict[str, tuple[Origin, ...]]:
        """The recent ones, by the uuid of their sum."""
        while self._added and now_ns - self._added[0][0] > KEPT_NS:
            self._added.popleft()
        found: dict[str, list[Origin]] = {}
        for _, into, who in self._added:
            found.setdefault(into, []).append(who)
        return {into: tuple(added) for into, added in found.items()}
