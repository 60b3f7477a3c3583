"""50 clients of the TCP port, one of which never reads, do not harm the drain, the socket or each other."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from http import HTTPStatus

import pytest
from busy_workers import loaded
from faults import Start
from metric_pages import get
from running import running

from brickd.base.open_file_limits import shared
from brickd.base.paths import runtime

CROWD = 50
STREAMS = shared(100).port // 2


def reading(address: str, target: str, token: str, into: ExitStack, *, buffer: int | None = None) -> socket.socket:
    host, port = address.split(":")
    client = into.enter_context(socket.socket())
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(30)
    client.connect((host, int(port)))
    head = f"GET {target} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
    client.sendall(head.encode())
    return client


@pytest.mark.ci
def test_50_clients_and_one_that_never_reads_leave_the_drain_unharmed(worker: Start) -> None:
    with running(options=("--http", "127.0.0.1:0")) as daemon, ExitStack() as clients:
        address, token = daemon.ask("")["page"]["address"], runtime().web_token.read_text().strip()
        busy = [loaded(worker, pace_ms=10) for _ in range(2)]
        daemon.once("/workers", lambda found: len(found["workers"]) == len(busy))
        daemon.ask("/set", b"service=load&spans=on")
        never = reading(address, "/v1/status/stream?seconds=0.1", token, clients, buffer=2048)
        crowd = [reading(address, "/v1/status/stream?seconds=0.1", token, clients) for _ in range(CROWD - 1)]
        answers = [status(each) for each in crowd]
        assert answers.count(b"200") == STREAMS - 1, "and the one that never reads"
        assert set(answers) <= {b"200", b"429", b""}
        for follower, answered in zip(crowd, answers, strict=True):
            while answered == b"200" and b"event: status" not in follower.recv(1 << 16):
                pass
        page = get(address, "/v1/status", f"Authorization: Bearer {token}")
        assert page.status == HTTPStatus.OK, "a client that asks once is answered"
        for each in busy:
            each.rest()
        spans = sum(each.reported["spans"] for each in busy)
        drained = daemon.once("/status", lambda found: found["ledger"]["details"]["in_ring"] == 0)
        assert drained["ledger"]["spans"]["begun"] == spans
        assert drained["ledger"]["lost"] == {"spans": 0, "details": 0, "events": 0}
        assert never.fileno() >= 0


def status(client: socket.socket) -> bytes:
    """Return the status of an answer; b"" if another client took the place before the request was read."""
    try:
        return client.recv(12).partition(b" ")[2][:3]
    except ConnectionResetError:
        return b""
