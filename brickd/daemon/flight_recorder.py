"""The flight recorder: a recording of the spans of all workers, which begins when the daemon finds a new problem.

Owns: which problems begin a recording, the thread that makes it, the limits of the recordings on the disk, the events
about them. Must not know: how a problem is found, how a recording is written. Invariants: The thread that reports
problems never waits, whatever the disk does. One recording is made at a time. Each new problem is in an event: it was
recorded, it began while another one was recorded, or it was not recorded, for the stated reason. No event names a file
that does not exist. A recording is redacted: no person chose its contents, and `brickd bundle` sends it to others.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple

from brickd.analysis.problem import Kind, Problem
from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND, duration, listed, many, noun, plural, size
from brickd.errors import BrickdError
from brickd.model.event_log import LogEvent
from brickd.model.worker_names import as_argument
from brickd.query.orders import StartRecording
from brickd.recording.library import FlightShelf
from brickd.recording.session import Recorder, Recordings

# Spans do not explain the other kinds, which are about brickd itself: its files, its losses, its settings. A recording
# can even cause some of them.
_KINDS: frozenset[Kind] = frozenset(("weights", "numbers", "nan", "stuck", "memory", "slower", "straggler", "died"))
_NAMED_MAX = 8  # problems that an event names

# Recorded; not recorded, because the flight recorder rests; not recorded for another reason.
FlightResult = Literal["recorded", "rested", "failed"]

_EARLY = {
    "asked": "a client ended it",
    "full": "its file cannot take more data",
    "yielded": "a client began another recording",
    "daemon_ended": "the daemon ended",
}


class FlightLimits(NamedTuple):
    """The limits of the flight recorder.

    Attributes:
        seconds: the length of a recording.
        rest_seconds: the shortest time between two recordings, so that a series of problems does not remove the
            recording of its first one.
        most: the number of recordings that are kept.
        bytes_max: the size of all of them.
    """

    seconds: float = 20.0
    rest_seconds: float = 300.0
    most: int = 5
    bytes_max: int = 256 << 20

    @property
    def file_bytes(self) -> int:
        """The size at which a recording ends, so that all recordings together stay below `bytes_max`."""
        return self.bytes_max // self.most


class FlightRecorder:
    """Records the new problems that it gets.

    Args:
        failed: logs a defect; called within an `except`.
    """

    def __init__(
        self,
        shelf: FlightShelf,
        recordings: Recordings,
        log_event: LogEvent,
        failed: Callable[[], None],
        limits: FlightLimits,
    ) -> None:
        self._shelf, self._recordings = shelf, recordings
        self._log_event, self._failed, self._limits = log_event, failed, limits
        self._rests_until_ns = 0
        self._last: dict[str, Any] | None = None
        self._new: SimpleQueue[list[Problem] | None] = SimpleQueue()  # None: the daemon ends
        self._thread = threading.Thread(target=self._run, name="brickd-flight")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the thread. The caller must already have ended its recording."""
        self._new.put(None)
        self._thread.join()

    def take(self, found: Sequence[Problem]) -> None:
        """Receive problems that have just begun, and that did not exist in the last hour."""
        if problems := [each for each in found if each.kind in _KINDS]:
            self._new.put(problems)

    def document(self) -> dict[str, Any]:
        """Return the state as JSON. Any thread may call this."""
        return {"rests_ns": max(0, self._rests_until_ns - time.monotonic_ns()), "last": self._last}

    # ---- the thread

    def _run(self) -> None:
        while (found := self._new.get()) is not None:
            try:
                if (left_ns := self._rests_until_ns - time.monotonic_ns()) > 0:
                    rests = f"the flight recorder rests for another {duration(left_ns)} after its last recording"
                    self._miss("rested", found, rests)
                else:
                    self._record(found)
            except BrickdError as error:
                self._miss("failed", found, str(error))
            except Exception:  # the next problem may be recorded
                self._failed()
                self._miss("failed", found, "brickd has a defect")

    def _record(self, found: Sequence[Problem]) -> None:
        """Make a recording after the first of these problems, and report it. Raise BrickdError if it fails."""
        limits = self._limits
        for each in self._shelf.keep(limits.most - 1, limits.bytes_max - limits.file_bytes):
            kept = f"only the {limits.most} newest, with at most {size(limits.bytes_max)}, are kept"
            self._log_event("recording_removed", f"{each.files[0].path}: the flight recording was removed: {kept}")
        order = StartRecording(duration=limits.seconds, spans=True, redact=True, max_size=limits.file_bytes, files=1)
        recorder = self._recordings.begin(order, self._shelf.place_for(found[0].id), automatic=True)
        recorder.over.wait()
        if not os.path.exists(recorder.path):  # unlike Path.exists, this raises no error
            raise BrickdError(f"{recorder.path}: was removed while it was written")
        self._rests_until_ns = time.monotonic_ns() + round(limits.rest_seconds * SECOND)
        self._report(found[0], recorder, [*found[1:], *self._others()])

    def _others(self) -> list[Problem]:
        """Return the problems that began during the recording."""
        others = []
        with contextlib.suppress(Empty):
            while (found := self._new.get_nowait()) is not None:
                others += found
            self._new.put(None)  # `_run` must see it
        return others

    # ---- events

    def _report(self, problem: Problem, recorder: Recorder, others: Sequence[Problem]) -> None:
        document, path = recorder.document(), as_argument(str(recorder.path))
        took, length = duration(document["elapsed_ns"]), size(document["bytes"])
        text = f"{_called(problem)}: the spans of the next {took} are in {path}, {length}"
        self._event("recorded", problem, "".join((text, *_notes(document, others))), f"brickd spans {path}")

    def _miss(self, result: FlightResult, found: Sequence[Problem], reason: str) -> None:
        text = f"{_listed(found)} {noun(len(found), 'was', 'were')} not recorded: {reason}"
        self._event(result, found[0], text, found[0].command)

    def _event(self, result: FlightResult, problem: Problem, text: str, command: str) -> None:
        self._last = {"at": rfc3339(time.time_ns()), "result": result, "problem": problem.id, "text": text}
        kind = "flight_recorded" if result == "recorded" else "flight_missed"
        worker = problem.workers[0] if len(problem.workers) == 1 else None
        self._log_event(kind, text, service=problem.service, worker=worker, command=command, problem=problem.id)


def _called(problem: Problem) -> str:
    """Name a problem without its sentence, which may mention values of tensors."""
    return f"{problem.id} ({problem.kind}{'' if problem.service is None else f' in {problem.service}'})"


def _listed(problems: Sequence[Problem]) -> str:
    return listed([_called(each) for each in problems], _NAMED_MAX)


def _notes(document: dict[str, Any], others: Sequence[Problem]) -> list[str]:
    notes = []
    if (why := document["why"]) != "over":
        notes.append(f"; the recording ended early, because {_EARLY.get(why, 'brickd has a defect')}")
    lacking = [many(n, what.removesuffix("s")) for what, n in document["not_recorded"].items() if n]
    if lacking:
        notes.append(f"; not recorded, because there was no room: {', '.join(lacking)}")
    if others:
        notes.append(f"; {plural(len(others), 'more problem')} began at that time: {_listed(others)}")
    return notes
