"""The API's responses: JSON documents, and the bytes of a file.

Owns: how documents and files are sent. Must not know: queries, clients. Invariants: JSON is ASCII and has no NaN, so a
hostile name stays a string. Every reply ends its connection. An answer that is read slowly is in memory only once,
because no buffer of the connection holds a second copy. Only one piece of a file is in memory at a time. The length of
a file is sent first, so a client notices if the file became shorter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

HEADERS = {
    "connection": "close",
    "cache-control": "no-store",
    # A page of another origin cannot use an answer as an image, a script or a style.
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}

_PIECE = 64 * 1024
_FILE_PIECE = 256 * 1024

InThread = Callable[[Callable[[int, int, int], bytes], int, int, int], Awaitable[bytes]]


def encoded(document: Any) -> bytes:
    """Encode a document."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


async def in_pieces(send: Send, body: bytes, *, more: bool) -> None:
    """Send a body in pieces, each after the previous one is sent. `more` tells whether another body follows."""
    for at in range(0, len(body) or 1, _PIECE):
        last = at + _PIECE >= len(body)
        await send({"type": "http.response.body", "body": body[at : at + _PIECE], "more_body": more or not last})


async def disconnected(receive: Receive) -> None:
    """Wait until the client has left, or has its whole answer."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Reply(Response):
    """JSON, sent in pieces."""

    media_type = "application/json"

    def __init__(self, body: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        super().__init__(body, status, HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await in_pieces(send, bytes(self.body), more=False)


class FileResponse(StreamingResponse):
    """The whole content of a file that no longer grows."""

    def __init__(self, fd: int, in_thread: InThread) -> None:
        """Send the file that a descriptor has open, then close the descriptor.

        `in_thread` calls a function that may block.
        """
        self._fd, self._length, self._in_thread = fd, os.fstat(fd).st_size, in_thread
        headers = HEADERS | {"content-length": str(self._length)}
        super().__init__((), headers=headers, media_type="application/octet-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, until its end or until its reader disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._fd)

    async def stream_response(self, send: Send) -> None:
        """Send each piece after the previous one was read."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        at = 0
        while at < self._length:
            piece = await self._in_thread(os.pread, self._fd, min(_FILE_PIECE, self._length - at), at)
            if not piece:  # the file became shorter, and the client notices that bytes are missing
                return
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": at < self._length})
