"""`scripts/bench page`: how long the web page keeps a browser busy, with 256 workers and with 10,000 bricks."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from pictures.page_shot import lacking

from benchmarks import machine
from benchmarks.fleet import fleet
from benchmarks.goals import Goal
from benchmarks.report import Report, Table
from benchmarks.running import running
from benchmarks.workplace import Workplace, progress

HELP = "the web page with 256 workers and 10,000 bricks: the longest time in which a browser cannot draw"

WORKERS, BRICKS_EACH, BRICKS = 256, 40, 10_000
VIEWS = ("overview", "workers", "bricks", "latency", "tree", "numerics", "hang", "ledger")
_GOAL = Goal(100)
_KEYS = 20
_READY_MS, _REFRESHED_MS = 60_000, 60_000
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
_WATCH = """() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
        for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
    }).observe({ type: "longtask" });
}"""
_SHOWN = "() => document.getElementById('main').ariaBusy === 'false'"
_TIME = "() => document.getElementById('time').textContent"


def run(place: Workplace, quick: bool) -> Report:
    if (why := lacking()) is not None:
        return Report("page", machine.facts(), [Table("page", "The web page", [], f"skipped: {why}")])
    rounds = 3 if quick else 8
    with _served(place) as url:
        rows = [_row(view, times) for view, times in _measured(url, rounds)]
    fleet_text = f"{WORKERS} workers x {BRICKS_EACH} bricks and one x {BRICKS:,}"
    title = f"Longest time without a frame, {fleet_text}, {rounds} rounds"
    return Report("page", machine.facts(), [Table("page", title, rows)])


@contextmanager
def _served(place: Workplace) -> Iterator[str]:
    """Start the workers and the daemon, and yield the URL of the page with its token."""
    large = replace(place, environment=place.environment | {"BRICKD_PATHS": "16384", "BRICKD_NAMES": "16384"})
    with ExitStack() as stack:
        daemon = stack.enter_context(running(place, "--http", "127.0.0.1:0"))
        stack.enter_context(fleet(place, WORKERS, BRICKS_EACH))
        stack.enter_context(fleet(large, 1, BRICKS))
        daemon.until(lambda: len(daemon.status()["workers"]) > WORKERS, "the workers are not drained")
        yield place.python("-m", "brickd", "web", "--url").stdout.strip()


def _measured(url: str, rounds: int) -> Iterator[tuple[str, list[float]]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[*_OPTIONS])
        page = browser.new_page()
        page.goto(url)
        for view in VIEWS:
            progress(f"{view}, {rounds} rounds")
            page.evaluate("(place) => { location.hash = place; }", view)
            page.wait_for_function(_SHOWN, timeout=_READY_MS)
            page.evaluate(_WATCH)
            yield view, [_round(page) for _ in range(rounds)]
        browser.close()


def _round(page: Any) -> float:
    """Return the longest task of the page, in milliseconds, while it shows a new status and the user presses keys.

    Browsers report only tasks of 50 ms or more; 0 means that there was none.
    """
    page.evaluate("() => { window.longest = 0; }")
    before = page.evaluate(_TIME)
    for key in ("Tab", *("ArrowDown",) * _KEYS):
        page.keyboard.press(key)
    page.wait_for_function(f"(before) => ({_TIME})() !== before", arg=before, timeout=_REFRESHED_MS)
    longest: float = page.evaluate("() => window.longest")
    return longest


def _row(view: str, times: list[float]) -> dict[str, Any]:
    least, usual = min(times), statistics.median(times)
    row: dict[str, Any] = {"view": view, "ms_min": least, "ms_median": usual, "ms_max": max(times)}
    return row | {"goal": f"{_GOAL} ms", "passed": _GOAL.met(least, usual)}
