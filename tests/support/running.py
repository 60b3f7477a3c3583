"""A daemon of the test's own: a real `brickd up`, asked over its socket, ended or killed."""

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
from loaded import Process, loaded
from serving import ask, following

from brickd.base.paths import runtime

_REST_SECONDS = 0.02
T = TypeVar("T")


def until(so: Callable[[], T]) -> T:
    """What comes of it as soon as it is true; others are let work in between."""
    while not (found := so()):
        time.sleep(_REST_SECONDS)
    return found


class Running:
    """A daemon that answers."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, target: str, body: bytes | None = None) -> Any:
        """The document that it answers with."""
        answer = ask(runtime().socket, f"/v1{target}", body)
        assert answer.status == 200, answer.body
        return answer.document

    def once(self, target: str, so: Callable[[Any], bool]) -> Any:
        """What it answers with as soon as it is so; it is let work in between."""
        (document,) = until(lambda: [found for found in [self.ask(target)] if so(found)])
        return document

    def until(self, kind: str, since: int = 0) -> dict[str, Any]:
        """Wait until something of the kind has happened: the event."""
        with following(runtime().socket, f"/v1/events/stream?since={since}") as reported:
            for name, what in reported:
                if name == "event" and what["kind"] == kind:
                    event: dict[str, Any] = what
                    return event
        raise AssertionError(f"the stream ended before anything was {kind}")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """None of its threads runs meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            until_stopped(self.pid)
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has dropped its locks."""
        self.process.kill()
        self.process.wait()

    def end(self) -> str:
        """SIGTERM: all that it said."""
        self.process.terminate()
        assert self.process.stderr is not None
        text = self.process.stderr.read().decode()
        assert self.process.wait() == 0, text
        return text


# What a script's background and nohup do to a command.
IGNORING = ("sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh")


def ignored(pid: int) -> set[int]:
    """The signals that a process ignores."""
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("SigIgn:"))
    mask = int(line.split()[1], 16)
    return {number + 1 for number in range(64) if mask >> number & 1}


BRICKD = (sys.executable, "-P", "-m", "brickd")
UP = (*BRICKD, "up")


def going(*arguments: str, under: Sequence[str] = (), **environment: str) -> Process:
    """A verb that goes on, started and not waited for; `under` is what its command begins with: else it is forked."""
    if not under:
        return loaded().start(arguments, os.environ | environment)
    return _command([*under, *BRICKD, *arguments], environment)


def up(before: Sequence[str] = (), command: Sequence[str] = UP, **environment: str) -> Process:
    """`brickd up`, as `going` starts it; `before` is what its command begins with."""
    if command is UP:
        return going("up", under=before, **environment)
    return _command([*before, *command], environment)


def _command(command: Sequence[str], environment: dict[str, str]) -> Process:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | environment)


def refused(before: Sequence[str] = (), **environment: str) -> str:
    """A daemon that does not start: the line that it says."""
    with up(before, **environment) as process:
        assert process.stderr is not None
        text = process.stderr.read().decode()
        assert process.wait() == 2, text
    assert text.count("\n") == 1, text
    return text


@contextmanager
def running(before: Sequence[str] = (), command: Sequence[str] = UP, **environment: str) -> Iterator[Running]:
    """A daemon, as soon as it answers; it is killed if it still runs at the end."""
    with up(before, command, **environment) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            first = process.stdout.readline()
            assert b"the daemon runs" in first, process.stderr.read().decode()
            yield Running(process)
        finally:
            process.kill()
