"""Runs whose faults are known, and their outcome.

Owns: how runs are drawn, when a run is good, and how the result of a class of runs is made. Must not know: brickd, and
how it is queried. Invariants: half of the runs are healthy; a run whose damage changed no bit is reported but not
counted; if too little was compared, the result of the class is never good.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.damage import Fault, OperatorFault, WeightFault
from benchmarks.replicas import PROMPT, SIZE, Report, Service
from benchmarks.verdicts import UNKNOWN, Verdict

FACTOR = 2.0  # the highest factor by which an estimated error may be wrong
_SHOWN = 3  # the most failures that are listed


@dataclass(frozen=True)
class Trial:
    """A service, and brickd's verdict on it.

    Attributes:
        service: the service, with its known fault.
        struck: whether the damage changed a bit.
        error: the size of the damage, divided by the norm of worker 0's tensor.
        verdict: brickd's verdict.
    """

    service: Service
    struck: bool = False
    error: float = 0.0
    verdict: Verdict = UNKNOWN

    @property
    def found(self) -> bool:
        """Return whether brickd reported a difference."""
        return self.verdict.differs is True

    @property
    def localised(self) -> bool:
        """Return whether brickd reported the exact place."""
        fault = self.service.fault
        assert fault is not None
        if isinstance(fault, WeightFault):
            return self.found and self.verdict.first == (f"{self.service.name}/{fault.worker}", fault.tensor)
        return self.found and self.verdict.first == fault.place

    @property
    def near(self) -> bool:
        """Return whether brickd reported the right operator and layer."""
        fault, first = self.service.fault, self.verdict.first
        assert isinstance(fault, OperatorFault)
        return self.found and first is not None and first[:2] == fault.place[:2]

    @property
    def estimated(self) -> bool:
        """Return whether the estimated error is close enough."""
        error = self.verdict.error
        return self.found and error is not None and self.error / FACTOR <= error <= self.error * FACTOR

    def outcome(self, reports: Sequence[Report], verdict: Verdict) -> Trial:
        """Return the trial with its outcome."""
        fault = self.service.fault
        if fault is None:
            return replace(self, verdict=verdict)
        (report,) = (each for each in reports if each[:2] == (self.service.name, fault.worker))
        return replace(self, struck=report.struck, error=report.error, verdict=verdict)


def drawn_trials(
    name: str,
    runs: int,
    seed: int,
    fault: Callable[[random.Random], Fault],
    workers: int,
    prompts: int,
    split: frozenset[int] = frozenset(),
) -> list[Trial]:
    """Return `runs` trials with a fault and as many without; with `split`, the workers form two numeric classes."""
    chance = random.Random(seed)
    faults: list[Fault | None] = [*(fault(chance) for _ in range(runs)), *[None] * runs]
    chance.shuffle(faults)

    def prompt() -> tuple[int, ...]:
        return tuple(chance.randrange(SIZE.vocabulary) for _ in range(PROMPT))

    return [
        Trial(Service(f"{name}-{number:04}", workers, tuple(prompt() for _ in range(prompts)), fault=each, split=split))
        for number, each in enumerate(faults)
    ]


def batches(trials: Sequence[Trial], size: int) -> Iterator[Sequence[Trial]]:
    """Split the trials into groups that run at the same time."""
    for first in range(0, len(trials), size):
        yield trials[first : first + size]


@dataclass(frozen=True)
class Wanted:
    """The result that a class of runs must have. The shares are in percent.

    Attributes:
        found: the share of the faults that must be found.
        localised: the share of the faults that must be localised, among those that can be. In the run class, this is
            the share of the errors that must be estimated within a factor of two.
        comparisons: the minimum number of comparisons in healthy runs. Damaged runs do not count, because a damaged
            worker soon has no counterparts.
    """

    found: float
    localised: float
    comparisons: int

    def __str__(self) -> str:
        return f"found >= {self.found:g} %, localised >= {self.localised:g} %, no false alarm"


def row(
    case: str,
    trials: Sequence[Trial],
    wanted: Wanted,
    seed: int,
    good: Callable[[Trial], bool],
    fit: Callable[[Trial], bool] = lambda _: True,
) -> dict[str, Any]:
    """Return the row of a class.

    Args:
        case: its name.
        trials: its trials.
        wanted: the required result.
        seed: the seed of its trials.
        good: returns whether a damage that was found is also localised.
        fit: returns whether a damage can be localised. It must be found in any case.
    """
    damaged = [each for each in trials if each.service.fault is not None and each.struck]
    clean = [each for each in trials if each.service.fault is None]
    localisable = [each for each in damaged if fit(each)]
    found, localised = sum(each.found for each in damaged), sum(each.found and good(each) for each in localisable)
    alarms = sum(each.found for each in clean)
    comparisons = sum(each.verdict.comparisons for each in clean)
    met = (
        bool(localisable)
        and 100 * found >= wanted.found * len(damaged)
        and 100 * localised >= wanted.localised * len(localisable)
        and alarms == 0
        and comparisons >= wanted.comparisons
    )
    return {
        "case": case,
        "runs": len(damaged),
        "found": found,
        "localisable": len(localisable),
        "localised": localised,
        "clean_runs": len(clean),
        "false_alarms": alarms,
        "comparisons": comparisons,
        "comparisons_min": wanted.comparisons,
        "seed": seed,
        "goal": str(wanted),
        "passed": met,
        "note": "; ".join(_remarks(trials, good, fit, comparisons < wanted.comparisons)),
        "skipped": None,
    }


def skipped(case: str, wanted: Wanted, why: str) -> dict[str, Any]:
    """Return the row of a class whose runs could not be tested."""
    nothing = row(case, [], wanted, 0, lambda _: False)
    return dict.fromkeys(nothing) | {"case": case, "goal": str(wanted), "note": "", "skipped": why}


def _remarks(
    trials: Sequence[Trial], good: Callable[[Trial], bool], fit: Callable[[Trial], bool], few: bool
) -> Iterator[str]:
    if few:
        yield "too few comparisons to say anything"
    idle = sum(each.service.fault is not None and not each.struck for each in trials)
    if idle:
        yield f"{idle} more whose damage changed nothing at its planned place"
    bad = [each for each in trials if _is_bad(each, good, fit)]
    for each in bad[:_SHOWN]:
        yield f"{each.service.name}: {_short(each)}"
    if len(bad) > _SHOWN:
        yield f"{len(bad) - _SHOWN}  more failures"


def _is_bad(trial: Trial, good: Callable[[Trial], bool], fit: Callable[[Trial], bool]) -> bool:
    if trial.service.fault is None:
        return trial.found
    return trial.struck and not (trial.found and (good(trial) or not fit(trial)))


def _short(trial: Trial) -> str:
    fault, verdict = trial.service.fault, trial.verdict
    answer = verdict.text if verdict.first is None else f"{verdict.text} at {_where(verdict.first)}"
    if fault is None:
        return f"nothing wrong, {answer}"
    where = fault.tensor if isinstance(fault, WeightFault) else _where(fault.place)
    error = f", error {verdict.error:.2g} for {trial.error:.2g}" if verdict.error is not None else ""
    return f"{fault.change.kind} of worker {fault.worker} in {where}: {answer}{error}"


def _where(place: tuple[object, ...]) -> str:
    return " ".join(map(str, place))


def measurable(trial: Trial, least: float) -> bool:
    """Return whether a damage is large enough for an estimate."""
    return trial.service.fault is None or (math.isfinite(trial.error) and trial.error >= least)
