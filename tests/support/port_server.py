"""Serves a daemon's web page, data and metrics on a TCP port, in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from metric_pages import pages_of
from serving import Daemon

from brickd.api.connection_limits import Limits
from brickd.api.http_server import HttpServer, daemon_server
from brickd.api.tcp_listener import TcpListener

LIMITS = Limits.of_port(8)
DATA_TOKEN = b"token-of-data"


@contextmanager
def port_serving(
    daemon: Daemon, token: bytes | None = None, address: str = "127.0.0.1:0", limits: Limits = LIMITS
) -> Iterator[str]:
    """Yield the address of a server. Without a token, metrics are open, and data needs `DATA_TOKEN`."""
    listener, metrics = TcpListener(address), pages_of(daemon)
    server = daemon_server(listener, daemon, limits, token or DATA_TOKEN, None, metrics, open_metrics=token is None)
    with in_thread(server) as at:
        yield at


@contextmanager
def in_thread(server: HttpServer) -> Iterator[str]:
    """Yield the address of a server that runs in a thread."""
    opened, ending = threading.Event(), asyncio.Event()
    loops = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await server.open()
        opened.set()
        await ending.wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    opened.wait()
    try:
        yield server.address
    finally:
        loops[0].call_soon_threadsafe(ending.set)
        thread.join()
