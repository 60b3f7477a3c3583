"""The verb `web`.

Owns: the options of `web`, the token and the life of a process that serves the page. Must not know: the page, the API.
Invariants: The page only reads. The URL with its token is printed only where the user asked for it: to a terminal, in
JSON, or with --url.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from brickd.base import escape
from brickd.base.paths import Runtime, runtime
from brickd.base.secret_file import token_of
from brickd.cli.output import emit, output_options
from brickd.errors import BrickdError, DaemonRefused
from brickd.web.page import page_url

if TYPE_CHECKING:
    from brickd.api.http_server import HttpServer

_ADDRESS = "127.0.0.1:9230"
_CLIENTS = 32
_USUAL_GC = (700, 10, 10)  # a command collects garbage rarely, but this process stays


@click.command()
@click.option(
    "--http", metavar="ADDRESS", help=f"Serve the page on this address of this machine (default: {_ADDRESS})."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serve data only with the bearer token in this file. The file must be readable only by you.",
)
@click.option("--url", is_flag=True, help="Print the URL of the page that the daemon itself serves, with its token.")
@output_options
def web(http: str | None, token_file: Path | None, url: bool, output: str) -> None:
    """Show the web page of a daemon, or print its URL.

    The page shows what the daemon of this user knows, and changes nothing. "brickd up --http" serves the same page.
    With this verb, a process of its own serves it, next to a daemon that runs already.
    """
    if url:
        if http is not None or token_file is not None:
            raise click.UsageError("--url prints where the daemon serves its page: give no other address or token")
        found = _url_of_daemon()
        _report(found, output, found)
        return
    from brickd.api.connection_limits import Limits
    from brickd.api.forwarder import Forwarder
    from brickd.api.gateway import Gateway, Port
    from brickd.api.http_server import HttpServer
    from brickd.api.tcp_listener import TcpListener
    from brickd.shm.segment_files import prefix

    here = runtime()
    token = _token(here) if token_file is None else token_of(token_file, "--token-file")
    token_path = here.web_token if token_file is None else token_file
    listener = TcpListener(http or _ADDRESS)
    gateway = Gateway(Forwarder(here.socket, prefix()), Port(listener.name, token))
    gc.set_threshold(*_USUAL_GC)
    asyncio.run(_serve(HttpServer(listener, gateway, Limits.of_port(_CLIENTS)), token, token_path, output))


async def _serve(server: HttpServer, token: bytes, token_path: Path, output: str) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # If nohup or the shell of a script made this process ignore a signal, that signal stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopped.set)
    await server.open()
    url = page_url(server.address, token)
    # What is not a terminal may be a log that others can read.
    without = f"{page_url(server.address)} (its token is in {escape.text(os.path.abspath(token_path))})"
    _report(url, output, url if sys.stdout.isatty() else without)
    await stopped.wait()
    await server.close()


def _report(url: str, output: str, text: str) -> None:
    emit({"schema_version": 1, "page_url": url}, output, table=lambda _: [text])
    sys.stdout.flush()


def _token(here: Runtime) -> bytes:
    from brickd.state.runtime_dir import make_directory
    from brickd.web.token import create_token

    try:
        make_directory(here.directory)
    except DaemonRefused as error:
        raise DaemonRefused(f"{error}, or give a token of your own: --token-file FILE") from None
    return create_token(here.web_token)


def _url_of_daemon() -> str:
    from brickd.client.client import ask

    page = ask("").document().get("page")
    if not isinstance(page, dict):
        raise BrickdError(
            f"the daemon serves no web page: run brickd web, or restart it with brickd up --http {_ADDRESS}"
        )
    return page_url(str(page["address"]), token_of(Path(str(page["token_file"])), "the file of the token"))
