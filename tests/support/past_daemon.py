"""A daemon in the process of the test, which takes its snapshots at chosen times in the past."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from brickd.base.paths import runtime
from brickd.base.units import SECOND
from brickd.daemon.daemon import Daemon
from brickd.model.survey_snapshot import Snapshot
from brickd.query.queries import StatusQuery
from brickd.state.runtime_dir import Home
from brickd.views import status
from brickd.views.common import Answer


class Past:
    """A daemon that took its snapshots at chosen times in the past."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.now_ns, self.began_ns = time.monotonic_ns(), time.time_ns() - 1000 * SECOND

    def look(self, at_s: float) -> None:
        """Take a snapshot at this time, as the daemon's sampler would."""
        now_ns, at_ns = self.now_ns + round(at_s * SECOND), self.began_ns + round(at_s * SECOND)
        self.daemon._collector.look(now_ns)
        self.daemon._collector.tick(now_ns)
        for taker in self.daemon._sampler._takers:
            taker.take(Snapshot.of(self.daemon.survey(), now_ns, at_ns))

    def at(self, at_s: float, **query: Any) -> Answer:
        return status.answer(self.daemon, StatusQuery(at=self.began_ns / SECOND + at_s, **query))

    def kinds(self, at_s: float) -> list[str] | None:
        problems = self.at(at_s).document["problems"]
        return None if problems is None else [each["kind"] for each in problems]

    def states(self, at_s: float) -> list[tuple[str, str]] | None:
        workers = self.at(at_s).document["workers"]
        return None if workers is None else [(each["name"], each["state"]) for each in workers]


@contextmanager
def past_daemon() -> Iterator[Past]:
    """Yield a daemon that has taken no snapshot yet."""
    with Home(runtime()) as home:
        daemon = Daemon(home)
        yield Past(daemon)
        if daemon._day is not None:
            daemon._day.end()
        os.close(daemon._loop._wake)
