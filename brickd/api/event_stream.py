"""Streams of events, in the format `text/event-stream`.

Owns: when each event is sent, how slow readers are treated, the number of readers, which documents readers share. Must
not know: the documents, sockets. Invariants: A slow reader does not delay other readers and uses no memory. It misses
events instead, and is told how many. After a request to end, a stream ends by itself. If a stream fails, its last event
is the error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from brickd.api.connection_limits import Limits
from brickd.api.error_responses import error_body
from brickd.api.peer_credentials import Role
from brickd.api.responses import HEADERS, encoded, in_pieces
from brickd.errors import BrickdError
from brickd.model.event_log import Log, since
from brickd.recording.session import Recorder

_PROGRESS_SECONDS = 1.0
_SHARED_SECONDS = 0.5  # a document for several streams is at most this old

Build = Callable[[], Coroutine[Any, Any, bytes]]


class Reader:
    """A client that reads a stream. The reader wakes up when there may be new events, and at the end of the stream."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.ended = False

    def waker(self) -> Callable[[], None]:
        """Return a function that wakes the reader from any thread."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so there is no reader to wake
                loop.call_soon_threadsafe(self.woken.set)

        return wake

    def end(self) -> None:
        """End the reader's stream."""
        self.ended = True
        self.woken.set()


class Streams:
    """All open streams."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._readers: set[Reader] = set()
        self._closed = False

    def enter(self, reader: Reader, role: Role) -> None:
        """Add a reader, or raise HTTPException if clients with this role have no place left."""
        most = self._limits.for_role(self._limits.streams, role)
        if len(self._readers) >= most:
            text = f"{len(self._readers)} streams are open, the limit is {most} (end a brickd events --follow)"
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, text)
        self._readers.add(reader)
        if self._closed:
            reader.end()

    def leave(self, reader: Reader) -> None:
        """Remove a reader."""
        self._readers.discard(reader)

    def close(self) -> None:
        """End all streams. A stream that is opened after this ends immediately."""
        self._closed = True
        for reader in self._readers:
            reader.end()


class SharedDocuments:
    """The newest document for each question, so that streams with the same question share the work."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, tuple[float, asyncio.Future[bytes]]] = {}

    async def get(self, question: Hashable, age_seconds: float, build: Build) -> bytes:
        """Return a document that was begun at most `age_seconds` ago, or the next one."""
        now = asyncio.get_running_loop().time()
        found = self._newest.get(question)
        if found is None or now - found[0] > age_seconds:
            self._newest = {key: each for key, each in self._newest.items() if now - each[0] <= _SHARED_SECONDS}
            building = asyncio.ensure_future(build())
            building.add_done_callback(_retrieve)
            found = self._newest[question] = now, building
        return await asyncio.shield(found[1])  # a reader that leaves does not end the work for the others


def _retrieve(building: asyncio.Future[bytes]) -> None:
    """Take the error of a document whose readers have all left, because asyncio would print it."""
    if not building.cancelled():
        building.exception()


class EventStream(StreamingResponse):
    """A reply that continues until its reader disconnects or the stream is ended."""

    def __init__(self, streams: Streams, parts: Callable[[Reader], AsyncGenerator[bytes]]) -> None:
        self._streams = streams
        self._reader = Reader()
        self._parts = parts(self._reader)
        super().__init__(self._parts, headers=HEADERS, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the reader disconnects or the stream ends."""
        self._streams.enter(self._reader, scope["state"]["role"])
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._reader)

    async def stream_response(self, send: Send) -> None:
        """Send each part as soon as there is one."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with contextlib.aclosing(self._parts) as parts:
            async for part in parts:
                await in_pieces(send, part, more=True)
        await in_pieces(send, b"", more=False)


def shared_age(seconds: float) -> float:
    """Return how old a document of a stream with this interval may be, so that its next document is another one."""
    return min(seconds / 2, _SHARED_SECONDS)


async def events(reader: Reader, log: Log, begin: int | float) -> AsyncGenerator[bytes]:
    """Send the events since `begin`, and then each new event.

    `begin` is the number of an event, or a float: the events of the last `begin` seconds are sent.
    """
    with log.watched(reader.waker()):
        while not reader.ended:
            reader.woken.clear()
            page = since(log, begin)
            if page.missed:
                yield _event("missed", encoded({"missed": page.missed}))
            for event in page.events:
                yield _event("event", encoded(event.document()), event.number)
            begin = page.newest
            if not reader.ended:
                await reader.woken.wait()


async def again(
    reader: Reader, seconds: float, name: str, document: Callable[[], Awaitable[bytes]]
) -> AsyncGenerator[bytes]:
    """Send the current document at an interval, until it can no longer be built."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while not reader.ended:
        try:
            body = await document()
        except BrickdError as error:
            yield _event("error", error_body(error.kind, str(error)))
            return
        yield _event(name, body)
        due += seconds
        late = loop.time() - due
        if late > 0:
            missed = int(late // seconds) + 1
            due += missed * seconds
            yield _event("missed", encoded({"missed": missed}))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.woken.wait(), due - loop.time())


async def recording(reader: Reader, begin: Callable[[], Awaitable[Recorder]]) -> AsyncGenerator[bytes]:
    """Record while the reader is connected. Send the progress once a second, and the result at the end."""
    beginning = asyncio.ensure_future(begin())
    try:
        recorder = await asyncio.shield(beginning)
    except BrickdError as error:
        yield _event("error", error_body(error.kind, str(error)))
        return
    except asyncio.CancelledError:  # the reader disconnected before the recording began
        beginning.add_done_callback(_left)
        raise
    try:
        with recorder.watched(reader.waker()):
            yield _event("begun", encoded(recorder.document()))  # sent even if the recording is already over
            while not recorder.over.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.woken.wait(), _PROGRESS_SECONDS)
                reader.woken.clear()
                if reader.ended:
                    recorder.end("daemon_ended")
                yield _event("progress", encoded(recorder.document()))
        yield _event("done", encoded(recorder.document()))
    finally:
        recorder.end("left")


def _left(beginning: asyncio.Future[Recorder]) -> None:
    if not beginning.cancelled() and beginning.exception() is None:
        beginning.result().end("left")


def _event(name: str, body: bytes, number: int | None = None) -> bytes:
    """Encode one event. An encoded document has only one newline, which is at its end."""
    mark = b"" if number is None else b"id: %d\n" % number
    return mark + b"event: %s\ndata: %s\n" % (name.encode("ascii"), body)
