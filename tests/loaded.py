"""`brickd` in processes that are forked from one which has loaded it: to load it takes longer than most verbs do.

Such a process has its own arguments, environment, directory and output, as one that a shell starts. It ends without an
interpreter's farewell, which would take apart all that was loaded: what happens there is for `test_cli_skeleton.py`.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Self

_MESSAGE_BYTES = 1 << 20


class Forked:
    """A verb that runs: what `subprocess.Popen` is to a command, as far as it is asked for here."""

    def __init__(self, answer: socket.socket, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.stdout, self.stderr = stdout, stderr
        self.returncode: int | None = None
        self._answer = answer
        pid, (self._pidfd,), _, _ = socket.recv_fds(answer, 100, 1)
        self.pid = int(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()
        self._answer.close()
        os.close(self._pidfd)

    def wait(self) -> int:
        """Wait until the kernel has dropped all that it had: its exit status."""
        if self.returncode is None:
            self.returncode = int(self._answer.recv(100))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Loaded:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours

    def run(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        stdout, stderr = (os.fdopen(os.memfd_create(name), "rb") for name in ("stdout", "stderr"))
        with self._fork(arguments, environment, stdout, stderr, (stdout.fileno(), stderr.fileno())) as process:
            code = process.wait()
            said = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (stdout, stderr)]
        return subprocess.CompletedProcess(("brickd", *arguments), code, *said)

    def start(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Forked:
        """Start a verb, with pipes for what it says."""
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        try:
            return self._fork(arguments, environment, os.fdopen(out, "rb"), os.fdopen(err, "rb"), (its_out, its_err))
        finally:
            os.close(its_out)
            os.close(its_err)

    def _fork(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        stdout: IO[bytes],
        stderr: IO[bytes],
        its: tuple[int, int],
    ) -> Forked:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            asked = json.dumps([arguments, dict(environment), os.getcwd()]).encode()
            socket.send_fds(self._socket, [asked], [theirs.fileno(), *its])
            return Forked(ours, stdout, stderr)


@functools.cache
def loaded() -> Loaded:
    """The one of this process."""
    return Loaded()


def _serve(number: int) -> None:
    """Fork for each that is asked, and tell how each ended; returns in the child, which is to run it."""
    living: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(number, select.POLLIN)
    with socket.socket(fileno=number) as asked:
        while True:
            for fd, _ in poll.poll():
                if fd != number:
                    pid, answer = living.pop(fd)
                    answer.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                    answer.close()
                    poll.unregister(fd)
                    os.close(fd)
                    continue
                message, files, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 3)
                if not message:
                    os._exit(0)
                answer = socket.socket(fileno=files.pop(0))
                pid = os.fork()
                if pid == 0:
                    answer.close()
                    for other, (_, its) in living.items():
                        os.close(other)
                        its.close()
                    return _become(message, files)
                for file in files:
                    os.close(file)
                pidfd = os.pidfd_open(pid)
                socket.send_fds(answer, [str(pid).encode()], [pidfd])
                living[pidfd] = pid, answer
                poll.register(pidfd, select.POLLIN)


def _become(message: bytes, files: list[int]) -> None:
    arguments, environment, directory = json.loads(message)
    for file, name in zip(files, ("stdout", "stderr"), strict=True):
        standard = getattr(sys, name)
        os.dup2(file, standard.fileno())
        os.close(file)
        # What there was took what it writes to for what the server writes to: a file, that is, where this is a pipe.
        anew = os.fdopen(standard.fileno(), "w", 1 if name == "stderr" else -1, standard.encoding, standard.errors)
        setattr(sys, name, anew)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = ["brickd", *arguments]


if __name__ == "__main__":
    import importlib
    import pkgutil

    import click

    from brickd import views
    from brickd.cli import VERBS, brickd, main

    for verb in VERBS:
        brickd.get_command(click.Context(brickd), verb)
    # And what they load where no daemon answers, and what a daemon does.
    late = ("brickd.cli.watched", "brickd.cli.draining", "brickd.api.server", "brickd.notify")
    for module in (*late, *(each.name for each in pkgutil.iter_modules(views.__path__, "brickd.views."))):
        importlib.import_module(module)
    _serve(int(sys.argv[1]))
    code = main()
    sys.stdout.flush()
    os._exit(code)
