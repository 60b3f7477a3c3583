"""The daemon of a run. It is a real `brickd up`, which this module kills, restarts, queries and measures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import psutil
from benchmarks.workplace import SHM, Workplace

from brickd.shm.segment_files import find


@dataclass(frozen=True)
class Weight:
    """The memory and the number of files of a daemon, and the memory of the segments."""

    rss_bytes: int
    fds: int
    shm_files: int
    shm_bytes: int


class Daemon:
    """The current daemon, running or not.

    Attributes:
        ready: whether the daemon runs and has reported that it answers.
        life: the number of the daemon.
        kills: how often a daemon was killed.
    """

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self._log = (place.folder / "daemon.log").open("ab")
        self.ready = False
        self.life = 0
        self.kills = 0

    def start(self) -> None:
        """Start the daemon; `receive` reports when it answers."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "brickd", "up"],
            env=self._place.environment,
            cwd=self._place.folder,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.life += 1

    @property
    def fd(self) -> int:
        """Return a descriptor. It becomes readable when the daemon reports that it answers, and when the daemon has
        ended.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def receive(self) -> None:
        """Read the daemon's report that it answers.

        Raises:
            RuntimeError: the daemon ended by itself.
        """
        if b"the daemon runs" not in os.read(self.fd, 1 << 12):
            raise RuntimeError(f"brickd up {'ended by itself' if self.ready else 'did not start'}:\n{self.log()}")
        self.ready = True

    def kill(self) -> None:
        """Send SIGKILL, and wait until the kernel has dropped its locks."""
        assert self._process is not None
        self._process.kill()
        self._over()
        self.kills += 1

    def pause(self) -> None:
        """Send SIGSTOP, and wait until it has stopped."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Send SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _over(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        status = self._process.wait()
        self._process.stdout.close()
        self._process, self.ready = None, False
        return status

    def end(self) -> int:
        """End the daemon as an operator would; return its exit status."""
        self.ask("down")
        return self._over()

    def leave(self) -> None:
        """Kill the daemon if it runs."""
        if self._process is not None:
            self._process.kill()
            self._over()
        self._log.close()

    def ask(self, verb: str, *arguments: str) -> Any:
        """Return the answer of a verb, with a daemon or without."""
        return json.loads(self._place.python("-m", "brickd", verb, *arguments, "--json").stdout)

    def log(self) -> str:
        """Return the log of all daemons."""
        return (self._place.folder / "daemon.log").read_text(errors="replace")

    def weighed(self) -> Weight | None:
        """Return the daemon's memory and files; None if it does not run."""
        if self._process is None:
            return None
        process = psutil.Process(self._process.pid)
        sizes = []
        for file in map(SHM.joinpath, find(self._place.environment["BRICKD_SHM_PREFIX"])):
            try:
                sizes.append(file.stat().st_blocks * 512)
            except FileNotFoundError:
                continue
        return Weight(process.memory_info().rss, process.num_fds(), len(sizes), sum(sizes))
