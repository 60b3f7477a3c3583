"""The recording that a daemon makes: one at a time.

Owns: whether one is being made. Must not know: what is in it, who wants it. Invariant: rings are copied into one
recording at the most, so that none slows the loop for another.
"""

from __future__ import annotations

import threading
from pathlib import Path

from brickd.errors import BrickdError
from brickd.orders import Recording
from brickd.recording.recorder import Recorder
from brickd.recording.source import Source
from brickd.snapshot import Snapshot


class Recordings:
    """The one that is being made, if any is: every method may be called from any thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._current: Recorder | None = None
        self._closed = False

    def begin(self, order: Recording, first: Path) -> Recorder:
        """Begin one.

        Raises:
            BrickdError: another one is being made, or nothing can be written there.
        """
        with self._lock:
            running = self.running
            if running is not None:
                at = running.document()["files"][-1]["path"]
                raise BrickdError(f"a recording is already running, {at}: end that first (one at a time)")
            if self._closed:
                raise BrickdError("the daemon is stopping: it starts no recording")
            self._current = Recorder(order, first, self._source)
            return self._current

    @property
    def running(self) -> Recorder | None:
        """The one that is being made."""
        current = self._current
        return None if current is None or current.over.is_set() else current

    def take(self, snapshot: Snapshot) -> None:
        """The next of those that are taken all the time."""
        if (running := self.running) is not None:
            running.take(snapshot)

    def close(self) -> None:
        """End the one that is being made, and make no more."""
        with self._lock:
            self._closed = True
            current = self._current
        if current is not None:
            current.end("daemon_ended")
            current.join()
