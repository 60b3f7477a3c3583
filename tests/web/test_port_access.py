"""The data at the TCP port: the same documents as at the socket, only with the token, and nothing can change."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http import HTTPStatus

import pytest
from metric_pages import get
from port_server import DATA_TOKEN, port_serving
from serving import Answer, Daemon, ask, rest, still

from brickd.api.connection_limits import Limits
from brickd.base.paths import runtime

AUTHORIZED = f"Authorization: Bearer {DATA_TOKEN.decode()}"


@pytest.fixture
def address(daemon: Daemon) -> Iterator[str]:
    with port_serving(daemon) as at:
        yield at


def endpoints(method: str, role: str) -> list[str]:
    found = ask(runtime().socket, "/v1").document["endpoints"]
    return [
        each["path"].replace("{name:path}", "api/0")
        for each in found
        if (each["method"], each["role"]) == (method, role)
    ]


def refused(found: Answer) -> tuple[int, str]:
    return found.status, found.document["error"]["kind"]


def test_no_path_has_data_without_the_token(address: str) -> None:
    paths = endpoints("GET", "read")
    assert len(paths) > 15
    assert "/v1/status/stream" in paths
    for path in paths:
        for headers in ((), ("Authorization: Bearer x",), ("Cookie: token=token-of-data",)):
            found = get(address, path, *headers)
            assert refused(found) == (401, "no_token"), path
            assert found.headers["www-authenticate"] == "Bearer"
        assert refused(get(address, f"{path}?token={DATA_TOKEN.decode()}")) == (401, "no_token")


def test_two_tokens_are_no_token(address: str) -> None:
    assert refused(get(address, "/v1", "Authorization: Bearer x", AUTHORIZED)) == (401, "no_token")


def test_a_path_in_another_spelling_needs_the_token_too(address: str) -> None:
    for path in ("/v1%2fstatus", "/%76%31/status", "//v1/status", "/v1/../v1/status", "/metrics/../v1/status"):
        assert refused(get(address, path)) == (401, "no_token")
    assert get(address, "/%6detrics").status == 200, "metrics are open here in any spelling"


def test_documents_are_those_of_the_socket(address: str) -> None:
    for path in ("/v1", "/v1/status", "/v1/bricks", "/v1/tree?layers=true", "/v1/hang?watch=0.01"):
        found = get(address, path, AUTHORIZED)
        assert (found.status, still(found.document)) == (200, still(ask(runtime().socket, path).document)), path


def test_with_the_token_nothing_can_be_changed(address: str, daemon: Daemon) -> None:
    paths = endpoints("POST", "control")
    assert {"/v1/down", "/v1/set", "/v1/record", "/v1/forget"} < set(paths)
    for path in paths:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert refused(get(address, path, AUTHORIZED, method=method)) == (405, "no_such_method")
        assert get(address, path, AUTHORIZED).status in (404, 405) or path == "/v1/record"
    assert daemon.thread.is_alive()


def test_recordings_are_not_served(address: str) -> None:
    assert endpoints("GET", "control") == ["/v1/record/file"]
    assert refused(get(address, "/v1/record/file?recording=1&number=1", AUTHORIZED)) == (403, "not_permitted")


@pytest.mark.parametrize("header", ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Origin: http://{}"])
def test_a_browser_cannot_send_anything_but_a_question(address: str, header: str) -> None:
    found = get(address, "/v1/status", AUTHORIZED, header.format(address), method="POST")
    assert refused(found) == (403, "web_page")


def test_another_host_or_origin_is_refused_even_with_the_token(address: str) -> None:
    assert refused(get(address, "/v1", AUTHORIZED, "Host: evil.example")) == (421, "other_host")
    assert refused(get(address, "/v1", AUTHORIZED, "Origin: http://evil.example")) == (403, "web_page")
    assert get(address, "/v1", AUTHORIZED, f"Origin: http://{address}").status == HTTPStatus.OK


def test_head_of_a_document_has_its_length_and_no_body(address: str) -> None:
    found = get(address, "/v1", AUTHORIZED, method="HEAD")
    assert (found.status, found.body) == (200, b"")
    assert int(found.headers["content-length"]) > 1000


def test_a_stream_is_completed_when_the_server_ends(daemon: Daemon) -> None:
    patient = dataclasses.replace(Limits.of_port(8), farewell_seconds=3600)
    with port_serving(daemon, limits=patient) as address:
        host, port = address.split(":")
        client = socket.create_connection((host, int(port)), timeout=30)
        client.sendall(f"GET /v1/status/stream HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZED}\r\n\r\n".encode())
        while b"event: status" not in client.recv(1 << 16):
            pass
    with client:
        assert rest(client).endswith(b"0\r\n\r\n"), "the end of a chunked body"


def test_streams_take_at_most_half_of_the_places(daemon: Daemon) -> None:
    limits = Limits.of_port(4)
    with port_serving(daemon, limits=limits) as address, ExitStack() as clients:
        host, port = address.split(":")
        for expected in (b"200", b"200", b"429"):
            client = clients.enter_context(socket.create_connection((host, int(port)), timeout=30))
            client.sendall(f"GET /v1/events/stream HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZED}\r\n\r\n".encode())
            assert client.recv(12).split()[1] == expected
        assert get(address, "/v1", AUTHORIZED).status == HTTPStatus.OK
