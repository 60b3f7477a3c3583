"""A file as an answer.

Owns: how its bytes are sent. Must not know: what is in it, how it was found. Invariants: its length is said before, and
never less is passed for it: a file that became shorter ends the connection; of one that is taken slowly a piece is in
memory.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from brickd.api.json_response import HEADERS

_PIECE = 256 * 1024

InThread = Callable[[Callable[[int, int, int], bytes], int, int, int], Awaitable[bytes]]


class FileResponse(StreamingResponse):
    """All of a file that does not grow any more."""

    def __init__(self, fd: int, in_thread: InThread) -> None:
        """Answer with it.

        Args:
            fd: of the file, from here on ours.
            in_thread: calls a function that may wait.
        """
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
            piece = await self._in_thread(os.pread, self._fd, min(_PIECE, self._length - at), at)
            if not piece:  # it is shorter by now: whoever reads sees that this is not all of it
                return
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": at < self._length})
