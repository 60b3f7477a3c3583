"""The totals of bricks and categories, and figures calculated from them.

Owns: the formulas. Must not know: where the numbers come from. Invariants: a division by 0 gives 0; a value that is not
measured is marked: a shortest or longest time that is known only by its bucket (`min_exact`, `max_exact`), time up to a
common sync (`bounded`), a supplied value (`bottleneck`, `cycles`).

Where a formula of the predecessor was misleading, this module uses another one. The time of a nested brick is in the
`total_ns` of both bricks, as in the predecessor; categories and totals add up `self_ns`, which counts no time twice.
`throughput` counts elements per second of the time in the brick, as in the predecessor. The profiler's
`total_throughput` counts elements per second of the elapsed time. The "instructions per cycle" of the predecessor are
elements per cycle here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

from brick_agent._compat.profiler.brick_ids import BrickCategory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PERCENT = 100.0
_SECOND_NS = 1e9
# Limits of elements per cycle: below _SLOW the predecessor concludes memory-bound, above _FAST compute-bound.
_SLOW, _FAST = 0.5, 2.0


def ratio(of: float, to: float) -> float:
    """Return the quotient; 0 for a division by 0."""
    return of / to if to else 0.0


class BrickBottleneck(IntEnum):
    """What limits a brick's speed, as supplied by a user.

    >>> brick.BrickBottleneck.Memory.name
    'Memory'
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    Unknown = 0
    Memory = 1
    Compute = 2


@dataclass(slots=True)
class BrickStats:
    """The totals of one brick.

    Attributes:
        category: Norm, Attention, FFN, Other, or a declared one. count: the number of runs. total_ns, self_ns: the time
        of all runs, with and without nested bricks. min_ns: the shortest time; a lower bound unless `min_exact`.
        max_ns: the longest time; an upper bound unless `max_exact`. total_elements, total_bytes, total_flops: the
        amounts of all runs. total_compressed_bytes: the bytes after compression. bounded: the number of runs that were
        not measured but ended at a common sync. Each of these runs gets the time up to the next start, so that the
        parts add up to the elapsed time. bounded_ns: the part of `total_ns` in bounded runs. sync_latency_ns: the sum
        of the times from the starts of bounded runs to their sync; these times overlap. bottleneck, total_cycles,
        min_cycles, max_cycles, cycle_count: values supplied by a user.
    """

    name: str
    category: str = "Other"
    count: int = 0
    total_ns: int = 0
    self_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    min_exact: bool = True
    max_exact: bool = True
    total_elements: int = 0
    total_bytes: int = 0
    total_compressed_bytes: int = 0
    total_flops: float = 0.0
    bounded: int = 0
    bounded_ns: int = 0
    sync_latency_ns: int = 0
    bottleneck: BrickBottleneck = BrickBottleneck.Unknown
    total_cycles: int = 0
    min_cycles: int = 0
    max_cycles: int = 0
    cycle_count: int = 0
    squares: float = 0.0
    buckets: dict[float, int] = field(default_factory=dict, repr=False)

    def add(self, other: BrickStats) -> None:
        """Add other totals of the same brick."""
        if not other.count:
            return
        if not self.count or other.min_ns < self.min_ns:
            self.min_ns, self.min_exact = other.min_ns, other.min_exact
        if not self.count or other.max_ns > self.max_ns:
            self.max_ns, self.max_exact = other.max_ns, other.max_exact
        for figure in ("count", "total_ns", "self_ns", "total_elements", "total_bytes", "total_flops", "squares",
                       "bounded", "bounded_ns", "sync_latency_ns"):  # fmt: skip
            setattr(self, figure, getattr(self, figure) + getattr(other, figure))
        for bucket, n in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + n

    def bound(self, part_ns: int, latency_ns: int, elements: int) -> None:
        """Add a run that ended at a common sync."""
        run = BrickStats(self.name, count=1, bounded=1, total_elements=elements, sync_latency_ns=latency_ns)
        run.total_ns = run.self_ns = run.bounded_ns = run.min_ns = run.max_ns = part_ns
        run.min_exact = run.max_exact = False
        self.add(run)

    @property
    def avg_ns(self) -> float:
        """The average time of a run."""
        return ratio(self.total_ns, self.count)

    def avg_us(self) -> float:
        """The average time of a run in microseconds."""
        return self.avg_ns / 1e3

    def gap_factor(self, budget_us: float) -> float:
        """Return the average time divided by a budget.

        Above 1, the brick is over the budget. Without a budget, the result is 0.
        """
        return ratio(self.avg_us(), max(budget_us, 0.0))

    @property
    def std_ns(self) -> float:
        """The standard deviation of the measured times."""
        measured = self.count - self.bounded
        if measured < 2:  # the difference below may not be 0, because both numbers are rounded
            return 0.0
        mean = ratio(self.total_ns - self.bounded_ns, measured)
        return math.sqrt(max(ratio(self.squares, measured) - mean * mean, 0.0))

    @property
    def cv(self) -> float:
        """The coefficient of variation of the measured times: standard deviation / average."""
        return ratio(self.std_ns, ratio(self.total_ns - self.bounded_ns, self.count - self.bounded))

    def percentile_ns(self, percent: float) -> float | None:
        """Return a percentile of the times, with an error of up to 10 %; None: no time was measured."""
        wanted, seen = sum(self.buckets.values()) * percent / _PERCENT, 0
        for middle, n in sorted(self.buckets.items()):
            seen += n
            if seen >= wanted:
                return min(max(middle, self.min_ns), self.max_ns)
        return None

    @property
    def throughput(self) -> float:
        """Elements per second, over the brick's time."""
        return ratio(self.total_elements * _SECOND_NS, self.total_ns)

    @property
    def gb_per_s(self) -> float:
        """Gigabytes per second, over the brick's time."""
        return ratio(self.total_bytes, self.total_ns)

    @property
    def gflops(self) -> float:
        """GFLOP per second, over the brick's time."""
        return ratio(self.total_flops, self.total_ns)

    @property
    def compression_ratio(self) -> float:
        """Bytes before compression divided by bytes after."""
        return ratio(self.total_bytes, self.total_compressed_bytes)

    @property
    def avg_cycles(self) -> float:
        """Supplied cycles per run."""
        return ratio(self.total_cycles, self.cycle_count)

    @property
    def cycles_per_element(self) -> float:
        """Supplied cycles per element."""
        return ratio(self.total_cycles, self.total_elements)

    @property
    def diagnosis(self) -> str:
        """The predecessor's conclusion from supplied cycles: only a guess, because elements are not instructions."""
        if not self.total_cycles or not self.total_ns:
            return "insufficient data"
        elements_per_cycle = self.total_elements / self.total_cycles
        if elements_per_cycle < _SLOW:
            return "memory-bound, judging by few elements per cycle"
        if elements_per_cycle > _FAST:
            return "compute-bound, judging by many elements per cycle"
        return "throttled or descheduled" if self.total_ns > self.total_cycles else "balanced"


@dataclass(frozen=True, slots=True)
class CategoryStats:
    """The totals of one category."""

    category: str
    total_ns: int = 0  # the time in the category's bricks; each moment counts once, for the innermost brick
    total_elements: int = 0
    count: int = 0
    percentage: float = 0.0  # the share of the time in all bricks
    # The sum over all bricks of the category.
    runs: BrickStats = field(default_factory=lambda: BrickStats(""), repr=False)

    @property
    def avg_ns(self) -> float:
        """The average time of a run of the category's bricks."""
        return ratio(self.total_ns, self.count)

    @property
    def cv(self) -> float:
        """The coefficient of variation of the runs of the category's bricks, including nested bricks."""
        return self.runs.cv

    def percentile_ns(self, percent: float) -> float | None:
        """Return a percentile of the times of the runs, with an error of up to 10 %; None: no time was measured."""
        return self.runs.percentile_ns(percent)

    @property
    def throughput(self) -> float:
        """Elements per second, over the time in the category's bricks."""
        return ratio(self.total_elements * _SECOND_NS, self.total_ns)


class CategoryTotals(dict[str, CategoryStats]):
    """Totals by the category's name; for the four known categories, also by BrickCategory or its number."""

    def __getitem__(self, category: str | int) -> CategoryStats:
        return super().__getitem__(_name(category))

    def __contains__(self, category: object) -> bool:
        return super().__contains__(_name(category))

    def get(self, category: str | int, default: Any = None) -> CategoryStats | Any:
        """Return the totals of a category; if there are none, return the default."""
        return super().get(_name(category), default)


def _name(category: Any) -> Any:
    """Return the name of one of the four known categories; any other key is returned unchanged."""
    if isinstance(category, int) and not isinstance(category, bool) and 0 <= category < len(BrickCategory):
        return BrickCategory(category).name
    return category


def by_category(bricks: list[BrickStats], always: tuple[str, ...]) -> CategoryTotals:
    """Return the totals of each category: first the categories in `always`, then the others by name."""
    total = sum(each.self_ns for each in bricks)
    others = sorted({each.category for each in bricks} - set(always))
    categories = CategoryTotals()
    for category in (*always, *others):
        of = [each for each in bricks if each.category == category]
        own, elements = sum(each.self_ns for each in of), sum(each.total_elements for each in of)
        count, runs = sum(each.count for each in of), BrickStats(category, category)
        for each in of:
            runs.add(each)
        categories[category] = CategoryStats(category, own, elements, count, ratio(own * _PERCENT, total), runs)
    return categories
