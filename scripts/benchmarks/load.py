"""The daemon's share of a core while workers record at a rate, and any loss of records.

A row counts only if the daemon has read every record after the workers ended. If records are missing, the row shows how
many.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.fleet import fleet
from benchmarks.goals import Goal
from benchmarks.paced import What, paced
from benchmarks.running import Running, running
from benchmarks.workplace import Workplace, progress
from brickd.base.units import plural

_SETTLES_SECONDS = 2.0
# the share of the intended rate that must be reached; below it, the machine limits the result, not the daemon
_RATE_REACHED = 0.95


@dataclass(frozen=True)
class Windows:
    """Measures `count` windows of `seconds`."""

    count: int
    seconds: float

    def of(self, daemon: Running) -> list[float]:
        """Return the daemon's share of a core in each window, in percent. The first window begins when the load is
        steady.
        """
        time.sleep(_SETTLES_SECONDS)
        return [100 * share for share in daemon.shares(self.count, self.seconds)]


@dataclass(frozen=True)
class Load:
    """The workers of a row, and what they record."""

    case: str
    workers: int
    rate: int = 0
    what: What = "spans"
    ring: bool = False
    goal: Goal | None = None

    @property
    def wanted(self) -> int:
        """Return the rate, rounded down to a multiple of the number of workers."""
        return self.rate // self.workers * self.workers


def cost(place: Workplace, load: Load, windows: Windows) -> dict[str, Any]:
    progress(f"{load.case}, {plural(load.workers, 'worker')}" + (f", {load.rate:,} records/s" if load.rate else ""))
    with running(place) as daemon:
        if load.rate == 0:
            with fleet(place, load.workers, bricks=64):
                daemon.drains(load.workers)
                return row(load, windows.of(daemon), 0.0, "")
        with paced(place, load.workers, load.rate, load.what) as begin:
            daemon.drains(load.workers, spans=load.ring)
            begin()
            began = time.monotonic()
            percents = windows.of(daemon)
        seconds = time.monotonic() - began
        ledger = daemon.settled()["ledger"]
    return row(load, percents, written(ledger, load) / seconds, problem(ledger, load))


def written(ledger: dict[str, Any], load: Load) -> int:
    """Return the number of records of all workers."""
    if load.what == "spans":
        return int(ledger["spans"]["summarized"])
    return int(ledger["events"]["consumed"] + sum(ledger["events"]["dropped"].values()))


def problem(ledger: dict[str, Any], load: Load) -> str:
    """Return how many records were lost, and why, or "" if nothing was lost."""
    if load.what == "spans" and not load.ring:
        return ""
    stream = ledger["details" if load.what == "spans" else "events"]
    made = written(ledger, load)
    lost = made - stream["consumed"]
    where = {f"dropped, {reason}": count for reason, count in stream["dropped"].items()}
    where |= {term.replace("_", " "): stream[term] for term in ("in_ring", "lost_with_daemon", "removed")}
    why = "; ".join(f"{name}: {count:,}" for name, count in where.items() if count)
    return f"{lost:,} of {made:,} records were lost ({why or 'no reason known'}), expected none" if lost else ""


def row(load: Load, percents: list[float], rate: float, lost: str) -> dict[str, Any]:
    least, median = min(percents), statistics.median(percents)
    skipped = None
    if rate < _RATE_REACHED * load.wanted:
        skipped = f"this machine let the workers make {rate:,.0f} records a second, expected {load.wanted:,}"
    judged = load.goal is not None and skipped is None
    return {
        "case": load.case,
        "workers": load.workers,
        "records_per_s": round(rate),
        "core_percent_min": least,
        "core_percent_median": median,
        "ns_per_record": median / 100 * 1e9 / rate if rate else None,
        "goal": None if load.goal is None else f"{load.goal} %",
        "passed": load.goal is not None and not lost and load.goal.met(least, median) if judged else None,
        "note": lost,
        "skipped": skipped,
    }


LOADS = (
    Load("idle: workers wait", 8, goal=Goal(0.3)),
    Load("span rings on", 16, 1_000_000, ring=True, goal=Goal(3)),
    Load("span rings off", 16, 1_000_000),
    Load("deferred: a start and its finalize by turns", 16, 20_000, "deferred"),
)
