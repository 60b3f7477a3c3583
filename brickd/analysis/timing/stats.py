"""Statistics: how far one worker differs from the others, and whether a group is slower.

Owns: the standing of each row over slots, and the statistic of Mann and Whitney over values that are known by cell
only. Must not know: what is measured, how wide a cell is. Invariants: the order of rows changes nothing; a row with too
few values, or too few others, has no standing; ranks are computed in whole numbers and rounded once; with the groups
exchanged the sign changes and nothing else; values in one cell are a tie, and nothing but ties has no result.

Standing. The statistic was chosen by simulation: lognormal and Pareto times, rare long ones, 3 to 8 workers, 5 to 100
calls a slot. In 221,400 windows of workers that were equal it scored 5 or more in 3, and of windows with one of eight 3
% slow, while a slot's mean is known to 0.35 %, in 97 of 100 after five slots, 99.9 after six. What mattered, most of it
first:

- The noise of a row is the larger of its own and of what all rows have: with that of all alone, a worker that is
  unsteady and not slow was named in up to 12 of 100 windows. Its own is as wide as Student's t, for so few values.
- Four slots at the least: with three, five times as many were named for nothing.
- The spread over few workers is known badly, and three are close together by chance: it is widened by 1 + 3/n, which
  halves the number that is named among workers that differ a little for good.
- A mean without the least and the largest slot is nearly as sharp as one of all, and one stop leaves no trace in it.
- Who has changed lately is judged by the slots since then: else it would be its own noise for a minute.

Ranks. The variance is that of ties, the tail that of a normal distribution. The correction for continuity is half of
the greatest step that a value makes by changing to the next cell in use: 1/2 of U without ties, that of Yates with two
cells. (With 1/2 always, 1 in 14 draws of 10 and of 2,000 values from the same, 1 % of it in a second cell, had a
p-value below 0.01: 1 in 200 has now.) It still says too much of the two or three values that are not in the cell of
nearly all: whoever concludes something asks for more than `p_value`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

ROWS_MIN = 3  # of two nobody can say which
SLOTS_MIN = 4
THRESHOLD = 5.0

_FLOOR = 0.0015  # nobody's clock, core and cache are closer to another's
_TO_SIGMA = 1.4826  # from a median of absolute deviations
_TRIMMED = 1.2  # variance of the trimmed mean, over that of the mean


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a row stands out.

    Attributes:
        excess: over the median of all.
        score: the excess over what chance and the usual differences explain.
        slots: how many it rests on.
        steady: whether it was so in all slots, except one at most.
        first: the first slot of those in which it was so without a break, up to the last.
    """

    excess: float
    score: float
    slots: int
    steady: bool
    first: int


NOWHERE = Standing(excess=0.0, score=0.0, slots=0, steady=False, first=0)


class Field:
    """All rows that are compared.

    Args:
        rows: of each, a value for each slot; None if there is no meaningful one.

    Attributes:
        centre: the median of all.
        excess: of each over that; empty if too little is known to compare them.
    """

    centre = 0.0

    def __init__(self, rows: Mapping[str, Sequence[float | None]]) -> None:
        values = {name: [each for each in row if each is not None] for name, row in rows.items()}
        self._rows = rows
        self._values = {name: each for name, each in values.items() if len(each) >= SLOTS_MIN}
        self.excess: dict[str, float] = {}
        if len(self._values) < ROWS_MIN:
            return
        levels = {name: _trimmed(each) for name, each in self._values.items()}
        self.centre = median(levels.values())
        self.excess = {name: level - self.centre for name, level in levels.items()}
        usual = median([abs(excess) for excess in self.excess.values()])
        self._spread = _TO_SIGMA * (1 + 3 / len(levels)) * usual
        # Of differences between neighbours, so that what changes slowly, for whatever reason, is not taken for noise.
        steps = [abs(after - before) for each in self._values.values() for before, after in pairwise(each)]
        self._noise = _TO_SIGMA * median(steps) / math.sqrt(2)

    def standing(self, name: str) -> Standing:
        """The standing of a compared row; if it has changed lately, by the values since then."""
        row = self._rows[name]
        whole = self._over(row, 0)
        changed = self._changed(row, _trimmed(self._values[name][-SLOTS_MIN:]) - self.centre)
        lately = self._over(row, changed) if 0 < changed <= len(row) - SLOTS_MIN else whole
        return max(whole, lately, key=lambda standing: standing.score)

    def _changed(self, row: Sequence[float | None], level: float) -> int:
        """The first slot since which it is at least half as far above the median as it is now."""
        broken = (slot for slot, value in enumerate(row) if value is not None and value - self.centre <= level / 2)
        return max(broken, default=-1) + 1

    def _over(self, row: Sequence[float | None], begin: int) -> Standing:
        """The standing by the slots since one of them."""
        values = [value for value in row[begin:] if value is not None]
        if len(values) < SLOTS_MIN:
            return NOWHERE
        excess = _trimmed(values) - self.centre
        noise = max(self._noise, _deviation(values))
        error = math.sqrt(self._spread**2 + _TRIMMED * noise**2 / len(values) + _FLOOR**2)
        steady = sum(value - self.centre > excess / 2 for value in values) >= len(values) - 1
        since = self._changed(row, excess)
        first = next((slot for slot in range(since, len(row)) if row[slot] is not None), len(row) - 1)
        return Standing(excess, excess / error, len(values), steady, first)


def median(values: Collection[float]) -> float:
    """The middle of one or more (`statistics` takes as long to load as a verb may)."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _trimmed(values: Sequence[float]) -> float:
    inner = sorted(values)[1:-1]
    return sum(inner) / len(inner)


def _deviation(values: Sequence[float]) -> float:
    """Of one row: as wide as Student's t, for few values may lie close together by chance."""
    mean, freedom = sum(values) / len(values), len(values) - 1
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (freedom - 2))


class Ranks(NamedTuple):
    """How two groups compare.

    Attributes:
        ahead: of all pairs with one of each group, those in which the second's is greater, less those in which the
            first's is.
        p_value: the chance of that or more, either way, if both are drawn from the same.
    """

    ahead: int
    p_value: float


def ranks(first: Sequence[int], second: Sequence[int]) -> Ranks:
    """Compare two groups by their values in each cell, the cell of the least values first."""
    ahead = ones = others = ties = step = below = 0
    for one, other in zip(first, second, strict=True):
        here = one + other
        if here == 0:
            continue
        ahead += other * ones - one * others
        ones += one
        others += other
        ties += here**3
        step = max(step, below + here) if below else step
        below = here
    both = ones + others
    room = ones * others * (both**3 - ties)
    if room == 0:
        return Ranks(0, 1.0)
    # U = (ones * others + ahead) / 2, and its variance is room / (12 * both * (both - 1)).
    square = 3 * max(2 * abs(ahead) - step, 0) ** 2 * both * (both - 1) / (4 * room)
    return Ranks(ahead, math.erfc(math.sqrt(square / 2)))
