"""A storm: many workers die at the same time, while the daemon is stopped, killed or absent.

Owns: the schedule, drawn from the seed, and when brickd is queried. Must not know: what a worker does, the checks.
Invariants: the time and the number of workers are limited; no process or file is left, even after a failure.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.workplace import Workplace

from brickd.shm.segment_files import find
from soaking.daemon import Daemon
from soaking.herd import Herd
from soaking.judgement import Check, equal
from soaking.report import as_json, as_text
from soaking.storm_balance import Seen, failures, judge, sum_of

WORKERS_MAX = 10_000  # the most workers in a run of three minutes on two cores, without forks and execs
MANY = 64  # the fewest dead segments at once: before format 1.7, a new worker removed the oldest dead segments above 64
_SERVICES = 24
_PATIENCE_S = 120.0
_PROBLEMS_MAX = 20
_BUSY = "while True: pass"


@dataclass(frozen=True)
class Wanted:
    """The options of a run.

    Attributes:
        workers: the number of workers that are live at the same time.
        busy: the number of processes that only use processor time.
    """

    seed: int
    seconds: float
    workers: int
    busy: int


@dataclass
class Report:
    """The result of a run.

    Attributes:
        counts: how often each action was done.
        dead_most: the largest number of dead workers' segments at one time.
        totals: the numbers that workers counted and that brickd showed in the last comparison.
    """

    wanted: Wanted
    counts: Counter[str] = field(default_factory=Counter)
    dead_most: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def figures(self) -> dict[str, Any]:
        """Return the figures that are single numbers."""
        wanted = self.wanted
        asked = {"seed": wanted.seed, "seconds": wanted.seconds, "workers": wanted.workers, "busy": wanted.busy}
        return asked | dict(sorted(self.counts.items())) | {"dead_at_once": self.dead_most} | self.totals

    def json(self) -> str:
        return as_json(self.figures(), self.checks)

    def text(self) -> str:
        rows = [(name.replace("_", " "), str(n) if name == "seed" else f"{n:,}") for name, n in self.figures().items()]
        return as_text(rows, self.checks)


@contextmanager
def _busy(number: int) -> Iterator[None]:
    """Run processes that use processor time."""
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.wait()


class _Storm:
    def __init__(self, place: Workplace, wanted: Wanted, herd: Herd, daemon: Daemon) -> None:
        self._place, self._wanted, self._herd, self._daemon = place, wanted, herd, daemon
        self._draw = random.Random(f"storm {wanted.seed}")
        self._shown: dict[str, int] = {}
        self._problems: list[str] = []
        self.report = Report(wanted)

    # ---- the schedule

    def run(self, progress: Callable[[str], None]) -> Report:
        """Run the storm."""
        until_s = time.monotonic() + self._wanted.seconds
        self._start_daemon()
        turns = 0
        while (left_s := until_s - time.monotonic()) > 0 and self._herd.ordered < WORKERS_MAX:
            progress(f"{left_s:.0f} s left, {self._herd.ordered:,} workers so far")
            (self._calm, self._stopped, self._killed, self._absent)[turns % 4]()
            turns += 1
            self._look()
        return self._settle(progress)

    def _calm(self) -> None:
        """While the daemon runs, let some workers die and some end."""
        self._bear()
        self._work()
        self._strike(self._draw.uniform(0.3, 0.8))
        self._ask_to_end(self._draw.uniform(0.2, 0.8))

    def _stopped(self) -> None:
        """Stop the daemon while many workers die; then let the daemon continue, or kill it."""
        self._daemon.pause()
        self._count("daemon_stops")
        self._crowds()
        if self._draw.random() < 0.5:
            self._daemon.resume()
            self._ask_to_end(0.5)
        else:
            self._kill_daemon()
            self._start_daemon()

    def _killed(self) -> None:
        """Kill the daemon while workers record; start another daemon while workers die."""
        self._bear()
        self._kill_daemon()
        self._crowds()
        self._start_daemon()

    def _absent(self) -> None:
        """End the daemon; then many workers die, others end by themselves, and brickd is queried without a daemon."""
        self._bear()
        self._count("daemon_ends")
        if status := self._daemon.end():
            self._problems.append(f"the daemon ended with {status}")
        self._ask_to_end(0.5)
        self._crowds()
        self._look()
        self._start_daemon()

    def _crowds(self) -> None:
        """Kill all workers and start others, twice. Then more than MANY segments belong to dead workers."""
        for _ in range(2):
            self._bear()
            self._work()
            self._strike(1.0)
            dead = len(find()) - len(self._herd.living)
            self.report.dead_most = max(self.report.dead_most, dead)

    # ---- workers

    def _bear(self) -> None:
        """Start the missing workers, and wait for them."""
        for _ in range(max(0, self._wanted.workers - len(self._herd.living))):
            self._herd.order(f"service{self._draw.randrange(_SERVICES)}", self._draw.randrange(1 << 30))
        if not self._herd.wait(_PATIENCE_S, lambda: self._herd.came == self._herd.ordered):
            self._problems.append(f"{self._herd.ordered - self._herd.came} workers have not reported")

    def _work(self) -> None:
        self._herd.wait(self._draw.uniform(0.1, 0.6))

    def _strike(self, share: float) -> None:
        """Send SIGKILL, and wait until the workers have ended: then their locks are free."""
        struck = self._some(share)
        self._herd.signal(struck, signal.SIGKILL)
        self._count("worker_kills", len(struck))
        if not self._herd.wait(_PATIENCE_S, lambda: self._herd.living.keys().isdisjoint(struck)):
            self._problems.append("killed workers are not gone")

    def _ask_to_end(self, share: float) -> None:
        """Send SIGTERM and do not wait for the end. So some workers are killed while they end."""
        asked = self._some(share)
        self._herd.signal(asked, signal.SIGTERM)
        self._count("worker_ends", len(asked))
        self._herd.wait(self._draw.uniform(0.0, 0.3))

    def _some(self, share: float) -> Sequence[int]:
        """Return the pids of a random share of the live workers."""
        living = list(self._herd.living)
        return self._draw.sample(living, min(len(living), round(share * len(living))))

    # ---- the daemon

    def _start_daemon(self) -> None:
        self._daemon.start()
        while not self._daemon.ready:
            self._daemon.receive()

    def _kill_daemon(self) -> None:
        self._daemon.kill()
        self._count("daemon_kills")

    # ---- brickd's numbers

    def _look(self) -> list[Check]:
        """Compare brickd's numbers with the workers' counts."""
        before = self._herd.counted()
        seen = Seen.of(self._daemon.ask("workers"), self._daemon.ask("bricks", "--over", "start"))
        after = self._herd.counted()
        counted = {uuid: each.since(before.get(uuid)) for uuid, each in after.items()}
        checks = judge(counted, seen, self._shown)
        for uuid in {*seen.workers, *seen.removed}:
            self._shown[uuid] = max(self._shown.get(uuid, 0), seen.spans_of(uuid))
        self._problems += failures(checks)
        self._count("looks")
        self.report.totals = {
            "workers_counted": len(after),
            "workers_spawned": self._herd.spawned,
            "spans_counted_low": sum_of(each.spans for each in counted.values()).low,
            "spans_counted_high": sum_of(each.spans for each in counted.values()).high,
            "spans_shown": sum(seen.workers.values()) + sum(seen.sums.values()),
            "spans_removed": sum(seen.removed.values()),
        }
        return checks

    def _settle(self, progress: Callable[[str], None]) -> Report:
        """End all workers, and let the daemon read the rest; then query brickd with and without the daemon."""
        progress("all workers end")
        self._ask_to_end(0.5)
        while self._herd.living:
            self._strike(1.0)
            self._herd.wait(0.5)  # wait until the last forked workers have reported
        problems = list(dict.fromkeys(self._problems))
        self._herd.wait(_PATIENCE_S, lambda: not find())
        self.report.checks += [Check("problems in the run", each, "none", False) for each in problems[:_PROBLEMS_MAX]]
        self.report.checks += [
            equal("problems in the run", len(problems), 0),
            equal("segments left", len(find()), 0),
            *_called("with the daemon", self._look()),
            equal("exit status of the last daemon", self._daemon.end(), 0),
            *_called("without a daemon", self._look()),
        ]
        if self._wanted.workers > MANY // 2 and self.report.counts["daemon_kills"]:
            enough = self.report.dead_most > MANY
            self.report.checks.append(Check("dead at once", f"{self.report.dead_most:,}", f"more than {MANY}", enough))
        return self.report

    def _count(self, what: str, n: int = 1) -> None:
        self.report.counts[what] += n


def _called(how: str, checks: Sequence[Check]) -> list[Check]:
    return [Check(f"{each.name}, {how}", each.seen, each.wanted, each.passed, each.unexplained) for each in checks]


def run(place: Workplace, wanted: Wanted, progress: Callable[[str], None]) -> Report:
    with place.seen_here(), _busy(wanted.busy):
        herd, daemon = Herd(place), Daemon(place)
        try:
            return _Storm(place, wanted, herd, daemon).run(progress)
        finally:
            herd.leave()
            daemon.leave()
