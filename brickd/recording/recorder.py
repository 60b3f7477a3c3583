"""A recording that is being made: what is written into it when, and until when.

Owns: the order of what stands in a file, and the end of a recording. Must not know: how files are written, who wants
the recording, how workers are read. Invariants: one thread writes, and nobody waits for it: what it cannot write in
time, or finds no room for, is counted and told; every file stands for itself; whatever ends a recording, what was
written stays.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from brickd import _reader
from brickd.events import Log
from brickd.instant import rfc3339
from brickd.orders import Recording
from brickd.recording import written
from brickd.recording.rings import Rings
from brickd.recording.volumes import Volumes
from brickd.recording.written import Beginning, Counts, Ending, Why
from brickd.snapshot import Snapshot
from brickd.workers import Survey
from brickd.world import Facts

_WAITING_MAX = 4  # snapshots that wait for a disk
_LOOK_SECONDS, _LOOK_WITH_SPANS_SECONDS = 1.0, 0.1  # so often it is looked whether a file is full
_WHOLE = 6  # so often names and paths are written again: a damage costs a minute at most


_ENDS: dict[Why, str] = {
    "asked": "somebody ended it",
    "over": "its time was over",
    "exited": "all workers ended",
    "left": "whoever wanted it has gone; it stays where it is",
    "rotated": "it goes on in another file",
    "daemon_ended": "the daemon ended; it stays where it is",
}


class Source(Protocol):
    """What is recorded."""

    @property
    def events(self) -> Log:
        """What happens."""
        ...

    def daemon(self) -> Facts:
        """Who drains."""
        ...

    def survey(self) -> Survey:
        """Every worker, now."""
        ...

    def lives(self, names: tuple[str, ...]) -> bool:
        """Whether any worker of these names, or of any where none is given, is drained still."""
        ...

    def drain_into(self, rings: Rings, file: _reader.Recording | None) -> None:
        """Have the records of these go into a file from now on; None: nowhere."""
        ...

    def tell(self, kind: str, text: str, *, command: str | None = None) -> None:
        """Note what happened."""
        ...


class Recorder:
    """One recording.

    Attributes:
        over: it has come to its end, and all of it is in its files.
    """

    def __init__(self, order: Recording, first: Path, source: Source) -> None:
        """Begin: the first file is there, with what everybody has come to now.

        Raises:
            BrickdError: nothing can be recorded there.
        """
        self.over = threading.Event()
        self._order, self._source = order, source
        self._rings = Rings(order.names, spans=order.spans)
        self._began_ns, self._began_at_ns = time.monotonic_ns(), time.time_ns()
        self._event = source.events.since(2**63).newest  # the last one that was seen
        self._counts = Counts()
        self._workers = 0
        self._why: Why | None = None
        self._ended_ns = 0
        self._told = ""
        self._watchers: list[Callable[[], object]] = []
        # A signal may come while its thread waits for this one: no other queue may be filled then.
        self._queue: queue.SimpleQueue[Snapshot | Why | None] = queue.SimpleQueue()
        self._given = self._taken = self._dropped = 0  # snapshots
        self._woken = False
        self._volumes = Volumes(first, order.max_size, order.files)
        self._tables: set[int] = set()
        self._last: Snapshot | None = None  # its names and paths are those of the next one, as long as they are there
        self._fresh = True  # there is no snapshot in the file yet
        self._beginning()
        self._look()
        source.drain_into(self._rings, self._volumes.file)
        self._thread = threading.Thread(target=self._run, name="brickd-recording")
        self._thread.start()

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._volumes.kept[-1].path

    @property
    def id(self) -> str:
        """What it is called."""
        return self._volumes.id.hex()

    def take(self, snapshot: Snapshot) -> None:
        """The next of those that are taken all the time; from one thread."""
        if self._given - self._taken < _WAITING_MAX:
            self._given += 1
            self._queue.put(snapshot)
        else:
            self._dropped += 1

    def end(self, why: Why) -> None:
        """Have it come to its end, soon; also from a signal's handler. It may have."""
        self._queue.put(why)

    def join(self) -> None:
        """Wait for that."""
        self._thread.join()

    @contextmanager
    def watched(self, wake: Callable[[], object]) -> Iterator[None]:
        """Have a function called when it is over."""
        self._watchers.append(wake)
        if self.over.is_set():
            wake()
        try:
            yield
        finally:
            self._watchers.remove(wake)

    @property
    def trouble(self) -> str | None:
        """Why nothing can be recorded now."""
        return self._volumes.trouble or None

    def document(self) -> dict[str, Any]:
        """How far it has come."""
        counts = self._counted()
        return {
            "recording": self.id,
            "began": rfc3339(self._began_at_ns),
            "elapsed_ns": (self._ended_ns or time.monotonic_ns()) - self._began_ns,
            "why": self._why,
            "workers": self._workers,
            "bytes": self._volumes.size,
            "snapshots": counts.snapshots,
            "events": counts.events,
            "not_recorded": counts.not_recorded,
            "trouble": self.trouble,
            "removed_files": self._volumes.removed,
            "files": [each.document() for each in self._volumes.kept],
        }

    # ---- the thread

    def _run(self) -> None:
        try:
            with self._source.events.watched(self._wake):
                why = self._until_over()
            self._finish(why)
        finally:
            self._source.drain_into(self._rings, None)
            self._tell_end()
            self.over.set()
            for wake in tuple(self._watchers):
                wake()

    def _tell_end(self) -> None:
        self._ended_ns = time.monotonic_ns()
        text = f"{self.path}: {_ENDS[self._why] if self._why else 'ended by a defect of brickd'}"
        nobodys = self._why in ("left", "daemon_ended")
        command = f"brickd status {quote(str(self.path))}" if nobodys else None
        self._source.tell("recording_ended", text, command=command)

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._queue.put(None)

    def _until_over(self) -> Why:
        """Write what comes until it is over: why it is."""
        order = self._order
        until = None if order.duration is None else self._began_ns + round(order.duration * 1e9)
        while True:
            match self._next(until):
                case Snapshot() as snapshot:
                    self._taken += 1
                    self._snapshot(self._chosen(snapshot))
                case str(why):
                    return why
                case None:
                    pass
            self._events()
            if until is not None and time.monotonic_ns() >= until:
                return "over"
            if order.until_exit and not self._source.lives(order.names):
                return "exited"
            self._rotate_if_due()
            self._tell_trouble()

    def _next(self, until: int | None) -> Snapshot | Why | None:
        wait = _LOOK_WITH_SPANS_SECONDS if self._order.spans else _LOOK_SECONDS
        if until is not None:
            wait = min(wait, max(0.0, (until - time.monotonic_ns()) / 1e9))
        try:
            return self._queue.get(timeout=wait)
        except queue.Empty:
            return None

    def _finish(self, why: Why) -> None:
        self._tables.clear()  # the one that is looked at needs none of the file's beginning
        self._look()
        self._source.drain_into(self._rings, None)
        self._events()
        self._why = why
        self._volumes.end(written.ending(Ending(why, self._counted())))

    # ---- what is written

    def _look(self) -> None:
        """A snapshot of now."""
        try:
            survey = self._source.survey()
        except OSError:  # no descriptor is left, say: the loop meets the same, and tells it
            self._lack("snapshots")
            return
        self._snapshot(self._chosen(Snapshot.of(survey, time.monotonic_ns(), time.time_ns())))

    def _chosen(self, snapshot: Snapshot) -> Snapshot:
        survey = snapshot.survey
        if not self._order.names:
            return snapshot
        workers = [worker for worker in survey.workers if self._rings.wants(worker.name, worker.service)]
        # What was refused belongs to nobody who is named.
        return replace(snapshot, survey=replace(survey, workers=workers, refused=[], foreign=0))

    def _put(self, kind: int, body: bytes) -> bool:
        return self._volumes.put(kind, time.time_ns(), body)

    def _beginning(self) -> None:
        facts, order = self._source.daemon(), self._order
        beginning = Beginning(
            self._began_at_ns, facts.version, socket.gethostname(), facts.prefix, order.names, order.spans
        )
        self._tables.clear()
        self._fresh = True
        self._put(_reader.CHUNK_BEGINNING, written.beginning(beginning))

    def _snapshot(self, snapshot: Snapshot) -> None:
        self._workers = sum(worker.together for worker in snapshot.survey.workers)
        if self._write(snapshot):
            self._fresh, self._last = False, snapshot
            self._volumes.look()
            self._counts = replace(self._counts, snapshots=self._counts.snapshots + 1)
        else:
            self._lack("snapshots")

    def _write(self, snapshot: Snapshot) -> bool:
        if self._counts.snapshots % _WHOLE == 0:
            self._tables.clear()
        known = set(self._tables)
        tables = written.tables(snapshot, known)
        if tables is not None and not self._volumes.put(_reader.CHUNK_TABLES, snapshot.at_ns, tables):
            return False
        self._tables = known
        body = written.snapshot(snapshot, self._source.daemon(), self._counted())
        return self._volumes.put(_reader.CHUNK_SNAPSHOT, snapshot.at_ns, body)

    def _events(self) -> None:
        self._woken = False
        page = self._source.events.since(self._event)
        self._event = page.newest
        lacking, told = page.missed, 0
        for event in page.events:
            if self._put(_reader.CHUNK_EVENTS, written.event(event)):
                told += 1
            else:
                lacking += 1
        self._counts = replace(self._counts, events=self._counts.events + told)
        if lacking:
            self._lack("events", lacking)

    def _lack(self, what: str, count: int = 1) -> None:
        lacking = self._counts.not_recorded
        self._counts = replace(self._counts, not_recorded=lacking | {what: lacking.get(what, 0) + count})

    def _counted(self) -> Counts:
        lacking = Counter(self._counts.not_recorded)
        lacking.update(snapshots=self._dropped, records=self._volumes.refused_slots)
        return replace(self._counts, not_recorded=dict(+lacking))

    # ---- from file to file

    def _rotate_if_due(self) -> None:
        most = self._order.max_age
        aged = most is not None and self._volumes.age_seconds >= most
        if not self._fresh and (self._volumes.full or aged) and self._volumes.next():
            self._beginning()
            self._look()
            self._source.drain_into(self._rings, self._volumes.file)
            self._volumes.close_last_but_one(written.ending(Ending("rotated", self._counted())))

    def _tell_trouble(self) -> None:
        trouble = self._volumes.trouble
        if trouble and not self._told:
            text = f"nothing can be recorded now: {trouble}; what is missing is counted"
            self._source.tell("recording_failed", text, command="brickd status")
        elif self._told and not trouble:
            self._source.drain_into(self._rings, self._volumes.file)
            self._source.tell("recording_resumed", "it can be recorded again")
        self._told = trouble
