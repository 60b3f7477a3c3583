"""The index of one file of a recording.

Owns: which chunk bodies are valid, the report on invalid ones, which events are kept, which tables apply at a position.
Must not know: other files, views. Invariants: An invalid chunk is reported with its position and affects no other
chunk. Memory use does not grow with the file: no records are kept in memory, only the newest events, and the positions
of the last few snapshots, of sources and of the weights.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Iterator, Set
from typing import Any, NamedTuple

from brickd.analysis.weights.store import Weights
from brickd.base.timestamps import rfc3339
from brickd.model.event_log import KEPT, Event, Page
from brickd.model.kernel_sources.assembly import KernelSource, SourceHead, decoded
from brickd.model.windows import SLOTS
from brickd.recording import body_codec
from brickd.recording.body_codec import Beginning, RecordingEnd, Shown
from brickd.recording.chunks import Chunk, Form, RingRecords, records
from brickd.recording.damage import End
from brickd.recording.ring_taps import read_numbers
from brickd.shm import _reader, segment_codec

_SOURCES_MAX = 4_096
_LAST = SLOTS + 2  # the number of snapshots that a window needs, and a spare one
# The positions of only this many chunks of tables are kept. A writer starts new tables every minute, and writes at
# most one such chunk per snapshot.
_TABLES_MAX = 64
_TABLES_BYTES_MAX = 2 * _reader.CHUNK_BYTES_MAX


class FileIndex:
    """One file, read once: its newest events, and the counts of its snapshots, events and records.

    `beginning` is None if the beginning is damaged; `ending` is None if the file has no end.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.beginning: Beginning | None = None
        self.ending: RecordingEnd | None = None
        self.events = RecordedEvents()
        self.counts: Counter[str] = Counter()
        self._tables = NameTables(form, self._refuse)
        self._last: deque[int] = deque(maxlen=_LAST)  # the positions of the last snapshots
        self._weights: int | None = None  # the position of the weights
        self._sources: dict[int, tuple[int, SourceHead]] = {}  # the position and the head of each source, by hash
        self._limit: int | None = None  # the position from which snapshots and records are ignored
        for chunk in form:
            try:
                self._take(chunk)
            except ValueError as error:
                self._refuse(chunk, error)

    def until(self, at_ns: int) -> FileIndex:
        """Return this file as it was at a time: with the snapshots and events until then.

        Its records go on to the next snapshot, because a ring is drained a little later than its worker is read.
        """
        earlier = copy.copy(self)
        earlier.ending, earlier.events = None, self.events.until(at_ns)
        earlier._last, earlier._tables = deque(maxlen=_LAST), NameTables(self.form, self._refuse)
        for head in self.form.heads(_reader.CHUNK_TABLES, _reader.CHUNK_SNAPSHOT):
            if head.kind == _reader.CHUNK_TABLES:
                earlier._tables.add(head.offset)
            elif head.at_ns > at_ns:
                earlier._limit = head.offset
                break
            else:
                earlier._last.append(head.offset)
        return earlier

    @property
    def end(self) -> End:
        """The report on the reading of the file. It includes invalid chunks that were found later."""
        return self.form.end

    def _take(self, chunk: Chunk) -> None:
        match chunk.kind:
            case _reader.CHUNK_BEGINNING:
                self.beginning = body_codec.read_beginning(chunk.body)
            case _reader.CHUNK_ENDING:
                self.ending = body_codec.read_ending(chunk.body)
            case _reader.CHUNK_EVENTS:
                self.events.add(body_codec.read_event(chunk.body))
                self.counts["events"] += 1
            case _reader.CHUNK_WORKERS:
                read_numbers(chunk.body)
            case _reader.CHUNK_TABLES:
                self._tables.add(chunk.offset)
            case _reader.CHUNK_SNAPSHOT:
                self._last.append(chunk.offset)
                self.counts["snapshots"] += 1
            case _reader.CHUNK_WEIGHTS:
                self._weights = chunk.offset
            case _reader.CHUNK_SOURCE:
                source = decoded(chunk.body)
                if len(self._sources) < _SOURCES_MAX:
                    self._sources[source.hash] = chunk.offset, source.head()
            case _reader.CHUNK_RECORDS:
                self.counts["records"] += len(records(chunk.body).slots) // 64

    def snapshots_backwards(self) -> Iterator[Shown]:
        """Yield the last few snapshots, the newest first. Each is read only when it is needed."""
        for place in reversed(self._last):
            if (chunk := self.form.again(place)) is None:
                self.end.damage(place, place, "the snapshot there has disappeared")
            elif (shown := self._shown(chunk, self._tables)) is not None:
                yield shown

    def snapshots(self) -> Iterator[Shown]:
        """Yield all snapshots, the oldest first."""
        tables = NameTables(self.form, self._refuse)
        for chunk in self._only(_reader.CHUNK_TABLES, _reader.CHUNK_SNAPSHOT):
            if chunk.kind == _reader.CHUNK_TABLES:
                tables.add(chunk.offset)
            elif (shown := self._shown(chunk, tables)) is not None:
                yield shown

    def snapshots_of(self, began_ns: int, ended_ns: int) -> Iterator[Shown]:
        """Yield the snapshots of a period, those next to it, and the first and the last one of the file, in order.

        No other snapshot is decoded.
        """
        tables = NameTables(self.form, self._refuse)
        for place in self._places_of(began_ns, ended_ns, tables):
            if (chunk := self.form.again(place)) is not None and (shown := self._shown(chunk, tables)) is not None:
                yield shown

    def _places_of(self, began_ns: int, ended_ns: int, tables: NameTables) -> Iterator[int]:
        outside: int | None = None  # the position of the last snapshot, if it was not yielded
        before = 0  # whether the last snapshot was before (-1), in (0) or after (1) the period
        for head in self.form.heads(_reader.CHUNK_TABLES, _reader.CHUNK_SNAPSHOT):
            if self._limit is not None and head.offset >= self._limit:
                break
            if head.kind == _reader.CHUNK_TABLES:
                tables.add(head.offset)
                continue
            side = (head.at_ns >= ended_ns) - (head.at_ns < began_ns)
            if side == before != 0:
                outside = head.offset
                continue
            if outside is not None:
                yield outside
            yield head.offset
            before, outside = side, None
        if outside is not None:
            yield outside

    def _only(self, *kinds: int) -> Iterator[Chunk]:
        for chunk in self.form.only(*kinds):
            if self._limit is not None and chunk.offset >= self._limit:
                return
            yield chunk

    def _shown(self, chunk: Chunk, tables: NameTables) -> Shown | None:
        try:
            return body_codec.read_snapshot(chunk.body, chunk.at_ns, tables.at(chunk.offset))
        except ValueError as error:
            self._refuse(chunk, error)
            return None

    def weights(self) -> Weights | None:
        """Return the state of weights at the start of the file; None if it was not recorded."""
        if self._weights is None or (chunk := self.form.again(self._weights)) is None:
            return None
        try:
            return body_codec.read_weights(chunk.body)
        except ValueError as error:
            self._refuse(chunk, error)
            return None

    def sources(self) -> dict[int, SourceHead]:
        """Return the heads of all sources, keyed by hash."""
        return {hash_: head for hash_, (_, head) in self._sources.items()}

    def source(self, hash_: int) -> KernelSource | None:
        """Return the source with this hash; None if it is not in this file."""
        place, _ = self._sources.get(hash_, (0, None))
        chunk = self.form.again(place) if place else None
        try:
            return None if chunk is None else decoded(chunk.body)
        except ValueError:  # the chunk changed after the file was read
            return None

    def records(self, uuids: Set[str]) -> Iterator[tuple[str, RingRecords]]:
        """Yield the records from the rings of workers, the oldest first, each with the uuid of its worker."""
        if not (whose := self._whose(uuids)):
            return
        for chunk in self._only(_reader.CHUNK_RECORDS):
            try:
                found = records(chunk.body)
            except ValueError:  # the first reading has already reported this
                continue
            if (uuid := whose.get(found.worker)) is not None:
                yield uuid, found

    def _whose(self, uuids: Set[str]) -> dict[int, str]:
        """Return the uuid of each worker id.

        If a file was short of room, it may name a worker only after the worker's first records.
        """
        whose: dict[int, str] = {}
        for chunk in self.form.only(_reader.CHUNK_WORKERS):
            try:
                numbers = read_numbers(chunk.body)
            except ValueError:
                continue
            for uuid in sorted(uuids & numbers.keys()):
                whose.setdefault(numbers[uuid], uuid)
        return whose

    def _refuse(self, chunk: Chunk, error: ValueError) -> None:
        """Report an invalid chunk once, even if the chunk is read several times."""
        if all(each.start != chunk.offset for each in self.end.damages):
            self.end.damage(chunk.offset, chunk.end, str(error))

    def words(self) -> list[str]:
        """Return the notes on the file."""
        return [f"{self.form.path}: {each}" for each in self.end.words()]

    def document(self) -> dict[str, Any]:
        """Return the description of the file as JSON."""
        title, end = self.form.title, self.end
        return {
            "path": self.form.path,
            "number": title.number,
            "made": rfc3339(title.made_ns),
            "ended": None if self.ending is None else self.ending.why,
            **{what: self.counts[what] for what in ("snapshots", "events", "records")},
            "whole_bytes": end.at,
            "problem": end.why or None,
            "damages": [{"start_byte": each.start, "end_byte": each.end, "why": each.why} for each in end.damages],
            "more_damages": end.damages_more,
            "missing_chunks": end.missing,
            "unknown_chunks": end.skipped.total() + end.skipped_more,
        }


class RecordedEvents:
    """The newest events, keyed by number."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._events: dict[int, Event] = {}
        self._first = 2**64  # the lowest number that was added

    def add(self, event: Event) -> None:
        """Add an event."""
        self._first = min(self._first, event.number)
        self._events[event.number] = event
        if len(self._events) > 2 * self._kept:
            self._events = {each.number: each for each in self._newest()}

    def merge(self, other: RecordedEvents) -> None:
        """Add the events of another file of the recording."""
        for event in other._newest():
            self.add(event)
        self._first = min(self._first, other._first)

    def until(self, at_ns: int) -> RecordedEvents:
        """Return the events that happened until a time."""
        earlier = RecordedEvents(self._kept)
        earlier._events = {each.number: each for each in self._newest() if each.time_ns <= at_ns}
        earlier._first = self._first
        return earlier

    def since(self, number: int) -> Page:
        """Return the events after this event number, and how many are missing (forgotten or not recorded)."""
        newest = self._newest()
        if not newest:
            return Page((), 0, 0)
        events = tuple(event for event in newest if event.number > number)
        newer = newest[-1].number - max(number, self._first - 1)
        return Page(events, max(0, newer - len(events)), newest[-1].number)

    def now_ns(self) -> int:
        """Return the time of the newest event."""
        newest = self._newest()
        return newest[-1].time_ns if newest else 0

    def _newest(self) -> list[Event]:
        return [self._events[number] for number in sorted(self._events)[-self._kept :]]


class _Tables(NamedTuple):
    """The tables of a chunk of `size` bytes. `afresh` tells whether they are complete without earlier tables."""

    tables: segment_codec.SharedTables
    afresh: bool
    size: int


_NO_TABLES = segment_codec.SharedTables({}, {}, {})


class NameTables:
    """The names, paths and sites at each position of a file; `refuse` is called for invalid chunks.

    Only the tables of the last few generations are in memory, even if a file has many generations.
    """

    def __init__(self, form: Form, refuse: Callable[[Chunk, ValueError], object]) -> None:
        self._form, self._refuse = form, refuse
        self._places: deque[int] = deque(maxlen=_TABLES_MAX)
        self._read: dict[int, _Tables] = {}  # the tables of the last call, by position

    def add(self, place: int) -> None:
        """Add the position of a chunk of tables; it must be after all earlier positions."""
        self._places.append(place)

    def at(self, place: int) -> segment_codec.SharedTables:
        """Return the tables at this position."""
        before, self._read = self._read, {}
        size = 0
        for each in reversed(self._places):
            if each < place:
                found = before.get(each) or self._read_at(each)
                size += found.size
                if size > _TABLES_BYTES_MAX:
                    break
                self._read[each] = found
                if found.afresh:
                    break
        result = _NO_TABLES
        for found in reversed(self._read.values()):
            result |= found.tables
        return result

    def _read_at(self, place: int) -> _Tables:
        chunk = self._form.again(place)
        if chunk is None:
            return _Tables(_NO_TABLES, False, 0)
        try:
            return _Tables(*body_codec.read_tables(chunk.body), len(chunk.body))
        except ValueError as error:
            self._refuse(chunk, error)
            return _Tables(_NO_TABLES, False, len(chunk.body))
