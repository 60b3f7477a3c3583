"""Time the cases of a group in this process: `python -m benchmarks.timed GROUP ROUNDS TURN`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks import peers
from benchmarks.cases import off_cases, span_cases
from benchmarks.comparisons import COMPARISONS, Comparison
from benchmarks.method import Times, measure, pin

_FIGURES: dict[str, Callable[[Times, Comparison], float]] = {
    "ns_min": lambda times, each: times.least(each.case),
    "ns_median": lambda times, each: times.median(each.case),
    "reference_ns_min": lambda times, each: times.least(each.reference),
    "reference_ns_median": lambda times, each: times.median(each.reference),
    "ratio_of_min": lambda times, each: times.ratio_of_min(each.case, each.reference),
    "ratio_median": lambda times, each: times.ratio_median(each.case, each.reference),
}


def rows(
    times: Times, comparisons: Iterable[Comparison], turn: int, cpu: int, skipped: Mapping[str, str]
) -> list[dict[str, object]]:
    """Return the result of each comparison, or why it was skipped."""
    found: list[dict[str, object]] = []
    for each in comparisons:
        why = skipped.get(each.case, skipped.get(each.reference))
        figures = {key: figure(times, each) if why is None else None for key, figure in _FIGURES.items()}
        row: dict[str, object] = {"case": each.case, "by": each.by, "reference": each.reference, **figures}
        found.append(row | {"attempt": turn + 1, "cpu": cpu, "note": each.note, "skipped": why})
    return found


def main() -> None:
    """Run a group: `spans`, or `off` with BRICKD=0."""
    group, rounds, turn = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    cpu = pin(turn)
    skipped: dict[str, str] = {}
    cases = off_cases() if group == "off" else span_cases()
    if group == "spans":
        found, skipped = peers.present(Path.cwd())
        cases += found
    times = measure(cases, rounds, seed=turn)
    skipped |= times.refused
    names = {case.name for case in cases} | skipped.keys()
    tried = [each for each in COMPARISONS if each.case in names]
    print(json.dumps(rows(times, tried, turn, cpu, skipped)))


if __name__ == "__main__":
    main()
