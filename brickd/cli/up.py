"""The verb `up`.

Owns: the start in the background, the messages about the daemon's start and end. Must not know: the work of a daemon.
Invariants: The daemon is reported as running only after it answers. If a start in the background fails, the command
reports why.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from brickd.analysis.numerics.fingerprints import WINDOW_BYTES
from brickd.base import escape
from brickd.base.paths import Runtime, runtime
from brickd.base.thresholds import of_file
from brickd.base.units import write_size
from brickd.cli import logfile
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import ParameterType
from brickd.errors import DaemonRefused
from brickd.query.parameters import ByteSize

if TYPE_CHECKING:
    from brickd.daemon.notify import Target


@click.command()
@click.option("-d", "--detach", is_flag=True, help="Run in the background, with a log in the runtime directory.")
@click.option(
    "--numerics-bytes",
    type=ParameterType(ByteSize(0, 1 << 40, "")),
    metavar="SIZE",
    default=write_size(WINDOW_BYTES),
    show_default=True,
    help="Keep at most this much of the newest fingerprints in memory, to compare them. 0 keeps none.",
)
@click.option(
    "--thresholds",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Read thresholds of alarms from a TOML file with lines such as stuck_min = "45s". "brickd set" lists them.',
)
@click.option(
    "--notify-exec", metavar="CMD", help="Run this command for each alarm, one at a time, with JSON on its stdin."
)
@click.option("--notify-url", metavar="URL", help="Post each alarm as JSON to this http or https URL.")
@click.option(
    "--notify-secret-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Sign the posted data (HMAC-SHA256) with the secret in this file. The file must be readable only by you.",
)
@output_options
def up(
    detach: bool,
    numerics_bytes: int,
    thresholds: Path | None,
    notify_exec: str | None,
    notify_url: str | None,
    notify_secret_file: Path | None,
    output: str,
) -> None:
    """Start the daemon.

    The daemon drains the rings of all workers of this user, keeps the totals of workers that ended or died, compares
    workers, and answers the other verbs. One daemon runs per user and machine.
    """
    here = runtime()
    values = {} if thresholds is None else of_file(thresholds)

    def report(pid: int) -> None:
        socket, log = os.fspath(here.socket), os.fspath(here.log) if detach else None
        document = {"schema_version": 1, "pid": pid, "socket": socket, "log": log}
        line = f"the daemon runs: process {pid}, {escape.text(socket)}"
        emit(document, output, table=lambda _: [f"{line}, log {escape.text(log)}" if log else line])
        sys.stdout.flush()

    start = partial(_run, here, numerics_bytes, values, _targets(notify_exec, notify_url, notify_secret_file))
    if detach:
        _detach(here, start, report)
    else:
        start(lambda: report(os.getpid()))


def _targets(command: str | None, url: str | None, secret_file: Path | None) -> Sequence[Target]:
    if command is None and url is None and secret_file is None:
        return ()
    from brickd.daemon.notify_targets import targets  # imported here, because it loads TLS

    return targets(command, url, secret_file)


def _run(
    here: Runtime,
    numerics_bytes: int,
    values: Mapping[str, float],
    targets: Sequence[Target],
    ready: Callable[[], None],
) -> None:
    # Imported here, because only the daemon needs these modules, which take a quarter of a second to load.
    from brickd.api.connection_limits import Limits
    from brickd.api.listener import Listener
    from brickd.api.server import Server
    from brickd.cli import inprocess_daemon
    from brickd.daemon.sd_notify import Manager

    group = inprocess_daemon.group()
    with inprocess_daemon.draining(here, group, numerics_bytes=numerics_bytes, targets=targets) as daemon:
        if values:
            daemon.orders.take_thresholds(daemon.orders.thresholds.with_(values))

        def listen() -> Listener:
            daemon.saver.restore()
            return Listener(here.socket, group=group, replace=True)

        limits = Limits.of(inprocess_daemon.descriptors().clients)
        server, manager = Server(daemon, listen, limits), Manager(os.environ)
        daemon.saver.close_clients = server.shed

        def stop() -> None:
            manager.stopping()
            server.stop()

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                # nohup or the shell of a script ignores some signals
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, stop)
            watching = loop.create_task(manager.watch(lambda: daemon.daemon().loop_still_ns))
            ready()
            manager.ready(f"answers at {here.socket}")
            await server.serve()
            watching.cancel()

        asyncio.run(serve())
    print_message("the daemon has ended")


def _detach(here: Runtime, start: Callable[[Callable[[], None]], None], report: Callable[[int], None]) -> None:
    try:
        here.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = logfile.opened(here.log)
    except OSError as error:
        raise DaemonRefused(f"{here.log}: {error.strerror} (set BRICKD_RUNTIME_DIR to a directory of yours)") from None
    begin = os.fstat(log).st_size
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDONLY)
        for ours, theirs in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(ours, theirs)
        sys.stderr = logfile.printed_to(here.log)
        start(lambda: os.close(write) if os.write(write, b".") else None)
        return
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        if pipe.read():
            report(pid)
            return
    os.waitpid(pid, 0)
    lines = here.log.read_bytes()[begin:].decode("utf-8", "replace").splitlines()
    raise DaemonRefused(lines[-1].removeprefix("brickd: ") if lines else f"the daemon did not start (see {here.log})")
