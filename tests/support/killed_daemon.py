"""Daemons without an API that read real segments and are killed at one of their effects on files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import SHM
from faults import Compile, fault_at

from brickd.base.paths import runtime
from brickd.shm.segment_files import prefix

_PROGRAM = Path(__file__).parent / "bare_daemon.py"


class DyingDaemon:
    """One daemon that is killed at an effect.

    Attributes:
        effects: the effects begun so far, such as ("pwrite", path).
        events: the events of the daemon, such as "break: …"; known after its end.
    """

    def __init__(self, process: subprocess.Popen[str], given: int) -> None:
        self.process = process
        self.effects: list[tuple[str, Path]] = []
        self.events: list[str] = []
        self._effects = os.fdopen(given)

    def reaches(self, effect: str, path: Path) -> bool:
        """Wait until the daemon begins this effect; return False if it ended before."""
        return any(each == (effect, path) for each in self._effects_seen())

    def _effects_seen(self) -> Iterator[tuple[str, Path]]:
        for line in self._effects:
            _, name, path = line.rstrip("\n").split(" ", 2)
            self.effects.append((name, Path(path)))
            yield self.effects[-1]

    def stop(self) -> bool:
        """Suspend the daemon immediately; return False if it has already ended."""
        self.process.send_signal(signal.SIGSTOP)
        if self.process.returncode is not None:
            return False
        found = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return found is not None and found.si_code == os.CLD_STOPPED

    def go(self) -> None:
        """Let the daemon continue."""
        self.process.send_signal(signal.SIGCONT)

    def over(self) -> None:
        """Wait until the daemon has died as planned."""
        for _ in self._effects_seen():
            pass
        reported, complaints = self.process.communicate()
        assert (self.process.returncode, complaints) == (-signal.SIGKILL, "")
        self.events = reported.splitlines()

    def close(self) -> None:
        """Kill the daemon if it still runs."""
        self.process.kill()
        self._effects.close()


@contextmanager
def dying_daemon(compiled: Compile, plan: str | None = None, of: str | None = None) -> Iterator[DyingDaemon]:
    """Start a daemon that dies at one of its effects: see `faults.fault_at`."""
    reported, effects_read = os.pipe()
    environment = fault_at(compiled, plan, (runtime().directory, SHM / prefix()), effects_read, of)
    with subprocess.Popen(
        [sys.executable, "-P", _PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        pass_fds=[effects_read],
    ) as process:
        os.close(effects_read)
        daemon = DyingDaemon(process, reported)
        try:
            yield daemon
        finally:
            daemon.close()
