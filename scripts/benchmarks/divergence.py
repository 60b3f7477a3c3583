"""`scripts/bench divergence`: does brickd find a silent fault and its place?

The benchmark also counts false alarms, and tries to recover a server's prompts from recordings.

Each run is a service of its own, whose workers are replicas of a small transformer. In half of the runs, one replica is
damaged; only this program knows which replica, and where. Each run of this program draws a new seed and prints it; the
same seed draws the same damage.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.damage import Fault, drawn_for_a_weight, drawn_for_an_operator
from benchmarks.recovery import recovery
from benchmarks.replicas import MOMENTS, SEED, SIZE, replicas
from benchmarks.report import Report, Table
from benchmarks.running import Running, running
from benchmarks.trials import Trial, Wanted, batches, drawn_trials, measurable, row, skipped
from benchmarks.verdicts import Verdict, absent, of_findings, of_kernels, of_services, of_weights
from benchmarks.workplace import Workplace, progress
from brickd.demo.transformer import OF_A_LAYER, drawn

HELP = "replicas of a transformer, one of them silently damaged: found, located, no false alarms"

# the number of damaged services in each class; there are as many healthy services
RUNS, QUICK_RUNS = 1_000, 16
CONTENTS = 4  # different prompts: one more than brickd needs to learn a numeric class
PROMPTS, QUICK_PROMPTS = 5, 1  # prompts of each worker; with 5, healthy workers are compared more than a million times

_AT_ONCE = 32  # services of two or three workers run at a time; the daemon cannot keep fingerprints of more
_OF_FOUR = 8  # services of four workers run at a time; these record about as many fingerprints
_BATCHES = 8  # one daemon observes this many batches of services, one after the other
_CHECKED = SIZE.layers * len(OF_A_LAYER) + 1  # fingerprints of one step
_COVERED = 0.9  # the share of healthy workers' fingerprints that must be compared; below it, the run proves nothing
_ERROR_MIN = 1e-6  # the smallest error that a sketch shows

Verdicts = dict[str, list[Verdict]]


def run(place: Workplace, quick: bool, seed: int | None = None) -> Report:
    """Measure all classes. If `seed` is None, draw one."""
    seed = secrets.randbits(32) if seed is None else seed
    runs, prompts = (QUICK_RUNS, QUICK_PROMPTS) if quick else (RUNS, PROMPTS)
    progress(f"seed {seed}")
    rows = [
        *_weights(place, runs, seed),
        *_operators(place, runs, prompts, seed + 1),
        *_classes(place, runs, max(prompts, CONTENTS), seed + 3),
    ]
    title = f"Replicas of a transformer: of each class, {runs:,} services with a damaged replica and as many without"
    return Report("divergence", machine.facts(), [Table("divergence", title, rows), recovery(place, quick, seed + 2)])


def _weights(place: Workplace, runs: int, seed: int) -> list[dict[str, Any]]:
    names = drawn(SIZE, SEED)
    wanted = Wanted(100, 100, round(_COVERED * runs * len(names)))
    case = "weights: three replicas"
    if why := absent("weights"):
        return [skipped(case, wanted, why)]

    def fault(chance: random.Random) -> Fault:
        return drawn_for_a_weight(chance, 3, names)

    trials = drawn_trials("weights", runs, seed, fault, workers=3, prompts=0)
    done = _tried(place, trials, lambda services: {"weights": of_weights(place, services)})
    return [row(case, done["weights"], wanted, seed, lambda each: each.localised)]


def _operators(place: Workplace, runs: int, prompts: int, seed: int) -> list[dict[str, Any]]:
    least = round(_COVERED * runs * prompts * len(MOMENTS) * _CHECKED)
    cases = {
        "input": ("same input: two replicas", Wanted(99.9, 99, least)),
        "run": ("run: two replicas; localised: error within a factor of two", Wanted(99, 99, least)),
    }
    if why := absent("diff"):
        return [skipped(case, wanted, why) for case, wanted in cases.values()]

    def fault(chance: random.Random) -> Fault:
        return drawn_for_an_operator(chance, 2, SIZE, MOMENTS)

    def ask(services: Sequence[str]) -> Verdicts:
        # With no tolerance, brickd reports the size of every difference.
        run = of_kernels(place, services, "--by", "run", "--rtol", "0")
        return {"input": of_kernels(place, services, "--by", "input"), "run": run}

    trials = drawn_trials("kernels", runs, seed, fault, workers=2, prompts=prompts)
    done = _tried(place, trials, ask)
    return [
        row(cases["input"][0], done["input"], cases["input"][1], seed, lambda each: each.localised),
        row(
            cases["run"][0],
            done["run"],
            cases["run"][1],
            seed,
            good=lambda each: each.estimated,
            fit=lambda each: measurable(each, _ERROR_MIN),
        ),
    ]


def _classes(place: Workplace, runs: int, prompts: int, seed: int) -> list[dict[str, Any]]:
    """Run services of four replicas, two of which add numbers in another order. brickd must still find a divergence."""
    # how many comparisons the daemon must make; `brickd diff` must make at least a third as many
    least = round(_COVERED * 3 * runs * prompts * len(MOMENTS) * _CHECKED)
    cases = {
        "input": ("same input: two replicas and two of another numeric class", Wanted(99.9, 99, least // 3)),
        "online": ("the same while they run; localised: kernel and layer", Wanted(99.9, 99, least)),
    }
    if why := absent("diff"):
        return [skipped(case, wanted, why) for case, wanted in cases.values()]

    def fault(chance: random.Random) -> Fault:
        return drawn_for_an_operator(chance, 4, SIZE, MOMENTS)

    def ask(services: Sequence[str]) -> Verdicts:
        return {"input": of_services(place, services, "--by", "input"), "online": of_findings(place, services)}

    trials = drawn_trials("classes", runs, seed, fault, 4, prompts, frozenset((2, 3)))
    done = _tried(place, trials, ask, _OF_FOUR)
    good = {"input": lambda each: each.localised, "online": lambda each: each.near}
    return [row(case, done[by], wanted, seed, good[by]) for by, (case, wanted) in cases.items()]


def _tried(
    place: Workplace, trials: Sequence[Trial], ask: Callable[[Sequence[str]], Verdicts], at_once: int = _AT_ONCE
) -> dict[str, list[Trial]]:
    """Return the trials with brickd's verdicts, by class of evidence."""
    done: dict[str, list[Trial]] = {}
    for several in batches(trials, at_once * _BATCHES):
        with running(place) as daemon:
            for batch in batches(several, at_once):
                progress(f"{batch[0].service.name} to {batch[-1].service.name} of {len(trials)}")
                for by, found in _batch(place, daemon, batch, ask).items():
                    done.setdefault(by, []).extend(found)
    return done


def _batch(
    place: Workplace, daemon: Running, batch: Sequence[Trial], ask: Callable[[Sequence[str]], Verdicts]
) -> dict[str, list[Trial]]:
    with replicas(place, [each.service for each in batch]) as reports:
        daemon.until(lambda: daemon.status()["ledger"]["events"]["in_ring"] == 0, "checksums are not fetched")
        answers = ask([each.service.name for each in batch])
    return {
        by: [trial.outcome(reports, verdict) for trial, verdict in zip(batch, verdicts, strict=True)]
        for by, verdicts in answers.items()
    }
