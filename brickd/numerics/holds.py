"""The tensors of one worker: of each what it holds now, and what it held first in its generation.

Owns: these columns, and which record takes the place of which. Must not know: what a tensor is called, what contents
are, how many of anything there may be. Invariant: the order in which records come changes nothing, as long as a
generation does not come back.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

ROW_BYTES = 33

# Of which of the two that are kept of a tensor a record takes the place.
NOW, FIRST = 1, 2
BOTH = NOW | FIRST  # it begins a generation, or is the first that is known


class Row(NamedTuple):
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

    def row(self, number: int) -> Row:
        """Of one tensor."""
        return Row(
            self.generations[number],
            self.ticks[number],
            self.now[number],
            self.first_ticks[number],
            self.firsts[number],
        )

    def takes(self, number: int, generation: int, ticks: int) -> int:
        """Of which of the two of a tensor a record takes the place: NOW, FIRST, BOTH, or 0."""
        if not self.now[number]:
            return BOTH
        if ticks > self.ticks[number]:
            return NOW if generation == self.generations[number] else BOTH
        return FIRST if ticks < self.first_ticks[number] and generation == self.generations[number] else 0

    def put(self, number: int, takes: int, generation: int, named: bool, ticks: int, content: int) -> bool:
        """Have what a record says in that place; whether a generation begins there."""
        begins = generation != self.generations[number]
        if takes & NOW:
            self.generations[number], self.ticks[number], self.now[number] = generation, ticks, content
        if takes & FIRST:
            self.first_ticks[number], self.firsts[number] = ticks, content
        self.named[number] = named
        return begins

    def clear(self, number: int) -> None:
        """Nothing is known of a tensor any more."""
        for column in self.columns():
            column[number] = 0

    def copy(self) -> Holds:
        """The same, for whoever looks at it while the other goes on."""
        other = Holds(self.service)
        other.refused = self.refused
        for column, mine in zip(other.columns(), self.columns(), strict=True):
            column.extend(mine)
        return other
