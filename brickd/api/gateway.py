"""The gateway of a server: all its paths, and who may use them.

Owns: the checks of each request, in their order, and which application answers it. Must not know: sockets, the answers.
Invariants: A request of another web page gets nothing, on any path. The files of the web page are public. At a TCP
port, a request without the token gets no data and does not learn which paths exist, except for the paths that are open.
No request at a TCP port can change anything. A request can lower the role of its client, and never raise it.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple, Protocol

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from brickd.api.error_responses import error_body
from brickd.api.peer_credentials import Role
from brickd.api.request_origin import LOOPBACK, refusal
from brickd.api.responses import Reply
from brickd.client import protocol
from brickd.web.assets import Asset
from brickd.web.page import HEADERS, public_files

_READING = frozenset({"GET", "HEAD"})


class Answering(Protocol):
    """Answers requests, some of them for a long time."""

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    def end_streams(self) -> None:
        """End the answers that do not end by themselves."""

    def close(self) -> None:
        """Release the threads."""


class Port(NamedTuple):
    """What clients of a TCP port need, because nothing is known about them.

    Attributes:
        name: the address without the port; a name of this server, besides those of the loopback addresses.
        token: the bearer token of a client.
        open_paths: the paths that need no token.
    """

    name: str
    token: bytes
    open_paths: frozenset[str] = frozenset()


class Gateway:
    """The page's files, the API, and other applications by path."""

    def __init__(self, api: Answering, port: Port | None = None, others: Mapping[str, Answering] | None = None) -> None:
        """Answer requests of a socket whose clients the kernel knows, or of a TCP port."""
        self._api, self._port, self._others = api, port, others or {}
        self._names = LOOPBACK if port is None else LOOPBACK | {port.name.lower()}
        self._client_host = protocol.HOST if port is None else None

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if protocol.ROLE in Headers(scope=scope):
            scope["state"]["role"] = min(scope["state"]["role"], Role.READ)
        found = refusal(scope, self._names, self._client_host) or _public(scope)
        if found is None and self._port is not None:
            found = _not_reading(scope) or _without_token(scope, self._port)
        application = self._others.get(scope["path"], self._api).asgi
        await (application if found is None else found)(scope, receive, send)

    def end_streams(self) -> None:
        """End the answers that do not end by themselves."""
        for each in {self._api, *self._others.values()}:
            each.end_streams()

    def close(self) -> None:
        """Release the threads."""
        for each in {self._api, *self._others.values()}:
            each.close()


class PublicFile(Reply):
    """A file of the web page."""

    def __init__(self, asset: Asset) -> None:
        super().__init__(asset.body)
        self.headers.update(dict(HEADERS) | {"content-type": asset.content_type})


def _public(scope: Scope) -> Reply | None:
    """Return the file of the page at this path, or None. The path is compared as the client wrote it."""
    asset = public_files().get(scope["raw_path"].decode("ascii", "replace"))
    if asset is None:
        return None
    return _not_reading(scope) or PublicFile(asset)


def _not_reading(scope: Scope) -> Reply | None:
    """Return the refusal of a request that could change something."""
    if scope["method"] in _READING:
        return None
    text = f"method is {scope['method'][:20]}, expected GET or HEAD (the command brickd changes settings)"
    refused = Reply(error_body("no_such_method", text), HTTPStatus.METHOD_NOT_ALLOWED)
    refused.headers["allow"] = "GET, HEAD"
    return refused


def _without_token(scope: Scope, port: Port) -> Reply | None:
    """Return the refusal of a request that needs the token and does not have it."""
    if scope["path"] in port.open_paths:
        return None
    given = Headers(scope=scope).get("authorization", "").encode("latin-1")
    if hmac.compare_digest(given, b"Bearer " + port.token):
        return None
    seen = "wrong" if given else "missing"
    wanted = "Authorization: Bearer TOKEN, with the token of --http-token-file or in the URL from brickd web --url"
    refused = Reply(
        error_body("no_token", f"the header Authorization is {seen}, expected {wanted}"), HTTPStatus.UNAUTHORIZED
    )
    refused.headers["www-authenticate"] = "Bearer"
    return refused
