"""Serves the API in a thread of the test, with this machine's workers. This module also has clients, both valid and
hostile ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from conftest import SHM

from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.timing.findings import StragglerVerdict
from brickd.api.connection_limits import Limits
from brickd.api.listener import Listener
from brickd.api.server import Server
from brickd.base.paths import runtime
from brickd.base.thresholds import Thresholds, assigned
from brickd.datasources.shared_memory import SharedMemory
from brickd.datasources.world import DaemonStatus, Source
from brickd.errors import BrickdError, NoSuchWorker
from brickd.model.event_log import Log
from brickd.query.orders import (
    CanaryRoundQuery,
    CanaryRunning,
    EndRecording,
    Forgetting,
    Obeyed,
    Rescanning,
    Setting,
    Silencing,
    StartRecording,
    Wish,
)
from brickd.recording.library import FlightShelf, Shelf
from brickd.recording.session import Recorder
from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find, prefix

_CONTROL_PAGE = 4096
_OFF, _SPANS = 1, 2


class Orders:
    """Executes control requests immediately, on shared memory."""

    def __init__(self) -> None:
        self.thresholds = Thresholds()

    def set_thresholds(self, order: Setting) -> Thresholds:
        self.thresholds = assigned(order.threshold, self.thresholds)
        return self.thresholds

    def set(self, order: Setting) -> Obeyed:
        workers = [worker for worker in SharedMemory().survey().workers if worker.service == order.service]
        if not workers:
            raise NoSuchWorker(f"no service {order.service}")
        flags = 0
        for worker in workers:
            flags = worker.reading.flags
            for wanted, flag, on in ((order.spans, _SPANS, "on"), (order.recording, _OFF, "off")):
                if wanted is not None:
                    flags = flags | flag if wanted == on else flags & ~flag
            with (SHM / worker.reading.file).open("r+b", buffering=0) as file:
                os.pwrite(file.fileno(), flags.to_bytes(4, "little"), _CONTROL_PAGE)
        return Obeyed(Wish(flags & _SPANS != 0, flags & _OFF != 0), len(workers))

    def rescan(self, order: Rescanning) -> list[str]:
        return []

    def run_canaries(self, order: CanaryRunning) -> dict[str, Any]:
        return self.canary_round(CanaryRoundQuery(1))

    def canary_round(self, query: CanaryRoundQuery) -> dict[str, Any]:
        return {"round": query.round, "over": True, "verdict": "unproven", "ignored": 0, "results": []}

    def forget(self, order: Forgetting) -> int:
        forgotten = 0
        for file in find():
            with open_segment(file) as segment:
                if not segment.identity().alive:
                    forgotten += segment.unlink()
        return forgotten


class Daemon(SharedMemory):
    """A daemon without a loop, as the API sees it: it applies settings immediately."""

    source: Source = "daemon"

    def __init__(self) -> None:
        self.events, self.shelf = Log(), Shelf(runtime().recordings)
        self.flights = FlightShelf(runtime().flight_recordings)
        self.checkpoint_problem: str | None = None
        self.judged: StragglerVerdict | None = None
        self.seen, self.orders = Compared(), Orders()
        self.server: Server
        self.thread: threading.Thread
        self._started_ns = time.time_ns()

    def daemon(self) -> DaemonStatus:  # type: ignore[override]
        uptime = time.time_ns() - self._started_ns
        return DaemonStatus("0.1.0", os.getpid(), self._started_ns, uptime, prefix(), self.checkpoint_problem)

    def compared(self) -> Compared:
        return self.seen

    def stragglers(self) -> StragglerVerdict | None:  # type: ignore[override]
        return self.judged

    def silence(self, order: Silencing) -> list[dict[str, Any]]:
        return []

    def test_notify(self) -> list[dict[str, Any]]:
        return []

    def record(self, order: StartRecording) -> Recorder:
        raise BrickdError("nothing is recorded here")

    def end_recording(self, order: EndRecording) -> None:
        raise BrickdError(f"recording {order.recording} is not running")

    def down(self) -> None:
        self.server.stop()

    def end(self) -> None:
        """Stop the server."""
        self.server.stop()
        self.thread.join()


@contextmanager
def serving(
    path: Path, limits: Limits | None = None, *, group: int | None = None, kind: type[Daemon] = Daemon
) -> Iterator[Daemon]:
    """Yield a daemon that answers at the path."""
    daemon = kind()
    daemon.server = Server(daemon, lambda: Listener(path, group=group), limits or Limits())
    daemon.thread = threading.Thread(target=lambda: asyncio.run(daemon.server.serve()))
    daemon.thread.start()
    try:
        yield daemon
    finally:
        daemon.end()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def connected(path: Path) -> socket.socket:
    """Return a client that has sent nothing yet."""
    client = socket.socket(socket.AF_UNIX)
    # connect without a time-out: a connect with a time-out does not wait until the server accepts
    client.connect(os.fspath(path))
    client.settimeout(30)
    return client


def request(target: str, body: bytes | None = None, *headers: str) -> bytes:
    """Return a request as curl would send it."""
    lines = [f"{'GET' if body is None else 'POST'} {target} HTTP/1.1", "Host: brickd", *headers]
    lines += [] if body is None else [f"Content-Length: {len(body)}"]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + (body or b"")


def rest(client: socket.socket) -> bytes:
    """Return everything that is received until the other end closes."""
    pieces = []
    try:
        while piece := client.recv(1 << 16):
            pieces.append(piece)
    except ConnectionResetError:
        pass  # the other end closed before it read all of our data
    return b"".join(pieces)


def answer(given: bytes) -> Answer:
    """Parse an answer."""
    head, _, body = given.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), headers, body)


def ask(path: Path, target: str, body: bytes | None = None, *headers: str) -> Answer:
    """Send a request, and read the answer."""
    with connected(path) as client:
        client.sendall(request(target, body, *headers))
        return answer(rest(client))


@contextmanager
def following(path: Path, target: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """Yield the name and the document of each event of a stream."""
    with connected(path) as client, client.makefile("rb") as file:
        # With HTTP/1.0, the server does not send the answer in chunks.
        client.sendall(request(target).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert b"200" in file.readline()
        while file.readline().strip():
            pass
        yield _events(file)


def _events(lines: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        key, _, value = line.decode("ascii").rstrip("\n").partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            yield name, json.loads(value)


# Keys whose values depend on the reader, or change between two readings even if the workers are suspended.
_TIMED = {"source", "daemon", "words", "spread", "percent", "worst_worker", "cpu_percent", "rss_bytes", "seen"} | {
    "elements_per_second_in_brick", "flops_per_second_in_brick",
}  # fmt: skip


def still(document: Any) -> Any:
    """Return a document without the values that change over time."""
    if isinstance(document, dict):
        return {key: still(value) for key, value in document.items() if key not in _TIMED and not key.endswith("_ns")}
    if isinstance(document, str):
        return re.sub(r"for [\d.,]+ \w+", "for …", document)
    return [still(each) for each in document] if isinstance(document, list | tuple) else document
