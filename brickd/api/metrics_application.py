"""The application for metrics: the page of metrics and the profile.

Owns: their paths, parameters and limits. Must not know: tokens, sockets, how a page or a profile is made. Invariant: a
client that leaves ends its profile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from brickd.api.connection_limits import Limits
from brickd.api.endpoint import query_pairs, require_small_head
from brickd.api.error_responses import HANDLERS, error_body
from brickd.api.responses import Reply, disconnected
from brickd.client import protocol
from brickd.datasources.world import World
from brickd.export.live_profile import live_profile, look
from brickd.metrics.exposition import CONTENT_TYPE
from brickd.metrics.page import MetricsPage
from brickd.query.parameters import Duration
from brickd.query.query import Query, from_query, given

Made = TypeVar("Made")

METRICS, PROFILE = "/metrics", "/debug/pprof/bricks"
PROFILES_MAX = 4  # at one time, because each keeps the totals of all workers at its beginning


class MetricsApplication:
    """Serves metrics and profiles of a world. The ASGI application is `asgi`."""

    paths = frozenset({METRICS, PROFILE})

    def __init__(self, world: World, page: MetricsPage, limits: Limits) -> None:
        self._world, self._page, self._limits = world, page, limits
        self._profiles, self._ending = 0, asyncio.Event()
        self._threads = ThreadPoolExecutor(1, "brickd-metrics")
        self._routes = Starlette(
            routes=[Route(METRICS, self._metrics), Route(PROFILE, self._profile)], exception_handlers=HANDLERS
        )
        self._routes.router.redirect_slashes = False

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._routes(scope, receive, send)

    def end_streams(self) -> None:
        """End all profiles early."""
        self._ending.set()

    def close(self) -> None:
        """Make no more pages and profiles."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _metrics(self, request: Request) -> Response:
        require_small_head(request, self._limits)
        return TextReply(await self._in_thread(self._page.newest))

    async def _profile(self, request: Request) -> Response:
        require_small_head(request, self._limits)
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
        """Wait, until the server ends at the latest; raise ClientDisconnect once the client has gone."""
        gone = asyncio.create_task(disconnected(request.receive))
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
