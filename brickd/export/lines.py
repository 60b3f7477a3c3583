"""Spans as lines of text: JSON Lines and CSV.

Owns: the keys, their order, the escapes. Must not know: files. Invariants: each line of JSON is a complete document in
ASCII; a cell of CSV is neither a formula nor a terminal escape; both formats have the same keys.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from brickd.base import escape
from brickd.base.timestamps import rfc3339
from brickd.export.encoder import WithoutContext, Write, joined
from brickd.export.places import Place
from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import KINDS, ROW, RecordedWorker, SpanBatch, SpanTrack
from brickd.export.span_stream import SpanCounts
from brickd.shm import _reader

SCHEMA_VERSION = 1
TRACK_KEYS = ("worker", "service", "lane", "thread", "stream")
PLACE_KEYS = ("brick", "category", "layer", "path")
NUMBER_KEYS = (
    "begin_unix_ns", "duration_ns", "self_ns", "step", "elements", "bytes", "rows", "lost_before",
)  # fmt: skip
KEYS = (*TRACK_KEYS, *PLACE_KEYS, "kind", *NUMBER_KEYS)
_INTO_BYTES = 1 << 20


def track_values(track: SpanTrack) -> tuple[Any, ...]:
    """Return the values of `TRACK_KEYS`."""
    stream = None if track.stream is None else f"{track.stream:016x}"
    return track.worker.name, track.worker.service, track.lane, track.thread or None, stream


def document(recorded: DescribedRecording) -> dict[str, Any]:
    """Return the description of a recording."""
    began, host = recorded.began, recorded.clocks.host
    return {
        "schema_version": SCHEMA_VERSION,
        "host": None if began is None else began.host,
        "version": None if began is None else began.version,
        "began": None if began is None else rfc3339(began.began_at_ns),
        "redacted": None if began is None else began.redacted,
        "spans_recorded": None if began is None else began.spans,
        "clock": None if host is None else {"unix_ns": host.unix_ns, "monotonic_raw_ns": host.raw_ns},
        "workers": [
            {"worker": each.name, "service": each.service, "uuid": each.uuid, "pid": each.pid or None}
            for each in recorded.workers.values()
        ],
    }


class _Lines(WithoutContext):
    """The common part of both formats: the texts around the numbers."""

    kinds: tuple[bytes, ...]
    before: tuple[bytes, ...]
    last, none, quote = b"", b"", b""

    def __init__(self, write: Write, recorded: DescribedRecording) -> None:
        self._write, self._recorded = write, recorded
        self._places: dict[int, tuple[bytes, bytes]] = {}  # by the identity of a table that many workers share
        self._tracks: dict[tuple[int, int | None, int | None], bytes] = {}
        self._into = bytearray(_INTO_BYTES)

    def track_text(self, track: SpanTrack) -> bytes:
        """Return the beginning of each line of a track."""
        raise NotImplementedError

    def place_text(self, place: Place) -> bytes:
        raise NotImplementedError

    def take(self, batch: SpanBatch) -> None:
        worker, lane, stream = batch.track
        places = self._places_of(worker)
        key = worker.number, lane, stream
        if (track := self._tracks.get(key)) is None:
            if len(self._tracks) > _TRACKS_MAX:
                self._tracks.clear()
            track = self._tracks[key] = self.track_text(batch.track)
        epoch_ns, rows = self._recorded.epoch_ns, batch.rows
        while rows:
            done, used = _reader.span_lines(
                rows, track, *places, self.kinds, self.before, self.last, self.none, self.quote, epoch_ns, self._into
            )
            if not done:  # a line is longer than the buffer
                self._into = bytearray(2 * len(self._into))
                continue
            self._write(memoryview(self._into)[:used])
            rows = rows[done * ROW.size :]

    def _places_of(self, worker: RecordedWorker) -> tuple[bytes, bytes]:
        key = id(worker.places)
        if key not in self._places:
            self._places[key] = joined([self.place_text(place) for place in worker.places])
        return self._places[key]


_TRACKS_MAX = 4096


class JsonLines(_Lines):
    """JSON Lines: a line about the recording, a line for each span, a line of counts; `kind` tells which."""

    kinds = tuple(f'"kind":"{kind}",'.encode() for kind in KINDS)
    before = tuple(f'{"," if number else ""}"{key}":'.encode() for number, key in enumerate(NUMBER_KEYS))
    last, none, quote = b"}\n", b"null", b'"'

    def begin(self) -> None:
        """Write the line about the recording."""
        self._write(_json({"kind": "recording", **document(self._recorded)}) + b"\n")

    def end(self, counts: SpanCounts) -> None:
        """Write the line of counts."""
        self._write(_json({"kind": "end", **counts.document()}) + b"\n")

    def track_text(self, track: SpanTrack) -> bytes:
        """The first JSON members of each line of a track."""
        return _json(dict(zip(TRACK_KEYS, track_values(track), strict=True)))[:-1] + b","

    def place_text(self, place: Place) -> bytes:
        """The JSON members that describe a place."""
        values = place.brick, place.category, place.layer, place.stack
        return _json(dict(zip(PLACE_KEYS, values, strict=True)))[1:-1] + b","


class Csv(_Lines):
    """CSV: a line of titles, and a line for each span."""

    kinds = tuple(f"{kind},".encode() for kind in KINDS)
    before = (b"", *[b","] * (len(NUMBER_KEYS) - 1))
    last = b"\n"

    def begin(self) -> None:
        """Write the titles."""
        self._write(",".join(KEYS).encode() + b"\n")

    def end(self, counts: SpanCounts) -> None:
        """Write nothing, because each line has its own count of lost records."""

    def track_text(self, track: SpanTrack) -> bytes:
        """The first cells."""
        return _cells(track_values(track))

    def place_text(self, place: Place) -> bytes:
        """The cells that describe a place."""
        return _cells((place.brick, place.category, place.layer, ";".join(map(frame, place.stack))))


def frame(name: str) -> str:
    r"""Return the name of a brick as one frame of a stack. Frames are joined by `;`, so the name gets no `;`.

    >>> frame("a;b\n")
    'a:b\\n'
    """
    return escape.text(name).replace(";", ":")


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _cells(values: tuple[Any, ...]) -> bytes:
    text = io.StringIO()
    cells = ["" if each is None else escape.csv_cell(each) if isinstance(each, str) else each for each in values]
    csv.writer(text, lineterminator=",").writerow(cells)
    return text.getvalue().encode("utf-8", "replace")
