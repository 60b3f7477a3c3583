"""Compares all workers' weights after each change, and reports changes of the verdict.

Owns: which workers' weights are compared, when a comparison is due, which differences are reported. Must not know: how
two workers are compared. Invariants: Any thread may call these classes. A worker is reported once when it differs, and
once when it is equal again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from brickd.analysis.problem import problem_id
from brickd.analysis.weights.headlines import headlines
from brickd.analysis.weights.replicas import judge, refused
from brickd.analysis.weights.scan_times import plan
from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.verdicts import ComparedWorker, WeightsVerdict
from brickd.base.units import plural
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot
from brickd.model.worker_names import as_argument
from brickd.model.workers import Worker


def watching(workers: Sequence[Worker]) -> list[Worker]:
    """Return all workers of each service in which at least one worker watches its weights."""
    services = {worker.service for worker in workers if worker.reading.process["weights"]}
    return [worker for worker in workers if worker.service in services and worker.together == 1]


class Weighing:
    """Compares all weights in the daemon's memory, and keeps the result until something changes."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._lock = threading.Lock()
        self._seen: object = None
        self._judged: Sequence[WeightsVerdict] = ()
        self._at_ns = 0

    def judged(self, workers: Sequence[Worker]) -> Sequence[WeightsVerdict]:
        """The verdicts on the services in which at least one worker watches its weights."""
        of = watching(workers)
        with self._lock:
            now_ns, seen = time.monotonic_ns(), (self._weights.changes, [_about(worker) for worker in of])
            if seen != self._seen:
                self._judged = judge(self._weights.about(worker.reading.uuid for worker in of), of)
                self._seen, self._at_ns = seen, now_ns
            return [each.later(now_ns - self._at_ns) for each in self._judged]


def _about(worker: Worker) -> tuple[object, ...]:
    """Return everything about a worker that can change the result of a comparison."""
    process = worker.reading.process
    counts = process["weights"], process["scans"], process["key"], refused(worker)
    return worker.name, worker.reading.uuid, worker.reading.alive, plan(worker), *counts


class Scales:
    """Takes snapshots, and reports the workers that differ."""

    def __init__(self, weighing: Weighing, log_event: LogEvent) -> None:
        self._weighing, self._log_event = weighing, log_event
        self._differ: dict[tuple[str, str], ComparedWorker] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Report each change of the verdict on a worker, in services that have a live worker."""
        workers = snapshot.survey.workers
        living = {each.service for each in workers if each.reading.alive}
        judged = [each for each in self._weighing.judged(workers) if each.service in living]
        new = {(each.service, line.found.uuid): line.found for each in judged for line in headlines(each)}
        unequal = {(each.service, found.uuid) for each in judged for found in each.unequal}
        before = self._differ
        self._differ = {about: found for about, found in before.items() if about in unequal} | new
        for each in judged:
            for found, text, _ in headlines(each):
                if (each.service, found.uuid) not in before:
                    self._report("weights_differ", text, each.service, found.name)
        for about, found in before.items():
            if about not in self._differ:
                self._log_equal(found, judged)

    def _log_equal(self, was: ComparedWorker, judged: list[WeightsVerdict]) -> None:
        now = next((each for service in judged for each in service.workers if each.uuid == was.uuid), None)
        if now is None or now.state != "equal":  # the worker or its replicas ended: this is not a recovery
            return
        text = f"{was.name}: its weights are equal to its replicas' again ({plural(now.compared, 'tensor')} compared)"
        self._report("weights_equal", text, was.service, was.name)

    def _report(self, kind: str, text: str, service: str, worker: str) -> None:
        command, problem = f"brickd weights {as_argument(service)}", problem_id("weights", service)
        self._log_event(kind, text, service=service, worker=worker, command=command, problem=problem)
