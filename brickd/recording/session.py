"""A running recording: its thread, its schedule and how it ends. Only one recording runs at a time.

Owns: when data is written, when a recording ends, and whether a recording runs. Must not know: what is written and how,
how workers are read. Invariants: One thread writes, and no other thread waits for it. Data that cannot be written in
time, or for which there is no room, is counted and reported. When the recording ends, the data that was already written
stays. Data that is still pending is discarded, and so is the key of the redaction.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brickd.base.timestamps import rfc3339
from brickd.errors import BrickdError
from brickd.model.survey_snapshot import Snapshot
from brickd.query.orders import StartRecording
from brickd.recording.body_codec import Why
from brickd.recording.ring_taps import Rings
from brickd.recording.rotation import Volumes
from brickd.recording.writer import RecordingInput, Writer
from brickd.shm import _reader

_WAITING_MAX = 4  # the number of snapshots that may wait for the disk
# The interval of rounds. Each round writes pending data and checks whether to end.
_LOOK_MS, _LOOK_WITH_SPANS_MS = 1_000, 100
_STILL_NS = 10_000_000_000  # a round that takes longer is waiting for the disk
_YIELD_SECONDS = 10.0  # how long a client waits for the end of an automatic recording

_ENDS: dict[Why, str] = {
    "asked": "a client ended it",
    "over": "its duration was over",
    "exited": "all workers ended",
    "left": "its client has gone; the file stays where it is",
    "rotated": "it continues in another file",
    "daemon_ended": "the daemon ended; the file stays where it is",
    "full": "its file cannot take more data",
    "yielded": "a client began another recording",
}


class Recorder:
    """One recording; `over` is set after the recording has ended and all data is in its files.

    An `automatic` recording has one file. It ends when this file is full, or when a client begins a recording.
    """

    def __init__(self, order: StartRecording, first: Path, source: RecordingInput, *, automatic: bool = False) -> None:
        """Begin the first file, with the current totals; raise BrickdError if this fails."""
        self.over = threading.Event()
        self.automatic = automatic
        self._order, self._source = order, source
        self._began_ns, self._began_at_ns = time.monotonic_ns(), time.time_ns()
        self._came_round_ns = self._began_ns
        self._ended_ns = 0
        self._why: Why | None = None
        self._asked: Why | None = None
        self._logged_trouble = ""
        self._watchers: list[Callable[[], object]] = []
        self._waiting: deque[Snapshot] = deque()
        self._rings = Rings(order.names, spans=order.spans)
        try:
            self._spool = _reader.Spool(values=order.values, redacts=order.redact)
        except OSError as error:
            raise BrickdError(f"nothing can be recorded: {error.strerror} (raise the memory limit)") from None
        self._volumes = Volumes(first, order.max_size, order.files)
        self._writer = Writer(order, source, self._rings, self._spool, self._volumes, one_file=automatic)
        self._thread = threading.Thread(target=self._run, name="brickd-recording")
        source.drain_into(self._rings, self._spool)
        try:
            self._thread.start()
        except RuntimeError as error:
            source.drain_into(self._rings, None)
            self._volumes.undo()
            raise BrickdError(
                f"nothing can be recorded: {error} (raise ulimit -u, or the service's TasksMax)"
            ) from None

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._volumes.kept[-1].path

    @property
    def id(self) -> str:
        """The id of the recording."""
        return self._volumes.id.hex()

    def take(self, snapshot: Snapshot) -> None:
        """Receive the next snapshot. Only one thread calls this."""
        if len(self._waiting) < _WAITING_MAX:
            self._waiting.append(snapshot)
            self._spool.wake()
        else:
            self._writer.dropped += 1

    def end(self, why: Why) -> None:
        """Ask the recording to end soon. If it has already ended, this has no effect. Signal handlers may call this."""
        self._asked = self._asked or why
        self._spool.wake()

    def join(self) -> None:
        """Wait for the end of the recording."""
        self._thread.join()

    @contextmanager
    def watched(self, wake: Callable[[], object]) -> Iterator[None]:
        """Call a function after the end of the recording."""
        self._watchers.append(wake)
        if self.over.is_set():
            wake()
        try:
            yield
        finally:
            self._watchers.remove(wake)

    @property
    def trouble(self) -> str | None:
        """The reason why nothing can be recorded now; None if recording is possible."""
        still_ns = time.monotonic_ns() - self._came_round_ns
        if still_ns > _STILL_NS and not self.over.is_set():  # the thread that waits cannot report this itself
            return f"the disk has not answered for {still_ns // 1_000_000_000} s"
        return self._volumes.trouble or None

    def document(self) -> dict[str, Any]:
        """Return the progress of the recording as JSON."""
        counts = self._writer.counted()
        return {
            "recording": self.id,
            "began": rfc3339(self._began_at_ns),
            "values": self._order.values,
            "redacted": self._order.redact,
            "elapsed_ns": (self._ended_ns or time.monotonic_ns()) - self._began_ns,
            "why": self._why,
            "workers": self._writer.workers,
            "bytes": self._volumes.size,
            "snapshots": counts.snapshots,
            "events": counts.events,
            "records": counts.records,
            "not_recorded": counts.not_recorded,
            "trouble": self.trouble,
            "removed_files": self._volumes.removed,
            "files": [each.document() for each in self._volumes.kept],
        }

    # ---- the thread

    def _run(self) -> None:
        try:
            whom = ", ".join(self._order.names) or "all workers"
            self._source.log_event("recording_began", f"recording {whom} into {self.path}")
            self._writer.weigh()
            with self._source.events.watched(self._spool.wake):
                why = self._until_over()
            self._writer.last_look()
            self._source.drain_into(self._rings, None)
            self._why = why
            self._writer.end(why)
        finally:
            self._source.drain_into(self._rings, None)
            self._volumes.leave()
            self._log_end()
            self._spool.end()
            self.over.set()
            for wake in tuple(self._watchers):
                wake()

    def _log_end(self) -> None:
        self._ended_ns = time.monotonic_ns()
        text = f"{self.path}: {_ENDS[self._why] if self._why else 'ended by a defect of brickd'}"
        unclaimed = self._why in ("left", "daemon_ended")
        command = f"brickd record --fetch {self.id}" if unclaimed else None
        self._source.log_event("recording_ended", text, command=command)

    def _until_over(self) -> Why:
        order, writer = self._order, self._writer
        until = None if order.duration is None else self._began_ns + round(order.duration * 1e9)
        while True:
            self._spool.wait(self._patience_ms(until))
            self._came_round_ns = time.monotonic_ns()
            writer.records()
            while self._waiting:
                writer.snapshot(self._waiting[0])
                self._waiting.popleft()
            writer.events()
            if self._asked:
                return self._asked
            if until is not None and time.monotonic_ns() >= until:
                return "over"
            if order.until_exit and not self._source.lives(order.names):
                return "exited"
            if self.automatic and writer.full:
                return "full"
            if writer.turn():
                self._spool.wake()  # data that had no room in the old file may be pending
            self._log_trouble()

    def _patience_ms(self, until: int | None) -> int:
        most = _LOOK_WITH_SPANS_MS if self._order.spans else _LOOK_MS
        return most if until is None else max(0, min(most, -((time.monotonic_ns() - until) // 1_000_000)))

    def _log_trouble(self) -> None:
        trouble = self._volumes.trouble
        if trouble and not self._logged_trouble:
            text = f"nothing can be recorded now: {trouble}; data that is missed is counted"
            self._source.log_event("recording_failed", text, command="brickd status")
        elif self._logged_trouble and not trouble:
            self._source.log_event("recording_resumed", "the recording continues")
        self._logged_trouble = trouble


class Recordings:
    """The running recording, if there is one. Any thread may call every method."""

    def __init__(self, source: RecordingInput) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._current: Recorder | None = None
        self._closed = False

    def begin(self, order: StartRecording, first: Path, *, automatic: bool = False) -> Recorder:
        """Begin a recording; raise BrickdError if another recording runs, or if nothing can be written.

        The recording of a client ends an automatic one.
        """
        with self._lock:
            if (running := self.running) is not None and running.automatic and not automatic:
                running.end("yielded")
                running.over.wait(_YIELD_SECONDS)  # it ends later only if the disk does not answer
            if (running := self.running) is not None:
                at = running.document()["files"][-1]["path"]
                raise BrickdError(f"a recording is already running, {at}: end it first (Ctrl-C in its brickd record)")
            if self._closed:
                raise BrickdError("the daemon is stopping and starts no recording (start another daemon: brickd up)")
            self._current = Recorder(order, first, self._source, automatic=automatic)
            return self._current

    @property
    def running(self) -> Recorder | None:
        """Return the running recording, or None."""
        current = self._current
        return None if current is None or current.over.is_set() else current

    def take(self, snapshot: Snapshot) -> None:
        """Receive the next snapshot."""
        if (running := self.running) is not None:
            running.take(snapshot)

    def close(self) -> None:
        """End the running recording, and refuse new recordings."""
        with self._lock:
            self._closed = True
            current = self._current
        if current is not None:
            current.end("daemon_ended")
            current.join()
