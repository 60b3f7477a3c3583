"""The daemon's thread: its ticks, the rest between ticks, and early wake-ups.

Owns: the thread, the watch on the directory of segments, the handling of defects. Must not know: the order of a tick's
steps, which callers wake the thread. Invariants: An exception in a tick is logged and does not end the thread. A clean
end saves everything that was read.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import threading
import time
import traceback
from collections import deque

from brickd.base import escape
from brickd.base.units import SECOND
from brickd.daemon.collector import LOOK_NS, Collector
from brickd.model.event_log import LogEvent
from brickd.shm import _reader

# The longest time that a thread waits for the Python interpreter. It is short, so that ticks are on time.
_SWITCH_SECONDS = 0.001
_AFTER_A_DEFECT_SECONDS = 1.0  # the wait after a defect, which may be permanent
_TICK_SECONDS = 5.0  # how long a caller waits for a tick; only a loop that hangs takes longer
# Files are added and removed in bursts, and most may belong to other programs. So all changes within this time are
# handled together.
_CROWD_SECONDS = 0.02
_INOTIFY, _OVERFLOWN = struct.Struct("iIII"), 0x4000


class Loop:
    """The thread that calls a collector's ticks; the last tick ended at `came_round_ns` (monotonic)."""

    def __init__(self, collector: Collector, log_event: LogEvent) -> None:
        self.came_round_ns = time.monotonic_ns()
        self._collector, self._log_event = collector, log_event
        self._beginning = os.fsencode(collector.memory.prefix)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ending = collector.ending
        self._awaited: deque[threading.Event] = deque()  # the next tick sets these events
        self._asked = False  # whether `wake` caused the next tick
        self._thread = threading.Thread(target=self._run, name="brickd-loop")

    def start(self) -> None:
        """Start the thread."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._thread.start()

    def wake(self) -> None:
        """Start a tick now. Any thread may call this."""
        os.eventfd_write(self._wake, 1)

    def tick(self) -> None:
        """Wait, up to a limit, for the end of a tick that begins after this call. Any other thread may call this."""
        ticked = threading.Event()
        self._awaited.append(ticked)
        self.wake()
        ticked.wait(_TICK_SECONDS)

    def end(self) -> None:
        """End the thread, and wait for it."""
        self._ending.set()
        self.wake()
        self._thread.join()

    def log_defect(self) -> None:
        """Log the current exception. The caller must be within an `except`."""
        lines = traceback.format_exc().splitlines()
        self._log_event("defect", f"this is a defect of brickd, please report it: {lines[-1]}")
        with contextlib.suppress(OSError):  # the disk of the log is full, or the log is a pipe without a reader
            for line in lines:
                print(escape.text(line), file=sys.stderr, flush=True)

    # ---- the thread

    def _run(self) -> None:
        watch = self._watch()
        fds = (-1 if watch is None else watch, self._wake)
        look = True
        while not self._ending.is_set():
            try:
                look = self._round(fds, look=look)
            except Exception:  # the loop continues, because the next round may succeed
                self.log_defect()
                look = False  # the regular listing finds the files that were missed
                self._ending.wait(_AFTER_A_DEFECT_SECONDS)
        try:
            self._collector.end(time.monotonic_ns())
        except Exception:
            self.log_defect()
        if watch is not None:
            os.close(watch)

    def _round(self, fds: tuple[int, int], *, look: bool) -> bool:
        """Tick, and rest until the next tick is due; return whether the next tick must look for segments."""
        awaited = [self._awaited.popleft() for _ in range(len(self._awaited))]
        rest = self._collector.tick(time.monotonic_ns(), look=look, asked=self._asked or bool(awaited))
        self.came_round_ns = time.monotonic_ns()
        for ticked in awaited:
            ticked.set()
        drains, every_ms = self._collector.passes.drains, rest.every_ns // 1_000_000
        look, woken = _reader.rest(drains, fds, every_ms, rest.looks, rest.enough)
        self._asked = woken
        if woken:
            os.eventfd_read(self._wake)
        return look and self._came_or_went(fds[0])

    def _came_or_went(self, watch: int) -> bool:
        """Whether files that may be segments were added or removed. Other programs also use the directory."""
        time.sleep(_CROWD_SECONDS)
        events, at = os.read(watch, 65_536), 0
        while at < len(events):
            _, mask, _, length = _INOTIFY.unpack_from(events, at)
            if mask & _OVERFLOWN or events.startswith(self._beginning, at + _INOTIFY.size):
                return True
            at += _INOTIFY.size + length
        return False

    def _watch(self) -> int | None:
        """Watch the directory of segments; None if the system allows no more watches."""
        try:
            return _reader.watch(_reader.DIRECTORY)
        except OSError as error:
            each = LOOK_NS // SECOND
            text = f"{_reader.DIRECTORY}: cannot be watched: {error.strerror}: the daemon lists it every {each} s"
            self._log_event("blind", text, command="brickd doctor")
            return None
