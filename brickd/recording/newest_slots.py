"""The newest slots of a worker's rings.

Owns: the number of slots that are kept. Must not know: the origin and the content of slots. Invariants: The slots of a
ring have no gap and start with a record. Memory holds only a few more slots than the caller requested.
"""

from __future__ import annotations

from collections.abc import Iterable

from brickd.recording.chunks import RingRecords
from brickd.shm import _reader
from brickd.shm.records import SLOT_BYTES

# Always keep at least this many slots. A record may take several slots, and records of other kinds may come between the
# records that the caller wants.
_SLOTS_MIN = 1024


class Tails:
    """The rings of some lanes, with at least the `newest` slots of each ring."""

    def __init__(self, lanes: Iterable[int], newest: int) -> None:
        self.newest = newest
        self._room = max(newest, _SLOTS_MIN) * SLOT_BYTES
        self._rings = {(lane, events): (0, bytearray()) for lane in lanes for events in (False, True)}

    def take(self, found: RingRecords) -> None:
        """Add the next records."""
        ring = self._rings.get((found.lane, found.events))
        if ring is None:
            return
        first, slots = ring
        begin, end = 0, len(found.slots) // SLOT_BYTES * SLOT_BYTES
        if not slots or found.first != first + len(slots) // SLOT_BYTES:
            begin = min(found.inside * SLOT_BYTES, end)
            first, slots = found.first + begin // SLOT_BYTES, bytearray()
        slots += found.slots[begin:end]
        if (over := len(slots) - self._room) > self._room // 4:
            at = _reader.walk(slots, 0, over // SLOT_BYTES)
            at = len(slots) // SLOT_BYTES if at is None else at
            del slots[: at * SLOT_BYTES]
            first += at
        self._rings[found.lane, found.events] = first, slots

    def ring(self, lane: int, *, events: bool) -> tuple[int, bytes]:
        """Return the position of the first kept slot, and the slots."""
        first, slots = self._rings.get((lane, events), (0, b""))
        return first, bytes(slots)
