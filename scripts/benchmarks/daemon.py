"""`scripts/bench daemon`: the daemon's cost in time and memory, and the cost of reading rings."""

from __future__ import annotations

from benchmarks import curves, drained, load, machine
from benchmarks.fingerprints_received import fingerprints_received
from benchmarks.held import held
from benchmarks.keeping import keeping
from benchmarks.load import Windows
from benchmarks.report import Report, Table
from benchmarks.scraped import scraped
from benchmarks.spans import attempted
from benchmarks.workplace import Workplace, progress

HELP = "the share of a core that the daemon takes, idle and under load; its memory; the drain of a full ring"


def run(place: Workplace, quick: bool) -> Report:
    """Measure. The drain is measured first, when no daemon of this run is working."""
    windows = Windows(3, 1) if quick else Windows(5, 3)
    span = f"{windows.count} windows of {windows.seconds:g} s"
    drain = _drained(place, rounds=30 if quick else 100)
    loads = [load.cost(place, each, windows) for each in load.LOADS]
    points = [load.cost(place, each, Windows(3, 1)) for each in curves.LOADS]
    facts = machine.facts()
    tables = [
        drain,
        Table("load", f"Share of a core that the daemon takes, kernel time included, {span}", loads),
        *held(place, rounds=20 if quick else 60),
        keeping(place, windows),
        scraped(place, scrapes=8 if quick else 30),
        fingerprints_received(place, rounds=5 if quick else 20),
        Table("growth", "Growth of that share with records and with workers, 3 windows of 1 s", points),
    ]
    return Report("daemon", facts, tables, curves.svg(points, facts))


def _drained(place: Workplace, rounds: int) -> Table:
    def attempt(turn: int) -> list[dict[str, object]]:
        progress(f"drain of a full ring, attempt {turn + 1}, {rounds} rounds")
        rows: list[dict[str, object]] = place.ask("drained", rounds, turn)
        return rows

    best, attempts = attempted(drained.COMPARISONS, attempt)
    title = f"Processor time for a ring of {drained.SLOTS * 64 >> 20} MiB, {drained.PATHS} paths, {rounds} rounds"
    return Table("drain", title, best, attempts=attempts)
