"""The verb `up`.

Owns: the start in the background, the messages about the daemon's start and end. Must not know: what a daemon does.
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
from typing import TYPE_CHECKING, NamedTuple

import click

from brickd.analysis.numerics.fingerprints import WINDOW_BYTES
from brickd.base import escape
from brickd.base.open_file_limits import ClientShares, shared
from brickd.base.paths import Runtime, runtime
from brickd.base.secret_file import token_of
from brickd.base.thresholds import of_file
from brickd.base.units import write_size
from brickd.cli import logfile
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import ParameterType
from brickd.errors import DaemonRefused, WrongQuestion
from brickd.query.parameters import ByteSize
from brickd.web.page import PagePlace, page_url
from brickd.web.token import create_token, read_token

if TYPE_CHECKING:
    from brickd.api.http_server import HttpServer
    from brickd.api.tcp_listener import TcpListener
    from brickd.daemon.daemon import Daemon
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
@click.option(
    "--http", metavar="ADDRESS", help="Serve the web page on this address of this machine, such as 127.0.0.1:9230."
)
@click.option("--metrics", is_flag=True, help="Serve metrics for Prometheus at http://ADDRESS/metrics. Needs --http.")
@click.option(
    "--http-token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serve data and metrics only with the bearer token in this file. The file must be readable only by you."
    " Without it: data with a token that brickd makes, and metrics without one.",
)
@click.option(
    "--metrics-textfile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the metrics into this file every 10 seconds, for node_exporter. Its name must end with .prom.",
)
@click.option(
    "--flight-recorder",
    is_flag=True,
    help="Record the spans of all workers for 20 seconds when a new problem begins, at most once in 5 minutes."
    " Keeps the 5 newest recordings, with at most 256 MiB.",
)
@output_options
def up(
    detach: bool,
    numerics_bytes: int,
    thresholds: Path | None,
    notify_exec: str | None,
    notify_url: str | None,
    notify_secret_file: Path | None,
    http: str | None,
    metrics: bool,
    http_token_file: Path | None,
    metrics_textfile: Path | None,
    flight_recorder: bool,
    output: str,
) -> None:
    """Start the daemon.

    The daemon drains the rings of all workers of this user, keeps the totals of workers that ended or died, compares
    workers, and answers the other verbs. One daemon runs per user and machine.
    """
    here = runtime()
    values = {} if thresholds is None else of_file(thresholds)

    door = _door(http, http_token_file, metrics=metrics)
    textfile = None if metrics_textfile is None else _textfile(metrics_textfile)

    def report(pid: int) -> None:
        socket, log = os.fspath(here.socket), os.fspath(here.log) if detach else None
        url = door.url + "metrics" if door is not None and door.metrics else None
        page = None if door is None else door.page_url(here)
        document = {"schema_version": 1, "pid": pid, "socket": socket, "log": log, "metrics": url, "page_url": page}
        line = f"the daemon runs: process {pid}, {escape.text(socket)}{f', {url}' if url else ''}"
        lines = [f"{line}, log {escape.text(log)}" if log else line]
        if door is not None and page is not None:
            lines.append(f"web page: {_for_people(door, page)}")
        emit(document, output, table=lambda _: lines)
        sys.stdout.flush()

    targets = _targets(notify_exec, notify_url, notify_secret_file)
    start = partial(_run, here, numerics_bytes, values, targets, door, textfile, flight_recorder)
    if detach:
        _detach(here, start, report)
    else:
        start(lambda: report(os.getpid()))


def _targets(command: str | None, url: str | None, secret_file: Path | None) -> Sequence[Target]:
    if command is None and url is None and secret_file is None:
        return ()
    from brickd.daemon.notify_targets import targets  # imported here, because it loads TLS

    return targets(command, url, secret_file)


class _Door(NamedTuple):
    """Where the web page is served, whether metrics are served there, and the token that the user chose."""

    listener: TcpListener
    metrics: bool
    token: bytes | None
    token_file: Path | None

    def place(self, here: Runtime) -> PagePlace:
        return PagePlace(self.listener.address, self.token_file or here.web_token)

    @property
    def url(self) -> str:
        return page_url(self.listener.address)

    def page_url(self, here: Runtime) -> str:
        """Return the URL of the page with its token, which the daemon has created before."""
        return page_url(self.listener.address, self.token or read_token(here.web_token))


def _for_people(door: _Door, page: str) -> str:
    # What is not a terminal may be a log that others can read: the journal of systemd, the log of a container.
    return page if sys.stdout.isatty() else f"{door.url} (brickd web --url prints it with its token)"


def _door(address: str | None, token_file: Path | None, *, metrics: bool) -> _Door | None:
    if address is None:
        if metrics or token_file is not None:
            option = "--metrics" if metrics else "--http-token-file"
            raise WrongQuestion(f"{option} needs --http ADDRESS, such as --http 127.0.0.1:9230")
        return None
    from brickd.api.tcp_listener import TcpListener

    token = None if token_file is None else token_of(token_file, "--http-token-file")
    file = None if token_file is None else Path(os.path.abspath(token_file))  # a daemon has another working directory
    return _Door(TcpListener(address), metrics, token, file)


def _textfile(path: Path) -> Path:
    if path.suffix != ".prom":
        raise WrongQuestion(f"--metrics-textfile {path}: node_exporter reads only names that end with .prom")
    return Path(os.path.abspath(path))  # a background daemon has another working directory


def _run(
    here: Runtime,
    numerics_bytes: int,
    values: Mapping[str, float],
    targets: Sequence[Target],
    door: _Door | None,
    textfile: Path | None,
    flight_recorder: bool,
    ready: Callable[[], None],
) -> None:
    # Imported here, because only the daemon needs these modules, which take a quarter of a second to load.
    from brickd.api.connection_limits import Limits
    from brickd.api.listener import Listener
    from brickd.api.server import Server
    from brickd.cli import inprocess_daemon
    from brickd.daemon.flight_recorder import FlightLimits
    from brickd.daemon.sd_notify import Manager

    group = inprocess_daemon.group()
    with inprocess_daemon.draining(
        here,
        group,
        numerics_bytes=numerics_bytes,
        targets=targets,
        serves_metrics=door is not None and door.metrics,
        metrics_textfile=textfile,
        flight=FlightLimits() if flight_recorder else None,
    ) as daemon:
        if values:
            daemon.orders.take_thresholds(daemon.orders.thresholds.with_(values))

        def listen() -> Listener:
            daemon.saver.restore()
            return Listener(here.socket, group=group, replace=True)

        clients = inprocess_daemon.descriptors().clients
        shares = ClientShares(clients, 0) if door is None else shared(clients)
        page = None if door is None else door.place(here)
        server, manager = Server(daemon, listen, Limits.of(shares.socket), page), Manager(os.environ)
        http = None if door is None else _http_server(daemon, here, door, shares.port)

        def shed() -> None:
            server.shed()
            if http is not None:
                http.shed()

        daemon.saver.close_clients = shed

        def stop() -> None:
            manager.stopping()
            server.stop()

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                # If nohup or the shell of a script made this process ignore a signal, that signal stays ignored.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, stop)
            if http is not None:
                await http.open()
            watching = loop.create_task(manager.watch(lambda: daemon.daemon().loop_still_ns))
            ready()
            manager.ready(f"answers at {here.socket}")
            await server.serve()
            if http is not None:
                await http.close()
            watching.cancel()

        asyncio.run(serve())
    print_message("the daemon has ended")


def _http_server(daemon: Daemon, here: Runtime, door: _Door, clients: int) -> HttpServer:
    from brickd.api.connection_limits import Limits
    from brickd.api.http_server import daemon_server

    return daemon_server(
        door.listener,
        daemon,
        Limits.of_port(clients),
        door.token or create_token(here.web_token),
        door.place(here),
        daemon.metrics if door.metrics else None,
        open_metrics=door.token is None,  # a scraper needs no token, unless the user chose one
    )


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
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    lines = here.log.read_bytes()[begin:].decode("utf-8", "replace").splitlines()
    if lines:
        raise DaemonRefused(lines[-1].removeprefix("brickd: "))
    raise DaemonRefused(f"the daemon did not start: it ended with status {status} without a message (see {here.log})")
