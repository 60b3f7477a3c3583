"""The digest of a worker's weights: equal for workers that hold the same tensors.

Owns: when a worker has a digest, and what the digest depends on. Must not know: replicas, screens. Invariants: A worker
has no digest until it has read all its weights, so there is no digest while a model is still being loaded. The digest
depends on names, layers, experts, contents and the key of the checksums, not on the order of tensors or on the worker.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence

from brickd.analysis.weights.contents import identity
from brickd.analysis.weights.replicas import refused
from brickd.analysis.weights.shards import without_gone
from brickd.analysis.weights.store import Weights
from brickd.model.workers import Worker


def digests(weights: Weights, workers: Sequence[Worker]) -> dict[str, str]:
    """Return the digest of each worker that has one, by uuid; no other code may change `weights` meanwhile."""
    found: dict[str, str] = {}
    alike: dict[object, str] = {}  # most workers hold the same contents
    for worker in workers:
        process, holds = worker.reading.process, weights.of(worker.reading.uuid)
        if holds is None or not process["scans"] or holds.refused:
            continue
        holds = without_gone(holds, process["weights"])
        if 0 < holds.known >= process["weights"] - refused(worker):
            columns = worker.service, process["key"], bytes(holds.now).rstrip(b"\0")
            if columns not in alike:
                alike[columns] = _digest(weights, worker.service, process["key"], holds.now)
            found[worker.reading.uuid] = alike[columns]
    return found


def _digest(weights: Weights, service: str, key: int, now: Sequence[int]) -> str:
    tensors = weights.tensors(service)
    rows = sorted(
        b"%s\0%d\0%d\0%s"
        % (of.name.encode(errors="surrogatepass"), of.layer, of.expert, identity(weights.contents[at]))
        for of, at in zip(tensors, now, strict=False)
        if at
    )
    found = hashlib.blake2b(key.to_bytes(8, "little"), digest_size=8)
    for row in rows:
        found.update(len(row).to_bytes(8, "little") + row)
    return found.hexdigest()


class WeightDigests:
    """The digests of all workers, computed again only after a change. Any thread may call `of`."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._lock = threading.Lock()
        self._seen: object = None
        self._found: Mapping[str, str] = {}

    def of(self, workers: Sequence[Worker]) -> Mapping[str, str]:
        """Return the digests of those of `workers` that are alive, by uuid."""
        of = [worker for worker in workers if worker.reading.alive and worker.reading.process["weights"]]
        with self._lock:
            seen = self._weights.news, [(each.reading.uuid, *_counts(each)) for each in of]
            if seen != self._seen:
                self._found = digests(self._weights.about(each.reading.uuid for each in of), of) if of else {}
                self._seen = seen
            return self._found


def _counts(worker: Worker) -> tuple[object, ...]:
    process = worker.reading.process
    return process["weights"], process["scans"] > 0, process["key"], refused(worker)
