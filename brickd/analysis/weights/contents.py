"""The fingerprints of tensor contents. Equal contents are stored once.

Owns: when two tensors are equal, which part of a fingerprint is stored, which part is shown. Must not know: which
worker or tensor has a content. Invariants: Two tensors are equal if checksum, number of elements, shape and dtype are
equal. Statistics and sketch do not count, because their last bits may differ between processors. A content that no
worker uses is removed.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Iterable
from typing import NamedTuple

from brickd.shm import _reader
from brickd.shm.records import DTYPES, SLOT_BYTES

CONTENT_BYTES = 3 * SLOT_BYTES  # all slots of a record except the first
COST_BYTES = 2 * CONTENT_BYTES  # approximate memory per content

# The structs `brick_output` and `brick_tensor_sums` of brick_shm.h.
_OUTPUT = struct.Struct("<8xI4x6Q")
_SUMS = struct.Struct("<QQddffIIIIB7x")
_DIMS_MAX = 6


class TensorContent(NamedTuple):
    """The fingerprint of a tensor, without its sketch."""

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
        """The fields that must be equal before two contents can be compared."""
        return self.dtype, self.shape_digest, self.elements


@functools.lru_cache(maxsize=4_096)
def content(record: bytes) -> TensorContent:
    """Decode the part of a record after its head."""
    dims, *shape = _OUTPUT.unpack_from(record, 0)
    checksum, elements, _, l2, _, _, nan, pos_inf, neg_inf, digest, dtype = _SUMS.unpack_from(record, SLOT_BYTES)
    name = DTYPES[dtype] if 0 < dtype < len(DTYPES) else None
    shown = tuple(shape[: min(dims, _DIMS_MAX)])
    return TensorContent(checksum, elements, shown, digest, name or f"dtype#{dtype}", l2, nan, pos_inf, neg_inf)


class ContentStore:
    """One copy of each content in use; its id is a number above 0.

    Attributes:
        numbers: the id of each content, keyed by the content's identity.
        uses: for each id, how many workers' columns refer to the content.
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
        """All contents by id."""
        return {number: self._records[number] for number in self.numbers.values()}

    def take(self, records: bytes, most: int) -> array[int]:
        """Store the contents of these records; return their ids, with 0 for a content for which there is no room.

        The caller must then add to `uses` for each new content, or call `clear`. `most` is the limit of contents.
        """
        numbers = array("I", _reader.weights_held(records, self.numbers, self._records, self._free, most))
        self.uses.frombytes(bytes((len(self._records) - len(self.uses)) * self.uses.itemsize))
        return numbers

    def copy(self) -> ContentStore:
        """A copy to read while the original changes."""
        other = ContentStore()
        other.numbers, other._records = self.numbers.copy(), self._records.copy()
        other.uses, other._free = self.uses[:], self._free.copy()
        return other

    def release(self, number: int, times: int) -> None:
        """Subtract `times` uses of a content, and remove it when no use is left. Id 0 has no effect."""
        if number:
            self.uses[number] -= times
            self.clear((number,))

    def clear(self, numbers: Iterable[int]) -> None:
        """Remove the contents in this list that no worker uses."""
        for number in numbers:
            if self._records[number] and not self.uses[number]:
                del self.numbers[identity(self._records[number])]
                self._records[number] = b""
                self._free.append(number)


def identity(record: bytes) -> bytes:
    """Return the bytes that equal contents share: checksum, elements, shape, dtype."""
    return record[SLOT_BYTES : SLOT_BYTES + 16] + record[SLOT_BYTES + 52 : SLOT_BYTES + 57]
