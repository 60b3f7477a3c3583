"""The complete checksums of a recording, as a drain of rings would return them.

Owns: how a checksum that is split between two chunks is joined, and the count of missing checksums. Must not know: the
meaning of checksums, their sites. Invariants: Only complete checksums are returned, each once, in the order of its
lane. Each file is read once for all workers. Whatever the files contain, only one chunk is in memory, and for each lane
at most a part of one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from brickd.recording.chunks import RingRecords
from brickd.recording.file_index import FileIndex
from brickd.shm import _reader
from brickd.shm.records import SLOT_BYTES

_SEQUENCE, _SLOTS, _TICKS = slice(0, 8), slice(12, 14), slice(16, 24)  # the fields of a record's first slot


@dataclass(slots=True)
class Lost:
    """The missing records of a worker.

    Attributes:
        cut: the number of checksums that begin but do not end, because of a gap, damage, or the end of the last file.
        missing: the number of missing sequence numbers. Each stands for an event of any kind that was damaged, or for
            which there was no room in a ring, in memory or on the disk.
        rejected: the number of invalid checksums, plus the number of records that do not show where the next record
            begins.
        until: the ticks of a checksum after all missing records; None if there is none.
    """

    cut: int = 0
    missing: int = 0
    rejected: int = 0
    until: int | None = field(default=0, compare=False)


@dataclass(slots=True)
class _Lane:
    """How far a lane has been read.

    Attributes:
        next: the position of the next slot to read.
        begun: the slots of an incomplete checksum.
        last: the sequence number of the last record.
        torn: whether some records are missing, and no checksum after them has been read yet.
    """

    next: int = 0
    begun: bytes = b""
    last: int = 0
    torn: bool = False


@dataclass(slots=True)
class Checked:
    """The checksums of some workers in the files of one recording. The workers are given by their uuids.

    Attributes:
        lost: the missing records of each worker that has records, keyed by uuid; complete after the iteration.
        last: for each uuid and lane, the sequence number of the last record of any kind; complete after the iteration.
        step_texts: receives the uuid of a worker and texts of its steps during the iteration.
    """

    files: Sequence[FileIndex]
    uuids: Set[str]
    lost: dict[str, Lost] = field(default_factory=dict)
    last: dict[tuple[str, int], int] = field(default_factory=dict)
    step_texts: Callable[[str, list[bytes]], object] = lambda uuid, texts: None

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """For each chunk of records, yield the uuid and the slots of the checksums that it completes."""
        self.lost.clear()
        lanes: dict[tuple[str, int], _Lane] = {}
        for uuid, found in self._pieces():
            lane = lanes.setdefault((uuid, found.lane), _Lane())
            self.step_texts(uuid, _reader.step_texts(found.slots[found.inside * SLOT_BYTES :]))
            if whole := _taken(lane, found, self.lost.setdefault(uuid, Lost())):
                yield uuid, whole
        for (uuid, number), lane in lanes.items():
            self.lost[uuid].cut += bool(lane.begun)
            if lane.begun or lane.torn:
                self.lost[uuid].until = None
            self.last[uuid, number] = lane.last

    def _pieces(self) -> Iterable[tuple[str, RingRecords]]:
        for file in self.files:
            for uuid, found in file.records(self.uuids):
                if found.events and found.lane < _reader.LANES_MAX:
                    yield uuid, found


def _taken(lane: _Lane, found: RingRecords, lost: Lost) -> bytes:
    """Add the next records of a lane; return the complete checksums."""
    count, before, cuts = len(found.slots) // SLOT_BYTES, lane.last, lost.cut
    slots, at = found.slots[: count * SLOT_BYTES], min(found.inside, count)
    if lane.begun:
        needed = int.from_bytes(lane.begun[_SLOTS], "little") - len(lane.begun) // SLOT_BYTES
        follows = found.first == lane.next
        if follows and found.inside == needed:
            slots, at = lane.begun + slots, 0
        else:
            lost.cut += 1
            at = count if follows else at  # the chunks contradict each other, so the start of a record is unknown
    whole, cut, lane.last, missing, rejected = _reader.checked(slots, at, lane.last)
    lane.begun = slots[cut * SLOT_BYTES :]
    lane.next = found.first + count
    lost.missing += missing
    lost.rejected += rejected
    lane.torn |= bool(missing or rejected or lost.cut != cuts)
    if lane.torn and whole:
        # If all missing records come before the first checksum, the ticks of that checksum are used. Otherwise only the
        # ticks of the last checksum are certain to be later.
        is_ahead = not rejected and _number(slots, at * SLOT_BYTES, _SEQUENCE) == before + missing + 1
        last = 0 if is_ahead else _last(whole)
        lost.until, lane.torn = max(lost.until or 0, _number(whole, last, _TICKS)), False
    return whole


def _number(slots: bytes, at: int, of: slice) -> int:
    return int.from_bytes(slots[at + of.start : at + of.stop], "little")


def _last(whole: bytes) -> int:
    """Return the offset of the last of several checksums."""
    at = last = 0
    while at < len(whole):
        last, at = at, at + _number(whole, at, _SLOTS) * SLOT_BYTES
    return last
