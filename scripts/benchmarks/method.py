"""How times are compared on a machine that is shared and changes its speed (BENCH.md, Method).

All cases run in one process, pinned to one processor, collector off, in rounds: each round runs a batch of each case in
a shuffled order. From a case's time that of the empty loop in the same round is taken off. Two cases are compared by
the ratio of their minima and by the median of the rounds' ratios. Nothing here knows what is measured.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

BATCH_NS = 500_000
_EMPTY = "empty loop"
_TEMPLATE = """\
def batch(repeats, clock, {names}):
    began = clock()
    for _ in repeats:
        {statement}
    return clock() - began
"""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Case:
    """A statement, the names it uses, and what is done around a batch of it, untimed."""

    name: str
    statement: str
    names: Mapping[str, object] = field(default_factory=dict)
    before: Callable[[], None] = _nothing
    after: Callable[[], None] = _nothing
    batch_max: int = 1 << 20

    def compiled(self) -> Callable[[int], int]:
        """A function that runs the statement so many times and returns the nanoseconds it took."""
        scope: dict[str, Callable[..., int]] = {}
        exec(_TEMPLATE.format(names=", ".join(self.names), statement=self.statement), {}, scope)
        batch, values = scope["batch"], tuple(self.names.values())

        def run(count: int) -> int:
            self.before()
            try:
                return batch(itertools.repeat(None, count), time.perf_counter_ns, *values)
            finally:
                self.after()

        return run

    def batch(self, run: Callable[[int], int]) -> int:
        """How many fill a batch."""
        run(min(1000, self.batch_max))  # the interpreter specializes, caches warm up
        trial = min(200, self.batch_max)
        each = min(run(trial) for _ in range(5)) / trial
        return max(1, min(self.batch_max, int(BATCH_NS / each)))


class Times:
    """Nanoseconds for each case in each round."""

    def __init__(self, rounds: dict[str, list[float]]) -> None:
        self._rounds = rounds

    def costs(self, name: str) -> list[float]:
        """What one cost in each round, without the loop."""
        return [ns - empty for ns, empty in zip(self._rounds[name], self._rounds[_EMPTY], strict=True)]

    def least(self, name: str) -> float:
        """What one cost in its best round."""
        return min(self._rounds[name]) - min(self._rounds[_EMPTY])

    def median(self, name: str) -> float:
        """What one cost in the median round."""
        return statistics.median(self.costs(name))

    def ratio_of_min(self, name: str, reference: str) -> float:
        """The best round of one by the best round of the other."""
        return self.least(name) / self.least(reference)

    def ratio_median(self, name: str, reference: str) -> float:
        """The median of the rounds' ratios."""
        pairs = zip(self.costs(name), self.costs(reference), strict=True)
        return statistics.median(one / other for one, other in pairs)


def pin(turn: int) -> int:
    """Stay on one processor, another one at each turn: its number."""
    allowed = sorted(os.sched_getaffinity(0))
    cpu = allowed[-1 - turn % len(allowed)]
    os.sched_setaffinity(0, {cpu})
    return cpu


def measure(cases: Iterable[Case], rounds: int, seed: int) -> Times:
    """Time all cases in this process."""
    prepared = []
    for case in (Case(_EMPTY, "pass"), *cases):
        run = case.compiled()
        prepared.append((case.name, run, case.batch(run)))
    times: dict[str, list[float]] = {name: [] for name, _, _ in prepared}
    shuffle = random.Random(seed).shuffle
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            shuffle(prepared)
            for name, run, count in prepared:
                times[name].append(run(count) / count)
    finally:
        gc.enable()
    return Times(times)
