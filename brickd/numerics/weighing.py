"""The weights of all workers beside each other, whoever asks, and as often as anybody does.

Owns: whose weights are compared where everybody's are, and that they are compared once as long as nothing has changed.
Must not know: how two workers are compared, what is made of it. Invariants: any thread may ask; what is told is what
lies there now, for all that changes it is looked at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from brickd.numerics.judged import Judged
from brickd.numerics.replicas import judge, refused
from brickd.numerics.weights import Weights
from brickd.workers import Worker


def watching(workers: Sequence[Worker]) -> list[Worker]:
    """Those of services in which anybody watches weights."""
    services = {worker.service for worker in workers if worker.reading.process["weights"]}
    return [worker for worker in workers if worker.service in services and worker.together == 1]


class Weighing:
    """Compares what a daemon knows of weights."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._lock = threading.Lock()
        self._seen: object = None
        self._judged: Sequence[Judged] = ()
        self._at_ns = 0

    def judged(self, workers: Sequence[Worker]) -> Sequence[Judged]:
        """The services of which anybody watches weights, of all workers that there are."""
        of = watching(workers)
        with self._lock:
            now_ns, seen = time.monotonic_ns(), (self._weights.changes, [_about(worker) for worker in of])
            if seen != self._seen:
                self._judged = judge(self._weights.about(worker.reading.uuid for worker in of), of)
                self._seen, self._at_ns = seen, now_ns
            return [each.later(now_ns - self._at_ns) for each in self._judged]


def _about(worker: Worker) -> tuple[object, ...]:
    """All of a worker that a comparison rests on."""
    process = worker.reading.process
    counts = process["weights"], process["scans"], process["key"], refused(worker)
    return worker.name, worker.reading.uuid, worker.reading.alive, *counts
