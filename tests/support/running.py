"""Starts a real `brickd up` for a test, queries it over its socket, and ends or kills it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from faults import until_stopped
from forked_processes import Process, forking_parent
from serving import ask, following

from brickd.base.paths import runtime

_REST_SECONDS = 0.02
T = TypeVar("T")


def until(so: Callable[[], T]) -> T:
    """Call a function until its result is true; return the result; other processes work between the calls."""
    while not (found := so()):
        time.sleep(_REST_SECONDS)
    return found


class Running:
    """A running daemon; `said` is the first line that it printed."""

    def __init__(self, process: Process, said: str = "") -> None:
        self.process, self.said = process, said

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, target: str, body: bytes | None = None) -> Any:
        """Return the document in the daemon's answer."""
        answer = ask(runtime().socket, f"/v1{target}", body)
        assert answer.status == 200, answer.body
        return answer.document

    def once(self, target: str, so: Callable[[Any], bool]) -> Any:
        """Query the daemon until its answer satisfies `so`, and return this answer. Between the queries, the daemon
        continues to work.
        """
        (document,) = until(lambda: [found for found in [self.ask(target)] if so(found)])
        return document

    def until(self, kind: str, since: int = 0) -> dict[str, Any]:
        """Wait for an event of this kind, and return it."""
        with following(runtime().socket, f"/v1/events/stream?since={since}") as reported:
            for name, what in reported:
                if name == "event" and what["kind"] == kind:
                    event: dict[str, Any] = what
                    return event
        raise AssertionError(f"the stream ended before anything was {kind}")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Suspend all threads of the daemon during the `with` block."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            until_stopped(self.pid)
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the kernel has released the program's locks."""
        self.process.kill()
        self.process.wait()

    def end(self) -> str:
        """End the daemon with SIGTERM; return its output."""
        self.process.terminate()
        assert self.process.stderr is not None
        text = self.process.stderr.read().decode()
        assert self.process.wait() == 0, text
        return text


# The first words of a command that runs with SIGINT and SIGHUP ignored. A shell ignores SIGINT for background jobs, and
# nohup ignores SIGHUP.
IGNORING = ("sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh")


def ignored(pid: int) -> set[int]:
    """Return the signals that a process ignores."""
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("SigIgn:"))
    mask = int(line.split()[1], 16)
    return {number + 1 for number in range(64) if mask >> number & 1}


BRICKD = (sys.executable, "-P", "-m", "brickd")
UP = (*BRICKD, "up")


def going(*arguments: str, under: Sequence[str] = (), **environment: str) -> Process:
    """Start a verb that keeps running. The words in `under` come before the command of the verb.

    If there are none, the verb is forked from a process that has already loaded its code.
    """
    if not under:
        return forking_parent().start(arguments, os.environ | environment)
    return _command([*under, *BRICKD, *arguments], environment)


def up(
    before: Sequence[str] = (), command: Sequence[str] = UP, options: Sequence[str] = (), **environment: str
) -> Process:
    """Start `brickd up`. The words in `before` come before the command, as in `nohup brickd up`."""
    if command is UP:
        return going("up", *options, under=before, **environment)
    return _command([*before, *command], environment)


def _command(command: Sequence[str], environment: dict[str, str]) -> Process:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | environment)


def refused(before: Sequence[str] = (), **environment: str) -> str:
    """Start a daemon that must fail, and return its message."""
    with up(before, **environment) as process:
        assert process.stderr is not None
        text = process.stderr.read().decode()
        assert process.wait() == 2, text
    assert text.count("\n") == 1, text
    return text


@contextmanager
def running(
    before: Sequence[str] = (), command: Sequence[str] = UP, options: Sequence[str] = (), **environment: str
) -> Iterator[Running]:
    """Yield a daemon that answers, and kill it at the end if it still runs."""
    with up(before, command, options, **environment) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            first = process.stdout.readline()
            assert b"the daemon runs" in first, process.stderr.read().decode()
            yield Running(process, first.decode())
        finally:
            process.kill()
