"""The verb `up`.

Owns: how a daemon is put into the background, what is said as it starts and ends. Must not know: what a daemon does.
Invariants: it is said that a daemon runs only once it answers; whoever starts it in the background is told why it did
not.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import click

from brickd.cli.output import say
from brickd.errors import DaemonRefused
from brickd.runtime import Runtime, runtime

_READY = "BRICKD_READY_FD"  # the descriptor on which the one in the background tells the one that started it


@click.command()
@click.option("-d", "--detach", is_flag=True, help="Run in the background; what it says goes to its log.")
def up(detach: bool) -> None:
    """Start the daemon: it drains the rings, keeps the totals of the dead, and answers."""
    here = runtime()
    if detach:
        _detach(here)
    else:
        _run(here)


def _run(here: Runtime) -> None:
    # What nobody but the daemon needs takes a quarter of a second to load.
    from brickd.api.listener import Listener
    from brickd.api.server import Server
    from brickd.daemon import Daemon, Place

    ready = _ready_fd()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > 0 else soft, hard))  # a descriptor for each segment

    with Place(here) as place:
        daemon = Daemon(place)
        daemon.start()
        try:
            listener = Listener(here.socket, group=_group(), replace=True)
            server = Server(daemon, listener)

            async def serve() -> None:
                loop = asyncio.get_running_loop()
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    loop.add_signal_handler(number, server.stop)
                say(f"the daemon runs: process {os.getpid()}, {here.socket}")
                if ready is not None:
                    os.write(ready, b"ready")
                    os.close(ready)
                await server.serve()

            asyncio.run(serve())
        finally:
            daemon.end()
    say("the daemon has ended")


def _group() -> int | None:
    import grp

    name = os.environ.get("BRICKD_GROUP")
    if not name:
        return None
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise DaemonRefused(f"BRICKD_GROUP is {name!r}, which is no group of this system") from None


def _ready_fd() -> int | None:
    fd = os.environ.pop(_READY, "")
    return int(fd) if fd.isdecimal() else None


def _detach(here: Runtime) -> None:
    here.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    read, write = os.pipe()
    with open(here.log, "ab", opener=_private) as log:
        begin = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "brickd", "up"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {_READY: str(write)},
            pass_fds=[write],
            start_new_session=True,
            cwd="/",
        )
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        if pipe.read():
            say(f"the daemon runs: process {process.pid}, {here.socket}, log {here.log}")
            return
    process.wait()
    words = _words_since(here.log, begin)
    raise DaemonRefused(words[-1].removeprefix("brickd: ") if words else f"the daemon did not start: see {here.log}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _words_since(log: Path, begin: int) -> list[str]:
    with log.open("rb") as text:
        text.seek(begin)
        return text.read().decode("utf-8", "replace").splitlines()
