"""`scripts/bench stragglers`: how soon does a daemon name the slow worker of eight?

Each run is a service of eight processes that take their steps together; in half of the runs one of them is slightly
slow in one brick. A run is good if brickd names that worker and brick, and nothing else.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks import contended, machine
from benchmarks.goals import Goal
from benchmarks.lockstep import BRICKS, WORKERS, Group, lockstep
from benchmarks.report import Report, Table
from benchmarks.running import Running, running
from benchmarks.workplace import Workplace, progress

HELP = "eight processes in lockstep, one of them slow in one brick: whether and how soon brickd names only this one"

RUNS, QUICK_RUNS = 100, 6  # the number of runs with a slow worker, and of runs without
SLOW_PERCENT, QUICK_SLOW_PERCENT = 3.0, 10.0
WITHIN_SECONDS = 60.0
NAMED = Goal(95, at_least=True)
FALSE = Goal(1)

_AT_ONCE = 12  # services that one daemon observes at a time
_SNAPSHOT_SECONDS = 10.0  # the starts of the services are spread over this time
_LOOK_SECONDS = 2.0
_SEED = 2026


@dataclass
class Run:
    """A service, and what brickd reported about it.

    Attributes:
        group: the service.
        named_s: the time from the start of the service until the slow worker was named.
        wrong: the reports that named another worker or another brick.
        began: when the service started.
    """

    group: Group
    named_s: float | None = None
    wrong: set[str] = field(default_factory=set)
    began: float = 0.0

    def note(self, worker: str, brick: str, now: float) -> None:
        """Record that a worker was named."""
        slow = self.group.slow
        if slow is None or (worker, brick) != (f"{self.group.service}/{slow[0]}", slow[1]):
            self.wrong.add(f"{worker} in {brick}")
        elif self.named_s is None:
            self.named_s = now - self.began

    @property
    def good(self) -> bool:
        return self.named_s is not None and self.named_s <= WITHIN_SECONDS


def run(place: Workplace, quick: bool, runs: int | None = None) -> Report:
    """Watch services of each kind, a few at a time, then services on busy processors."""
    percent = QUICK_SLOW_PERCENT if quick else SLOW_PERCENT
    planned = plan(runs or (QUICK_RUNS if quick else RUNS), percent, _SEED)
    beyond = 0.0 if quick else _SNAPSHOT_SECONDS  # continue for a while, to see wrong reports that come late
    with running(place) as daemon:
        for number, batch in enumerate(batches(planned)):
            done = planned[: number * _AT_ONCE]
            progress(f"{len(done)} of {len(planned)} services were watched; {'; '.join(_remarks(done)) or 'all good'}")
            watch(place, daemon, batch, WITHIN_SECONDS + beyond)
        # The quick run omits busy processors: one run at each load would take minutes and prove nothing.
        busy = [] if quick else [contended.table(place, daemon, runs or RUNS)]
    rows = [row([each for each in planned if bool(each.group.slow) == slow], percent) for slow in (True, False)]
    title = f"{WORKERS} processes in lockstep, named within {WITHIN_SECONDS:g} s, {_AT_ONCE} services at a time"
    return Report("stragglers", machine.facts(), [Table("stragglers", title, rows), *busy])


def plan(runs: int, percent: float, seed: int) -> list[Run]:
    """Return `runs` services with a slow worker and as many without, in random order."""
    chance = random.Random(seed)
    slow = [(chance.randrange(WORKERS), chance.choice(BRICKS), percent) for _ in range(runs)]
    chosen: list[tuple[int, str, float] | None] = [*slow, *[None] * runs]
    chance.shuffle(chosen)
    return [Run(Group(f"run-{number:03}", seed + number, each)) for number, each in enumerate(chosen)]


def batches(planned: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """Split the runs into groups that are watched at the same time."""
    for first in range(0, len(planned), _AT_ONCE):
        yield planned[first : first + _AT_ONCE]


def watch(place: Workplace, daemon: Running, batch: Sequence[Run], seconds: float) -> None:
    """Run services in parallel for `seconds`. They begin one after the other, spread over the time between two
    snapshots.
    """
    by_service = {each.group.service: each for each in batch}
    with ExitStack() as stack:
        begins = [stack.enter_context(lockstep(place, each.group)) for each in batch]
        for each, begin in zip(batch, begins, strict=True):
            begin()
            each.began = time.monotonic()
            time.sleep(_SNAPSHOT_SECONDS / len(batch))
        while time.monotonic() < batch[-1].began + seconds:
            time.sleep(_LOOK_SECONDS)
            for found in daemon.stragglers():
                if found["service"] in by_service:
                    by_service[found["service"]].note(found["worker"], found["brick"], time.monotonic())


def row(runs: Sequence[Run], percent: float) -> dict[str, Any]:
    """Return the row of all runs of a kind."""
    slow = any(run.group.slow for run in runs)
    named, wrong = sum(run.good for run in runs), sum(bool(run.wrong) for run in runs)
    seconds = [run.named_s for run in runs if run.named_s is not None]
    good = FALSE.met(100 * wrong / len(runs)) and (not slow or NAMED.met(100 * named / len(runs)))
    goal = f"named {NAMED} %, wrong {FALSE} %" if slow else f"wrong {FALSE} %"
    return {
        "case": f"one worker {percent:g} % slow in one brick" if slow else "nobody slow",
        "runs": len(runs),
        "slowdown_percent": percent if slow else 0.0,
        "named": named if slow else None,
        "wrong": wrong,
        "seconds_to_name_median": statistics.median(seconds) if seconds else None,
        "seconds_to_name_max": max(seconds, default=None),
        "seed": _SEED,
        "goal": goal,
        "passed": good,
        "note": "; ".join(_remarks(runs)),
        "skipped": None,
    }


def _remarks(runs: Iterable[Run]) -> Iterator[str]:
    for run in runs:
        if run.wrong:
            yield f"{run.group.service}: {', '.join(sorted(run.wrong))} named"
        if run.group.slow is not None and not run.good:
            when = "not named" if run.named_s is None else f"named after {run.named_s:.0f} s"
            yield f"{run.group.service}: {run.group.slow[1]} of {run.group.slow[0]} {when}"
