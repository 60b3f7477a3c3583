"""What metrics cost the daemon: the processor time of a scrape, as a share of a core if there is one scrape every 15
seconds.
"""

from __future__ import annotations

import re
import statistics
import time
import urllib.request
from typing import Any

from benchmarks import cli
from benchmarks.fleet import fleet
from benchmarks.goals import Goal
from benchmarks.report import Table
from benchmarks.running import Running, running
from benchmarks.workplace import Workplace, progress

EVERY_SECONDS = 15
_GOAL_PERCENT = Goal(0.5)
_APART_SECONDS = 1.1  # a page that is younger than a second is served again


def scraped(place: Workplace, scrapes: int) -> Table:
    """Scrape a daemon of many workers with many bricks, and subtract what it takes without scrapes."""
    workers, bricks = cli.WORKERS, cli.BRICKS
    progress(f"{scrapes} scrapes of {workers} workers x {bricks} bricks")
    with running(place, "--http", "127.0.0.1:0", "--metrics") as daemon, fleet(place, workers, bricks):
        (url,) = re.findall(r"http://\S+/metrics", daemon.said)
        daemon.drains(workers)
        _scrape(url)
        spent = [_scrape_ns(daemon, url) for _ in range(scrapes)]
        series = sum(not line.startswith(b"#") for line in _scrape(url).splitlines())
    row: dict[str, Any] = {"case": f"{workers} workers x {bricks} bricks", "series": series}
    best, usual = (of(spent) / 1e9 / EVERY_SECONDS * 100 for of in (min, statistics.median))
    row |= {"scrape_ms": statistics.median(spent) / 1e6, "min_percent": best, "median_percent": usual}
    row |= {"goal": f"{_GOAL_PERCENT} %", "passed": _GOAL_PERCENT.met(best, usual)}
    title = f"Added share of a core at a scrape each {EVERY_SECONDS} s, kernel time included, {scrapes} scrapes"
    return Table("scrapes", title, [row])


def _scrape(url: str) -> bytes:
    with urllib.request.urlopen(url) as page:
        content: bytes = page.read()
        return content


def _scrape_ns(daemon: Running, url: str) -> float:
    """Return the processor time of one scrape. This is the daemon's time during the scrape, minus its usual time."""
    before = daemon.shares(1, _APART_SECONDS)[0]
    began, at_begin = time.monotonic_ns(), sum(daemon.processor_ns().values())
    _scrape(url)
    spent = sum(daemon.processor_ns().values()) - at_begin
    return spent - before * (time.monotonic_ns() - began)
