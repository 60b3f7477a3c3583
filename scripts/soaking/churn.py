"""Draws a schedule from the seed and executes it, while processes report over pipes.

In the first half of the time, daemons are killed. In the second half, one daemon runs all the time, so that its growth
can be measured. A worker is asked to end only while a daemon consumes its segment, and no daemon is killed while a
worker ends. A worker that ends without a daemon removes its own segment, and then its totals cannot be compared.
"""

from __future__ import annotations

import heapq
import random
import select
import time
from collections.abc import Callable
from dataclasses import dataclass

from brickd.shm.segment_files import find
from soaking.daemon import Daemon
from soaking.plan import DETAILED, fate, plan
from soaking.population import Life, Population
from soaking.samples import Samples

SAMPLE_S = 3.0
_GONE_MAX = 32  # workers that may end between two samples: brickd lists at most 64 dead workers one by one
SECOND_HALF = 0.5  # no daemon is killed after this share of the time
_BIRTHS_MAX = 8  # the most workers that are started at once
_DEAD_MAX = 32  # the most dead segments without a daemon: with more, a new worker might remove some to get room
_LATEST_S = 0.1  # the longest time between two checks for workers that may end
_PATIENCE_S = 120.0
_REST_S = 0.2
_HURRY_S = 0.02
_TURN_S = 1.0  # workers get at least this time to end before the next daemon is killed, even if a kill is due earlier


@dataclass(frozen=True)
class Wanted:
    """The options of a run."""

    seed: int
    seconds: float
    workers: int
    daemon_kills_per_min: float


class Churn:
    """Executes the schedule."""

    def __init__(self, wanted: Wanted, population: Population, daemon: Daemon, samples: Samples) -> None:
        self._wanted, self._population, self._daemon, self._samples = wanted, population, daemon, samples
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._numbers = 0
        self._kill_due = False
        self._killed_unready = False
        self._turn_until_s = 0.0
        self._detailed = False
        self._look_at_s = 0.0
        self.began_s = time.monotonic()

    # ---- the schedule

    def _at(self, when_s: float, what: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._due, (when_s, self._scheduled, what))

    def _plan_daemon_kills(self) -> None:
        draw = random.Random(f"daemon {self._wanted.seed}")
        span_s = self._wanted.seconds * SECOND_HALF
        kills = self._wanted.daemon_kills_per_min * span_s / 60
        for _ in range(max(round(kills), 1) if kills else 0):
            self._at(self.began_s + draw.uniform(0.1, 1.0) * span_s, self._want_daemon_killed)

    def _plan_life(self, life: Life) -> None:
        now_s, of = time.monotonic(), fate(self._wanted.seed, life.plan.number)
        if of.stopped_after_s is not None:
            self._at(now_s + of.stopped_after_s, lambda: self._population.stop(life))
            self._at(now_s + of.stopped_after_s + of.stopped_s, lambda: self._population.go_on(life))
        self._at(now_s + of.lives_s, (lambda: self._kill(life)) if of.killed else (lambda: self._end(life)))

    # ---- actions

    def _kill(self, life: Life) -> None:
        if not self._daemon.ready and self._has_many_dead():
            self._at(time.monotonic() + _REST_S, lambda: self._kill(life))
            return
        self._population.hurry(life)
        self._at(time.monotonic() + _HURRY_S, lambda: self._population.kill(life))

    def _has_many_dead(self) -> bool:
        return len(find()) - len(self._population.living) >= _DEAD_MAX

    def _end(self, life: Life) -> None:
        self._population.go_on(life)
        life.wants_to_end = True

    def _want_daemon_killed(self) -> None:
        self._kill_due = True

    def _look(self) -> None:
        """Take a sample at intervals, early enough that brickd still lists each ended worker."""
        if self._samples.now_s >= self._look_at_s or self._population.went >= _GONE_MAX:
            self._population.went = 0
            self._samples.take(self._population, self._daemon)
            self._look_at_s = self._samples.now_s + SAMPLE_S

    def _replace_daemon(self) -> None:
        """Kill the daemon at a random time, and start another one immediately.

        A daemon may be killed before it answers, but then the next daemon may not. Otherwise, on a slow machine, no
        daemon would ever answer.
        """
        if (self._daemon.ready or not self._killed_unready) and not self._has_many_dead():
            self._kill_due = False
            self._killed_unready = not self._daemon.ready
            self._daemon.kill()
            self._samples.take(self._population, self._daemon)
            self._daemon.start()

    def _ask_for_details(self) -> None:
        """Turn span detail on for the service as soon as brickd knows the service. The setting survives each daemon."""
        living = self._population.living
        if self._daemon.ready and any(life.plan.service == DETAILED and life.is_consumed() for life in living):
            self._detailed = self._daemon.ask("set", DETAILED, "--spans", "on")["spans"] == "on"

    # ---- the main loop

    def run(self, progress: Callable[[str], None]) -> None:
        """Run until the last worker has ended and brickd has read everything."""
        self._daemon.start()
        while not self._daemon.ready:
            self._pass(_LATEST_S)
        self._samples.first = self._daemon.weighed()
        self.began_s = time.monotonic()
        self._plan_daemon_kills()
        until_s, reported_s = self.began_s + self._wanted.seconds, 0.0
        while (now_s := time.monotonic()) < until_s:
            if now_s - reported_s >= SAMPLE_S:
                reported_s = now_s
                progress(self._progress(until_s - now_s))
            self._replenish()
            if not self._detailed:
                self._ask_for_details()
            self._do_due()
            self._look()
            if self._kill_due and now_s >= self._turn_until_s:
                if not any(life.state == "ending" for life in self._population.living):
                    self._replace_daemon()
            elif self._daemon.ready:
                self._population.end_consumed()
            self._pass(min(self._due[0][0] - time.monotonic(), _LATEST_S) if self._due else _LATEST_S)
        self._finish(progress)

    def _replenish(self) -> None:
        population = self._population
        missing = self._wanted.workers - len(population.living) - population.awaited
        for _ in range(min(missing, _BIRTHS_MAX - population.awaited)):
            population.order(plan(self._wanted.seed, self._numbers))
            self._numbers += 1

    def _do_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def _pass(self, seconds: float) -> None:
        """Wait until a report arrives."""
        population, daemon = self._population, self._daemon
        poll = select.poll()
        by_fd = {life.pidfd: life for life in population.living}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        if population.listening:
            poll.register(population.fd, select.POLLIN)
        poll.register(daemon.fd, select.POLLIN)
        for fd, _ in poll.poll(max(seconds, 0.0) * 1000):
            if fd in by_fd:
                population.gone(by_fd[fd])
            elif fd == population.fd:
                for life in population.receive():
                    self._plan_life(life)
            else:
                daemon.receive()
                self._turn_until_s = time.monotonic() + _TURN_S

    def _finish(self, progress: Callable[[str], None]) -> None:
        """End all workers while a daemon runs, and wait until the daemon has nothing left to do."""
        progress("all workers end")
        population, daemon = self._population, self._daemon
        population.close()
        self._samples.ends_at_s = self._samples.now_s
        deadline_s = time.monotonic() + _PATIENCE_S
        while population.listening or population.living or not daemon.ready:
            if time.monotonic() > deadline_s:
                population.problems.append(f"{len(population.living)} workers have not ended within {_PATIENCE_S:g} s")
                return
            for life in population.living:
                if not life.wants_to_end:
                    self._end(life)
            if daemon.ready:
                population.end_consumed()
            self._look()
            self._pass(_LATEST_S)
        if population.awaited:
            population.problems.append(f"{population.awaited} workers were ordered and never reported that they record")
        progress("the daemon reads what is left")
        deadline_s = time.monotonic() + _PATIENCE_S
        while not self._samples.take(population, daemon).settled and time.monotonic() < deadline_s:
            self._pass(_REST_S)

    def _progress(self, left_s: float) -> str:
        counts = self._population.counts
        return (
            f"{left_s:.0f} s left; {len(self._population.living)} workers of {counts['started']:,}, {counts['kills']:,}"
            f" killed, {self._daemon.kills} daemons killed, {len(self._samples.problems)} problems"
        )
