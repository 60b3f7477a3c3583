"""For any input of a client, the server sends a JSON answer or closes the connection, and continues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from conftest import SHM
from faults import Start
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Daemon, answer, ask, connected, request, rest, serving
from verbs import started

from brickd.api.connection_limits import Limits

SETTINGS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


class Enduring(Daemon):
    """A daemon that ignores requests to shut down."""

    def down(self) -> None:
        pass


@pytest.fixture
def path(worker: Start, prefix: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Path]:
    started(worker, BRICKD_SERVICE="api")
    (SHM / f"{prefix}junk").write_bytes(b"\x01" * 8192)
    path = tmp_path / "socket"
    with serving(path, Limits(streams=0), kind=Enduring):
        yield path
        assert ask(path, "/v1/status").document["workers"][0]["name"] == "api/0"
    assert capfd.readouterr() == ("", "")


def judged(reported: bytes) -> None:
    """Check that the request was answered, refused or dropped."""
    if reported:
        result = answer(reported)
        assert result.status == 200 or 400 <= result.status < 500
        assert result.headers["content-type"] == "application/json"
        # the answer to HEAD has no body
        assert int(result.headers["content-length"]) == len(result.body) or not result.body
        if result.body:
            json.loads(result.body)


WORD = st.sampled_from(
    ["v1", "status", "workers", "bricks", "tree", "hang", "stragglers", "coverage", "inspect", "events", "stream",
     "set", "forget", "down", "", "api/0", "name", "sort", "watch", "0.01", "seconds", "since", "service", "spans",
     "on", "api", "top", "1", "..", "weights", "rescan", "all"]
)  # fmt: skip
TEXT = WORD | st.binary(max_size=6).map(quote_from_bytes) | st.text("/%?&=;+#.~", max_size=4)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=4).map(
    lambda pairs: "&".join(f"{key}={value}" for key, value in pairs)
)
QUERY = st.just("") | PAIRS.map("?{}".format) | TEXT.map("?{}".format)
TARGET = st.tuples(st.lists(WORD | TEXT, max_size=4).map("/".join), QUERY).map(lambda parts: f"/v1/{''.join(parts)}")
BODY = st.none() | st.binary(max_size=60) | PAIRS.map(str.encode) | st.integers(1, 9000).map(lambda n: b"[" * n)
# All paths, except those whose answer may have to wait.
QUICK = TARGET.filter(lambda target: "hang" not in target)


@SETTINGS
@given(target=QUICK, body=BODY)
def test_any_request_is_answered_or_refused(path: Path, target: str, body: bytes | None) -> None:
    with connected(path) as client:
        client.sendall(request(target, body))
        judged(rest(client))


@SETTINGS
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "X" * 99]),
    target=QUICK | st.sampled_from(["*", "/", "//", "http://x/v1/status", "v1"]),
    headers=st.lists(
        st.sampled_from(
            ["Content-Length: 5", "Content-Length: -1", "Transfer-Encoding: chunked", "Transfer-Encoding: x", "Host: y",
             "Connection: upgrade", "Upgrade: websocket", "Expect: 100-continue", "Cookie: \xe9", ":", "x",
             "Range: bytes=0-1", "brickd-prefix: x", "Origin: http://localhost", "Origin: \xe9", "Sec-Fetch-Site: x"]
        ),
        max_size=3,
    ),
    host=st.sampled_from(["brickd", "localhost", "x", "", "\xe9:1"]),
)  # fmt: skip
def test_any_head_is_answered_or_refused(path: Path, method: str, target: str, headers: list[str], host: str) -> None:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
    with connected(path) as client:
        client.sendall("".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n")
        client.shutdown(1)  # the client sends less than the body that it announced
        judged(rest(client).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"))


@SETTINGS
@given(st.binary(max_size=200) | st.builds(bytes.__add__, st.just(request("/v1/status")[:30]), st.binary(max_size=99)))
def test_any_bytes_are_answered_or_refused(path: Path, sent: bytes) -> None:
    with connected(path) as client:
        client.sendall(sent)
        client.shutdown(1)
        judged(rest(client))
