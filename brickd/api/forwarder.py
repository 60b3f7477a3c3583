"""Forwards requests for data to a daemon's socket, for a web page in a process of its own.

Owns: the request to the daemon, which parts of its answer are passed on, the answer without a daemon. Must not know:
tokens, the paths of the API, documents. Invariants: The daemon treats a forwarded request as one that may only read. No
header of the client is passed on. The body is passed on byte for byte, in pieces, only as fast as the client reads.
When the client leaves, the daemon's connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from brickd.api.error_responses import error_body
from brickd.api.responses import HEADERS, Reply, disconnected
from brickd.client import protocol
from brickd.errors import NoDaemon

_CONNECT_SECONDS = 1.0
_HEAD_BYTES = 16 * 1024
_PIECE_BYTES = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.[01] ([2-5][0-9][0-9])(?: [ -~]*)?")
_HEADER = re.compile(rb"([A-Za-z-]+): *([ -~]*)")
# All others are about the connection to the daemon, or are added again.
_PASSED_ON = frozenset({b"content-type", b"content-length", b"allow"})
_ROOT = protocol.ROOT.encode("ascii")


class Head(NamedTuple):
    """The beginning of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]


class Forwarder:
    """Answers with what the daemon at a socket answers. The ASGI application is `asgi`."""

    def __init__(self, socket: Path, prefix: str) -> None:
        """Forward to the daemon of the segments with this prefix. The daemon may start later, and end at any time."""
        self._socket, self._prefix = socket, prefix
        self._ending = asyncio.Event()

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, until the client leaves."""
        forwarding = asyncio.create_task(self._forward(scope, receive, send))
        others = asyncio.create_task(disconnected(receive)), asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait((forwarding, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (forwarding, *others):
                each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await forwarding

    def end_streams(self) -> None:
        """End all answers."""
        self._ending.set()

    def close(self) -> None:
        """Do nothing, because there are no threads."""

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope["raw_path"]
        if path != _ROOT and not path.startswith(_ROOT + b"/"):
            text = f"no path {scope['path'][:60]} (GET {protocol.ROOT} lists the paths)"
            await Reply(error_body(protocol.NO_PATH, text), HTTPStatus.NOT_FOUND)(scope, receive, send)
            return
        try:
            reader, writer = await self._connected()
            try:
                head = await self._asked(scope, reader, writer)
                await send({"type": "http.response.start", "status": head.status, "headers": head.headers})
                await _copy(reader, send)
            finally:
                writer.transport.abort()
        except NoDaemon as error:
            await Reply(error_body("no_daemon", str(error)), HTTPStatus.SERVICE_UNAVAILABLE)(scope, receive, send)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            connecting = asyncio.open_unix_connection(self._socket, limit=_PIECE_BYTES)
            return await asyncio.wait_for(connecting, _CONNECT_SECONDS)
        except (OSError, TimeoutError):
            raise NoDaemon(f"no daemon answers at {self._socket} (start one: brickd up)") from None

    async def _asked(self, scope: Scope, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Head:
        """Send the request; return the head of the answer. Raise NoDaemon if it is not one of HTTP."""
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        headers = {"host": protocol.HOST, protocol.PREFIX: protocol.quoted(self._prefix), protocol.ROLE: "read"}
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        # With HTTP/1.0, the daemon sends no chunks.
        writer.write(f"{scope['method']} ".encode("ascii") + target + f" HTTP/1.0\r\n{lines}\r\n".encode("ascii"))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, EOFError):
            raise NoDaemon(f"the daemon at {self._socket} ended before it answered (start one: brickd up)") from None
        except asyncio.LimitOverrunError:
            head = b""
        found = parsed_head(head)
        if found is None:
            raise NoDaemon(f"{self._socket} answered, but not as a brickd daemon (set BRICKD_SOCKET to its socket)")
        return found


async def _copy(reader: asyncio.StreamReader, send: Send) -> None:
    """Send the body piece by piece.

    If the body does not have the promised length, the HTTP library refuses its end. Then the connection is closed, so
    the client notices.
    """
    while piece := await reader.read(_PIECE_BYTES):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def parsed_head(head: bytes) -> Head | None:
    """Parse the head of an answer; return None if it is malformed or too long."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None or len(head) > _HEAD_BYTES:
        return None
    headers = [(key.encode("ascii"), value.encode("ascii")) for key, value in HEADERS.items()]
    has_length = False
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            return None
        key, value = found[1].lower(), found[2]
        if key == b"content-length":
            if has_length or not value.isdigit() or len(value) > 18:
                return None
            has_length = True
        if key in _PASSED_ON:
            headers.append((key, value))
    return Head(int(status[1]), headers)
