"""What one file of a recording holds.

Owns: which of its chunks are believed, and what is said of those that are not. Must not know: other files, views.
Invariants: whatever is in the file, what adds up is shown and what does not is told with its place; of snapshots only
the last few are in memory at a time, and none of the records.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from brickd import _reader, kept
from brickd.events import Event
from brickd.instant import rfc3339
from brickd.recording import written
from brickd.recording.ending import End
from brickd.recording.form import Chunk, Form, Records, records
from brickd.recording.rings import read_numbers
from brickd.recording.written import Beginning, Ending, Shown
from brickd.windows import SLOTS

_LAST = SLOTS + 2  # snapshots that a window needs, and one that may be damaged


class Contents:
    """One file, read once.

    Attributes:
        form: the file.
        beginning: None where that is damaged.
        ending: None where the file has none.
        events: all that are in it.
        counts: of what is there: snapshots, events, records.
        end: how the reading of the file ended, with what was found to be damaged in it.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.beginning: Beginning | None = None
        self.ending: Ending | None = None
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        self._tables = kept.Tables({}, {})
        self._numbers: dict[str, int] = {}
        self._refused: set[int] = set()  # snapshots, by their places
        self._last: deque[Chunk] = deque(maxlen=_LAST)
        for chunk in form:
            try:
                self._take(chunk)
            except ValueError as error:
                form.end.damage(chunk.offset, chunk.end, str(error))
        self.end: End = form.end

    def _take(self, chunk: Chunk) -> None:
        match chunk.kind:
            case _reader.CHUNK_BEGINNING:
                self.beginning = written.read_beginning(chunk.body)
            case _reader.CHUNK_ENDING:
                self.ending = written.read_ending(chunk.body)
            case _reader.CHUNK_EVENTS:
                self.events.append(written.read_event(chunk.body))
                self.counts["events"] += 1
            case _reader.CHUNK_WORKERS:
                self._numbers |= read_numbers(chunk.body)
            case _reader.CHUNK_TABLES:
                self._tables |= written.read_tables(chunk.body)
            case _reader.CHUNK_SNAPSHOT:
                self._last.append(chunk)
                self.counts["snapshots"] += 1
            case _reader.CHUNK_RECORDS:
                self.counts["records"] += len(records(chunk.body).slots) // 64

    def snapshots_backwards(self) -> Iterator[Shown]:
        """The last few, the newest first; each is judged when it is wanted."""
        for chunk in reversed(self._last):
            try:
                yield written.read_snapshot(chunk.body, chunk.at_ns, self._tables)
            except ValueError as error:
                self._refuse(chunk, error)

    def snapshots(self) -> Iterator[Shown]:
        """All of them, the oldest first."""
        for chunk in self.form:
            if chunk.kind == _reader.CHUNK_SNAPSHOT:
                try:
                    yield written.read_snapshot(chunk.body, chunk.at_ns, self._tables)
                except ValueError as error:
                    self._refuse(chunk, error)

    def records(self, uuid: str) -> Iterator[Records]:
        """What was taken from a worker's rings, the oldest first."""
        number = self._numbers.get(uuid)
        for chunk in self.form if number is not None else ():
            if chunk.kind == _reader.CHUNK_RECORDS:
                try:
                    found = records(chunk.body)
                except ValueError:  # it was told when it was found
                    continue
                if found.worker == number:
                    yield found

    def _refuse(self, chunk: Chunk, error: ValueError) -> None:
        if chunk.offset not in self._refused:
            self._refused.add(chunk.offset)
            self.end.damage(chunk.offset, chunk.end, str(error))

    def words(self) -> list[str]:
        """What is to be said of it."""
        told = [f"{self.form.path}: {each}" for each in self.end.words()]
        if self.ending is not None and self.ending.why == "rotated":
            told.append(f"{self.form.path}: it goes on in the next file of its set")
        return told

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        title, end = self.form.title, self.end
        return {
            "path": self.form.path,
            "number": title.number,
            "made": rfc3339(title.made_ns),
            "ended": None if self.ending is None else self.ending.why,
            **{what: self.counts[what] for what in ("snapshots", "events", "records")},
            "whole_bytes": end.at,
            "problem": end.why or None,
            "damages": [{"start": each.start, "end": each.end, "why": each.why} for each in end.damages],
            "more_damages": end.damages_more,
            "missing_chunks": end.missing,
            "unknown_chunks": end.skipped.total() + end.skipped_more,
        }
