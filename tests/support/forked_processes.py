"""Processes that are forked from a parent which has already loaded their code, because loading takes most of the time.

Such a process has its own arguments, environment, directory, input and output, as if a shell had started it. A verb of
`brickd` skips the shutdown of the interpreter, which would free everything that was loaded; `test_cli_skeleton.py`
tests the shutdown. A worker runs its exit handlers, but skips the rest of the shutdown, too; it runs the complete
shutdown if its program ends with an exception or `sys.exit`, or if it is started as a command (the mark `interpreter`).
The parent of workers has loaded brick_agent without a segment, and the slow modules that a worker needs.
"""

from __future__ import annotations

import functools
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from forking_server import MESSAGE_BYTES

_SERVER = Path(__file__).with_name("forking_server.py")


class Forked:
    """A running process, with the methods of `subprocess.Popen` that tests need."""

    def __init__(self, answer: socket.socket, stdin: IO[bytes] | None, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None
        self._answer = answer
        pid, (self._pidfd,), _, _ = socket.recv_fds(answer, 100, 1)
        self.pid = int(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()
        self._answer.close()
        os.close(self._pidfd)

    def poll(self) -> int | None:
        """The exit status of the process, if it has ended."""
        with suppress(BlockingIOError):
            if self.returncode is None:
                self.returncode = int(self._answer.recv(100, socket.MSG_DONTWAIT))
        return self.returncode

    def wait(self) -> int:
        """Wait until the kernel has freed everything of the process; return its exit status."""
        if self.returncode is None:
            self.returncode = int(self._answer.recv(100))
        return self.returncode

    def communicate(self) -> tuple[bytes, bytes]:
        """Close the stdin of the process, wait for its end, and return its output, which must be short."""
        assert self.stdin is not None
        self.stdin.close()
        text = self.stdout.read(), self.stderr.read()
        self.wait()
        return text

    def send_signal(self, number: int) -> None:
        """Send a signal to the process if it still runs."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | Forked


class ForkingParent:
    """The process that forks; it ends when this process ends."""

    def __init__(self, what: str) -> None:
        parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The process that forks gets no variables of the test that starts it, because it outlives that test.
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("BRICKD")}
        with child_end:
            parent_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
            self._process = subprocess.Popen(
                [sys.executable, "-P", _SERVER, what, str(child_end.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[child_end.fileno()],
                env=self._environment,
            )
        self._socket = parent_end

    def run(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a process to its end, without input."""
        stdout, stderr = (os.fdopen(os.memfd_create(name), "rb") for name in ("stdout", "stderr"))
        with (
            open(os.devnull) as stdin,
            self._fork(arguments, environment, (stdin, stdout, stderr), (None, stdout, stderr)) as process,
        ):
            code = process.wait()
            text = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (stdout, stderr)]
        return subprocess.CompletedProcess(arguments, code, *text)

    def start(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Forked:
        """Start a process with pipes for its input and output."""
        (its_in, into), (out, its_out), (err, its_err) = os.pipe(), os.pipe(), os.pipe()
        parent_end = os.fdopen(into, "wb"), os.fdopen(out, "rb"), os.fdopen(err, "rb")
        with os.fdopen(its_in, "rb") as stdin, os.fdopen(its_out, "wb") as stdout, os.fdopen(its_err, "wb") as stderr:
            return self._fork(arguments, environment, (stdin, stdout, stderr), parent_end)

    def _fork(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        its: tuple[IO[Any], IO[Any], IO[Any]],
        parent_end: tuple[IO[bytes] | None, IO[bytes], IO[bytes]],
    ) -> Forked:
        answer, answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answers:
            # Send only what differs: to set all variables would take an eighth of the time of a worker.
            removed = [name for name in self._environment if name not in environment]
            changed = {name: value for name, value in environment.items() if self._environment.get(name) != value}
            asked = marshal.dumps((list(arguments), removed, changed, os.getcwd()))
            socket.send_fds(self._socket, [asked], [answers.fileno(), *(file.fileno() for file in its)])
            return Forked(answer, *parent_end)


@functools.cache
def forking_parent(what: str = "brickd") -> ForkingParent:
    """Return the process that forks verbs of `brickd`, or workers of one kind (`forking_server.py`)."""
    return ForkingParent(what)
