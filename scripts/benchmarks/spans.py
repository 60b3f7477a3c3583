"""The times of spans, measured in up to three fresh processes, until each goal is met in one of them.

A row shows the attempt that met its goal, or else the attempt that came nearest. A row without a goal shows the first
attempt. If this machine lacks something, the case is skipped with the reason, and its goal is neither met nor missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.comparisons import COMPARISONS, Comparison
from benchmarks.peers.lttng_daemon import daemon
from benchmarks.report import Table
from benchmarks.workplace import Workplace, progress

ATTEMPTS = 3


def rated(each: Comparison, row: dict[str, Any], tsc: bool) -> dict[str, Any]:
    """Return the row with the verdict of its goal; None if it was skipped."""
    goal = each.goal_with(tsc)
    verdict: dict[str, Any] = {"goal": None if goal is None else str(goal), "passed": None, "distance": None}
    if goal is not None and row["skipped"] is None:
        ratios = row["ratio_of_min"], row["ratio_median"]
        verdict |= {"passed": goal.met(*ratios), "distance": goal.distance(*ratios)}
    return row | verdict


def better(new: dict[str, Any], old: dict[str, Any] | None) -> bool:
    """Return whether a row replaces the row of an earlier attempt."""
    if old is None:
        return True
    if new["skipped"] is not None:
        return False
    if old["skipped"] is not None:
        return True
    return old["passed"] is False and new["distance"] < old["distance"]


Rows = list[dict[str, Any]]


def attempted(
    comparisons: Sequence[Comparison], attempt: Callable[[int], Rows], tsc: bool = True
) -> tuple[Rows, list[Rows]]:
    """Return the rows to show, and the rows of every attempt."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    attempts: list[Rows] = []
    for turn in range(ATTEMPTS):
        if best and not any(row["passed"] is False for row in best.values()):
            break
        found = {(row["case"], row["reference"]): row for row in attempt(turn)}
        attempts.append([rated(each, found[each.case, each.reference], tsc) for each in comparisons])
        for row in attempts[-1]:
            key = (row["case"], row["reference"])
            if better(row, best.get(key)):
                best[key] = row
    return list(best.values()), attempts


def timed(place: Workplace, tsc: bool, rounds: int) -> Table:
    """Return the table of all comparisons, with every attempt."""
    with daemon(place) as variables:

        def attempt(turn: int) -> Rows:
            progress(f"times, attempt {turn + 1} of at most {ATTEMPTS}, {rounds} rounds")
            rows: Rows = place.ask("timed", "spans", rounds, turn, **variables)
            rows += place.ask("timed", "off", rounds, turn, BRICKD="0")
            return rows

        best, attempts = attempted(COMPARISONS, attempt, tsc)
    return Table("times", f"Times, without the loop, {rounds} rounds", best, attempts=attempts)


def fastest(times: Table) -> Sequence[dict[str, Any]]:
    """Return the rows of the fastest attempt: only times of the same attempt are comparable."""
    return min(times.attempts, key=lambda rows: float(rows[0]["reference_ns_median"]))
