"""A process that serves the page next to a daemon: answers are passed on unchanged, and nothing else is."""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import pytest
from metric_pages import get
from port_server import in_thread
from running import until
from serving import Daemon, answer, ask, rest, serving, still

from brickd.api.connection_limits import Limits
from brickd.api.forwarder import Forwarder, parsed_head
from brickd.api.gateway import Gateway, Port
from brickd.api.http_server import HttpServer
from brickd.api.tcp_listener import TcpListener
from brickd.base.paths import runtime
from brickd.shm.segment_files import prefix

TOKEN = "Authorization: Bearer t0ken"


@contextmanager
def forwarding(path: Path, limits: Limits | None = None) -> Iterator[str]:
    """Yield the address of a server that forwards to a socket."""
    gateway = Gateway(Forwarder(path, prefix()), Port("127.0.0.1", b"t0ken"))
    with in_thread(HttpServer(TcpListener("127.0.0.1:0"), gateway, limits or Limits.of_port(8))) as address:
        yield address


@pytest.fixture
def address(daemon: Daemon) -> Iterator[str]:
    with forwarding(runtime().socket) as at:
        yield at


@contextmanager
def upstream(path: Path, answers: Callable[[socket.socket], None]) -> Iterator[list[bytes]]:
    """Answer at a socket in place of a daemon, one client at a time; yield the received requests."""
    requests: list[bytes] = []

    def run() -> None:
        while True:
            client, _ = listener.accept()
            with client:
                if not (request := client.recv(1 << 16)):
                    return
                requests.append(request)
                answers(client)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield requests
        finally:
            with socket.socket(socket.AF_UNIX) as last:  # sends nothing, which ends the thread
                last.connect(os.fspath(path))
            thread.join()


def client_of(address: str, target: str) -> socket.socket:
    host, port = address.split(":")
    client = socket.create_connection((host, int(port)), timeout=30)
    client.sendall(f"GET {target} HTTP/1.0\r\nHost: {address}\r\n{TOKEN}\r\n\r\n".encode())
    return client


def test_documents_and_errors_are_passed_on(address: str) -> None:
    for path in ("/v1", "/v1/status", "/v1/tree?layers=true", "/v1/status?nonsense=1", "/v1/nothing", "/v1/status/"):
        found, own = get(address, path, TOKEN), ask(runtime().socket, path)
        assert (found.status, still(found.document)) == (own.status, still(own.document)), path
        assert found.headers["content-type"] == "application/json"
        assert int(found.headers["content-length"]) == len(found.body)


def test_a_stream_is_passed_on_as_it_happens(address: str, daemon: Daemon) -> None:
    with client_of(address, "/v1/events/stream?since=0") as client, client.makefile("rb") as lines:
        assert b"200" in lines.readline()
        for number in range(3):
            daemon.events.add("worker_found", f"event {number}", service="api", worker="api/0")
            while not (line := lines.readline()).startswith(b"data:"):
                assert line
            assert f"event {number}".encode() in line


def test_head_is_passed_on_without_a_body(address: str) -> None:
    found = get(address, "/v1", TOKEN, method="HEAD")
    assert (found.status, found.body) == (200, b"")
    assert int(found.headers["content-length"]) > 1000


def test_only_the_api_is_forwarded_and_only_with_the_token(address: str) -> None:
    for path in ("/v1/status", "/v1", "/v2", "/nothing"):
        assert get(address, path).status == HTTPStatus.UNAUTHORIZED
    for path in ("/v1x", "/v2", "//v1", "/%76%31", "/v1%2fstatus", "/metrics", "http://brickd/v1", "*"):
        found = get(address, path, TOKEN)
        assert (found.status, found.document["error"]["kind"]) == (404, "no_such_path")
    assert get(address, "/").headers["content-type"] == "text/html; charset=utf-8"


def test_through_the_page_nothing_can_be_controlled(address: str, daemon: Daemon) -> None:
    for path in ("/v1/down", "/v1/set", "/v1/forget"):
        found = get(address, path, TOKEN, method="POST")
        assert (found.status, found.document["error"]["kind"]) == (405, "no_such_method")
    found = get(address, "/v1/record/file?recording=1&number=1", TOKEN)
    assert (found.status, found.document["error"]["kind"]) == (403, "not_permitted")
    assert daemon.thread.is_alive()


def test_a_client_of_the_socket_can_give_up_control_for_a_request(daemon: Daemon) -> None:
    for value in ("read", "control", ""):
        found = ask(runtime().socket, "/v1/down", b"", f"brickd-role: {value}")
        assert (found.status, found.document["error"]["kind"]) == (403, "not_permitted")
        assert ask(runtime().socket, "/v1/status", None, f"brickd-role: {value}").status == HTTPStatus.OK
    assert daemon.thread.is_alive()


def test_without_a_daemon_the_answer_says_what_to_do_and_a_later_daemon_answers(prefix: str) -> None:
    path = runtime().socket
    path.parent.mkdir(parents=True, exist_ok=True)
    with forwarding(path) as address:
        found = get(address, "/v1/status", TOKEN)
        assert found.status == HTTPStatus.SERVICE_UNAVAILABLE
        message = f"no daemon answers at {path} (start one: brickd up)"
        assert found.document == {"error": {"kind": "no_daemon", "message": message}}
        with serving(path):
            assert get(address, "/v1/status", TOKEN).status == HTTPStatus.OK
        assert get(address, "/v1/status", TOKEN).status == HTTPStatus.SERVICE_UNAVAILABLE


OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


def test_the_daemon_gets_no_header_of_the_client(tmp_path: Path) -> None:
    given = (TOKEN, "Cookie: a=b", "X-Any: thing", "brickd-prefix: other")
    path = tmp_path / "s"
    with upstream(path, lambda client: client.sendall(OK + b"\r\nx")) as requests, forwarding(path) as address:
        assert get(address, "/v1/a%20b?c=%00&d", *given, f"Origin: http://{address}").status == HTTPStatus.OK
    lines = ["GET /v1/a%20b?c=%00&d HTTP/1.0", "host: brickd", f"brickd-prefix: {prefix()}", "brickd-role: read"]
    assert requests == ["\r\n".join([*lines, "", ""]).encode()]


def test_headers_about_the_daemons_connection_are_not_passed_on(tmp_path: Path) -> None:
    more = b"connection: keep-alive\r\nset-cookie: a=b\r\naccess-control-allow-origin: *\r\nkeep-alive: 5\r\n"
    head = OK + more + b"content-length: 2\r\nx-other: y\r\n\r\n"
    with upstream(tmp_path / "s", lambda client: client.sendall(head + b"ab")), forwarding(tmp_path / "s") as address:
        found = get(address, "/v1", TOKEN)
    assert (found.status, found.body) == (200, b"ab")
    assert found.headers == {
        "connection": "close",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "same-origin",
        "content-type": "text/plain",
        "content-length": "2",
    }


def test_a_large_body_is_passed_on_byte_for_byte(tmp_path: Path) -> None:
    body = os.urandom(3 << 20)
    head = OK + b"content-length: %d\r\n\r\n" % len(body)
    with upstream(tmp_path / "s", lambda client: client.sendall(head + body)), forwarding(tmp_path / "s") as address:
        assert get(address, "/v1", TOKEN).body == body


def test_a_body_that_ends_early_is_not_completed(tmp_path: Path) -> None:
    short = OK + b"content-length: 10\r\n\r\nabc"
    with upstream(tmp_path / "s", lambda client: client.sendall(short)), forwarding(tmp_path / "s") as address:
        with client_of(address, "/v1") as client:
            found = answer(rest(client))
        assert (found.headers["content-length"], found.body) == ("10", b"abc")


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\n", b"nonsense\r\n\r\n", OK + b"x" * 70_000, OK + b"x: \xff\r\n\r\n"]
)
def test_an_answer_that_is_not_http_becomes_an_error(tmp_path: Path, sent: bytes) -> None:
    def answers(client: socket.socket) -> None:
        with suppress(OSError):  # the server may close the connection before it has read everything
            client.sendall(sent)

    with upstream(tmp_path / "s", answers), forwarding(tmp_path / "s") as address:
        found = get(address, "/v1", TOKEN)
    assert (found.status, found.document["error"]["kind"]) == (503, "no_daemon")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/2 200 OK", b"HTTP/1.1 100 Continue", b"HTTP/1.1 600 X", b"HTTP/1.1 20", b"HTTP/1.1 2000 OK", b"",
        b"HTTP/1.1 200 OK\r\nno-colon", b"HTTP/1.1 200 OK\r\na b: c", b"HTTP/1.1 200 OK\r\na: b\nc: d",
        b"HTTP/1.1 200 OK\r\n folded: x", b"HTTP/1.1 200 OK\r\ncontent-length: -1",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1", b"HTTP/1.1 200 OK\r\ncontent-length: x",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 19, b"HTTP/1.1 200 OK\r\nx: " + b"y" * 16_384,
    ],
)  # fmt: skip
def test_a_malformed_head_is_none(head: bytes) -> None:
    assert parsed_head(head + b"\r\n\r\n") is None


def test_a_well_formed_head_is_parsed() -> None:
    found = parsed_head(b"HTTP/1.0 404 Not Found\r\nContent-Length: 12\r\nAllow: GET\r\n\r\n")
    assert found is not None
    assert found.status == HTTPStatus.NOT_FOUND
    assert found.headers[-2:] == [(b"content-length", b"12"), (b"allow", b"GET")]
    assert parsed_head(b"HTTP/1.1 200 OK\r\n\r\n") is not None


def test_a_client_that_leaves_ends_the_connection_to_the_daemon(tmp_path: Path) -> None:
    left = threading.Event()

    def answers(client: socket.socket) -> None:
        client.sendall(OK + b"\r\nfirst")
        assert client.recv(1) == b""
        left.set()

    with upstream(tmp_path / "s", answers), forwarding(tmp_path / "s") as address:
        with client_of(address, "/v1/status/stream") as client:
            while b"first" not in client.recv(1 << 16):
                pass
            assert not left.is_set()
        assert left.wait(30)


def test_a_client_that_never_reads_takes_little_memory_and_is_dropped(tmp_path: Path) -> None:
    taken, ended = [0], threading.Event()

    def answers(client: socket.socket) -> None:
        client.sendall(OK + b"\r\n")
        try:
            while True:
                taken[0] += client.send(b"x" * 65_536)
        except OSError:
            ended.set()

    limits, path = dataclasses.replace(Limits.of_port(8), take_seconds=0.2), tmp_path / "s"
    with upstream(path, answers), forwarding(path, limits) as address, client_of(address, "/v1/status/stream"):
        assert ended.wait(30), "the server drops the client"
    assert 0 < taken[0] < 64 << 20, "the buffers of two sockets and two pieces"


def test_streams_end_when_the_server_ends(daemon: Daemon) -> None:
    patient = dataclasses.replace(Limits.of_port(8), farewell_seconds=3600)
    with forwarding(runtime().socket, patient) as address:
        client = client_of(address, "/v1/status/stream?seconds=60")
        until(lambda: b"event: status" in client.recv(1 << 16))
    client.close()
