"""Totals of spans by worker and place.

Owns: the sums. Must not know: formats. Invariant: only three numbers for each place of each worker are in memory,
however many spans there are. A sum of nanoseconds in 64 bits is large enough for 292 years.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from brickd.export.places import PlaceTotal
from brickd.export.span_rows import RecordedWorker, SpanBatch


class SpanTotals:
    """The totals of all batches."""

    def __init__(self) -> None:
        self._workers: dict[int, tuple[RecordedWorker, np.ndarray[Any, Any]]] = {}
        self.begin_ns, self.end_ns = 2**63, -(2**63)

    def add(self, batch: SpanBatch) -> None:
        """Add a batch."""
        rows, worker = batch.array(), batch.track.worker
        if worker.number not in self._workers:
            self._workers[worker.number] = worker, np.zeros((3, len(worker.places)), np.int64)
        totals = self._workers[worker.number][1]
        path = rows["path"]
        np.add.at(totals[0], path, 1)
        np.add.at(totals[1], path, rows["self_ns"])
        np.add.at(totals[2], path, rows["duration_ns"])
        self.begin_ns = min(self.begin_ns, int(rows["begin_ns"].min()))
        self.end_ns = max(self.end_ns, int((rows["begin_ns"] + rows["duration_ns"]).max()))

    def __iter__(self) -> Iterator[PlaceTotal]:
        for _, (worker, totals) in sorted(self._workers.items()):
            for path in totals[0].nonzero()[0].tolist():
                yield PlaceTotal(worker, worker.places[path], *(int(each[path]) for each in totals))
