"""Starts, stops, ends and kills the workers, and reads the account of each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from benchmarks.workplace import Workplace

from brickd.errors import SegmentRefused
from brickd.shm.segment import open_segment
from soaking.account import KINDS, ROWS, Account, Bounds
from soaking.plan import Plan

_ENDING_MAX = 8

State = Literal["lives", "ending", "killed", "ended"]


@dataclass(eq=False)
class Life:
    """One worker.

    Attributes:
        pidfd: becomes readable when the process of the worker has ended. It is -1 after the end was recorded.
        wants_to_end: whether the worker gets SIGTERM as soon as a daemon drains its segment. If it ended without a
            daemon, it would remove its own totals.
        done: the last values of its account, by kind.
    """

    plan: Plan
    pid: int
    pidfd: int
    segment: str
    account: Account
    state: State = "lives"
    stopped: bool = False
    wants_to_end: bool = False
    done: dict[str, Bounds] | None = None

    def read(self, kind: str) -> Bounds:
        """Return the work of the worker so far."""
        return self.account.read(kind) if self.done is None else self.done[kind]

    def is_consumed(self) -> bool:
        """Return whether a daemon drains the worker's segment."""
        try:
            with open_segment(self.segment) as segment:
                return segment.consumer() is not None
        except SegmentRefused:
            return False

    @property
    def cut_lanes(self) -> int:
        """Return the number of lanes in which a kill may have interrupted a write."""
        return min(self.plan.lanes, ROWS) if self.state == "killed" else 0


class Population:
    """All workers of a run.

    Attributes:
        born: the workers by segment, in the order of their reports.
        living: the workers whose process exists.
        counts: how often each action was done to workers.
        went: the number of workers that have ended since this number was last set to 0.
        problems: forbidden behaviour of workers.
        listening: whether a worker may exist that has not reported yet.
    """

    def __init__(self, place: Workplace) -> None:
        self.born: dict[str, Life] = {}
        self.living: list[Life] = []
        self.counts: Counter[str] = Counter()
        self.went = 0
        self.problems: list[str] = []
        self.listening = True
        self._folder = place.folder / "accounts"
        self._folder.mkdir()
        self._plans: dict[str, Plan] = {}
        self._rest = b""
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "soaking.worker", self._folder],
            env=place.environment,
            cwd=place.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._nursery.stdout is not None
        self.fd = self._nursery.stdout.fileno()

    @property
    def awaited(self) -> int:
        """Return how many started workers have not reported yet."""
        return len(self._plans)

    # ---- workers start

    def order(self, plan: Plan) -> None:
        """Start a worker."""
        self._plans[plan.number] = plan
        self._send(plan.json())

    def _send(self, line: str) -> None:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(line.encode() + b"\n")
        self._nursery.stdin.flush()

    def receive(self) -> list[Life]:
        """Return the workers that have just reported; call this when `fd` is readable."""
        received = os.read(self.fd, 1 << 16)
        self.listening = bool(received)
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [self._begin(*line.decode().split()) for line in lines]

    def _begin(self, number: str, pid: str, segment: str) -> Life:
        plan = self._plans.pop(number, None)
        if plan is None:  # a child of a worker has the plan of its parent
            plan = next(life.plan for life in self.born.values() if life.plan.number + "c" == number).child()
            self.counts["forks"] += 1
        self.counts["started"] += 1
        life = Life(plan, int(pid), os.pidfd_open(int(pid)), segment, Account(self._folder / number))
        self.born[segment] = life
        self.living.append(life)
        return life

    # ---- actions on workers

    def stop(self, life: Life) -> None:
        """Send SIGSTOP."""
        if life.state == "lives" and not life.wants_to_end:
            self._signal(life, signal.SIGSTOP)
            life.stopped = True
            self.counts["suspends"] += 1

    def go_on(self, life: Life) -> None:
        """Send SIGCONT."""
        if life.stopped and life.state == "lives":
            self._signal(life, signal.SIGCONT)
            life.stopped = False

    def hurry(self, life: Life) -> None:
        """Make the worker work without pauses. If it paused, a kill would rarely interrupt its work."""
        if life.state == "lives":
            self._signal(life, signal.SIGUSR1)

    def kill(self, life: Life) -> None:
        """Send SIGKILL."""
        if life.state == "lives":
            self._signal(life, signal.SIGKILL)
            life.state = "killed"
            self.counts["kills"] += 1

    def end_consumed(self) -> None:
        """Send SIGTERM to a few of the workers that are due to end. A daemon must be draining their segments."""
        ending = sum(life.state == "ending" for life in self.living)
        for life in self.living:
            if ending < _ENDING_MAX and life.wants_to_end and life.state == "lives" and life.is_consumed():
                ending += 1
                self.go_on(life)
                self._signal(life, signal.SIGTERM)
                life.state = "ending"

    def _signal(self, life: Life, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(life.pidfd, number)
        except ProcessLookupError:
            self.problems.append(f"worker {life.plan.number} has ended without an order or a kill")

    # ---- workers end

    def gone(self, life: Life) -> None:
        """Record that the process of a worker has ended, with the last values of its account."""
        os.close(life.pidfd)
        life.pidfd = -1
        self.living.remove(life)
        self.went += 1
        if life.state == "lives" or (life.state == "ending" and not life.account.ended):
            self.problems.append(f"worker {life.plan.number} ended by itself")
            life.state = "killed"
        elif life.state == "ending":
            life.state = "ended"
            self.counts["ends"] += 1
        life.done = {kind: life.account.read(kind) for kind in KINDS}
        life.account.close()
        (self._folder / life.plan.number).unlink()

    def close(self) -> None:
        """Start no more workers. Existing workers still report, until `listening` is false."""
        self._send("")

    def leave(self) -> None:
        """Kill the remaining workers."""
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._nursery.stdin.close()
        self._nursery.wait()
        self._nursery.stdout.close()
        for life in self.living:
            os.close(life.pidfd)

    def pids(self) -> set[int]:
        """Return the processes that must not exist at the end."""
        return {life.pid for life in self.living} | ({self._nursery.pid} if self._nursery.poll() is None else set())


def done(lives: Iterable[Life], kind: str) -> Bounds:
    """Return the sum of the work of some workers."""
    together = Bounds(0, 0)
    for life in lives:
        together = together.plus(life.read(kind))
    return together
