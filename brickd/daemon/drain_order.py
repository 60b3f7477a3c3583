"""Which segments of one user a tick drains, and in which order.

Owns: that order, and how much a tick reads. Must not know: how a segment is drained. Invariants: cheap segments are
drained in every tick, whatever costly ones there are; among the costly ones none waits for ever. What a costly one
loses meanwhile its worker counts, since its ring is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from brickd.daemon.attachment import Attached
from brickd.shm import _reader
from brickd.shm.memory_budget import MIB

# A tick reads so much of the segments of one user. 64 workers with 8 threads each, whose rings of the usual size are
# all a quarter full, as a tick wants the fullest to be, have 64 MiB; to copy and fold that takes 30 ms.
TICK_BYTES = 256 * MIB
# After each piece of so much a tick looks whether there is time for another one: events take longer than their bytes,
# up to 0.1 s for a piece that holds nothing else.
PIECE_BYTES = 4 * MIB


class DrainResult(NamedTuple):
    """What a pass found in a segment: its events, or why it is refused."""

    each: Attached
    events: bytes | None
    refused: str | None


class DrainTurns:
    """A user's segments in the `order` of the next tick; the last one left some `unreached`."""

    def __init__(self, attached: Iterable[Attached]) -> None:
        self.order = list(attached)
        self.unreached: Sequence[Attached] = ()
        self._light = 0  # so many of the order are drained in every tick
        self._read = self._read_now()
        self._ticks = 0

    def _read_now(self) -> dict[Attached, int]:
        return {each: each.drain.read for each in self.order}

    def arrange(self) -> None:
        """Put the cheap ones first, by what a tick took of each since this was done last."""
        ticks, self._ticks = max(self._ticks, 1), 0
        before, self._read = self._read, self._read_now()
        took = {each: (now - before[each]) // ticks for each, now in self._read.items()}
        self.order.sort(key=took.__getitem__)
        spent = self._light = 0
        for each in self.order:
            spent += took[each]
            if spent > TICK_BYTES // 2:
                break
            self._light += 1

    def tick(self, take: Callable[[DrainResult], None], goes_on: Callable[[], bool]) -> None:
        """Drain as much as one tick may, in pieces, while `goes_on`; `take` gets each result."""
        self._ticks += 1
        drains = [each.drain for each in self.order]
        spent, reached = 0, 0
        while reached < len(drains):
            reached, read, found = _reader.drain(drains, reached, PIECE_BYTES)
            for index, events, refused in found:
                take(DrainResult(self.order[index], events, refused))
            spent += read
            if spent >= TICK_BYTES or not goes_on():
                break
        self.unreached = self.order[reached:]
        if self.unreached:
            self._turn(reached)

    def _turn(self, reached: int) -> None:
        """Put those that were not reached first, behind the cheap ones if all of these were."""
        light = self._light if self._light <= reached else 0
        self.order[light:] = self.order[reached:] + self.order[light:reached]
