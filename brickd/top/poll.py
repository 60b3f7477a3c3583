"""The thread that asks for the documents of the screen.

Owns: when something is asked. Must not know: textual, what a screen needs, how a document is drawn. Invariants: One
request at a time; a slow answer delays the next one and never queues it. A new choice interrupts the reading of a
recording. No error ends the thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from brickd.top.asker import Asker
from brickd.top.frame import Frame
from brickd.top.source import DocumentSource, InterruptionError
from brickd.top.state import State


def due_after(due: float, interval: float, began: float, spacing: float, now: float) -> float:
    """Return when the next answer is due, after one that was due at `due` and began at `began`.

    >>> due_after(10.0, 1.0, 10.1, 0.4, 10.2), due_after(10.0, 1.0, 10.1, 4.0, 10.2)
    (11.0, 14.1)
    >>> due_after(10.0, 1.0, 3610.0, 0.4, 3610.5)  # the program was suspended for an hour
    3610.5
    """
    return max(due + interval, began + spacing, now)


class Poller:
    """A thread that makes a frame at each interval, and at once if the operator chose something else."""

    def __init__(self, source: DocumentSource, state: State) -> None:
        """Prepare the thread, which keeps the newest frame until `send_to` says where frames go."""
        self._asker = Asker(source)
        self._post: Callable[[Frame], object] | None = None
        self._newest: Frame | None = None
        self._state, self._trends = state, tuple[str, ...]()
        self._changed, self._ends = threading.Condition(), False
        self._began: float | None = None  # when the thread began to ask; None while it rests
        self._wanted = True  # whether the choices need an answer before the next tick
        self._lacks = False  # whether the screen lacks histories
        source.stops = lambda: self._wanted or self._ends
        self._thread = threading.Thread(target=self._run, name="brickd-top", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def first(self, seconds: float) -> Frame | None:
        """Wait for the first frame for some seconds, and return the newest one, if it was not sent yet."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None, seconds)
            return self._newest

    def send_to(self, post: Callable[[Frame], object]) -> None:
        """Call `post` with each frame, and with the newest one if there is one. It must not block."""
        with self._changed:
            self._post, frame, self._newest = post, self._newest, None
        if frame is not None:
            post(frame)

    def want(self, state: State, trends: Sequence[str]) -> None:
        """Take the operator's choices. If they need other answers, ask at once."""
        with self._changed:
            other = not state.asks_like(self._state) or (self._state.paused and not state.paused)
            self._lacks = self._lacks or self._trends != tuple(trends)
            self._wanted = self._wanted or other
            self._state, self._trends = state, tuple(trends)
            if self._wanted or self._lacks:
                self._changed.notify()

    def waits(self) -> float:
        """Return for how many seconds the thread has been waiting for answers."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def end(self) -> None:
        """End the thread after its current request, without waiting: a request may take some seconds."""
        with self._changed:
            self._ends = True
            self._changed.notify()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            with self._changed:
                while not (self._ends or self._wanted or self._lacks) and (rest := self._rest(due)) > 0:
                    self._changed.wait(rest)
                if self._ends:
                    return
                wanted, self._wanted, self._lacks = self._wanted, False, False
                state, trends = self._state, self._trends
                began = self._began = time.monotonic()
            tick = not state.paused and time.monotonic() >= due
            with contextlib.suppress(InterruptionError):  # the next turn asks for what is wanted instead
                if wanted or tick:
                    frame = self._asker.frame(state, trends, tick=tick)
                    self._send(frame)
                    if tick:
                        due = due_after(due, state.interval, began, frame.spacing, time.monotonic())
                with self._changed:
                    trends = self._trends  # those of the frame that was sent, if it was drawn already
                if not self._wanted:
                    self._began = None if self._asker.is_recorded else self._began  # no key waits for a recording
                    self._send(self._asker.more(state, trends))
            self._began = None

    def _rest(self, due: float) -> float:
        """Return how many seconds the thread waits if the operator does nothing."""
        if self._state.paused or self._asker.is_complete(self._trends):
            return threading.TIMEOUT_MAX
        return due - time.monotonic()

    def _send(self, frame: Frame | None) -> None:
        with self._changed:
            if frame is None or self._ends:
                return
            if (post := self._post) is None:
                self._newest = frame
                self._changed.notify()
                return
        post(frame)
