"""What the harness knows for certain: the place and the time of a fault, and how each row was computed.

Owns: digests of histories and lineages, the record of a fault. Must not know: torch, brickd. Invariants: if two digests
are equal, the tokens and their positions are equal, or the steps are equal; every fault has a time at which it was put
in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_ALL = (1 << 64) - 1


def chained(*numbers: int) -> int:
    """Return a 64-bit digest of numbers. If the first number is a digest, the result also covers what that digest
    covers.
    """
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = ((state ^ number) * 0xBF58476D1CE4E5B9) & _ALL
        state ^= state >> 29
        state = (state * 0x94D049BB133111EB) & _ALL
        state ^= state >> 32
    return state


class Lineage(NamedTuple):
    """How the cache of a row was filled, from the least to the most exact.

    Attributes:
        borders: a digest of where the tokens of each step begin and end.
        widths: a digest that also covers the number of tokens and keys of a row, including padding.
        shapes: a digest that also covers the number of rows of the batch.
    """

    borders: int
    widths: int
    shapes: int

    def after(self, start: int, count: int, shape: Sequence[int]) -> Lineage:
        """The lineage of the rows of the next step."""
        rows, tokens, keys = shape
        borders = chained(self.borders, start, count)
        widths = chained(self.widths, start, count, tokens, keys)
        return Lineage(borders, widths, chained(self.shapes, start, count, tokens, keys, rows))


NOTHING = Lineage(0, 0, 0)


@dataclass(frozen=True)
class Fault:
    """A fault that was put into a replica.

    Attributes:
        kind: one of the engine's faults.
        replica: its number.
        site: the path of the module that gives wrong results.
        watched: the paths of the row-wise modules that contain it, from the outermost to the module itself. Each of
            them is an exact place.
        detail: a description.
        step, at_s: the last step of the engine before the fault was put in, and the time of this in seconds since 1970.
    """

    kind: str
    replica: int
    site: str
    watched: tuple[str, ...]
    detail: str
    step: int
    at_s: float
