"""The order in which a tick drains the segments of one user.

Owns: the order of segments, and how much a tick reads. Must not know: how a segment is drained. Invariants: Cheap
segments are drained in every tick, whatever the costly segments do. No costly segment waits forever. If a waiting
segment has no room for records, its worker counts them as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from brickd.daemon.attachment import Attached
from brickd.shm import _reader
from brickd.shm.memory_budget import MIB

# The most that a tick reads from the segments of one user. A tick starts when the fullest ring is a quarter full. If
# all rings are a quarter full, 64 workers with 8 threads each and rings of the usual size have 64 MiB. It takes 30 ms
# to copy and add up that much.
TICK_BYTES = 256 * MIB
# After each piece of this size, a tick checks whether there is time for another piece. Events take longer than other
# bytes: a piece that has only events takes up to 0.1 s.
PIECE_BYTES = 4 * MIB


class DrainResult(NamedTuple):
    """The result of a pass for one segment: the events, or why the segment was refused."""

    each: Attached
    events: bytes | None
    refused: str | None


class DrainTurns:
    """The segments of a user, in the `order` of the next tick.

    `unreached` has the segments that the last tick did not reach.
    """

    def __init__(self, attached: Iterable[Attached]) -> None:
        self.order = list(attached)
        self.unreached: Sequence[Attached] = ()
        self._light = 0  # how many segments at the start are cheap, and drained in every tick
        self._read = self._read_now()
        self._ticks = 0

    def _read_now(self) -> dict[Attached, int]:
        return {each: each.drain.read for each in self.order}

    def arrange(self) -> None:
        """Put cheap segments first. The cost of a segment is how much was read from it since the last arrangement."""
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
        """Drain as much as one tick may, in pieces, while `goes_on` returns True; `take` gets each result."""
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
        """Put the unreached segments first. But if all cheap segments were reached, these stay at the beginning."""
        light = self._light if self._light <= reached else 0
        self.order[light:] = self.order[reached:] + self.order[light:reached]
