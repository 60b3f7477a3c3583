"""How times are compared on a shared machine with a varying speed.

All cases run in one process, pinned to one processor, without the garbage collector, in rounds: each round runs a batch
of each case in a shuffled order. The time of the empty loop in the same round is subtracted from a case's time, except
for compiled loops, which do not run in the interpreter. Two cases are compared by the ratio of their minima and by the
median of the rounds' ratios. If a case can count its records, it is valid only if it recorded all of them, because a
case that records nothing looks cheap. Must not know: the cases.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

Clock = Callable[[], int]

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
    """A statement and the names that it uses. Other code runs before and after a batch of runs, and is not timed."""

    name: str
    statement: str = "pass"
    names: Mapping[str, object] = field(default_factory=dict)
    before: Callable[[], object] = _nothing
    after: Callable[[], object] = _nothing
    batch_max: int = 1 << 20
    native: Callable[[int], object] | None = None  # a compiled loop that takes a count, used instead of the statement
    recorded: Callable[[], int] | None = None  # returns the number of records; called once, at the end

    def compiled(self, clock: Clock = time.perf_counter_ns) -> Callable[[int], int]:
        """Return a function that runs the statement as many times as it is told to, and returns the nanoseconds."""
        timed = self._statement(clock) if self.native is None else _timed(self.native, clock)

        def run(count: int) -> int:
            self.before()
            try:
                return timed(count)
            finally:
                self.after()

        return run

    def _statement(self, clock: Clock) -> Callable[[int], int]:
        scope: dict[str, Callable[..., int]] = {}
        exec(_TEMPLATE.format(names=", ".join(self.names), statement=self.statement), {}, scope)
        batch, values = scope["batch"], tuple(self.names.values())
        return lambda count: batch(itertools.repeat(None, count), clock, *values)

    def batch(self, run: Callable[[int], int]) -> int:
        """Return the number of runs in a batch."""
        run(min(1000, self.batch_max))  # lets the interpreter specialize its bytecode and fills the caches
        trial = min(200, self.batch_max)
        each = min(run(trial) for _ in range(5)) / trial
        return max(1, min(self.batch_max, int(BATCH_NS / each)))


def _timed(native: Callable[[int], object], clock: Clock) -> Callable[[int], int]:
    def timed(count: int) -> int:
        began = clock()
        native(count)
        return clock() - began

    return timed


class Times:
    """Nanoseconds for each case in each round. `refused` has the invalid cases, and the reason for each."""

    def __init__(self, rounds: dict[str, list[float]], native: Container[str], refused: dict[str, str]) -> None:
        self._rounds = rounds
        self._native = native
        self.refused = refused

    def _loop(self, name: str) -> list[float]:
        empty = self._rounds[_EMPTY]
        return [0.0] * len(empty) if name in self._native else empty

    def costs(self, name: str) -> list[float]:
        """Return the cost in each round, without the time of the loop."""
        return [ns - loop for ns, loop in zip(self._rounds[name], self._loop(name), strict=True)]

    def least(self, name: str) -> float:
        """Return the cost in the best round."""
        return min(self._rounds[name]) - min(self._loop(name))

    def median(self, name: str) -> float:
        """Return the cost in the median round."""
        return statistics.median(self.costs(name))

    def ratio_of_min(self, name: str, reference: str) -> float:
        """Return the best round divided by the best round of the reference."""
        return self.least(name) / self.least(reference)

    def ratio_median(self, name: str, reference: str) -> float:
        pairs = zip(self.costs(name), self.costs(reference), strict=True)
        return statistics.median(one / other for one, other in pairs)


def pin(turn: int) -> int:
    """Pin this process to one processor, and return its number. Each attempt gets another processor."""
    allowed = sorted(os.sched_getaffinity(0))
    cpu = allowed[-1 - turn % len(allowed)]
    os.sched_setaffinity(0, {cpu})
    return cpu


def measure(cases: Iterable[Case], rounds: int, seed: int, clock: Clock = time.perf_counter_ns) -> Times:
    wanted = [Case(_EMPTY), *cases]
    executed = dict.fromkeys((case.name for case in wanted), 0)
    prepared = []
    for case in wanted:
        run = _counting(case, executed, clock)
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
    native = {case.name for case in wanted if case.native is not None}
    return Times(times, native, _refused(wanted, executed))


def _counting(case: Case, executed: dict[str, int], clock: Clock) -> Callable[[int], int]:
    run = case.compiled(clock)

    def counted(count: int) -> int:
        executed[case.name] += count
        return run(count)

    return counted


def _refused(cases: Iterable[Case], executed: Mapping[str, int]) -> dict[str, str]:
    found = {case.name: case.recorded() for case in cases if case.recorded is not None}
    return {
        name: f"{count:,} of {executed[name]:,} were recorded, expected all"
        for name, count in found.items()
        if count != executed[name]
    }
