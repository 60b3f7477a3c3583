"""The content of a recording's files, and the order in which it is written.

Owns: the beginning of a file, the order of its chunks, the decision to begin a new file, and the counts of data for
which no file had room. Must not know: when a write is due, how files are written. Invariants: Every file is complete:
it begins with all totals and the state of weights, and it names each worker whose records it has. A new file begins
only if it has more room than the old one. Data that was not recorded is counted.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from brickd.analysis.weights.store import Weights
from brickd.datasources.world import DaemonStatus
from brickd.model.event_log import Log
from brickd.model.kernel_sources.launches import referred
from brickd.model.kernel_sources.store import KnownSources
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker
from brickd.query.orders import StartRecording
from brickd.recording import body_codec, redact
from brickd.recording.body_codec import Beginning, RecordingCounts, RecordingEnd, Why
from brickd.recording.ring_taps import Rings
from brickd.recording.rotation import Put, Volumes
from brickd.shm import _reader
from brickd.shm.clock import host_clocks

_SOURCES = 4  # sources of kernels take at most 1/4 of a file, so that there is room for snapshots
_WHOLE = 6  # after this many snapshots, complete tables are written, so that damage costs at most a minute


class RecordingInput(Protocol):
    """The interface of a daemon for a recording. The methods may be called while the daemon works."""

    @property
    def events(self) -> Log:
        """The log of events."""

    def daemon(self) -> DaemonStatus:
        """Return the status of the daemon."""

    def survey(self) -> Survey:
        """Return all workers."""

    def weights(self, of: Sequence[Worker]) -> Weights:
        """Return a copy, which the caller may change, of the current weights of some workers."""

    def sources(self, of: Sequence[Worker]) -> KnownSources:
        """Return the sources of kernels that are known now."""

    def lives(self, names: tuple[str, ...]) -> bool:
        """Whether a worker with one of these names is still drained; without names, whether any worker is drained."""

    def drain_into(self, rings: Rings, spool: _reader.Spool | None) -> None:
        """Copy the records of these rings into a spool from now on.

        With None, copy what the rings contain now, then stop copying.
        """

    def log_event(self, kind: str, text: str, *, command: str | None = None) -> None:
        """Log an event."""


class Writer:
    """Writes one recording, from one thread.

    Attributes:
        workers: the number of workers in the last snapshot.
        dropped: the number of snapshots for which the caller's queue had no room; the caller counts them.
    """

    def __init__(
        self,
        order: StartRecording,
        source: RecordingInput,
        rings: Rings,
        spool: _reader.Spool,
        volumes: Volumes,
        *,
        one_file: bool = False,
    ) -> None:
        """Begin the first file, with the current totals. With `one_file`, no other file is begun."""
        self.volumes, self._one_file = volumes, one_file
        self.workers = self.dropped = 0
        self._order, self._source, self._rings, self._spool = order, source, rings, spool
        self._began_at_ns = time.time_ns()
        self._event = source.events.since(2**63).newest  # the last event that was seen
        self._counts = RecordingCounts()
        self._refused = 0  # refused slots at the last check
        self._tables: set[int] = set()
        self._last: Snapshot | None = None  # kept so that the next snapshot can share its tables
        self._begin()

    def _begin(self) -> None:
        self._snapshots = 0  # the number of snapshots in this file
        self._recorded = False  # whether this file has records
        self._outgrown = False  # whether data that had no room here may fit into the next file
        self._named: set[int] = set()  # the numbers of the workers that this file names
        self._sourced: set[int] = set()  # the sources that are in this file, or for which it has no room
        self._sources_bytes = 0
        self._held = False  # whether a worker could not be named, so records wait for the next snapshot
        self._tables.clear()
        facts, order, host = self._source.daemon(), self._order, socket.gethostname()
        began = Beginning(self._began_at_ns, facts.version, host, facts.prefix, order.names, order.spans)
        began = replace(began, redacted=order.redact, values=order.values)
        self._put(_reader.CHUNK_BEGINNING, body_codec.frame(began))
        self.look()

    def _put(self, kind: int, body: bytes) -> Put:
        return self.volumes.put(kind, time.time_ns(), body)

    # ---- snapshots

    def look(self) -> None:
        """Take and write a snapshot."""
        try:
            survey = self._source.survey()
        except OSError:  # for example, no descriptor is free; the daemon's loop logs the same error
            self._lack("snapshots")
            return
        self.snapshot(Snapshot.of(survey, time.monotonic_ns(), time.time_ns()))

    def snapshot(self, whole: Snapshot) -> None:
        """Write a snapshot of the recorded workers."""
        snapshot = self._chosen(whole)
        if self._order.redact:
            snapshot = redact.snapshot(snapshot, self._spool.key_name)
        self.workers = sum(worker.together for worker in snapshot.survey.workers)
        self._held = False
        if self._write(snapshot):
            self._snapshots += 1
            self._last = snapshot
            self.volumes.look()
            self._counts = replace(self._counts, snapshots=self._counts.snapshots + 1)
            self._source_texts(snapshot)
        else:
            self._lack("snapshots")

    def _chosen(self, snapshot: Snapshot) -> Snapshot:
        survey = snapshot.survey
        if not self._order.names:
            return snapshot
        workers = [worker for worker in survey.workers if self._rings.wants(worker.name, worker.service)]
        # No refused file belongs to a recorded worker, so the list of refused files is left empty.
        return snapshot._replace(survey=survey._replace(workers=workers, refused=[]))

    def _write(self, snapshot: Snapshot) -> bool:
        if self._counts.snapshots % _WHOLE == 0:
            self._tables.clear()
        known = set(self._tables)
        tables = body_codec.tables(snapshot, known) or b""
        body = body_codec.snapshot(snapshot, self._source.daemon(), self.counted(), host_clocks())
        if (most := max(len(tables), len(body))) > _reader.CHUNK_BYTES_MAX:
            limit = f"expected at most {_reader.CHUNK_BYTES_MAX:,}"
            self.volumes.fail(f"a snapshot has a part of {most:,} bytes, {limit}: record fewer workers (--workers)")
            return False
        if not tables or self._put_large(_reader.CHUNK_TABLES, snapshot.at_ns, tables, len(tables) + len(body)):
            self._tables = known
            return self._put_large(_reader.CHUNK_SNAPSHOT, snapshot.at_ns, body, len(tables) + len(body))
        return False

    def _put_large(self, kind: int, at_ns: int, body: bytes, together: int) -> bool:
        """Write a part of a snapshot.

        If the part does not fit, a new file helps only if the whole snapshot fits into the new file.
        """
        put, limit = self.volumes.put(kind, at_ns, body), self.volumes.limit_bytes
        if put is Put.NO_ROOM and self._snapshots and together < limit:
            self._outgrown = True
        elif put is Put.NO_ROOM:
            self.volumes.fail(
                f"a snapshot has {together:,} bytes, expected at most {limit:,}, the limit of a file: allow more with"
                " --max-size, or record fewer workers with --workers"
            )
        return put is Put.DONE

    # ---- sources

    def _source_texts(self, snapshot: Snapshot) -> None:
        """Write the known sources of kernels. A redacted recording has none, because a text cannot be redacted."""
        if self._order.redact:
            return
        workers = snapshot.survey.workers
        known = self._source.sources(workers)
        for hash_ in sorted(referred(workers).keys() - self._sourced):
            if (source := known.read(hash_)) is None:
                continue
            self._sourced.add(hash_)
            body = b"".join(source.encoded())
            has_room = self._sources_bytes + len(body) <= self.volumes.limit_bytes // _SOURCES
            if has_room and self._put(_reader.CHUNK_SOURCE, body) is Put.DONE:
                self._sources_bytes += len(body)
            else:
                self._lack("sources")

    # ---- weights

    def weigh(self) -> None:
        """Write the state of weights.

        The weights are read only after the recording of records has begun, so that no record falls between the two.
        """
        if self._last is None:
            return
        contents, tensors, workers = redact.weights(self._source.weights(self._last.survey.workers), self._spool)
        if not workers:
            return
        body = body_codec.weights(contents, tensors, workers)
        if len(body) > _reader.CHUNK_BYTES_MAX or self._put(_reader.CHUNK_WEIGHTS, body) is not Put.DONE:
            self._lack("tensors", sum(map(len, workers.values())))

    # ---- events

    def events(self) -> None:
        """Write the events since the last call."""
        page = self._source.events.since(self._event)
        self._event = page.newest
        lacking, written = page.missed, 0
        for event in page.events:
            shown = redact.event(event) if self._order.redact else event
            put = self._put(_reader.CHUNK_EVENTS, body_codec.event(shown))
            self._outgrown = self._outgrown or (put is Put.NO_ROOM and self._grown)
            written += put is Put.DONE
            lacking += put is not Put.DONE
        self._counts = replace(self._counts, events=self._counts.events + written)
        if lacking:
            self._lack("events", lacking)

    # ---- records

    def records(self) -> bool:
        """Write the records in the spool; return whether all of them were written."""
        self._see_refused()
        mark, numbers = self._spool.ready()
        if numbers and (self._held or not self._snapshots):  # a reader cannot open a file without a snapshot
            return False
        put = self._name(numbers - self._named)
        if put is Put.DONE:
            before = self.volumes.file.slots
            put = self.volumes.write(self._spool, mark)
            slots = self.volumes.file.slots - before
            self._recorded = self._recorded or slots > 0
            self._counts = replace(self._counts, records=self._counts.records + slots)
        if put is Put.NO_ROOM and self._grown:
            self._outgrown = True
        elif put is Put.NO_ROOM:
            limit = self.volumes.limit_bytes
            self.volumes.fail(f"a snapshot leaves no room for records in {limit:,} bytes: allow more with --max-size")
        return put is Put.DONE

    def _see_refused(self) -> None:
        before, self._refused = self._refused, self._spool.refused_slots
        if self._refused > before and not self.volumes.trouble:
            self.volumes.fail("records come faster than they can be written")

    def _name(self, numbers: set[int]) -> Put:
        """Write a chunk that tells which workers have these ids."""
        if not numbers:
            return Put.DONE
        put = self._put(_reader.CHUNK_WORKERS, self._rings.written(numbers))
        if put is Put.DONE:
            self._named |= numbers
        self._held = put is not Put.DONE
        return put

    # ---- counts

    def _lack(self, what: str, count: int = 1) -> None:
        lacking = self._counts.not_recorded
        self._counts = replace(self._counts, not_recorded=lacking | {what: lacking.get(what, 0) + count})

    def counted(self) -> RecordingCounts:
        """Return the counts so far. Any thread may call this."""
        lacking = Counter(self._counts.not_recorded)
        lacking.update(snapshots=self.dropped, records=self._spool.refused_slots)
        return replace(self._counts, not_recorded=dict(+lacking))

    # ---- the next file

    @property
    def _grown(self) -> bool:
        """Whether the file contains more than what every new file begins with."""
        return self._snapshots > 1 or self._recorded

    @property
    def full(self) -> bool:
        """Whether the file has no room for more data, or was cut by another process."""
        return self.volumes.cut or self._outgrown or (self._grown and self.volumes.low)

    def turn(self) -> bool:
        """Begin a new file if that is due; return whether a new file was begun."""
        most, volumes = self._order.max_age, self.volumes
        aged = self._snapshots > 0 and most is not None and volumes.age_seconds >= most
        if self._one_file or not (self.full or aged) or not volumes.next():
            return False
        self._begin()
        self.weigh()
        volumes.close_last_but_one(body_codec.frame(RecordingEnd("rotated", self.counted())))
        return True

    def end(self, why: Why) -> None:
        """Write the pending data and the end; count the data for which there was no room."""
        while not self.records() and self.turn():
            pass
        self._spool.clear()
        self.volumes.write(self._spool, 0)  # this counts the refused slots in this file
        self.events()
        self.volumes.end(body_codec.frame(RecordingEnd(why, self.counted())))

    def last_look(self) -> None:
        """Take and write a snapshot that can be read without the tables of earlier snapshots."""
        self._tables.clear()
        self.look()
        if self._outgrown:  # the next file begins with a snapshot anyway
            self.turn()
