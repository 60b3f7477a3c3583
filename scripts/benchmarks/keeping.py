"""The daemon's cost of saving its checkpoint while all deferred work changes, with as many dead workers as live
ones."""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks import cli
from benchmarks.fleet import fleet
from benchmarks.load import Windows
from benchmarks.paced import paced
from benchmarks.report import Table
from benchmarks.running import Running, running
from benchmarks.workplace import Workplace, progress

# how many records all workers together write per second; a deferred start and its finalize count as two
_RATES = (0, 2_000, 20_000)
_MB = 1_000_000


def keeping(place: Workplace, windows: Windows) -> Table:
    """Return a row for each rate, measured with its own daemon."""
    rows = [_row(place, rate, windows) for rate in _RATES]
    title = (
        f"The cost of saving: {cli.WORKERS} workers that defer on {cli.BRICKS} bricks each, {cli.WORKERS} dead ones,"
        f" {windows.count} windows of {windows.seconds:g} s"
    )
    return Table("keeping", title, rows)


def _row(place: Workplace, rate: int, windows: Windows) -> dict[str, Any]:
    progress(f"{cli.WORKERS} workers that defer, {rate:,} records/s")
    with running(place) as daemon:
        with fleet(place, cli.WORKERS, cli.BRICKS):
            daemon.drains(cli.WORKERS)
        daemon.settled()
        with paced(place, cli.WORKERS, rate, "deferred", cli.BRICKS) as begin:
            daemon.drains(cli.WORKERS)
            begin()
            began, before = time.monotonic(), _written(daemon)
            percents = windows.of(daemon)
            records_per_s = (_written(daemon) - before) / (time.monotonic() - began)
            longest_ns = daemon.longest_ns(windows.count * windows.seconds)
            return _found(records_per_s, percents, longest_ns, daemon)


def _written(daemon: Running) -> int:
    events = daemon.status()["ledger"]["events"]
    return int(events["consumed"] + events["in_ring"] + sum(events["dropped"].values()))


def _found(records_per_s: float, percents: list[float], longest_ns: int, daemon: Running) -> dict[str, Any]:
    return {
        "case": "deferred",
        "records_per_s": round(records_per_s),
        "core_percent_min": min(percents),
        "core_percent_median": statistics.median(percents),
        "longest_stretch_ms": longest_ns / 1e6,
        "checkpoint_mb": daemon.checkpoint_bytes() / _MB,
        "resident_mb": daemon.resident_bytes() / _MB,
        "goal": None,
        "passed": None,
    }
