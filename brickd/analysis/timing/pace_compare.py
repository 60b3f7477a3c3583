"""Compares two groups of workers brick by brick: which spans take significantly longer.

Owns: which differences of time are significant. Must not know: files, states of workers, the meaning of the groups,
screens. Invariants: Bounds are not measurements, so bricks with bounds are listed but not compared. Exchanging the
groups changes only the signs. A brick that only one group has is listed without a difference.

A difference is significant if all of this is true:

- The histograms differ (see `stats`): if the groups are equal, then in 99 of 100 comparisons no brick has histograms
  that differ this much. This test alone is not enough, because it assumes independent spans. The spans of one worker
  depend on each other, and with millions of spans almost every difference would be significant.
- The medians differ by at least `LEAST`, in the same direction. Only the bucket of each median is known, and a bucket
  is 19 % wide. A tiny change can move many equal spans to the next bucket. So the means, which are exact, must also
  differ by `LEAST`. The means are ignored if at least one whole bucket is between the medians, because a single long
  stop can hide a difference of means.

The test as a whole misses differences between groups whose spans are nearly all in one bucket. It also misses
differences of less than two buckets if rare, long stops dominate the means.

Clocks with different rates have different bucket borders, and different borders alone can cause a difference. So groups
on such clocks are compared as if the slower group were one bucket faster.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from brickd.analysis.timing.stats import ranks
from brickd.model.brick_totals import names_in, percent_of
from brickd.model.summary_fold import SummaryFold
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading

CHANCE = 0.01  # the chance that any brick is significant if nothing differs
LEAST = 0.05
CALLS_MIN = 8  # the calls that each group needs

_PER_OCTAVE = 4  # buckets per doubling of the time
_ALIKE = 0.015  # in buckets, about a quarter of a percent of the time; the clocks of one machine differ by less

Side = Literal["a", "b"]
_Key = tuple[str, Side, bool]


@dataclass(frozen=True, slots=True)
class Pair:
    """A brick in both groups.

    Attributes:
        category: the first category that a worker declared, else 'other'.
        a: the first group's totals.
        b: the second group's totals.
        p_value: the chance of at least this difference between equal groups; None if a group has too few calls.
    """

    brick: str
    category: str
    a: _reader.Row
    b: _reader.Row
    p_value: float | None
    significant: bool

    @property
    def difference_percent(self) -> float | None:
        """Return the relative difference of the medians in percent; None if one of them is missing or zero."""
        a, b = self.a["p50_ns"], self.b["p50_ns"]
        return None if not (self.a["count"] and self.b["count"]) or a == 0 < b else percent_of(b - a, a)

    @property
    def cost_ns(self) -> float:
        """Return the extra self time of the second group, for as many calls as both groups made."""
        calls = min(self.a["count"], self.b["count"])
        return calls * (self.b["self_ns"] / self.b["count"] - self.a["self_ns"] / self.a["count"]) if calls else 0.0

    def document(self) -> dict[str, Any]:
        """The pair as JSON; times are whole nanoseconds."""
        return {
            "brick": self.brick,
            "category": self.category,
            "a": _times(self.a),
            "b": _times(self.b),
            "difference_percent": self.difference_percent,
            "cost_ns": round(self.cost_ns),
            "p_value": None if self.p_value is None else float(f"{self.p_value:.4g}"),
            "significant": self.significant,
        }


def _times(row: _reader.Row) -> dict[str, int | None]:
    some = row["count"] > 0
    return {
        "calls": row["count"],
        "median_ns": round(row["p50_ns"]) if some else None,
        "mean_ns": round(row["mean_ns"]) if some else None,
    }


@dataclass(frozen=True, slots=True)
class Paces:
    """All bricks of two groups.

    Attributes:
        pairs: the significant bricks, then the others, each sorted by cost. So a slow brick comes before the bricks
            that contain it.
        bounded: the bricks for which a group has bounds; the totals exclude these bounds.
        level: a `p_value` below this level is significant; it depends on the number of bricks.
    """

    pairs: Sequence[Pair]
    bounded: Sequence[str]
    level: float

    def document(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {
            "bricks": [pair.document() for pair in self.pairs],
            "bounded": list(self.bounded),
            "level": float(f"{self.level:.4g}"),
            "least_percent": 100 * LEAST,
        }


def paces(a: Iterable[Reading], b: Iterable[Reading]) -> Paces:
    """Compare two groups by the readings of their workers."""
    fold: SummaryFold[_Key] = SummaryFold()
    categories: dict[str, str] = {}
    shifts = _add(fold, a, b, categories)
    rows = {key: number for number, key in enumerate(fold.keys) if fold.row(number)["count"]}
    bricks = {brick for brick, _, bounded in rows if not bounded}
    numbers = {brick: (rows.get((brick, "a", False), -1), rows.get((brick, "b", False), -1)) for brick in bricks}
    tests = {brick: _tested(fold, *each, shifts[brick]) for brick, each in numbers.items()}
    level = CHANCE / max(sum(test is not None for test in tests.values()), 1)
    pairs = []
    for brick, (one, other) in numbers.items():
        test = tests[brick]
        significant = test is not None and test.p_value < level and test.worth
        p_value = None if test is None else test.p_value
        pairs.append(Pair(brick, categories[brick], fold.row(one), fold.row(other), p_value, significant))
    pairs.sort(key=lambda pair: (not pair.significant, -round(abs(pair.cost_ns)), pair.brick))
    return Paces(pairs, sorted({brick for brick, _, bounded in rows if bounded}), level)


def _add(
    fold: SummaryFold[_Key], a: Iterable[Reading], b: Iterable[Reading], categories: dict[str, str]
) -> Mapping[str, Set[float]]:
    """Add up all readings; return, for each brick, by how many buckets its histograms were shifted."""
    sides: list[tuple[Side, Reading]] = [*(("a", each) for each in a), *(("b", each) for each in b)]
    # The first clock defines the buckets. The readings are sorted by clock, so that exchanging the groups changes
    # nothing.
    sides.sort(key=lambda side: side[1].tick_ns)
    shifts: defaultdict[str, set[float]] = defaultdict(set)
    for side, reading in sides:
        ticks, ns = (_shift(tick_ns, sides[0][1].tick_ns) for tick_ns in (reading.tick_ns, 1.0))
        key_of = _keyed(reading, side, (ticks, ns), categories, shifts)
        fold.add(reading, key_of, (side, ticks))
    return shifts


def _shift(tick_ns: float, grid_ns: float) -> float:
    return round(_PER_OCTAVE * (math.log2(tick_ns) - math.log2(grid_ns)), 2)


def _keyed(
    reading: Reading,
    side: Side,
    ticks_and_ns: tuple[float, float],
    categories: dict[str, str],
    shifts: Mapping[str, set[float]],
) -> Callable[[CallPath, int], _Key]:
    name_of = names_in(reading, categories)

    def key_of(path: CallPath, _: int) -> _Key:
        brick, bounded = name_of(path.name), path.unit == _reader.UNIT_BOUND
        if not bounded:
            shifts[brick].add(ticks_and_ns[path.unit != _reader.UNIT_TICKS])
        return brick, side, bounded

    return key_of


class _Test(NamedTuple):
    """The p-value of a brick, and whether its difference is large enough to report."""

    p_value: float
    worth: bool


def _tested(fold: SummaryFold[_Key], a: int, b: int, shifts: Set[float]) -> _Test | None:
    """Compare the rows of both groups; None if one of them has too few calls."""
    rows = fold.row(a), fold.row(b)
    if min(row["count"] for row in rows) < CALLS_MIN:
        return None
    (one, other), blurred = _cells((fold.histogram(a), fold.histogram(b)), shifts)
    ahead, p_value = ranks(one, other)
    if blurred:
        still, p_value = ranks([0, *one], [*other, 0]) if ahead > 0 else ranks([*one, 0], [0, *other])
        if still * ahead <= 0:
            return _Test(1.0, worth=False)
    if ahead == 0:
        return _Test(p_value, worth=False)
    slower, faster = rows[ahead > 0], rows[ahead < 0]
    sure = abs(_middle(one) - _middle(other)) > 1 + blurred
    worth = _above(slower["p50_ns"], faster["p50_ns"]) and (sure or _above(slower["mean_ns"], faster["mean_ns"]))
    return _Test(p_value, worth)


def _cells(histograms: Sequence[Sequence[int]], shifts: Set[float]) -> tuple[list[list[int]], bool]:
    """Return the histograms in common cells, and whether the borders of cells may be wrong by up to half a cell."""
    by = {shift: math.floor(shift + 0.5) for shift in shifts}
    # The first bucket also counts everything below it, and the last bucket everything above it, even after a shift.
    first, last = max(0, *by.values()), len(histograms[0]) - 1 + min(0, *by.values())
    if first >= last:
        return [[sum(each)] for each in histograms], False
    parts = [shift - whole for shift, whole in by.items()]
    cells = [[sum(each[: first + 1]), *each[first + 1 : last], sum(each[last:])] for each in histograms]
    return cells, max(parts) - min(parts) > _ALIKE


def _middle(cells: Sequence[int]) -> int:
    """Return the cell of the median."""
    below = list(accumulate(cells))
    return bisect_left(below, below[-1] / 2)


def _above(slower: float, faster: float) -> bool:
    return slower > 0 and slower >= faster * (1 + LEAST)
