"""Spans as a trace of Perfetto, for ui.perfetto.dev.

Owns: which tracks there are, their order and names, and all packets except those of spans. Must not know: how spans are
placed on tracks (`core/span_tracks.h`), files. Invariants: each track has its own packet sequence; all times are of
CLOCK_MONOTONIC_RAW, which a snapshot of the clocks relates to the other clocks; on each track, spans nest.

https://perfetto.dev/docs/reference/trace-packet-proto
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from brickd.base import escape
from brickd.base.units import plural
from brickd.export.encoder import Write, joined
from brickd.export.places import Place
from brickd.export.protobuf import message, number, real, text
from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import ROW, STEP, RecordedWorker, SpanBatch, SpanTrack
from brickd.export.span_stream import SpanCounts, UsageSample
from brickd.model.event_log import Event
from brickd.shm import _reader

# Fields of a packet.
_PACKET, _TIMESTAMP, _SEQUENCE, _FLAGS, _CLOCKS, _TRACK_EVENT = 1, 8, 10, 13, 6, 11
_INTERNED, _DEFAULTS, _DESCRIPTOR = 12, 59, 60
_CLEARED, _NEEDS_STATE = 1, 2
# Fields of a track event and its types.
_EVENT_TYPE, _EVENT_TRACK, _EVENT_NAME, _EVENT_CATEGORY, _EVENT_ANNOTATION = 9, 11, 23, 22, 4
_EVENT_NAME_IID, _EVENT_CATEGORY_IID, _COUNTER_VALUE, _COUNTER_DOUBLE = 10, 3, 30, 44
_INSTANT, _COUNTER = 3, 4
# Fields of interned data.
_CATEGORIES, _NAMES, _ANNOTATION_NAMES = 1, 2, 3
# Clocks of clock_snapshot.proto.
_REALTIME, _MONOTONIC, _MONOTONIC_RAW = 1, 3, 5
_ANNOTATIONS = ("step", "elements", "bytes", "rows", "lost_records", "layer")  # numbers from 1, as in C
_LAYER = 6
_BYTES_UNIT = 3  # of a counter
_PIDS_MAX = 1 << 22  # of Linux
_INTO_BYTES = 1 << 20
_KIND_AT = 16  # the kind in a row, in words of 32 bits


class _Lane:
    """The tracks of one lane or stream."""

    def __init__(self, uuid: int) -> None:
        self.uuid = uuid
        self.tracks = _reader.SpanTracks()
        self.sequences = array("I")


class _Process(NamedTuple):
    """The track of a worker, and its tracks of steps and counters."""

    uuid: int
    pid: int
    tids: set[int]


class Perfetto:
    """A process for each worker, with tracks for its threads, streams, steps and counters."""

    context = True

    def __init__(self, write: Write, recorded: DescribedRecording) -> None:
        self._write, self._recorded = write, recorded
        self._uuids = 0
        self._sequences = 0
        self._processes: dict[int, _Process] = {}
        self._named: dict[str, _Process] = {}  # of several workers with one name, the last one
        self._lanes: dict[SpanTrack, _Lane] = {}
        self._forms: dict[int, tuple[bytes, bytes, bytes, bytes]] = {}
        self._steps: dict[int, int] = {}  # the sequence of each worker's track of steps
        self._counters: dict[tuple[str, str], int] = {}
        self._event_tracks: dict[str | None, int] = {}
        self._pids: set[int] = set()
        self._into = bytearray(_INTO_BYTES)
        self._untracked = 0
        seed = recorded.began.began_at_ns if recorded.began is not None else 0
        self._first_uuid = (seed * 0x9E3779B97F4A7C15 & 2**63 - 1) | 1  # so that a merged trace has no equal ones

    # ---- packets

    def _packet(self, *parts: bytes) -> None:
        self._write(message(_PACKET, *parts))

    def _new_uuid(self) -> int:
        self._uuids += 1
        return (self._first_uuid + self._uuids) % 2**64

    def _track(self, *parts: bytes, uuid: int | None = None, unit: bytes = b"") -> tuple[int, int]:
        """Write a track and the beginning of its packet sequence; return the track's uuid and the sequence's id."""
        uuid = self._new_uuid() if uuid is None else uuid
        self._sequences += 1
        defaults = message(_DEFAULTS, number(58, _MONOTONIC_RAW), message(11, number(11, uuid)))
        names = [message(_ANNOTATION_NAMES, number(1, n), text(2, name)) for n, name in enumerate(_ANNOTATIONS, 1)]
        self._packet(
            number(_SEQUENCE, self._sequences),
            number(_FLAGS, _CLEARED),
            defaults,
            message(_INTERNED, *names),
            message(_DESCRIPTOR, number(1, uuid), *parts),
        )
        return uuid, self._sequences

    def _at(self, sequence: int, raw_ns: int, *event: bytes) -> None:
        head = number(_TIMESTAMP, max(0, raw_ns)) + number(_SEQUENCE, sequence) + number(_FLAGS, _NEEDS_STATE)
        self._packet(head, message(_TRACK_EVENT, *event))

    # ---- the interface of encoders

    def begin(self) -> None:
        """Write the snapshot of the clocks, and a track for each worker."""
        if (host := self._recorded.clocks.host) is not None:
            times = {_MONOTONIC_RAW: host.raw_ns, _REALTIME: host.unix_ns, _MONOTONIC: host.monotonic_ns}
            clocks = [message(1, number(1, clock), number(2, ns)) for clock, ns in times.items()]
            self._packet(message(_CLOCKS, *clocks, number(2, _MONOTONIC_RAW)))
        for worker in self._recorded.workers.values():
            pid = self._free(self._pids, worker.pid, _PIDS_MAX + worker.number)
            name = escape.text(worker.name)
            uuid, _ = self._track(message(3, number(1, pid), text(6, name)), text(2, name))
            self._processes[worker.number] = self._named[worker.name] = _Process(uuid, pid, set())

    def take(self, batch: SpanBatch) -> None:
        """Write the spans of a batch, and its steps as instants."""
        lane = self._lane(batch.track)
        rows = batch.rows if not batch.rows.readonly else memoryview(bytearray(batch.rows))
        count = lane.tracks.place(rows)
        while len(lane.sequences) < count:
            lane.sequences.append(self._sub_track(lane, batch.track, len(lane.sequences)))
        form = self._form(batch.track.worker)
        steps = self._steps_of(batch.track.worker, rows)
        rest: memoryview = rows
        while rest:
            done, used, untracked = lane.tracks.events(rest, *form, lane.sequences, steps, self._into)
            if not done:
                self._into = bytearray(2 * len(self._into))
                continue
            self._untracked += untracked
            self._write(memoryview(self._into)[:used])
            rest = rest[done * ROW.size :]

    def event(self, event: Event) -> None:
        """Write an event as an instant, on the track of its worker or of the machine."""
        process = self._process_of(event.worker)
        key = event.worker if process is not None else None
        if key not in self._event_tracks:
            parent = () if process is None else (number(5, process.uuid),)
            _, self._event_tracks[key] = self._track(text(2, "brickd events"), *parent)
        raw_ns = event.time_ns - self._recorded.epoch_ns
        note = message(_EVENT_ANNOTATION, text(10, "text"), text(6, escape.text(event.text)))
        name = text(_EVENT_NAME, escape.text(event.kind))
        self._at(self._event_tracks[key], raw_ns, number(_EVENT_TYPE, _INSTANT), name, note)

    def sample(self, sample: UsageSample) -> None:
        """Write counters of a process."""
        process = self._process_of(sample.worker)
        if process is None:
            return
        raw_ns = sample.at_ns - self._recorded.epoch_ns
        rss = self._counter(sample.worker, "resident memory", process, number(3, _BYTES_UNIT))
        self._at(rss, raw_ns, number(_EVENT_TYPE, _COUNTER), number(_COUNTER_VALUE, sample.rss_bytes))
        if sample.cpu_percent is not None:
            cpu = self._counter(sample.worker, "cpu", process, text(6, "%"))
            self._at(cpu, raw_ns, number(_EVENT_TYPE, _COUNTER), real(_COUNTER_DOUBLE, sample.cpu_percent))

    def end(self, counts: SpanCounts) -> None:
        """For each kind of missing data, write an instant that names it on a track of the machine."""
        words = [*counts.words()]
        if self._untracked:
            words.append(f"{plural(self._untracked, 'span')} without a track, because too many overlap")
        host = self._recorded.clocks.host
        for each in words:
            _, sequence = self._track(text(2, "missing"))
            raw_ns = 0 if host is None else host.raw_ns
            self._at(sequence, raw_ns, number(_EVENT_TYPE, _INSTANT), text(_EVENT_NAME, escape.text(each)))

    # ---- tracks

    def _process_of(self, name: str | None) -> _Process | None:
        return None if name is None else self._named.get(name)

    def _lane(self, track: SpanTrack) -> _Lane:
        if (found := self._lanes.get(track)) is None:
            process = self._processes[track.worker.number]
            if track.lane is not None:
                tid = self._free(process.tids, track.thread, _PIDS_MAX + track.lane + 1)
                thread = message(4, number(1, process.pid), number(2, tid), text(5, f"lane {track.lane}"))
                uuid, _ = self._track(thread, number(5, process.uuid))
            else:
                uuid, _ = self._track(text(2, f"stream {track.stream}"), number(5, process.uuid))
            found = self._lanes[track] = _Lane(uuid)
            found.sequences.append(self._sequences)
        return found

    def _sub_track(self, lane: _Lane, track: SpanTrack, n: int) -> int:
        what = f"lane {track.lane}" if track.lane is not None else f"stream {track.stream}"
        return self._track(text(2, f"{what}, overlapping {n}"), number(5, lane.uuid))[1]

    def _counter(self, worker: str, what: str, process: _Process, unit: bytes) -> int:
        key = worker, what
        if key not in self._counters:
            _, self._counters[key] = self._track(text(2, what), number(5, process.uuid), message(8, unit))
        return self._counters[key]

    @staticmethod
    def _free(taken: set[int], wanted: int, other: int) -> int:
        """Return the wanted id, or another one if the wanted one is 0 or taken.

        Viewers would merge tracks with equal ids.
        """
        found = wanted if wanted and wanted not in taken else other
        taken.add(found)
        return found

    # ---- texts

    def _steps_of(self, worker: RecordedWorker, rows: memoryview) -> int:
        """Return the packet sequence of a worker's steps; 0 if there is no step.

        The first step creates the sequence.
        """
        if worker.number not in self._steps:
            import numpy as np

            if not (np.frombuffer(rows, np.uint32)[_KIND_AT :: ROW.size // 4] == STEP).any():
                return 0
            parent = number(5, self._processes[worker.number].uuid)
            self._steps[worker.number] = self._track(text(2, "steps"), parent)[1]
        return self._steps[worker.number]

    def _form(self, worker: RecordedWorker) -> tuple[bytes, bytes, bytes, bytes]:
        key = id(worker.places)
        if key not in self._forms:
            categories: dict[str, int] = {}
            numbers = [categories.setdefault(each.category or "other", len(categories) + 1) for each in worker.places]
            pairs = list(zip(worker.places, numbers, strict=True))
            names = [_interned(place, path, category) for path, (place, category) in enumerate(pairs)]
            events = [_event(place, path, category) for path, (place, category) in enumerate(pairs)]
            self._forms[key] = (*joined(names), *joined(events))
        return self._forms[key]


def _interned(place: Place, path: int, category: int) -> bytes:
    name = escape.text(place.brick) if place.brick is not None else "[unknown]"
    kind = escape.text(place.category or "other")
    found = message(_CATEGORIES, number(1, category), text(2, kind))
    return found + message(_NAMES, number(1, path + 1), text(2, name))


def _event(place: Place, path: int, category: int) -> bytes:
    found = number(_EVENT_NAME_IID, path + 1) + number(_EVENT_CATEGORY_IID, category)
    if place.layer is not None:
        found += message(_EVENT_ANNOTATION, number(1, _LAYER), number(4, place.layer))
    return found
