"""`scripts/bench sync`: the cost of BrickProfiler's sync modes in a forward pass, next to the claims of the older
profiler.
"""

from __future__ import annotations

from benchmarks import machine, passes
from benchmarks.report import Report, Table
from benchmarks.spans import attempted
from benchmarks.workplace import Workplace, progress

HELP = "a transformer's forward pass under BrickProfiler's sync modes, against one that is not profiled"


def run(place: Workplace, quick: bool) -> Report:
    """Measure in at most three attempts, until each goal is met in one of them."""
    rounds = 20 if quick else 100

    def attempt(turn: int) -> list[dict[str, object]]:
        progress(f"forward passes, attempt {turn + 1}, {rounds} rounds")
        rows: list[dict[str, object]] = place.ask(
            "passes", rounds, turn, OPENBLAS_NUM_THREADS="1", BRICKD_FINGERPRINTS="off"
        )
        return rows

    best, attempts = attempted(passes.COMPARISONS, attempt)
    kinds = ", ".join(f"{kind} of {count}" for kind, count in passes.ROWS.items())
    title = f"Forward passes ({kinds}) of {passes.BRICKS} bricks; a sync waits {passes.WAIT_NS / 1e3:g} µs"
    return Report("sync", machine.facts(), [Table("sync", f"{title}, {rounds} rounds", best, attempts=attempts)])
