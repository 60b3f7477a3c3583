"""What the API answers in: JSON, whether it goes well or not.

Owns: how documents and errors are written, which status an error has. Must not know: what is asked, clients.
Invariants: JSON is ASCII and has no NaN, so that a hostile name stays a string in it; every reply ends its connection;
an answer that is taken slowly lies in this process once, not in the buffers of its connection too.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from brickd.client.protocol import error_document
from brickd.errors import BrickdError, NoSuchWorker, NotPermitted, SegmentRefused

HEADERS = {"connection": "close", "cache-control": "no-store"}

_STATUS: dict[type[BrickdError], HTTPStatus] = {
    NoSuchWorker: HTTPStatus.NOT_FOUND,
    NotPermitted: HTTPStatus.FORBIDDEN,
    SegmentRefused: HTTPStatus.CONFLICT,
    BrickdError: HTTPStatus.BAD_REQUEST,
}
_PIECE = 64 * 1024


def encoded(document: Any) -> bytes:
    """A document as it goes over the wire."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def error_body(kind: str, message: str) -> bytes:
    """An error as it goes over the wire."""
    return encoded(error_document(kind, message))


async def in_pieces(send: Send, body: bytes, *, more: bool) -> None:
    """Send a body, each piece of it when the one before it was taken; `more` tells whether another one follows."""
    for at in range(0, len(body) or 1, _PIECE):
        last = at + _PIECE >= len(body)
        await send({"type": "http.response.body", "body": body[at : at + _PIECE], "more_body": more or not last})


class Reply(Response):
    """JSON, handed over in pieces: the next one when the last is taken."""

    media_type = "application/json"

    def __init__(self, body: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        super().__init__(body, status, HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await in_pieces(send, bytes(self.body), more=False)


def failure(error: BrickdError) -> Reply:
    """What an error that a person can understand is told as."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    return Reply(error_body(error.kind, str(error)), status)
