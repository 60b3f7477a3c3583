"""The file of the last day, with short slots of time for an hour and long slots for two days.

Owns: the file's format, which cell a slot gets, whether a cell is whole. Must not know: the content of a slot.
Invariants: all cells have the same size; the file never grows beyond its cells; a slot is written by one call, so after
a daemon is killed each cell is either whole or has a wrong checksum; only one process at a time writes the file.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from brickd.base.files import take
from brickd.base.units import SECOND
from brickd.base.users import user_name

CELL_BYTES = 17 * 4096  # 936 cells are 62.2 MiB
LENGTHS_NS = (10 * SECOND, 300 * SECOND)
CELLS = (360, 576)  # an hour of short slots, and 48 hours of long ones
_MAGIC = b"brickday"
_VERSION = 2
# Magic, version, tier, length of the content, sequence, begin and end since 1970. A checksum of all this and of the
# content follows.
_HEAD = struct.Struct("<8sHHIQqq")
_CRC = struct.Struct("<I")
_SEQUENCES = 1 << 62
CONTENT_BYTES = CELL_BYTES - _HEAD.size - _CRC.size


class SlotPlace(NamedTuple):
    """A slot in the file: its tier (0: short, 1: long), number and time in nanoseconds since 1970."""

    tier: int
    sequence: int
    began_ns: int
    ended_ns: int


class DayFile:
    """An open file, from which slots are read. If this process has the lock of the file, it also writes slots.

    Attributes:
        places: the slots of each tier, the oldest first.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file, or raise OSError."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                owner = user_name(status.st_uid)
                raise PermissionError(f"is {stat.filemode(status.st_mode)} of {owner}, expected a file of this user")
            if not take(self._fd, 0):
                raise BlockingIOError("another process writes it")
            self.places = tuple(self._find(tier) for tier in range(len(CELLS)))
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Close the file; another process may then write it."""
        os.close(self._fd)

    def _find(self, tier: int) -> list[SlotPlace]:
        found = []
        for cell in range(CELLS[tier]):
            place = _place(os.pread(self._fd, _HEAD.size, _offset(tier, cell)), tier, cell)
            if place is not None:
                found.append(place)
        return sorted(found)

    def append(self, tier: int, began_ns: int, ended_ns: int, content: bytes) -> SlotPlace:
        """Write the next slot of a tier in place of the tier's oldest slot, or raise OSError."""
        places = self.places[tier]
        sequence = places[-1].sequence + 1 if places else 1
        head = _HEAD.pack(_MAGIC, _VERSION, tier, len(content), sequence, began_ns, ended_ns)
        cell = head + _CRC.pack(zlib.crc32(content, zlib.crc32(head))) + content
        if len(cell) > CELL_BYTES:
            raise ValueError(f"a slot has {len(content)} bytes, expected at most {CONTENT_BYTES}")
        written = os.pwrite(self._fd, cell, _offset(tier, sequence % CELLS[tier]))
        if written != len(cell):  # as on a full disk: the old slot is lost, and the new one is invalid
            raise OSError(f"wrote {written} of {len(cell)} bytes")
        places.append(SlotPlace(tier, sequence, began_ns, ended_ns))
        del places[: -CELLS[tier]]
        return places[-1]

    def content(self, place: SlotPlace) -> bytes | None:
        """Read a slot's content; None if the slot was replaced or is damaged."""
        cell = os.pread(self._fd, CELL_BYTES, _offset(place.tier, place.sequence % CELLS[place.tier]))
        head = cell[: _HEAD.size]
        if len(cell) < _HEAD.size + _CRC.size or _place(head, place.tier, place.sequence % CELLS[place.tier]) != place:
            return None
        length = _HEAD.unpack(head)[3]
        content = cell[_HEAD.size + _CRC.size :][:length]
        (crc,) = _CRC.unpack_from(cell, _HEAD.size)
        return content if zlib.crc32(content, zlib.crc32(head)) == crc else None

    def within(self, tier: int, began_ns: int, ended_ns: int) -> Iterator[SlotPlace]:
        """The slots of a tier that have their middle within this period, the oldest first."""
        return (each for each in self.places[tier] if began_ns <= (each.began_ns + each.ended_ns) // 2 < ended_ns)

    def around(self, tier: int, at_ns: int) -> list[SlotPlace]:
        """Return a list with the slot of a tier that contains this time or ended just before it.

        A slot that ended just before the time is accepted, because the slot of the last seconds is not finished yet.
        The list is empty if there is no such slot.
        """
        found = [each for each in self.places[tier] if each.began_ns <= at_ns < each.ended_ns + LENGTHS_NS[0]]
        return sorted(found, key=lambda each: at_ns >= each.ended_ns)[:1]


def _offset(tier: int, cell: int) -> int:
    return (sum(CELLS[:tier]) + cell) * CELL_BYTES


def _place(head: bytes, tier: int, cell: int) -> SlotPlace | None:
    """The slot in a cell; None if the cell has no valid head."""
    if len(head) < _HEAD.size:
        return None
    magic, version, of, length, sequence, began_ns, ended_ns = _HEAD.unpack(head)
    valid = (magic, version, of) == (_MAGIC, _VERSION, tier) and length <= CONTENT_BYTES
    if not valid or not 0 < sequence < _SEQUENCES or sequence % CELLS[tier] != cell or not 0 <= began_ns <= ended_ns:
        return None
    return SlotPlace(tier, sequence, began_ns, ended_ns)
