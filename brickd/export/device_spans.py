"""The deferred work of one worker as spans of its streams.

Owns: where a device's span begins. Must not know: chunks, formats; which sync ends which start (see `model.deferred`).
Invariants: a span does not begin before the worker started its work, nor before the previous span of the same stream
ended; the number of starts that wait for their end is limited.
"""

from __future__ import annotations

from collections import defaultdict

from brickd.export.clock_map import ns_of
from brickd.export.span_rows import BOUNDED, MEASURED, ROW, RecordedWorker
from brickd.model.deferred import STREAMS_MAX, Deferred
from brickd.model.deferred_waiting import Start
from brickd.shm.clock import Now

_LONGEST_NS = 2**61


class DeviceSpans:
    """The deferred work of a worker, in the order of the recording."""

    def __init__(self, worker: RecordedWorker) -> None:
        self._worker = worker
        self._deferred = Deferred(self._end)
        self._now = Now(worker.tick_ns, None)
        self._rows: dict[int, list[bytes]] = defaultdict(list)  # by stream
        self._ends: dict[int, int] = {}  # by stream

    @property
    def waiting(self) -> int:
        """The number of starts without an end."""
        return self._deferred.pending

    @property
    def orphaned(self) -> int:
        """The number of starts that were given up."""
        return self._deferred.counts["orphaned"]

    def take(self, records: bytes) -> None:
        """Take records of deferred work, as `_reader.deferred_slots` returns them."""
        self._deferred.take(records, lambda: self._now)

    def settle(self) -> dict[int, bytes]:
        """End a pass over all rings; return the rows of the spans that ended since the last call, by stream."""
        self._deferred.settle(self._worker.tick_ns, complete=True)
        rows, self._rows = self._rows, defaultdict(list)
        if len(self._ends) > STREAMS_MAX:
            self._ends.clear()
        return {stream: b"".join(each) for stream, each in rows.items()}

    def _end(self, start: Start, length: int) -> None:
        worker = self._worker
        began = ns_of(worker.knots, start.start)
        kind = MEASURED if start.measured else BOUNDED
        duration = length if start.measured else ns_of(worker.knots, start.start + length) - began
        duration = min(duration, _LONGEST_NS)
        begin = max(began, self._ends.get(start.stream, began))
        self._ends[start.stream] = min(begin + duration, _LONGEST_NS)
        path = min(start.path, len(worker.places) - 1)
        row = (begin, duration, duration, start.step, start.elements, start.bytes, 0, path, 0, kind, 0)
        self._rows[start.stream].append(ROW.pack(*row))
