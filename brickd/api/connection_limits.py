"""The clients of the API: which clients are admitted, and how much each client may use.

Owns: the limits, the admission of clients and their deadlines, and which client is dropped when all places are taken.
Must not know: requests and answers. Invariants: A connection carries one request. At any time, it is either the
client's turn, which has a deadline, or the daemon's turn. When all places are taken, the client whose turn began first
loses its place, so silent clients never block others. Any input gets an answer in JSON or no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import struct
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from brickd.api.error_responses import error_body
from brickd.api.peer_credentials import Role
from brickd.base.open_file_limits import CLIENTS_MAX
from brickd.base.users import user_name
from brickd.client import protocol

_DROP = struct.pack("ii", 1, 0)  # struct linger: close at once


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server.

    Attributes:
        connections: the number of clients at one time. Clients are accepted one at a time, so a client whose request
            was not read yet does not count as silent.
        keeps_half: whether half of the connections and of the streams are only for clients that may control the daemon.
        backlog: the number of clients that may wait to be accepted.
        streams: the number of clients that may follow events or the status.
        threads: the number of views that may be built at one time.
        arrive_seconds: the time in which a request must arrive.
        take_seconds: how long a client may pause while it reads its answer.
        farewell_seconds: how long answers may continue after a request to stop; shorter than the daemon's time to stop.
    """

    connections: int = CLIENTS_MAX
    keeps_half: bool = True
    backlog: int = 32
    streams: int = 16
    threads: int = 2
    head_bytes: int = 16 * 1024
    body_bytes: int = 16 * 1024
    arrive_seconds: float = 5.0
    take_seconds: float = 10.0
    farewell_seconds: int = 1

    @classmethod
    def of(cls, clients: int) -> Self:
        """Return the limits for a number of clients. Streams never take all connections."""
        whole = cls()
        return cls(connections=min(whole.connections, clients), streams=min(whole.streams, clients // 2))

    @classmethod
    def of_port(cls, clients: int) -> Self:
        """Return the limits of a TCP port, where all clients may only read. Streams take at most half of the places."""
        return cls(connections=clients, keeps_half=False, streams=clients // 2, threads=1)

    def for_role(self, most: int, role: Role) -> int:
        """Return how many of `most` places clients with this role may take."""
        return most // 2 if self.keeps_half and role < Role.CONTROL else most


class ClientPlaces:
    """Admits clients up to the limit; `role_of` returns the role of a connection."""

    def __init__(self, limits: Limits, role_of: Callable[[TransportSocket], Role]) -> None:
        self.limits = limits
        self.role_of = role_of
        self._taken: set[Connection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closed = False

    def enter(self, newcomer: Connection) -> bool:
        """Admit a new client, and return whether it is admitted. Another client may have to leave for it."""
        self._taken.add(newcomer)
        self._empty.clear()
        if self._closed:
            return False
        rivals = self._taken
        if newcomer.role < Role.CONTROL:
            rivals = {each for each in self._taken if each.role < Role.CONTROL}
        if len(rivals) > self.limits.for_role(self.limits.connections, newcomer.role):
            longest = min(rivals, key=lambda each: each.waited_since)
            if longest is newcomer:  # it is the daemon's turn for all other clients
                return False
            longest.abort()
        return True

    def leave(self, connection: Connection) -> None:
        """Remove the client. A second call does nothing."""
        self._taken.discard(connection)
        if not self._taken:
            self._empty.set()

    def shed(self) -> None:
        """Disconnect all clients immediately."""
        for connection in tuple(self._taken):
            connection.abort()

    async def emptied(self, within_seconds: float) -> None:
        """Admit no more clients. Disconnect those that get no answer now, and the others after this time."""
        self._closed = True
        for connection in tuple(self._taken):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), within_seconds)
        self.shed()


class Connection(H11Protocol):
    """uvicorn's HTTP protocol, with a deadline for each turn of the client.

    Attributes:
        waited_since: when the client's turn began, on the loop's clock; infinity while it is the daemon's turn.
    """

    def __init__(self, *arguments: Any, room: ClientPlaces, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.role = Role.NONE
        self.waited_since = math.inf
        self._room = room
        self._deadline: asyncio.TimerHandle | None = None
        self._turned_away = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the client, or send it the reason why it is refused."""
        super().connection_made(transport)
        self._wait(self._room.limits.arrive_seconds)
        self.role = self._room.role_of(transport.get_extra_info("socket"))
        self.app_state["role"] = self.role  # the application reads this as request.state.role
        if self.role is Role.NONE:
            self._turn_away(
                HTTPStatus.FORBIDDEN,
                protocol.STRANGER,
                f"expected user {user_name(os.geteuid())}, root or a member of its group (BRICKD_GROUP)",
            )
        elif not self._room.enter(self):
            limits = self._room.limits
            readers = limits.for_role(most := limits.connections, Role.READ)
            of_them = f"; {readers} that may only read" if readers < most else ""
            text = f"its limit of clients is reached ({most}{of_them}): close some, and try again"
            self._turn_away(HTTPStatus.TOO_MANY_REQUESTS, protocol.BUSY, text)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the client."""
        self._go_on()
        self._room.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take the next bytes of the request. A complete request begins the daemon's turn."""
        if self._turned_away:
            return  # the bytes are dropped: to close while the client sends may lose the answer
        super().data_received(data)
        cycle = self.cycle
        if cycle is None or cycle.more_body or self._turned_away:
            return
        if not cycle.response_started:  # later, the client must read, and more bytes do not end its turn
            self._go_on()

    def send_400_response(self, msg: str) -> None:
        """Send JSON instead of uvicorn's plain text."""
        most = self._room.limits.head_bytes
        text = f"expected HTTP with headers of at most {most} bytes, and one Host"
        self._turn_away(HTTPStatus.BAD_REQUEST, "wrong_request", text)

    def pause_writing(self) -> None:
        """Begin the client's turn, because the client has stopped reading its answer."""
        super().pause_writing()
        self._wait(self._room.limits.take_seconds)

    def resume_writing(self) -> None:
        """End the client's turn, because the client reads again."""
        super().resume_writing()
        self._go_on()

    def on_response_complete(self) -> None:
        """Begin the client's turn, because the client must still read the end of the answer."""
        super().on_response_complete()
        self._wait(self._room.limits.take_seconds)

    def finish(self) -> None:
        """Close the connection, unless an answer is being sent.

        A connection closes by itself after an answer.
        """
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def abort(self) -> None:
        """Drop the client and the data that was not sent."""
        self._room.leave(self)
        # The kernel also drops the data that a TCP client has not read. Otherwise it would keep the data for minutes.
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
        self.transport.abort()

    def _turn_away(self, status: HTTPStatus, kind: str, message: str) -> None:
        self._turned_away = True
        body = error_body(kind, message)
        head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: application/json\r\n"
        end = f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write((head + end).encode("ascii") + body)
        self.transport.write_eof()
        self._wait(self._room.limits.arrive_seconds)

    def _wait(self, seconds: float) -> None:
        self._go_on()
        self.waited_since = self.loop.time()
        self._deadline = self.loop.call_later(seconds, self.abort)

    def _go_on(self) -> None:
        self.waited_since = math.inf
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def connections(application: ASGIApp, room: ClientPlaces) -> Callable[[], Connection]:
    """Return a function that makes the protocol of a new client of this application."""
    config = uvicorn.Config(
        application,
        http=Connection,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # the application logs errors itself, escaped
        access_log=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=room.limits.head_bytes,
    )
    state = ServerState()
    return lambda: Connection(config, state, {}, room=room)
