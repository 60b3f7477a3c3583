"""The limits for faults found, exact sites and false verdicts. They are fixed before any fault is put in.

Owns: every limit of `scripts/bench evidence`. Must not know: brickd, torch, how a fault is put in. Invariant: a file of
finished cells belongs to one version of this table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.faulty.frozen import LOOK_S, SAMPLING, WORKERS

FAULTS = ("late_channel", "one_weight", "swapped_expert", "eps")
LATER = ("rotary", "cached_value")  # faults of attention, which no row-wise site covers
DTYPES = ("fp32", "bf16")

RUNS = 100  # the number of trials with each fault and dtype; each trial has its own replicas
WITHIN_S = 60.0
FOUND_MIN, EXACT_MIN = 0.95, 0.95  # both are shares of the trials in which a watched row-wise site covers the fault
FALSE_MAX = 0
CLEAN_HOURS_MIN = 10.0
CLEAN_CELLS = 60
SPLIT_HOURS_MIN = 60.0  # of new fleets out of the recordings of clean cells

STEP_S = 0.05  # the least time between two steps of a replica, so that three replicas can share two cores
BATCHES, THREADS = (1, 2, 4, 8, 16), (1, 2)
# The comparisons with and without brickd: how many runs for each dtype, and how many steps of each replica.
BITWISE_RUNS, BITWISE_STEPS = 10, 100


@dataclass(frozen=True)
class Lengths:
    """How long each part of a cell lasts.

    Attributes:
        before_s: the time without a fault, before the fault is put in.
        within_s: the longest time to wait until the fault is found.
        after_s: the time without a fault, after the fault was taken out.
        clean_s: the length of a cell without a fault.
        split_hours: the time of all new fleets out of the recordings of these cells.
    """

    before_s: float
    within_s: float
    after_s: float
    clean_s: float
    split_hours: float


FULL = Lengths(before_s=20, within_s=WITHIN_S, after_s=10, clean_s=600, split_hours=66)
QUICK = Lengths(before_s=8, within_s=20, after_s=4, clean_s=20, split_hours=0.03)


def table() -> dict[str, Any]:
    """All limits, for a file of results."""
    return {
        "faults": [*FAULTS, *LATER],
        "runs": RUNS,
        "within_s": WITHIN_S,
        "found_min": FOUND_MIN,
        "exact_min": EXACT_MIN,
        "false_max": FALSE_MAX,
        "clean_hours_min": CLEAN_HOURS_MIN,
        "clean_cells": CLEAN_CELLS,
        "split_hours_min": SPLIT_HOURS_MIN,
        "step_s": STEP_S,
        "bitwise_runs": BITWISE_RUNS,
        "bitwise_steps": BITWISE_STEPS,
        "batches": list(BATCHES),
        "threads": list(THREADS),
        "workers": WORKERS,
        "sampling": SAMPLING,
        "look_s": LOOK_S,
        "full": asdict(FULL),
        "quick": asdict(QUICK),
    }
