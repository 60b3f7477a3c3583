"""The contents of tensors, as their fingerprints show them: one copy of equal ones.

Owns: when two tensors are equal, what is kept of one, what of that is shown. Must not know: whose they are. Invariants:
tensors are equal by checksum, number of elements, shape and dtype alone, for statistics and sketch may differ in their
last bits between processors; a content without a holder goes.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Iterable
from typing import NamedTuple

from brickd.shm import _reader
from brickd.shm.records import DTYPES, SLOT_BYTES

CONTENT_BYTES = 3 * SLOT_BYTES  # of a record's slots all but the first
COST_BYTES = 2 * CONTENT_BYTES  # what one takes here, roughly

# brick_output and brick_tensor_sums of brick_shm.h.
_OUTPUT = struct.Struct("<8xI4x6Q")
_SUMS = struct.Struct("<QQddffIIIIB7x")
_DIMS_MAX = 6


class TensorContent(NamedTuple):
    """A tensor's fingerprint, as far as it can be shown."""

    checksum: int
    elements: int
    shape: tuple[int, ...]
    shape_digest: int
    dtype: str
    l2: float
    nan: int
    pos_inf: int
    neg_inf: int

    @property
    def form(self) -> tuple[str, int, int]:
        """What must be equal for two to be comparable."""
        return self.dtype, self.shape_digest, self.elements


@functools.lru_cache(maxsize=4_096)
def content(record: bytes) -> TensorContent:
    """Decode what follows the head of a record."""
    dims, *shape = _OUTPUT.unpack_from(record, 0)
    checksum, elements, _, l2, _, _, nan, pos_inf, neg_inf, digest, dtype = _SUMS.unpack_from(record, SLOT_BYTES)
    name = DTYPES[dtype] if 0 < dtype < len(DTYPES) else None
    shown = tuple(shape[: min(dims, _DIMS_MAX)])
    return TensorContent(checksum, elements, shown, digest, name or f"dtype#{dtype}", l2, nan, pos_inf, neg_inf)


class ContentStore:
    """One copy of each content that is held, by a number that is not 0.

    Attributes:
        numbers: by what makes contents equal.
        uses: the number of holders, by number.
    """

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self._records: list[bytes] = [b""]
        self.uses = array("I", [0])
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int) -> bytes:
        return self._records[number]

    def all(self) -> dict[int, bytes]:
        """All contents by number."""
        return {number: self._records[number] for number in self.numbers.values()}

    def take(self, records: bytes, most: int) -> array[int]:
        """Store what the tensors of records hold; the contents' numbers, 0 without room.

        The caller then holds the new ones or clears them. `most`: the limit of contents.
        """
        numbers = array("I", _reader.weights_held(records, self.numbers, self._records, self._free, most))
        self.uses.frombytes(bytes((len(self._records) - len(self.uses)) * self.uses.itemsize))
        return numbers

    def copy(self) -> ContentStore:
        """A copy to read while this one changes."""
        other = ContentStore()
        other.numbers, other._records = self.numbers.copy(), self._records.copy()
        other.uses, other._free = self.uses[:], self._free.copy()
        return other

    def release(self, number: int, times: int) -> None:
        """Count fewer holders of a content, and drop it with the last; 0 is nothing."""
        if number:
            self.uses[number] -= times
            self.clear((number,))

    def clear(self, numbers: Iterable[int]) -> None:
        """Drop those of these contents that nobody holds."""
        for number in numbers:
            if self._records[number] and not self.uses[number]:
                del self.numbers[identity(self._records[number])]
                self._records[number] = b""
                self._free.append(number)


def identity(record: bytes) -> bytes:
    """What equal contents have in common: checksum, elements; shape, dtype."""
    return record[SLOT_BYTES : SLOT_BYTES + 16] + record[SLOT_BYTES + 52 : SLOT_BYTES + 57]
