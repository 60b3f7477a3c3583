"""`scripts/bench fingerprint`: a fingerprint's cost as a share of reading the tensor."""

from __future__ import annotations

from benchmarks import machine, tensors
from benchmarks.report import Report, Table
from benchmarks.spans import attempted
from benchmarks.workplace import Workplace, progress

HELP = "fingerprints of large and small tensors against reading them, FNV-1a and numpy"


def run(place: Workplace, quick: bool) -> Report:
    """Measure up to three times. Stop as soon as each goal has been met in one of the attempts."""
    rounds = 8 if quick else 30

    def attempt(turn: int) -> list[dict[str, object]]:
        progress(f"fingerprints, attempt {turn + 1}, {rounds} rounds")
        rows: list[dict[str, object]] = place.ask("tensors", rounds, turn, OPENBLAS_NUM_THREADS="1")
        return rows

    best, attempts = attempted(tensors.COMPARISONS, attempt)
    title = f"Processor time for a fingerprint (default: {tensors.LARGE >> 20}M float32), {rounds} rounds"
    return Report("fingerprint", machine.facts(), [Table("fingerprint", title, best, attempts=attempts)])
