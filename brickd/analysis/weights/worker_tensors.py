"""The tensors of one worker: the current content of each, and its first content in its generation.

Owns: the columns of tensors. Must not know: which record replaces which (`weights_call.c`), names of tensors, contents,
limits. Invariant: records may arrive in any order, as long as no earlier generation returns.
"""

from __future__ import annotations

from array import array

from brickd.shm import _reader

ROW_BYTES = 33


class Holds:
    """The columns of a worker's tensors, by the tensor's index in the service.

    Attributes:
        refused: the number of the worker's records for which there was no room.
        ticks: the time of the last reading.
        now: the id of the content at that time; 0 if unknown.
        first_ticks: the time of the first reading in this generation.
        firsts: the id of the content at the first reading.
        named: 1 if the host named the generation, 0 if the worker counted it.
    """

    __slots__ = ("first_ticks", "firsts", "generations", "named", "now", "refused", "service", "ticks")

    def __init__(self, service: str) -> None:
        self.service, self.refused = service, 0
        self.generations, self.ticks, self.now = array("Q"), array("Q"), array("I")
        self.first_ticks, self.firsts, self.named = array("Q"), array("I"), array("B")

    def columns(self) -> tuple[array[int], ...]:
        """Return the columns in the order in which the reader's `weights_put` takes them."""
        return self.generations, self.ticks, self.now, self.first_ticks, self.firsts, self.named

    def __len__(self) -> int:
        return len(self.now)

    @property
    def known(self) -> int:
        """The number of known tensors."""
        return len(self.now) - self.now.count(0)

    def numbers(self) -> list[int]:
        """The indexes of the known tensors."""
        return [number for number, now in enumerate(self.now) if now]

    def grow(self, rows: int) -> None:
        """Add rows for tensors that are still unknown."""
        for column in self.columns():
            column.frombytes(bytes(rows * column.itemsize))

    def put(self, records: bytes, numbers: array[int], contents: array[int], uses: array[int]) -> tuple[int, list[int]]:
        """Add records. Their tensors must already have rows.

        Args:
            records: the records of weights.
            numbers: the index of each record's tensor; a record with an index below 0 is skipped.
            contents: the id of each record's content. It is 0 if there was no room for the content; the tensor then
                becomes unknown.
            uses: for each content, the number of references to it.

        Returns:
            The number of changes, and the contents whose last reference is gone.
        """
        news, refused, left = _reader.weights_put(records, numbers, contents, uses, *self.columns())
        self.refused += refused
        return news, left

    def copy(self) -> Holds:
        """A copy to read while the original changes."""
        other = Holds(self.service)
        other.refused = self.refused
        for column, mine in zip(other.columns(), self.columns(), strict=True):
            column.extend(mine)
        return other
