"""The server: an application on a socket, until it is stopped.

Owns: the socket in the event loop, and the shutdown. Must not know: the application. Invariants: The server wakes up
for requests, and at intervals to check that its socket file still exists. After a request to stop, no new client finds
the server, and earlier requests are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from brickd.api.application import Application
from brickd.api.backend import Served
from brickd.api.connection_limits import ClientPlaces, Limits, connections
from brickd.api.gateway import Gateway
from brickd.api.listener import Listener
from brickd.api.peer_credentials import peer
from brickd.errors import BrickdError
from brickd.web.page import PagePlace

_FOUND_SECONDS = 5.0  # the interval of checks that the socket's file exists


class Server:
    """The API of a daemon and its web page, on its socket.

    uvicorn's own server is not used, because it handles signals and checks ten times a second whether it should stop.
    """

    def __init__(
        self, served: Served, listen: Callable[[], Listener], limits: Limits, page: PagePlace | None = None
    ) -> None:
        """Listen, but do not answer yet.

        `listen` creates the socket. It is called now, and again whenever the file of the socket has been removed.
        `page` is where the daemon serves its web page on a TCP port.
        """
        self._limits, self._listen = limits, listen
        self._listener = listen()
        self._gateway = Gateway(Application(served, self._limits, page))
        group = self._listener.group
        self._room = ClientPlaces(self._limits, lambda client: peer(client).role(group))
        self._wanted = True
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self) -> None:
        """Answer requests until `stop` is called; then remove the socket and its file."""
        self._loop = asyncio.get_running_loop()
        try:
            server = await self._accept(self._loop)
            while (
                self._wanted
            ):  # this must follow the assignment of the loop: `stop` writes the flag, then reads the loop
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), _FOUND_SECONDS)
                if self._wanted and self._listener.missing():
                    server = await self._accept_again(self._loop, server)
            self._listener.remove()  # first, so that a new client finds no daemon instead of a silent one
            server.close()
            self._gateway.end_streams()
            await self._room.emptied(self._limits.farewell_seconds)
        finally:
            self._gateway.close()
            self._listener.close()

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> asyncio.Server:
        # One client is accepted at a time. If many connect together, the excess ones are closed before the next client
        # gets a descriptor.
        factory = connections(self._gateway.asgi, self._room)
        server = await loop.create_unix_server(factory, sock=self._listener.socket, backlog=1)
        self._listener.socket.listen(self._limits.backlog)  # asyncio uses one number for both
        return server

    async def _accept_again(self, loop: asyncio.AbstractEventLoop, before: asyncio.Server) -> asyncio.Server:
        try:
            listener = self._listen()
        except (BrickdError, OSError):  # the socket cannot be created now; the next check tries again
            return before
        before.close()
        self._listener.close()
        self._listener = listener
        return await self._accept(loop)

    def stop(self) -> None:
        """End `serve`. Any thread may call this, even before `serve` begins."""
        self._wanted = False
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so `serve` has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    def shed(self) -> None:
        """Disconnect all clients, because the daemon needs their descriptors. Any thread may call this."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._room.shed)
