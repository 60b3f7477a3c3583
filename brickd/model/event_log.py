"""The last thousand events of a daemon, in order.

Owns: the fields of an event, how events are numbered, which events are forgotten. Must not know: what causes an event,
who reads it. Invariants: Numbers have no gaps and never repeat, so a reader knows how many events it missed. Any number
of threads may add and read events. Adding an event never waits for a reader.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND

KEPT = 1_000


class Event(NamedTuple):
    """An event.

    Attributes:
        number: the position of the event, from 1.
        time_ns: the time of the event, since 1970.
        kind: one word with underscores, such as `worker_died`.
        command: the next command to run, if any.
        problem: the id of the problem that this event is about, such as its beginning or its end; None if there is no
            such problem.
    """

    number: int
    time_ns: int
    kind: str
    text: str
    service: str | None = None
    worker: str | None = None
    command: str | None = None
    problem: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the event as JSON."""
        return {
            "number": self.number,
            "time": rfc3339(self.time_ns),
            "kind": self.kind,
            "service": self.service,
            "worker": self.worker,
            "text": self.text,
            "command": self.command,
            "problem": self.problem,
        }


class Page(NamedTuple):
    """The events that a reader has not read, how many of these are no longer stored, and the last event's number."""

    events: tuple[Event, ...]
    missed: int
    newest: int


class Past(Protocol):
    """A source of events."""

    def since(self, number: int, /) -> Page:
        """Return the events after the event with this number."""

    def now_ns(self) -> int:
        """Return the current time, since 1970; for the events of a recording, the time of the newest event."""


def since(past: Past, begin: int | float) -> Page:
    """Return the events after the event whose number is `begin`.

    If `begin` is a float, return those of the last `begin` seconds.
    """
    if isinstance(begin, int):
        return past.since(begin)
    page, begin_ns = past.since(0), past.now_ns() - round(begin * SECOND)
    events = tuple(event for event in page.events if event.time_ns >= begin_ns)
    return page._replace(events=events, missed=page.missed if len(events) == len(page.events) else 0)


class LogEvent(Protocol):
    """The type of `Log.add`, for modules that report events without knowing the log."""

    def __call__(
        self,
        kind: str,
        text: str,
        *,
        service: str | None = None,
        worker: str | None = None,
        command: str | None = None,
        problem: str | None = None,
    ) -> object:
        """Log an event."""


class Log:
    """The events of one daemon; `newest` is the number of the last event of the previous daemon."""

    def __init__(self, newest: int = 0, kept: int = KEPT) -> None:
        self._events: deque[Event] = deque(maxlen=kept)
        self._newest = newest
        self._lock = threading.Lock()
        self._watchers: list[Callable[[], object]] = []

    def add(
        self,
        kind: str,
        text: str,
        *,
        service: str | None = None,
        worker: str | None = None,
        command: str | None = None,
        problem: str | None = None,
    ) -> Event:
        """Log an event with the current time."""
        with self._lock:
            self._newest += 1
            event = Event(self._newest, time.time_ns(), kind, text, service, worker, command, problem)
            self._events.append(event)
            watchers = tuple(self._watchers)
        for wake in watchers:
            wake()
        return event

    def since(self, number: int) -> Page:
        """Return the events after the event with this number; none if there is no such event yet."""
        with self._lock:
            forgotten = self._newest - len(self._events)
            begin = max(number, forgotten)
            return Page(
                events=tuple(event for event in self._events if event.number > begin),
                missed=begin - number if number < self._newest else 0,
                newest=self._newest,
            )

    def now_ns(self) -> int:
        """Return the current time."""
        return time.time_ns()

    @contextmanager
    def watched(self, wake: Callable[[], object]) -> Iterator[None]:
        """Call a function after each event, in the thread that adds the event. The function must not wait or raise."""
        with self._lock:
            self._watchers.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.remove(wake)
