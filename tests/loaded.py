"""`brickd` in processes that are forked from one which has loaded it: to load it takes longer than most verbs do.

Such a process has its own arguments, environment, directory and output, as one that a shell starts. It ends without an
interpreter's farewell, which would take apart all that was loaded: what happens there is for `test_cli_skeleton.py`.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping

_MESSAGE_BYTES = 1 << 20


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
        files = [os.memfd_create(name) for name in ("stdout", "stderr")]
        try:
            asked = json.dumps([arguments, dict(environment), os.getcwd()]).encode()
            socket.send_fds(self._socket, [asked], files)
            code = json.loads(self._socket.recv(100))
            said = [os.pread(file, os.fstat(file).st_size, 0).decode() for file in files]
        finally:
            for file in files:
                os.close(file)
        return subprocess.CompletedProcess(("brickd", *arguments), code, *said)


@functools.cache
def loaded() -> Loaded:
    """The one of this process."""
    return Loaded()


def _serve(number: int) -> None:
    """Fork for each that is asked; returns in the child, which is to run it."""
    with socket.socket(fileno=number) as asked:
        while True:
            message, files, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 2)
            if not message:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                break
            for file in files:
                os.close(file)
            asked.send(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    arguments, environment, directory = json.loads(message)
    for file, standard in zip(files, (1, 2), strict=True):
        os.dup2(file, standard)
        os.close(file)
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
    # And what they load where no daemon answers.
    for view in ("brickd.cli.watched", *(each.name for each in pkgutil.iter_modules(views.__path__, "brickd.views."))):
        importlib.import_module(view)
    _serve(int(sys.argv[1]))
    code = main()
    sys.stdout.flush()
    os._exit(code)
