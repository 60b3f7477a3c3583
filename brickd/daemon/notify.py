"""Sends alarms: makes the document of a problem, and has a queue and a thread for each target.

Owns: the document, the queues, when to retry, the counts, and the events about failures. Must not know: how a document
reaches a target, which changes of a problem are sent. Invariants: Queueing a document never waits. A queue is bounded,
and documents for which there is no room are counted. A failing target is logged once, and not again until the target
has worked again. Each target gets one document at a time, in order.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple, Protocol

from brickd.analysis.problem_book import Change
from brickd.base.timestamps import rfc3339
from brickd.base.units import plural
from brickd.errors import BrickdError
from brickd.model.event_log import LogEvent

QUEUE_MAX = 256
TEST_SECONDS = 30.0
_AGAIN_SECONDS = (1.0, 4.0, 16.0)
_END_SECONDS = 1.0
_STATES = {"began": "active", "recovered": "recovered", "ended": "ended"}


class TargetFailed(Exception):  # noqa: N818
    """A document did not arrive at its target; `again`: whether another try may succeed."""

    def __init__(self, what: str, *, again: bool = False) -> None:
        super().__init__(what)
        self.again = again


class Target(Protocol):
    """A receiver of alarms."""

    @property
    def name(self) -> str:
        """The name of the target in events and answers."""

    def send(self, body: bytes) -> str:
        """Deliver a document; return a short answer. Raise TargetFailed if the document did not arrive."""

    def cancel(self) -> None:
        """End the current delivery. Any thread may call this."""


class _Item(NamedTuple):
    """A document. A test is tried only once, and `tested` receives the answer."""

    body: bytes
    tested: Future[str] | None = None


class Channel:
    """The queue and the thread of one target."""

    def __init__(
        self,
        target: Target,
        log_event: LogEvent,
        again_seconds: Sequence[float] = _AGAIN_SECONDS,
        most: int = QUEUE_MAX,
    ) -> None:
        self.name = target.name
        self._target, self._log_event, self._again_seconds = target, log_event, again_seconds
        self._queue: queue.Queue[_Item | None] = queue.Queue(most)
        self._ending = threading.Event()
        self._sent = self._failed = self._dropped = 0
        self._problem: str | None = None
        self._full = False
        self._thread = threading.Thread(target=self._run, name="brickd-notify", daemon=True)

    def start(self) -> None:
        """Start to deliver documents."""
        self._thread.start()

    def end(self) -> None:
        """Stop delivering. Wait a short time for the end of the current delivery."""
        self._ending.set()
        self._target.cancel()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(_END_SECONDS)

    def give(self, item: _Item) -> bool:
        """Queue a document; return whether there was room."""
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self._dropped += 1
            if not self._full:
                self._full = True
                self._log_event(
                    "notify_dropped",
                    f"{self.name}: {self._queue.maxsize} alarms are waiting, further alarms are dropped",
                )
            return False
        self._full = False
        return True

    def document(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            "target": self.name,
            "sent": self._sent,
            "failed": self._failed,
            "dropped": self._dropped,
            "waiting": self._queue.qsize(),
            "problem": self._problem,
        }

    def _run(self) -> None:
        while not self._ending.is_set():
            item = self._queue.get()
            if item is None or self._ending.is_set():
                return
            try:
                answer = self._deliver(item)
            except Exception as error:  # the thread continues, because the next document may arrive
                failure = error if isinstance(error, TargetFailed) else TargetFailed(f"{type(error).__name__}: {error}")
                self._failed += 1
                self._settle(str(failure))
                if item.tested is not None:
                    item.tested.set_exception(failure)
            else:
                self._sent += 1
                self._settle(None)
                if item.tested is not None:
                    item.tested.set_result(answer)

    def _deliver(self, item: _Item) -> str:
        for pause_seconds in () if item.tested is not None else self._again_seconds:
            try:
                return self._target.send(item.body)
            except TargetFailed as error:
                if not error.again or self._ending.wait(pause_seconds):
                    raise
        return self._target.send(item.body)

    def _settle(self, problem: str | None) -> None:
        """Log when the target begins to fail, and when it works again."""
        was, self._problem = self._problem, problem
        if self._ending.is_set() or (was is None) == (problem is None):
            return
        if problem is None:
            self._log_event("notify_works", f"{self.name} accepts alarms again")
        else:
            self._log_event("notify_failed", f"{self.name}: {problem}", command="brickd notify test")


class Notifier:
    """The targets of a daemon, if it has any."""

    def __init__(self, targets: Sequence[Target], prefix: str, log_event: LogEvent) -> None:
        self._prefix = prefix
        self._channels = [Channel(target, log_event) for target in targets]
        self._testing = threading.Lock()

    def start(self) -> None:
        """Start all targets."""
        for each in self._channels:
            each.start()

    def end(self) -> None:
        """Stop all targets. The daemon does not wait for a target that hangs."""
        for each in self._channels:
            each.end()

    def send(self, changes: Sequence[Change]) -> None:
        """Queue the documents about changes of problems for each target."""
        for change in changes:
            body = self._body(_STATES[change.state], change.why, change.entry.document())
            for each in self._channels:
                each.give(_Item(body))

    def documents(self) -> list[dict[str, Any]]:
        """The counts of each target."""
        return [each.document() for each in self._channels]

    def test(self, wait_seconds: float = TEST_SECONDS) -> list[dict[str, Any]]:
        """Send a test to each target; return the answer of each target.

        Raises:
            BrickdError: no target is configured, or another test has not ended.
        """
        if not self._testing.acquire(blocking=False):  # one test at a time, because a test blocks a thread of the API
            raise BrickdError("another test is still running: try again when it has ended")
        try:
            return self._test(wait_seconds)
        finally:
            self._testing.release()

    def _test(self, wait_seconds: float) -> list[dict[str, Any]]:
        if not self._channels:
            expected = "start it with brickd up --notify-exec CMD or --notify-url URL"
            raise BrickdError(f"the daemon has no target for alarms: {expected}")
        now = rfc3339(time.time_ns())
        body = self._body("test", "", {
            "id": "00000000", "kind": "test", "service": None, "workers": [],
            "text": "a test of the targets of alarms", "command": "brickd status",
            "since": now, "seen": now, "silenced_until": None,
        })  # fmt: skip
        began, asked = time.monotonic(), [(each, Future[str]()) for each in self._channels]
        given = [each.give(_Item(body, future)) for each, future in asked]
        found = []
        for (each, future), queued in zip(asked, given, strict=True):
            ok, answer = False, "its queue is full"
            if queued:
                try:
                    ok, answer = True, future.result(max(0.0, began + wait_seconds - time.monotonic()))
                except FutureTimeoutError:
                    waiting = plural(each.document()["waiting"], "alarm waits", "alarms wait")
                    answer = f"has not answered after {wait_seconds:g} s, {waiting}"
                except TargetFailed as error:
                    answer = str(error)
            found.append({"target": each.name, "ok": ok, "answer": answer})
        return found

    def _body(self, state: str, why: str, problem: dict[str, Any]) -> bytes:
        document = {
            "schema_version": 1,
            "state": state,
            "why": why or None,
            "time": rfc3339(time.time_ns()),
            "host": socket.gethostname(),
            "prefix": self._prefix,
            **problem,
        }
        return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
