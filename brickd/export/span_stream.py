"""The spans of a recording, in the order of its chunks.

Owns: how a chunk is split into batches, and the counts of missing data. Must not know: formats. Invariants: only one
chunk, one batch, and two numbers for each ring are in memory. Whatever the reason why a record was lost, it is counted
once, because the sequence numbers of its ring have a gap. A span that a filter excludes does not count as lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from brickd.base.units import SECOND, plural
from brickd.export.device_spans import DeviceSpans
from brickd.export.places import LEFT_OUT
from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import ROW, RecordedWorker, SpanBatch, SpanTrack
from brickd.model.event_log import Event
from brickd.model.step_texts import StepTexts
from brickd.recording import body_codec
from brickd.recording.chunks import Chunk, Form, RingRecords, records
from brickd.shm import _reader

_SLOT_BYTES = _reader.BLOCK_BYTES
# Within this time, a daemon drains all rings several times. So when it has passed after a sync, all starts that were
# recorded before the sync have arrived.
_SETTLE_NS = SECOND
_MANY = 2**63


class SpanFilter(NamedTuple):
    """The conditions for the export of a span, in addition to its worker and brick.

    Attributes:
        step: if only one step is wanted, this step; None if all steps are wanted.
        longer_ns: the shortest wanted duration.
    """

    step: int | None = None
    longer_ns: int = 0


class UsageSample(NamedTuple):
    """What a worker's process used of the machine at one moment, which is given in ns since 1970."""

    worker: str
    at_ns: int
    cpu_percent: float | None
    rss_bytes: int


@dataclass(slots=True)
class SpanCounts:
    """How many records an export has read.

    Attributes:
        spans: the exported rows.
        lost: the records of wanted workers that are missing in the files: a ring or a file was full, or the records
            were damaged.
        rejected: records with an impossible value.
        nameless: slots of workers that no snapshot describes.
        waiting: deferred work whose end is not in the recording.
    """

    spans: int = 0
    lost: int = 0
    rejected: int = 0
    nameless: int = 0
    waiting: int = 0

    def document(self) -> dict[str, int]:
        """The JSON document."""
        return {
            "spans": self.spans,
            "lost_records": self.lost,
            "rejected_records": self.rejected,
            "nameless_records": self.nameless,
            "unended_device_spans": self.waiting,
        }

    def words(self) -> Iterator[str]:
        """Describe what is missing."""
        if self.lost:
            yield f"{plural(self.lost, 'record')} lost: a ring or the file was full, or the data is damaged"
        if self.rejected:
            yield f"{plural(self.rejected, 'record')} with impossible values left out"
        if self.nameless:
            yield f"{plural(self.nameless, 'record')} left out, because no snapshot names their worker"
        if self.waiting:
            yield f"{plural(self.waiting, 'device span')} left out: the recording ended before their ends were recorded"


class SpanStream:
    """Reads the chunks of a recording, and yields batches of spans, events and samples of resource use."""

    def __init__(
        self, forms: Sequence[Form], recorded: DescribedRecording, wanted: SpanFilter, *, context: bool = False
    ) -> None:
        """`context`: also yield events and samples."""
        self.counts = SpanCounts()
        self._forms, self._recorded, self._wanted, self._context = forms, recorded, wanted, context
        self._states: dict[tuple[int, int], tuple[int, int]] = {}  # by worker and lane: last sequence, lost since a row
        self._event_sequences: dict[tuple[int, int], int] = {}
        self._devices: dict[int, DeviceSpans] = {}
        self._settled_ns = 0
        self._rows = bytearray()
        self.step_texts = StepTexts()  # complete after the iteration

    def __iter__(self) -> Iterator[SpanBatch | Event | UsageSample]:
        for form in self._forms:
            for chunk in form:
                try:
                    yield from self._taken(chunk)
                except ValueError as error:
                    form.end.damage(chunk.offset, chunk.end, str(error))
        for _ in range(2):  # a sync settles one pass after the pass that reads it
            yield from self._settle()
        self.counts.waiting = sum(each.waiting + each.orphaned for each in self._devices.values())

    def words(self) -> list[str]:
        """Describe what is damaged, and what is missing."""
        damage = [f"{form.path}: {each}" for form in self._forms for each in form.end.words()]
        return [*damage, *self.counts.words()]

    def _taken(self, chunk: Chunk) -> Iterator[SpanBatch | Event | UsageSample]:
        if chunk.kind == _reader.CHUNK_RECORDS:
            found = records(chunk.body)
            worker = self._recorded.workers.get(found.worker)
            if worker is None:
                if found.worker not in self._recorded.others:
                    self.counts.nameless += len(found.slots) // _SLOT_BYTES
            elif not found.events:
                yield from self._spans(worker, found)
            else:
                self.step_texts.take(worker.service, _reader.step_texts(found.slots[found.inside * _SLOT_BYTES :]))
                if worker.defers:
                    yield from self._deferred(worker, found, chunk.at_ns)
        elif self._context and chunk.kind == _reader.CHUNK_EVENTS:
            yield body_codec.read_event(chunk.body)
        elif self._context and chunk.kind == _reader.CHUNK_SNAPSHOT:
            yield from (UsageSample(*each) for each in body_codec.read_usage(chunk.body, chunk.at_ns))

    def _spans(self, worker: RecordedWorker, found: RingRecords) -> Iterator[SpanBatch]:
        slots = found.slots[found.inside * _SLOT_BYTES :] if found.inside else found.slots
        if len(self._rows) < (needed := len(slots) // _SLOT_BYTES * ROW.size):
            self._rows = bytearray(needed)
        key, step = (found.worker, found.lane), self._wanted.step
        made, *state, missing, rejected, _ = _reader.span_rows(
            slots,
            *self._states.get(key, (0, 0)),
            worker.flags,
            worker.knots,
            self._wanted.longer_ns,
            step is not None,
            step or 0,
            self._rows,
        )
        self._states[key] = state[0], min(state[1], _MANY)
        self._count(made, missing, rejected)
        if made:
            yield SpanBatch(SpanTrack(worker, found.lane), memoryview(self._rows)[: made * ROW.size])

    def _deferred(self, worker: RecordedWorker, found: RingRecords, at_ns: int) -> Iterator[SpanBatch]:
        key = found.worker, found.lane
        slots = len(found.slots) // _SLOT_BYTES
        taken, sequence, missing, rejected = _reader.deferred_slots(
            found.slots, min(found.inside, slots), self._event_sequences.get(key, 0)
        )
        self._event_sequences[key] = sequence
        self._count(0, missing, rejected)
        if found.worker not in self._devices:
            self._devices[found.worker] = DeviceSpans(worker)
        self._devices[found.worker].take(taken)
        if not 0 <= at_ns - self._settled_ns < _SETTLE_NS:
            self._settled_ns = at_ns
            yield from self._settle()

    def _settle(self) -> Iterator[SpanBatch]:
        for number, device in self._devices.items():
            for stream, rows in device.settle().items():
                if wanted := self._filtered(self._recorded.workers[number], rows):
                    self.counts.spans += len(wanted) // ROW.size
                    yield SpanBatch(SpanTrack(self._recorded.workers[number], None, stream), memoryview(wanted))

    def _filtered(self, worker: RecordedWorker, rows: bytes) -> bytes:
        flags, (step, longer_ns) = worker.flags, self._wanted
        if step is None and not longer_ns and not any(each & LEFT_OUT for each in flags):
            return rows
        return b"".join(
            ROW.pack(*row)
            for row in ROW.iter_unpack(rows)
            if not flags[row[7]] & LEFT_OUT and step in (None, row[3]) and row[1] >= longer_ns
        )

    def _count(self, spans: int, missing: int, rejected: int) -> None:
        counts = self.counts
        counts.spans += spans
        counts.lost = min(counts.lost + missing, _MANY)
        counts.rejected += rejected
