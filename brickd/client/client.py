"""The client of a daemon: connects to the socket, sends a request, reads the answer.

Owns: HTTP to the daemon, the timeouts, and the reasons why there is no answer. Must not know: views, what callers do
without a daemon. Invariants: If there is no daemon, a call makes one system call and imports nothing. Any answer, even
an invalid one, becomes a document or an error. An error that the daemon reports is raised unchanged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from brickd.base.paths import runtime
from brickd.client import protocol
from brickd.client.other_version import Build, decoded, other_version, ours, remark
from brickd.errors import BrickdError, NoDaemon, NotPermitted, OtherVersion, WrongQuestion
from brickd.shm.segment_files import prefix

if TYPE_CHECKING:
    from socket import socket

Why = Literal["none", "stale", "silent", "broken", "strange", "elsewhere", "busy"]

# http.client is not used, because it takes 40 ms to load, a quarter of the limit for `brickd status`. The protocol is
# HTTP/1.0, because then a server sends no chunked answer.
_REQUEST = "{method} {target} HTTP/1.0\r\nhost: {host}\r\n{header}: {prefix}\r\ncontent-length: {length}\r\n\r\n{body}"
_CONNECT_SECONDS = 1
_ANSWER_SECONDS, _SHORT_SECONDS = 5.0, 0.5
_LINE_BYTES = 1 << 14
_BODY_BYTES = 256 << 20
_PIECE_BYTES = 1 << 20
_FINE = 200
_START = "start one: brickd up"
_ADVICE: dict[Why, str] = {
    "none": _START,
    "stale": _START,
    "broken": _START,
    "silent": "restart it: brickd down && brickd up -d",
    "strange": "set BRICKD_SOCKET to a daemon's socket",
}


class NoAnswer(NoDaemon):
    """No daemon answers.

    Attributes:
        why: none: there is no socket. stale: no process listens there. silent: no answer arrived in time. broken: the
            daemon ended while it answered. strange: the answer is invalid. elsewhere: the daemon's segments have
            another prefix. busy: the daemon has too many clients.
        what: the reason in words, without advice.
    """

    def __init__(self, why: Why, what: str) -> None:
        super().__init__(f"{what} ({_ADVICE[why]})" if why in _ADVICE else what)
        self.why = why
        self.what = what


class TurnedAway(NotPermitted):
    """The daemon refuses this user."""


_answering: set[Path] = set()  # the sockets of the daemons that answered this process
_silent: set[Path] = set()  # the sockets of the daemons for which this process waits only briefly


class Asked:
    """A sent request, and its answer."""

    def __init__(self, connection: socket, place: Path) -> None:
        self._connection = connection
        self._place = place

    def arrives(self, within_seconds: float) -> bool:
        """Wait up to `within_seconds` for the answer to begin; return whether it has begun."""
        import select

        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(within_seconds * 1000))

    def document(self) -> dict[str, Any]:
        """Read the document of the answer; raise NoAnswer, TurnedAway, or the error in the answer."""
        import json  # noqa: F401  (loading it takes 4 ms, in which the daemon already works)

        with self._read() as file:
            _, length = _head(file)
            return self._judged(_body(file, length))

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and the document of each event in a stream; raise the same errors as `document`."""
        with self._read() as file:
            _, length = _head(file)
            if length is not None:  # a stream has no length
                self._judged(_body(file, length))
            self._connection.settimeout(None)
            name = ""
            while line := file.readline(_BODY_BYTES):
                key, _, value = line.rstrip(b"\n").partition(b": ")
                if key == b"event":
                    name = value.decode("ascii")
                elif key == b"data":
                    yield name, self._judged(value)

    def no_event(self) -> BrickdError:
        """Return the error for a stream that ended without the event that it should contain."""
        if (theirs := _build()) in (None, ours()):
            return NoAnswer("broken", f"the daemon at {self._place} ended while it answered")
        return other_version(os.fspath(self._place), theirs, "its answer has no event")

    def pieces(self) -> Iterator[bytes]:
        """Yield the file in the answer, in pieces; raise the same errors as `document`."""
        with self._read() as file:
            status, length = _head(file)
            if status != _FINE or length is None or length < 0:
                self._judged(_body(file, length))
                raise ValueError
            while length > 0:
                piece = file.read(min(_PIECE_BYTES, length))
                if not piece:
                    raise EOFError
                length -= len(piece)
                yield piece

    @contextlib.contextmanager
    def _read(self) -> Iterator[BinaryIO]:
        with self._connection, self._connection.makefile("rb") as file:
            try:
                yield file
            except TimeoutError:
                raise NoAnswer("silent", f"the daemon at {self._place} does not answer") from None
            except (EOFError, ConnectionError):
                raise NoAnswer("broken", f"the daemon at {self._place} ended while it answered") from None
            except (ValueError, RecursionError):
                raise NoAnswer("strange", f"the process at {self._place} is not a brickd daemon") from None

    def _judged(self, body: bytes) -> dict[str, Any]:
        document = decoded(body, self._refused)
        _answering.add(self._place)
        error = protocol.error_in(document)
        match error:
            case None:
                return document
            case protocol.OTHER_PREFIX, message:
                raise NoAnswer("elsewhere", f"the daemon at {self._place} reads other segments: {message}")
            case protocol.BUSY, message:
                raise NoAnswer("busy", f"the daemon at {self._place} is busy: {message}")
            case protocol.STRANGER, message:
                raise TurnedAway(f"the daemon at {self._place} refuses user {os.geteuid()}: {message}")
            case protocol.NO_PATH, message:
                raise self._refused(message)
            case WrongQuestion.kind, message:  # a daemon of another build may not know a parameter
                raise WrongQuestion(message + remark(_build() or Build(None)))
            case kind, message:
                raise protocol.exception(kind, message)

    def _refused(self, what: str) -> OtherVersion:
        return other_version(os.fspath(self._place), _build() or Build(None), what)


def ask(path: str, query: Iterable[tuple[str, str]] = (), *, post: bool = False, seconds: float = 0.0) -> Asked:
    """Send a request for a path of the daemon's API.

    `seconds` is how long the daemon's work takes. The timeout becomes that much longer.

    Raises:
        NoAnswer: there is no daemon.
        TurnedAway: this user may not use the socket.
    """
    place = runtime().socket
    connection = _connected(place)
    connection.settimeout((_SHORT_SECONDS if place in _silent else _ANSWER_SECONDS) + seconds)
    form = "&".join(f"{protocol.quoted(key)}={protocol.quoted(value)}" for key, value in query)
    request = _REQUEST.format(
        method="POST" if post else "GET",
        target=f"{protocol.ROOT}/{path}".rstrip("/") + (f"?{form}" if form and not post else ""),
        host=protocol.HOST,
        header=protocol.PREFIX,
        prefix=protocol.quoted(prefix()),
        length=len(form) if post else 0,
        body=form if post else "",
    )
    with contextlib.suppress(OSError):  # the daemon may refuse before it has read the request; its answer is still read
        connection.sendall(request.encode("ascii"))
    return Asked(connection, place)


def expect_silence() -> None:
    """Wait only briefly for the daemon from now on, because it did not answer another process."""
    _silent.add(runtime().socket)


def unlike(error: Exception) -> OtherVersion | None:
    """If a daemon of another build may have caused `error`, return the error to raise in its place; else None."""
    place = runtime().socket
    if place not in _answering or (theirs := _build() or Build(None)) == ours():
        return None
    what = f"{error.args[0]!r} of its answer" if isinstance(error, KeyError) else "its answer"
    return other_version(os.fspath(place), theirs, f"this brickd cannot use {what}")


def _build() -> Build | None:
    import json

    with contextlib.suppress(BrickdError), ask("")._read() as file:
        _, length = _head(file)
        document = json.loads(_body(file, length))
        found = document if isinstance(document, dict) else {}
        version, sources = (value if isinstance(value := found.get(key), str) else None for key in ("version", "build"))
        return Build(version, sources)
    return None


def _connected(place: Path) -> socket:
    try:
        os.stat(place)
    except (FileNotFoundError, NotADirectoryError):
        raise NoAnswer("none", f"no daemon answers at {place}") from None
    except PermissionError:
        raise _turned_away(place) from None
    import socket
    import struct

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # If the backlog is full, connect() with settimeout would fail immediately instead of waiting.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _CONNECT_SECONDS, 0))
        connection.connect(os.fspath(place))
    except OSError as error:
        connection.close()
        match error:
            case PermissionError():
                raise _turned_away(place) from None
            case BlockingIOError():
                what = f"the daemon at {place} accepted no connection within {_CONNECT_SECONDS} s"
                raise NoAnswer("silent", what) from None
            case _:
                raise NoAnswer("stale", f"the daemon at {place} has ended") from None
    return connection


def _turned_away(place: Path) -> TurnedAway:
    return TurnedAway(
        f"the daemon at {place} does not accept user {os.geteuid()}, expected its own user, root or a member of the"
        " group in its BRICKD_GROUP (run brickd as one of these users)"
    )


def _head(file: BinaryIO) -> tuple[int, int | None]:
    """Read the head of an answer: the status, and the length of the body if there is one."""
    line = file.readline(_LINE_BYTES)
    if not line:
        raise EOFError
    version, status, *_ = line.split()
    if not version.startswith(b"HTTP/1."):
        raise ValueError
    length = None
    while line := file.readline(_LINE_BYTES).rstrip(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.lower() == b"content-length":
            length = int(value)
    return int(status), length


def _body(file: BinaryIO, length: int | None) -> bytes:
    if length is None or not 0 <= length <= _BODY_BYTES:
        raise ValueError
    body = file.read(length)
    if len(body) < length:
        raise EOFError
    return body
