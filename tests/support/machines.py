"""A daemon's loop and windows in the test's process, with a clock set by the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from brickd.base.units import SECOND
from brickd.daemon.collector import Collector
from brickd.model.brick_totals import bricks
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot
from brickd.model.windows import Windows
from brickd.model.worker_survey import survey
from brickd.model.workers import Survey
from brickd.state.daemon_state import Memory


class Machine:
    """A daemon's loop, its windows, and a clock that the test moves."""

    def __init__(
        self,
        prefix: str,
        memory: Memory | None = None,
        keep: Callable[[bytes], None] | None = None,
        log_event: LogEvent = lambda *_, **__: None,
    ) -> None:
        self.kept = b""
        self.loop = Collector(memory or Memory(prefix), keep or self._keep, log_event, clock=int)
        self.windows, self.now_ns = Windows(), time.monotonic_ns()
        self.tick()

    def _keep(self, content: bytes) -> None:
        self.kept = content

    def tick(self) -> None:
        """Find new workers, remove the segments of ended workers, and merge the oldest dead workers beyond the
        limit."""
        for _ in range(3):
            self.now_ns += SECOND
            self.loop.tick(self.now_ns, look=True)

    def survey(self) -> Survey:
        with self.loop.roster.lock:
            background, held = self.loop.roster.background(self.now_ns), self.loop.roster.held()
        return survey(self.loop.memory.prefix, background, held)

    def look(self) -> None:
        self.windows.take(Snapshot.of(self.survey(), self.now_ns, self.now_ns))

    def forget(self) -> None:
        with self.loop.roster.lock:
            self.loop.roster.forget(list(self.loop.memory.gone))
            self.loop.memory.older.clear()

    def window(self, found: Survey | None = None) -> dict[str, int]:
        """Return the number of spans in the window, keyed by brick."""
        window = self.windows.over((found or self.survey()).workers, self.now_ns + 1, 60 * SECOND)
        assert window is not None
        return {each.name: each.row["count"] for each in bricks(window.workers) if each.row["count"]}

    def totals(self) -> dict[str, int]:
        return {each.name: each.row["count"] for each in bricks(self.survey().workers)}


@contextmanager
def machine(
    prefix: str,
    memory: Memory | None = None,
    keep: Callable[[bytes], None] | None = None,
    log_event: LogEvent = lambda *_, **__: None,
) -> Iterator[Machine]:
    made = Machine(prefix, memory, keep, log_event)
    try:
        yield made
    finally:
        made.loop.end(made.now_ns)
