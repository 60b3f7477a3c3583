"""Statistics: how far a worker differs from the others, and whether one group of values is greater than another.

Owns: the standing of a row, which says how far its values exceed those of the other rows (the excess), and how certain
that is (the score); and the Mann-Whitney statistic for values of which only the histogram cell is known. Must not know:
what is measured, how wide a cell is. Invariants: The order of rows changes
nothing. A row has no standing if it has too few values or if there are too few other rows. Ranks are computed in whole
numbers and rounded once. Exchanging the groups changes only the sign. Values in one cell are a tie, and if all values
are in one cell there is no difference.

Standing. The statistic was chosen by simulation. The simulated times were lognormal or Pareto, and 1 % of the calls
took 50 times as long. There were 3 to 8 workers, and 4 to 6 slots of 5 to 100 calls. For equal workers, the score
computed from the means of usual calls (`usual_calls`) reached 5 in 0 of 44,514 windows. The score computed from the
means of all calls reached 5 in 26 of 96,915 windows, of which 25 had the long calls. When one of eight workers was 3 %
slower, and the mean of a slot was known to 0.35 %, its score reached 5 in 98 of 100 windows after five slots, and in
99.7 of 100 windows after six. The reasons for the form of the statistic, the most important first:

- The noise of a row is the larger of two: the noise of this row and the noise of all rows. When only the noise of all
  rows was used, an unsteady worker that was not slow was named in up to 12 of 100 windows. The noise of the row is
  increased as in Student's t, because there are few values.
- A standing needs at least four slots. With three slots, five times as many workers were named wrongly.
- The spread over few workers is uncertain: three may be close together by chance. So the spread is multiplied by
  1 + 3/n, which halves the number of workers that are named for a small lasting difference.
- The mean without the smallest and the largest slot is nearly as precise as the mean of all slots, and a single stop
  does not change it.
- A worker that has changed recently is judged by the slots since the change. Otherwise the change itself would count as
  noise for a minute.

Ranks. The variance takes ties into account; the p-value is the tail of a normal distribution. The continuity correction
is half of the largest change of U when a value moves to the next used cell: 1/2 without ties, Yates' correction with
two cells. The test was simulated with groups of 10 and 2,000 values from the same distribution, with 1 % of the values
in a second cell. With a constant correction of 1/2, the p-value was below 0.01 in 1 of 14 draws; with this correction,
in 1 of 200. If nearly all values are in one cell, two or three values outside of it still give a p-value that is too
small. So a caller needs more evidence than `p_value`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

ROWS_MIN = 3  # with two rows, it is impossible to say which one is slow
SLOTS_MIN = 4
THRESHOLD = 5.0

_FLOOR = 0.0015  # the usual difference between the cores of two workers
_TO_SIGMA = 1.4826  # standard deviation / median absolute deviation
_TRIMMED = 1.2  # the variance of the trimmed mean, divided by that of the mean


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a row stands out.

    Attributes:
        excess: the excess over the median of all rows.
        score: the excess divided by the deviation that chance and usual differences explain.
        slots: the number of slots used.
        steady: whether the row stood out in all slots, or in all but one.
        first: the slot since which the row has stood out in every slot.
    """

    excess: float
    score: float
    slots: int
    steady: bool
    first: int


NOWHERE = Standing(excess=0.0, score=0.0, slots=0, steady=False, first=0)


class Field:
    """The compared rows.

    Args:
        rows: for each row, a value for each slot; None for a slot without a meaningful value.

    Attributes:
        centre: the median of all rows.
        excess: each row's excess over the centre; empty if there are too few values or rows.
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
        # Differences between neighbouring slots measure the noise, so that slow changes do not count as noise.
        steps = [abs(after - before) for each in self._values.values() for before, after in pairwise(each)]
        self._noise = _TO_SIGMA * median(steps) / math.sqrt(2)

    def standing(self, name: str) -> Standing:
        """Return the standing of a row. After a recent change of the row, only the slots since then may count."""
        row = self._rows[name]
        whole = self._over(row, 0)
        changed = self._changed(row, _trimmed(self._values[name][-SLOTS_MIN:]) - self.centre)
        recent = self._over(row, changed) if 0 < changed <= len(row) - SLOTS_MIN else whole
        return max(whole, recent, key=lambda standing: standing.score)

    def _changed(self, row: Sequence[float | None], level: float) -> int:
        """Return the first slot since which the excess has always been more than half of `level`."""
        broken = (slot for slot, value in enumerate(row) if value is not None and value - self.centre <= level / 2)
        return max(broken, default=-1) + 1

    def _over(self, row: Sequence[float | None], begin: int) -> Standing:
        """Return the standing by the slots since `begin`."""
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
    """Return the median. The module `statistics` is not used, because its import is too slow for a command."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _trimmed(values: Sequence[float]) -> float:
    inner = sorted(values)[1:-1]
    return sum(inner) / len(inner)


def _deviation(values: Sequence[float]) -> float:
    """Return a row's deviation, increased as in Student's t because few values may be close by chance."""
    mean, freedom = sum(values) / len(values), len(values) - 1
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (freedom - 2))


class Ranks(NamedTuple):
    """The comparison of two groups.

    Attributes:
        ahead: each value of one group is paired with each value of the other group. This is the number of pairs in
            which the second group's value is greater, minus the number in which the first group's value is greater.
        p_value: the two-sided chance of at least this difference if the groups are equal.
    """

    ahead: int
    p_value: float


def ranks(first: Sequence[int], second: Sequence[int]) -> Ranks:
    """Compare two groups by their numbers of values in each cell, the lowest cell first."""
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
