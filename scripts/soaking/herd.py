"""Starts, kills and ends the workers of the storm, and reads their counts.

Owns: the workers' processes and the folder of their accounts. Must not know: daemons, brickd's numbers. Invariant: a
signal goes to the process that reported its pid, never to a later process with the same pid.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection

from benchmarks.workplace import Workplace

from soaking.account import Account
from soaking.storm_balance import Counted
from soaking.storm_worker import BRICKS


class Herd:
    """All workers of the storm.

    Attributes:
        living: the pidfd of each live worker that has reported, by pid.
        ordered: how many workers were started here. A fork or exec of a worker does not count.
        came: how many of the ordered workers have reported.
        spawned: the number of forks and execs that have reported.
    """

    def __init__(self, place: Workplace) -> None:
        self.living: dict[int, int] = {}
        self.ordered = self.came = self.spawned = 0
        self._prefix = place.environment["BRICKD_SHM_PREFIX"]
        self._folder = place.folder / "accounts"
        self._folder.mkdir()
        self._rest = b""
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "soaking.storm_worker", self._folder],
            env=place.environment,
            cwd=place.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def order(self, service: str, seed: int) -> None:
        """Start a worker."""
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(f"{service} {seed}\n".encode())
        self._nursery.stdin.flush()
        self.ordered += 1

    def signal(self, pids: Collection[int], number: signal.Signals) -> None:
        """Send a signal to some live workers."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.living[pid], number)

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Record new and ended workers for `seconds`, or until `until` returns true; return its result."""
        assert self._nursery.stdout is not None
        output_fd, deadline_s = self._nursery.stdout.fileno(), time.monotonic() + seconds
        while not until():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            poll, whose = select.poll(), {pidfd: pid for pid, pidfd in self.living.items()}
            for fd in (output_fd, *whose):
                poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll(min(left_s, 0.1) * 1000):
                if fd == output_fd:
                    self._receive(os.read(output_fd, 1 << 16))
                else:
                    os.close(self.living.pop(whose[fd]))
        return True

    def _receive(self, received: bytes) -> None:
        if not received:
            raise RuntimeError("the process that forks the workers has ended: see what it wrote")
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            number, how = line.split()
            self.came += how == b"ordered"
            self.spawned += how == b"spawned"
            pid = int(number)
            if pid not in self.living:  # a known pid means that the worker has become another program by exec
                with contextlib.suppress(ProcessLookupError):
                    self.living[pid] = os.pidfd_open(pid)

    def counted(self) -> dict[str, Counted]:
        """Return the counts of each worker so far, by the uuid of its segment."""
        found = {}
        for path in self._folder.iterdir():
            service, pid, segment = path.name.split(",")
            account = Account(path, BRICKS)
            bricks = {brick: account.read(brick) for brick in BRICKS}
            account.close()
            found[segment.removeprefix(self._prefix)] = Counted(service, int(pid), bricks)
        return found

    def leave(self) -> None:
        """Kill the remaining workers."""
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._nursery.stdin.close()
        self._nursery.wait()
        self._nursery.stdout.close()
        for pidfd in self.living.values():
            select.select([pidfd], [], [], 10.0)
            os.close(pidfd)
        self.living.clear()
