"""The tensors of one worker: of each what it holds now, and what it held first in its generation.

Owns: these columns. Must not know: which record takes the place of which (`weights_call.c`), what a tensor is called,
what contents are, how many of anything there may be. Invariant: the order in which records come changes nothing, as
long as a generation does not come back.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from brickd.shm import _reader

ROW_BYTES = 33


class TensorRow(NamedTuple):
    """What is known of a tensor of a worker.

    Attributes:
        generation: of its weights.
        ticks: when it was last read.
        now: what it held then, by its number.
        first_ticks: when it was first read in this generation.
        first: what it held then.
    """

    generation: int
    ticks: int
    now: int
    first_ticks: int
    first: int


class Holds:
    """Columns, in which each tensor has its place under its number in the service; `now` is 0 of what is not known.

    Attributes:
        service: what the worker belongs to.
        refused: how many records of it found no room.
        named: 1 where its host called the generation so, 0 where it was counted.
    """

    __slots__ = ("first_ticks", "firsts", "generations", "named", "now", "refused", "service", "ticks")

    def __init__(self, service: str) -> None:
        self.service, self.refused = service, 0
        self.generations, self.ticks, self.now = array("Q"), array("Q"), array("I")
        self.first_ticks, self.firsts, self.named = array("Q"), array("I"), array("B")

    def columns(self) -> tuple[array[int], ...]:
        """As a row has them, and then `named`."""
        return self.generations, self.ticks, self.now, self.first_ticks, self.firsts, self.named

    def __len__(self) -> int:
        return len(self.now)

    @property
    def known(self) -> int:
        """Of how many tensors anything is known."""
        return len(self.now) - self.now.count(0)

    def numbers(self) -> list[int]:
        """Of which ones."""
        return [number for number, now in enumerate(self.now) if now]

    def grow(self, rows: int) -> None:
        """Have so many more, of which nothing is known."""
        for column in self.columns():
            column.frombytes(bytes(rows * column.itemsize))

    def row(self, number: int) -> TensorRow:
        """Of one tensor."""
        return TensorRow(
            self.generations[number],
            self.ticks[number],
            self.now[number],
            self.first_ticks[number],
            self.firsts[number],
        )

    def put(self, records: bytes, numbers: array[int], contents: array[int], uses: array[int]) -> tuple[int, list[int]]:
        """Have what records say in its place, of tensors that have rows.

        Args:
            records: of weights.
            numbers: of their tensors; below 0: the record is passed over.
            contents: the numbers of what they hold; 0: there is no room for it, and of what finds no room nothing is
                known, for what was known would be taken for it.
            uses: how often each content is held.

        Returns:
            How much of it was news, and the contents that nobody holds any more, or yet.
        """
        news, refused, left = _reader.weights_put(records, numbers, contents, uses, *self.columns())
        self.refused += refused
        return news, left

    def copy(self) -> Holds:
        """The same, for whoever looks at it while the other goes on."""
        other = Holds(self.service)
        other.refused = self.refused
        for column, mine in zip(other.columns(), self.columns(), strict=True):
            column.extend(mine)
        return other
