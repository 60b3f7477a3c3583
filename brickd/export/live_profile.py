"""The work of live workers between two snapshots, as a profile of pprof.

Owns: which work is in a profile. Must not know: HTTP, who looks. Invariants: A span counts in the period in which it
ended, with all of its time. Times that are only upper bounds are left out. The work of a worker that died in the period
counts too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from brickd.datasources.world import World
from brickd.export.places import PlaceTotal, places_of
from brickd.export.pprof import profile
from brickd.model.summary_fold import SummaryFold
from brickd.model.survey_snapshot import Snapshot
from brickd.model.windows import since
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath


def look(world: World) -> Snapshot:
    """Return what all workers have done so far."""
    return Snapshot.of(world.survey(), time.monotonic_ns(), time.time_ns())


def live_profile(before: Snapshot, after: Snapshot) -> bytes:
    """Return the work between two snapshots."""
    workers = list(since((before,), after.survey.workers))
    missing = len(after.survey.workers) - len(workers)
    words = [f"{missing} workers are left out: their totals at the beginning are unknown"] if missing else []
    return profile(_totals(workers), words, (before.at_ns, after.now_ns - before.now_ns))


def _totals(workers: list[Worker]) -> Iterator[PlaceTotal]:
    fold: SummaryFold[CallPath] = SummaryFold()
    for worker in workers:
        paths = worker.reading.paths
        numbers = {path: number for number, path in enumerate(paths) if path is not None}
        places = places_of(worker.reading)
        for path, sums in fold.alone(worker.reading, lambda path, _: path):
            if path.unit != _reader.UNIT_BOUND:
                yield PlaceTotal(worker, places[numbers[path]], sums.spans, round(sums.self_ns), 0)
