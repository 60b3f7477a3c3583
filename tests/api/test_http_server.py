"""The TCP port answers only this machine, only GET and only with the token; no client harms the others."""

from __future__ import annotations

import dataclasses
import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from metric_pages import get, parsed
from port_server import DATA_TOKEN, LIMITS, port_serving
from pprof_reader import profile
from running import until
from serving import Daemon, answer, connected, rest

from brickd.api.connection_limits import Limits
from brickd.api.metrics_application import PROFILES_MAX
from brickd.api.tcp_listener import TcpListener
from brickd.base.paths import runtime
from brickd.errors import BrickdError, WrongQuestion
from brickd.export import pprof
from brickd.metrics.page import MetricsPage

TOKEN = b"s3cret"


@pytest.fixture
def address(daemon: Daemon) -> Iterator[str]:
    with port_serving(daemon) as at:
        yield at


def kind(body: bytes) -> str:
    return str(json.loads(body)["error"]["kind"])


def test_a_page_has_the_type_that_prometheus_expects(address: str) -> None:
    found = get(address)
    assert (found.status, found.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert any(name == "brickd_daemon_info" for name, _ in parsed(found.body))


def test_head_has_the_length_and_no_page(address: str) -> None:
    found = get(address, method="HEAD")
    assert (found.status, found.body) == (200, b"")
    assert int(found.headers["content-length"]) > 100


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_no_method_can_change_anything(address: str, method: str) -> None:
    found = get(address, method=method)
    assert (found.status, kind(found.body)) == (405, "no_such_method")


@pytest.mark.parametrize("target", ["/nothing", "/metrics/", "/../metrics", "/debug/pprof", "/v1/nothing"])
def test_the_port_has_no_other_path(address: str, target: str) -> None:
    found = get(address, target)
    assert (found.status, kind(found.body)) == (401, "no_token")
    found = get(address, target, f"Authorization: Bearer {DATA_TOKEN.decode()}")
    assert (found.status, kind(found.body)) == (404, "no_such_path")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9230", "127.0.0.1.evil.example", "", "localhost.", "::1"]
)
def test_a_request_for_another_host_is_refused(address: str, host: str) -> None:
    found = get(address, "/metrics", f"Host: {host}")
    assert (found.status, kind(found.body)) == (HTTPStatus.MISDIRECTED_REQUEST, "other_host")


def test_a_request_without_a_host_is_refused(address: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        found = answer(rest(client))
    assert (found.status, kind(found.body)) == (HTTPStatus.MISDIRECTED_REQUEST, "other_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]", "[::1]:9230"])
def test_this_machine_has_several_names(address: str, host: str) -> None:
    assert get(address, "/metrics", f"Host: {host}").status == 200


def test_the_address_of_the_port_is_a_name_and_the_host_of_the_api_is_not(daemon: Daemon) -> None:
    with port_serving(daemon, address="127.0.0.2:0") as address:
        for host in (address, "127.0.0.2", "localhost"):
            assert get(address, "/metrics", f"Host: {host}").status == 200
        for host in ("127.0.0.3", "brickd"):
            assert get(address, "/metrics", f"Host: {host}").status == HTTPStatus.MISDIRECTED_REQUEST
        message = json.loads(get(address, "/metrics", "Host: x").body)["error"]["message"]
    assert message == "Host is 'x', expected one of 127.0.0.1, 127.0.0.2, [::1], localhost (with any port)"


@pytest.mark.parametrize("header", ["Origin: null", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"])
def test_a_page_of_another_origin_reads_nothing(address: str, header: str) -> None:
    assert get(address, "/metrics", f"Origin: http://{address}").status == 200
    found = get(address, "/metrics", header)
    assert (found.status, kind(found.body)) == (403, "web_page")


def test_without_the_token_a_client_learns_nothing(daemon: Daemon) -> None:
    with port_serving(daemon, TOKEN) as address:
        wrong = ["x", "Bearer", "Bearer s3cre", "Bearer s3cret ", "Bearer s3cret2", "bearer s3cret", "Bearer \xff"]
        for target in ("/metrics", "/nothing"):
            for headers in ((), *((f"Authorization: {each}",) for each in wrong if not each.endswith(" "))):
                found = get(address, target, *headers)
                assert (found.status, kind(found.body)) == (401, "no_token")
                assert found.headers["www-authenticate"] == "Bearer"
                seen = b"is wrong" if headers else b"is missing"
                assert seen in found.body
        assert get(address, "/metrics", "Authorization: Bearer s3cret").status == 200


def test_a_request_that_is_too_long_is_refused(address: str) -> None:
    assert get(address, "/metrics?" + "x" * 17_000).status in (400, 431)
    assert get(address, "/metrics", f"X-Long: {'x' * 17_000}").status in (400, 431)


def test_bytes_that_are_no_request_get_an_error(address: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert kind(answer(rest(client)).body) == "wrong_request"


def silent(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_silent_clients_take_no_place_from_others_and_none_of_the_api(address: str) -> None:
    clients = [silent(address) for _ in range(3 * LIMITS.connections)]
    try:
        assert get(address).status == 200
        with connected(runtime().socket) as client:
            client.sendall(b"GET /v1 HTTP/1.1\r\nHost: brickd\r\n\r\n")
            assert answer(rest(client)).status == 200
    finally:
        for each in clients:
            each.close()


@pytest.mark.ci
def test_a_client_that_never_reads_is_dropped_and_holds_nothing(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = dataclasses.replace(Limits.of_port(8), take_seconds=0.2)
    big = b"# " + b"x" * (8 << 20) + b"\n"
    monkeypatch.setattr(MetricsPage, "newest", lambda _: big)
    with port_serving(daemon, limits=limits) as address, silent(address) as client:
        client.sendall(f"GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        assert get(address).body == big, "another client gets its page meanwhile"
        dropped = select.poll()
        dropped.register(client, 0)
        ((_, events),) = dropped.poll(30_000)
        assert events & select.POLLHUP


PROFILE = "/debug/pprof/bricks"


def test_a_profile_covers_the_time_that_was_asked_for(address: str) -> None:
    found = get(address, f"{PROFILE}?seconds=0.1")
    assert (found.status, found.headers["content-type"]) == (200, "application/octet-stream")
    samples, whole = profile(found.body)
    assert samples == []
    assert 0.1 <= whole[pprof.DURATION_NS][0] / 1e9 < 30


@pytest.mark.ci
def test_profiles_one_after_the_other_have_no_limit(address: str) -> None:
    for _ in range(PROFILES_MAX + 1):
        assert get(address, f"{PROFILE}?seconds=0.1").status == 200


@pytest.mark.parametrize("query", ["seconds=0", "seconds=61", "seconds=x", "seconds=nan", "second=1", "x", "seconds="])
def test_a_profile_of_another_length_is_refused(address: str, query: str) -> None:
    found = get(address, f"{PROFILE}?{query}")
    assert (found.status, kind(found.body)) == (400, "wrong_question")


def test_more_profiles_at_once_than_the_limit_are_refused(address: str) -> None:
    clients = [silent(address) for _ in range(PROFILES_MAX)]
    for each in clients:
        each.sendall(f"GET {PROFILE}?seconds=60 HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    while (found := get(address, f"{PROFILE}?seconds=0.1")).status == 200:
        pass
    assert (found.status, kind(found.body)) == (429, "busy")
    assert get(address).status == 200, "and a page of metrics is still made"
    for each in clients:
        each.close()


def test_a_profile_ends_when_its_client_has_gone(address: str) -> None:
    def taken() -> bool:
        return get(address, f"{PROFILE}?seconds=0.1").status == HTTPStatus.TOO_MANY_REQUESTS

    clients = [silent(address) for _ in range(PROFILES_MAX)]
    for each in clients:
        each.sendall(f"GET {PROFILE}?seconds=60 HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    until(taken)
    for each in clients:
        each.close()
    ended = time.monotonic() + 30
    until(lambda: not taken())
    assert time.monotonic() < ended, "and not after 60 seconds"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("0.0.0.0:9230", "reachable from other machines"),
        ("192.0.2.1:9230", "reachable from other machines"),
        ("[::]:9230", "reachable from other machines"),
        ("example.org:9230", "not an IP address"),
        (":9230", "not an address with a port"),
        ("9230", "not an address with a port"),
        ("127.0.0.1", "not an address with a port"),
        ("127.0.0.1:65536", "not an address with a port"),
        ("127.0.0.1:-1", "not an address with a port"),
        (f"127.0.0.1:{5000 * '9'}", "not an address with a port"),
        ("127.0.0.1:٣", "not an address with a port"),
    ],
)
def test_only_addresses_of_this_machine_are_accepted(given: str, reason: str) -> None:
    with pytest.raises(WrongQuestion, match=reason) as error:
        TcpListener(given)
    assert "127.0.0.1:PORT" in str(error.value)


def test_a_port_that_is_taken_is_named(address: str) -> None:
    with pytest.raises(BrickdError, match=f"--http {address}: cannot listen: Address already in use"):
        TcpListener(address)


def test_localhost_and_ipv6_are_addresses_of_this_machine(daemon: Daemon) -> None:
    with port_serving(daemon, address="localhost:0") as address:
        assert address.startswith("127.0.0.1:")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with port_serving(daemon, address="[::1]:0") as address:
        assert get(address).status == 200


@pytest.mark.ci
def test_the_options_need_each_other(tmp_path: Path, run_up: Callable[..., str]) -> None:
    assert "--metrics needs --http ADDRESS" in run_up("--metrics")
    assert "--http-token-file needs --http" in run_up("--http-token-file", "x")
    assert "expected 127.0.0.1:PORT" in run_up("--http", "0.0.0.0:0", "--metrics")
    assert "end with .prom" in run_up("--metrics-textfile", str(tmp_path / "x.txt"))
    token = tmp_path / "token"
    token.write_text("x")
    token.chmod(0o644)
    assert "mode 0644" in run_up("--http", "127.0.0.1:0", "--metrics", "--http-token-file", str(token))
    token.chmod(0o600)
    for secret in ("x\ny", "x\0y", "x\x7fy"):  # no client can send such a token in a header
        token.write_text(secret)
        assert "expected one line" in run_up("--http", "127.0.0.1:0", "--metrics", "--http-token-file", str(token))


@pytest.fixture
def run_up(prefix: str) -> Callable[..., str]:
    from verbs import brickd

    def run(*options: str) -> str:
        result = brickd("up", *options)
        assert result.returncode == 2
        return result.stderr

    return run
