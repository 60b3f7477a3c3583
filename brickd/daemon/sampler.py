"""Takes a snapshot every ten seconds, for all modules that use snapshots.

Owns: the thread that takes snapshots, and when it takes them. Must not know: the content and the use of snapshots.
Invariants: A failed snapshot is reported and does not affect the next one. After a pause, only one snapshot is taken,
however long the pause was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from brickd.base.units import SECOND
from brickd.errors import DaemonEnds
from brickd.model.survey_snapshot import EVERY_NS, Snapshot, Takes
from brickd.model.workers import Survey


class Sampler:
    """The thread that takes snapshots, gives them to takers in order, and calls `failed` within an `except`."""

    def __init__(self, survey: Callable[[], Survey], takers: Sequence[Takes], failed: Callable[[], None]) -> None:
        self._survey, self._takers, self._failed = survey, takers, failed
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="brickd-sampler")

    def start(self) -> None:
        """Take the first snapshot, and start the thread."""
        self._sample()
        self._thread.start()

    def end(self) -> None:
        """Stop the thread."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        due_ns = time.monotonic_ns() + EVERY_NS
        while not self._ending.wait(max(0, due_ns - time.monotonic_ns()) / SECOND):
            self._sample()
            now_ns = time.monotonic_ns()
            due_ns += EVERY_NS * (1 + max(0, now_ns - due_ns) // EVERY_NS)

    def _sample(self) -> None:
        try:
            snapshot = Snapshot.of(self._survey(), time.monotonic_ns(), time.time_ns())
        except (OSError, DaemonEnds):  # the loop gets the same error and reports it
            return
        except Exception:
            self._failed()
            return
        for taker in self._takers:
            if self._ending.is_set():
                return
            try:
                taker.take(snapshot)
            except Exception:
                self._failed()
