"""Limits of faults found, false alarms and sample sizes, fixed before a fault is injected.

Owns: every limit of `scripts/bench verdicts`. Must not know: brickd, how a fault is injected. Invariant: a file of
finished cells belongs to one version of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

WORKERS = 3
NUMERIC = frozenset(("weights", "numbers", "nan"))
TIMING = frozenset(("straggler", "slower"))
STUCK, MEMORY = frozenset(("stuck",)), frozenset(("memory",))
ALARMS = NUMERIC | TIMING | STUCK | MEMORY


@dataclass(frozen=True)
class Wanted:
    """The report that brickd must make about a fault.

    Attributes:
        within_s: the time from the injection until the fault counts as missed.
        kinds: the kinds of problem that report it.
        words: the text must contain at least one of these words; if there are none, any text will do.
        also: further kinds of problems that the fault causes, so these are not false.
    """

    within_s: float
    kinds: frozenset[str]
    words: tuple[str, ...] = ()
    also: frozenset[str] = frozenset()


HEALTHY = "none"
WANTED: Mapping[str, Wanted] = {
    "weight_bit": Wanted(120, NUMERIC),
    "int8_weight": Wanted(120, NUMERIC),
    "stale_layer": Wanted(120, NUMERIC),
    "eps": Wanted(120, NUMERIC),
    "rare_nan": Wanted(60, NUMERIC, ("NaN", "Inf")),
    "stuck": Wanted(75, STUCK, ("stuck",), TIMING),
    "leak": Wanted(900, MEMORY, ("memory",)),
    "slow_2x": Wanted(120, TIMING),
    "slow_20_percent": Wanted(120, TIMING),
    "pinned": Wanted(120, TIMING, (), STUCK),
}


@dataclass(frozen=True)
class Lengths:
    """The lengths of the parts of a cell.

    Attributes:
        before_s: the time without a fault, before the fault is injected.
        after_s: the time without a fault, after the fault was removed.
        healthy_s: the length of a cell without a fault.
        fault_s: the longest time until the fault must be found; if None, the time in `Wanted` applies.
    """

    before_s: float
    after_s: float
    healthy_s: float
    fault_s: float | None = None


FULL = Lengths(before_s=45, after_s=30, healthy_s=120)
QUICK = Lengths(before_s=12, after_s=8, healthy_s=20, fault_s=30)

SAMPLING = "1/8"  # the rate of fingerprints: more than the default of 1/64, because a cell lasts only minutes
ROUNDS_PER_S = 4.0  # the highest rate of rounds; in a round, each worker gets one prompt
LOOK_S = 2.0
SETTLED_S = 45.0  # the longest wait until all workers are compared by weights
NAN_CALLS = 20  # one of this many calls returns NaN
LEAK_BYTES = 1 << 18  # bytes that a worker leaks with each request
NOISE = 0.01  # the noise in the weights of a stale layer, as a share of their standard deviation

HEALTHY_MINUTES_MIN = 60.0
FALSE_NUMERIC_MAX = 0
FALSE_STRAGGLERS_MAX = 1


def table() -> dict[str, Any]:
    """Return all limits, for a file of results."""
    plain = {name: {key: _plain(each) for key, each in asdict(wanted).items()} for name, wanted in WANTED.items()}
    return {
        "workers": WORKERS,
        "wanted": plain,
        "full": asdict(FULL),
        "quick": asdict(QUICK),
        "sampling": SAMPLING,
        "rounds_per_second": ROUNDS_PER_S,
        "look_s": LOOK_S,
        "settled_s": SETTLED_S,
        "nan_calls": NAN_CALLS,
        "leak_bytes": LEAK_BYTES,
        "noise": NOISE,
        "healthy_minutes_min": HEALTHY_MINUTES_MIN,
        "false_numeric_max": FALSE_NUMERIC_MAX,
        "false_stragglers_max": FALSE_STRAGGLERS_MAX,
    }


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value
