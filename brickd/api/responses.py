"""What the API answers with: JSON, whether it goes well or not, and the bytes of a file.

Owns: how documents, errors and files are sent, which status an error has. Must not know: what is asked, clients.
Invariants: JSON is ASCII and has no NaN, so that a hostile name stays a string in it; every reply ends its connection;
an answer that is taken slowly is in this process once, not in the buffers of its connection too, and of a file only a
piece is; the length of a file is sent first, and a file that became shorter ends the connection.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from brickd.client.protocol import error_document
from brickd.errors import BrickdError, NoSuchProblem, NoSuchWorker, NotPermitted, SegmentRefused

HEADERS = {"connection": "close", "cache-control": "no-store"}

_STATUS: dict[type[BrickdError], HTTPStatus] = {
    NoSuchProblem: HTTPStatus.NOT_FOUND,
    NoSuchWorker: HTTPStatus.NOT_FOUND,
    NotPermitted: HTTPStatus.FORBIDDEN,
    SegmentRefused: HTTPStatus.CONFLICT,
    BrickdError: HTTPStatus.BAD_REQUEST,
}
_PIECE = 64 * 1024
_FILE_PIECE = 256 * 1024

InThread = Callable[[Callable[[int, int, int], bytes], int, int, int], Awaitable[bytes]]


def encoded(document: Any) -> bytes:
    """A document as it goes over the wire."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def error_body(kind: str, message: str) -> bytes:
    """An error as it goes over the wire."""
    return encoded(error_document(kind, message))


async def in_pieces(send: Send, body: bytes, *, more: bool) -> None:
    """Send a body, each piece when the one before it was taken; `more`: another body follows."""
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


class FileResponse(StreamingResponse):
    """All of a file that does not grow any more."""

    def __init__(self, fd: int, in_thread: InThread) -> None:
        """Send the file of a descriptor, and close that; `in_thread` calls a function that may wait."""
        self._fd, self._length, self._in_thread = fd, os.fstat(fd).st_size, in_thread
        headers = HEADERS | {"content-length": str(self._length)}
        super().__init__((), headers=headers, media_type="application/octet-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, unless its reader leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._fd)

    async def stream_response(self, send: Send) -> None:
        """Send each piece when the one before it was taken."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        at = 0
        while at < self._length:
            piece = await self._in_thread(os.pread, self._fd, min(_FILE_PIECE, self._length - at), at)
            if not piece:  # it is shorter by now: the client sees that this is not all of it
                return
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": at < self._length})


def failure(error: BrickdError) -> Reply:
    """What an error that a person can understand is told as."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    return Reply(error_body(error.kind, str(error)), status)
