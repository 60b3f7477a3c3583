"""The server for metrics: HTTP on a TCP socket of this machine.

Owns: what a client must send before it gets anything, the paths. Must not know: how a page or a profile is made.
Invariants: A request of another web page is refused, so that no page can read metrics through a browser. If there is a
token, a request without the token learns nothing. No request changes anything. Clients of this server never take the
places of clients of the API.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from brickd.api.connection_limits import ClientPlaces, Limits, connections
from brickd.api.endpoint import query_pairs, require_small_head
from brickd.api.error_responses import HANDLERS, error_body
from brickd.api.peer_credentials import Role
from brickd.api.request_origin import LOOPBACK, refusal
from brickd.api.responses import Reply
from brickd.api.tcp_listener import TcpListener
from brickd.client import protocol
from brickd.datasources.world import World
from brickd.export.live_profile import live_profile, look
from brickd.metrics.exposition import CONTENT_TYPE
from brickd.metrics.page import MetricsPage
from brickd.query.parameters import Duration
from brickd.query.query import Query, from_query, given

Made = TypeVar("Made")

PROFILE = "/debug/pprof/bricks"
PROFILES_MAX = 4  # at one time, because each keeps the totals of all workers at its beginning
CLIENTS_MAX = 8
# Clients that only read get half of the places.
LIMITS = Limits(connections=2 * CLIENTS_MAX, threads=1, backlog=8)


class HttpServer:
    """Serves metrics and profiles of a world to clients of this machine. `token` is the bearer token that they send."""

    def __init__(self, listener: TcpListener, world: World, page: MetricsPage, token: bytes | None = None) -> None:
        self.address = listener.address
        self._listener, self._world, self._page, self._token = listener, world, page, token
        self._names = LOOPBACK | {listener.name.lower()}
        self._profiles, self._ending = 0, asyncio.Event()
        self._threads = ThreadPoolExecutor(LIMITS.threads, "brickd-http")
        self._room = ClientPlaces(LIMITS, lambda _: Role.READ)
        self._application = Starlette(
            routes=[Route("/metrics", self._metrics), Route(PROFILE, self._profile)],
            exception_handlers={**HANDLERS, HTTPStatus.NOT_FOUND: _no_path},
        )
        self._application.router.redirect_slashes = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Answer requests."""
        self._loop = asyncio.get_running_loop()
        factory = connections(self._admitted, self._room)
        self._server = await self._loop.create_server(factory, sock=self._listener.socket, backlog=1)
        self._listener.socket.listen(LIMITS.backlog)  # asyncio uses one number for both

    async def close(self) -> None:
        """Answer no new requests, and give earlier ones a moment to finish."""
        if self._server is not None:
            self._server.close()
        self._ending.set()  # profiles end early
        await self._room.emptied(LIMITS.farewell_seconds)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._listener.close()

    def shed(self) -> None:
        """Close all clients. Any thread may call this."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._room.shed)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = refusal(scope, self._names) or self._without_token(Headers(scope=scope))
        await (self._application if refused is None else refused)(scope, receive, send)

    def _without_token(self, headers: Headers) -> Response | None:
        """Return the refusal for a client that does not send the token."""
        given = headers.get("authorization", "").encode("latin-1")
        if self._token is not None and not hmac.compare_digest(given, b"Bearer " + self._token):
            seen = "wrong" if given else "missing"
            wanted = "Authorization: Bearer TOKEN, with the token in the file of --http-token-file"
            text = f"the header Authorization is {seen}, expected {wanted}"
            refused = Reply(error_body("no_token", text), HTTPStatus.UNAUTHORIZED)
            refused.headers["www-authenticate"] = "Bearer"
            return refused
        return None

    async def _metrics(self, request: Request) -> Response:
        require_small_head(request, LIMITS)
        return TextReply(await self._in_thread(self._page.newest))

    async def _profile(self, request: Request) -> Response:
        require_small_head(request, LIMITS)
        query = from_query(ProfileQuery, query_pairs("query", request.scope["query_string"]))
        if self._profiles >= PROFILES_MAX:
            text = f"the limit of {PROFILES_MAX} profiles at the same time is reached: try again"
            return Reply(error_body(protocol.BUSY, text), HTTPStatus.TOO_MANY_REQUESTS)
        self._profiles += 1
        try:
            before = await self._in_thread(lambda: look(self._world))
            await self._wait(request, query.seconds)
            return ProfileReply(await self._in_thread(lambda: live_profile(before, look(self._world))))
        finally:
            self._profiles -= 1

    async def _wait(self, request: Request, seconds: float) -> None:
        """Wait, until this server ends at the latest; raise ClientDisconnect once the client has gone."""
        gone = asyncio.create_task(_disconnected(request))
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait((gone, ending), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientDisconnect
        finally:
            gone.cancel()
            ending.cancel()

    async def _in_thread(self, make: Callable[[], Made]) -> Made:
        return await asyncio.get_running_loop().run_in_executor(self._threads, make)


class ProfileQuery(Query):
    """The parameters of a profile."""

    seconds: float = given(Duration(0.1, 60, "Profile for this time."), default=10.0)


class ProfileReply(Reply):
    """A profile of pprof."""

    media_type = "application/octet-stream"


class TextReply(Reply):
    """A page of metrics."""

    media_type = CONTENT_TYPE


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _no_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = f"no path {request.scope['path'][:60]}, expected /metrics or {PROFILE}"
    return Reply(error_body(protocol.NO_PATH, text), HTTPStatus.NOT_FOUND)
