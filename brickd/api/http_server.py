"""The server on a TCP socket of this machine.

Owns: the connections of the socket and their end, and what a daemon serves there. Must not know: requests, answers.
Invariants: Every client only reads. Clients of this server never take the places of clients of the API's socket.
"""

from __future__ import annotations

import asyncio
import contextlib

from brickd.api.application import Application
from brickd.api.backend import Served
from brickd.api.connection_limits import ClientPlaces, Limits, connections
from brickd.api.gateway import Answering, Gateway, Port
from brickd.api.metrics_application import MetricsApplication
from brickd.api.peer_credentials import Role
from brickd.api.tcp_listener import TcpListener
from brickd.metrics.page import MetricsPage
from brickd.web.page import PagePlace


class HttpServer:
    """Serves an application to clients of this machine, from `open` to `close`."""

    def __init__(self, listener: TcpListener, application: Answering, limits: Limits) -> None:
        self.address = listener.address
        self._listener, self._application, self._limits = listener, application, limits
        self._room = ClientPlaces(limits, lambda _: Role.READ)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Answer requests."""
        self._loop = asyncio.get_running_loop()
        factory = connections(self._application.asgi, self._room)
        self._server = await self._loop.create_server(factory, sock=self._listener.socket, backlog=1)
        self._listener.socket.listen(self._limits.backlog)  # asyncio uses one number for both

    async def close(self) -> None:
        """Answer no new requests, and give earlier ones a moment to finish."""
        if self._server is not None:
            self._server.close()
        self._application.end_streams()
        await self._room.emptied(self._limits.farewell_seconds)
        self._application.close()
        self._listener.close()

    def shed(self) -> None:
        """Close all clients. Any thread may call this."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._room.shed)


def daemon_server(
    listener: TcpListener,
    served: Served,
    limits: Limits,
    token: bytes,
    page: PagePlace | None = None,
    metrics: MetricsPage | None = None,
    *,
    open_metrics: bool = False,
) -> HttpServer:
    """Return the server for the web page and the data of a daemon.

    Args:
        listener: the socket.
        served: the daemon.
        limits: the limits of clients.
        token: the token that clients need for data.
        page: what the index of the API says about this server.
        metrics: makes pages of metrics; None: metrics are not served.
        open_metrics: whether metrics and profiles need no token.
    """
    others: dict[str, Answering] = {}
    if metrics is not None:
        others = dict.fromkeys(MetricsApplication.paths, MetricsApplication(served, metrics, limits))
    port = Port(listener.name, token, frozenset(others) if open_metrics else frozenset())
    return HttpServer(listener, Gateway(Application(served, limits, page), port, others), limits)
