"""The tensors of one worker: of each what it holds now, and what it held first in its generation.

Owns: these columns, and which record takes the place of which. Must not know: what a tensor is called, what contents
are, how many of anything there may be. Invariant: the order in which records come changes nothing, as long as a
generation does not come back.
"""

from __future__ import annotations

from array import array
from enum import Enum, auto
from typing import NamedTuple

ROW_BYTES = 33


class Place(Enum):
    """What a record takes the place of."""

    ALL = auto()  # it begins a generation, or is the first that is known
    NOW = auto()
    FIRST = auto()  # it was read before what was taken for the first
    NOTHING = auto()


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

    def append(self, number: int, generation: int, named: bool, ticks: int, content: int) -> None:
        """Have a tensor behind all others, and what a record says of it; of those between nothing is known."""
        if between := number - len(self.now):
            for column in self.columns():
                column.frombytes(bytes(between * column.itemsize))
        self.generations.append(generation)
        self.ticks.append(ticks)
        self.now.append(content)
        self.first_ticks.append(ticks)
        self.firsts.append(content)
        self.named.append(named)

    def row(self, number: int) -> Row:
        """Of one tensor."""
        return Row(
            self.generations[number],
            self.ticks[number],
            self.now[number],
            self.first_ticks[number],
            self.firsts[number],
        )

    def place(self, number: int, generation: int, ticks: int) -> Place:
        """What a record of a tensor takes the place of."""
        if number >= len(self.now) or not self.now[number]:
            return Place.ALL
        if ticks > self.ticks[number]:
            return Place.NOW if generation == self.generations[number] else Place.ALL
        earliest = generation == self.generations[number] and ticks < self.first_ticks[number]
        return Place.FIRST if earliest else Place.NOTHING

    def put(self, number: int, place: Place, generation: int, named: bool, ticks: int, content: int) -> None:
        """Have what a record says in its place."""
        if place is not Place.FIRST:
            self.generations[number], self.ticks[number], self.now[number] = generation, ticks, content
        if place is not Place.NOW:
            self.first_ticks[number], self.firsts[number] = ticks, content
        self.named[number] = named

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
