"""`scripts/bench daemon`: what the daemon's reading costs."""

from __future__ import annotations

from benchmarks import drained, machine
from benchmarks.report import Report, Table
from benchmarks.spans import attempted
from benchmarks.workplace import Workplace, progress

HELP = "the drain of a full ring against its reading alone"


def run(place: Workplace, quick: bool) -> Report:
    """Measure."""
    return Report("daemon", machine.facts(), [_drained(place, rounds=30 if quick else 100)])


def _drained(place: Workplace, rounds: int) -> Table:
    def attempt(turn: int) -> list[dict[str, object]]:
        progress(f"drain of a full ring, attempt {turn + 1}, {rounds} rounds")
        rows: list[dict[str, object]] = place.ask("drained", rounds, turn)
        return rows

    best, attempts = attempted(drained.COMPARISONS, attempt)
    title = f"Processor time for a ring of {drained.SLOTS * 64 >> 20} MiB, {drained.PATHS} paths, {rounds} rounds"
    return Table("drain", title, best, attempts=attempts)
