"""One endpoint of the API: its path, its role, and the parsing of its requests.

Owns: the first checks of each request, and where the parameters of a request are. Must not know: the list of endpoints,
their answers. Invariants: A client without the role that a path needs is refused before its parameters are read. A
client that uses another prefix learns nothing about the daemon's segments.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import MISSING, dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from brickd.api.connection_limits import Limits
from brickd.api.peer_credentials import Role
from brickd.base.users import as_user, user_name
from brickd.client import protocol
from brickd.errors import NotPermitted, WrongQuestion
from brickd.query.query import Query, default, from_query, key, parameters


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path, its parameters, and the function that answers requests for it."""

    method: str
    path: str
    query: type[Query]
    answer: Callable[[Any], Awaitable[Response]]
    help: str
    role: Role = Role.READ

    def document(self) -> dict[str, Any]:
        """Return what the index of the API says about this endpoint."""
        asked = {
            key(name, parameter): {
                "wanted": parameter.wanted,
                "default": None if default(self.query, name) is MISSING else default(self.query, name),
                "help": parameter.help,
            }
            for name, parameter in parameters(self.query).items()
        }
        return {
            "method": self.method,
            "path": protocol.ROOT + self.path,
            "role": self.role.name.lower(),
            "parameters": asked,
            "help": self.help,
        }

    def route(self, limits: Limits, prefix: str) -> Route:
        """Return the endpoint as a route of an application that serves the segments with this prefix."""

        async def handle(request: Request) -> Response:
            self._require_role(request)
            require_small_head(request, limits)
            _require_prefix(request, prefix)
            return await self.answer(from_query(self.query, await _parameters(request, limits)))

        return Route(protocol.ROOT + self.path, handle, methods=[self.method])

    def _require_role(self, request: Request) -> None:
        if request.state.role < self.role:
            owner = user_name(os.geteuid())
            raise NotPermitted(
                f"{self.method} {protocol.ROOT}{self.path} is permitted only to user {owner} and root at the daemon's"
                " socket; clients of a TCP port and members of the daemon's group may only read"
                f" ({as_user(os.geteuid(), 'VERB')})"
            )


def require_small_head(request: Request, limits: Limits) -> None:
    """Refuse a request whose head is too long, with status 431."""
    # uvicorn limits only incomplete heads, so a head that arrives in one piece may be larger.
    spelled = sum(map(len, (request.scope["raw_path"], request.scope["query_string"])))
    length = spelled + sum(len(key) + len(value) for key, value in request.scope["headers"])
    if length > (most := limits.head_bytes):
        text = f"the head of the request has {length} bytes, expected at most {most}: send fewer parameters"
        raise HTTPException(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)


def _require_prefix(request: Request, prefix: str) -> None:
    ours = protocol.quoted(prefix)
    meant = request.headers.get(protocol.PREFIX, ours)
    if meant != ours:
        text = (
            f"the request asks for segments {meant}*, expected {ours}*, which this daemon reads (set BRICKD_SHM_PREFIX)"
        )
        raise HTTPException(HTTPStatus.MISDIRECTED_REQUEST, text)


async def _parameters(request: Request, limits: Limits) -> list[tuple[str, str]]:
    """Return the parameters from the query, the path, and the body of a POST."""
    found = query_pairs("query", request.scope["query_string"])
    if "name" in request.path_params:
        # The path is used as the client sent it, because a name may contain a slash or invalid UTF-8.
        spelled = request.scope["raw_path"].removeprefix(f"{protocol.ROOT}/inspect/".encode("ascii"))
        found.append(("name", os.fsdecode(unquote_to_bytes(spelled))))
    if request.method == "POST":
        found += query_pairs("body", await _body(request, limits))
    return found


async def _body(request: Request, limits: Limits) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > limits.body_bytes:
            most = limits.body_bytes
            text = (
                f"the body of the request has {len(body)} bytes or more, expected at most {most}: send fewer parameters"
            )
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
    return body


def query_pairs(what: str, text: bytes) -> list[tuple[str, str]]:
    """Parse a query, or a body that is encoded like a query. Raise WrongQuestion if it cannot be parsed."""
    try:
        return parse_qsl(text.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="surrogateescape")
    except ValueError as error:
        seen = text[:60].decode("ascii", "backslashreplace")
        raise WrongQuestion(f"the {what} begins with {seen}, expected name=value&name=value") from error
