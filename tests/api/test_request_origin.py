"""A web page in a browser controls no daemon, and reads nothing through a name of its own or from another origin.

The requests are written as bytes, because `ssh -L` forwards a browser's bytes to the socket unchanged.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from running import running
from serving import Answer, Daemon, answer, ask, connected, rest

from brickd.api.request_origin import LOOPBACK, refusal
from brickd.base.paths import runtime
from brickd.client.client import ask as asked_by_client
from brickd.client.protocol import HOST

HERE = "127.0.0.1:9230"
# What a browser sends with each request to a loopback address, besides Sec-Fetch-Site and Origin.
BROWSER = ("User-Agent: Mozilla/5.0", "Accept: */*", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty")


@pytest.fixture
def path(daemon: Daemon) -> Path:
    return runtime().socket


def send(path: Path, line: str, *headers: str, host: str | None = HERE, version: str = "1.1") -> Answer:
    """Send a request without a body; return the answer."""
    hosts = () if host is None else (f"Host: {host}",)
    with connected(path) as client:
        head = [f"{line} HTTP/{version}", *hosts, *headers, "", ""]
        client.sendall("\r\n".join(head).encode("latin-1"))
        return answer(rest(client))


def refused(found: Answer) -> tuple[int, str, str]:
    """Return the status, the kind and the message of an error."""
    error = found.document["error"]
    return found.status, error["kind"], error["message"]


# ---- Host


@pytest.mark.parametrize(
    "host",
    ["brickd", "localhost", "LocalHost", "localhost:9230", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535"],
)
def test_the_socket_has_the_name_of_its_clients_and_the_loopback_names(path: Path, host: str) -> None:
    assert send(path, "GET /v1", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9230", "localhost.evil.example", "127.0.0.1.evil.example:9230", "localhost.",
     "brickd:9230", "BRICKD", "brickd.", "brickd.evil.example", "::1", "[::1", "127.0.0.2", "127.0.0.1:x",
     "a@localhost", "0.0.0.0:9230", "localhost, localhost", ""],
)  # fmt: skip
def test_a_name_that_a_page_made_resolve_to_this_machine_is_refused(path: Path, host: str) -> None:
    status, kind, text = refused(send(path, "GET /v1", host=host))
    assert (status, kind) == (421, "other_host")
    assert text == f"Host is {host!r}, expected one of brickd, 127.0.0.1, [::1], localhost (with any port)"


def test_a_request_without_a_host_is_refused(path: Path) -> None:
    status, kind, text = refused(send(path, "GET /v1", host=None, version="1.0"))
    assert (status, kind, text[:15]) == (421, "other_host", "Host is missing")
    assert refused(send(path, "GET /v1", host=None))[:2] == (400, "wrong_request")


def test_a_request_with_two_hosts_is_refused(path: Path) -> None:
    for first, second in (("brickd", "brickd"), ("localhost", "evil.example"), ("evil.example", "localhost")):
        status, kind, text = refused(send(path, "GET /v1", f"Host: {second}", host=first))
        assert (status, kind, text[-12:]) == (400, "wrong_request", "and one Host")
        # The HTTP library refuses such a request. Without the library, the joined values are no name.
        twice: Any = {"method": "GET", "headers": [(b"host", first.encode()), (b"host", second.encode())]}
        assert refusal(twice, LOOPBACK, HOST) is not None


def test_a_long_or_hostile_host_is_cut_and_escaped_in_the_message(path: Path) -> None:
    _, _, text = refused(send(path, "GET /v1", host="\x9b2J" + 200 * "h"))
    assert text.startswith(f"Host is '\\x9b2J{57 * 'h'}', expected ")
    _, _, text = refused(send(path, "GET /v1", "Origin: \x9b2J" + 200 * "o"))
    assert text == f"Origin is '\\x9b2J{57 * 'o'}', expected http://{HERE} or no Origin"


# ---- Origin


def test_a_page_of_the_server_itself_can_read(path: Path) -> None:
    for host in (HERE, "localhost:9230", "[::1]:9230"):
        found = send(path, "GET /v1", f"Origin: http://{host}", "Sec-Fetch-Site: same-origin", *BROWSER, host=host)
        assert (found.status, json.loads(found.body)["source"]) == (200, "daemon")
        assert not any(header.startswith("access-control-") for header in found.headers)


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", f"https://{HERE}", "http://127.0.0.1", "http://127.0.0.1:9231",
     "http://localhost:9230", f"http://{HERE}.evil.example", f"http://{HERE}/", HERE, ""],
)  # fmt: skip
def test_another_origin_is_refused(path: Path, origin: str) -> None:
    text = f"Origin is {origin!r}, expected http://{HERE} or no Origin"
    for method in ("GET", "POST", "OPTIONS"):
        assert refused(send(path, f"{method} /v1", f"Origin: {origin}")) == (403, "web_page", text)
    found = send(path, "HEAD /v1", f"Origin: {origin}")
    assert (found.status, found.body) == (403, b"")


def test_a_browser_never_has_the_name_of_the_clients(path: Path) -> None:
    for origin in ("http://brickd", "null"):
        text = f"Origin is {origin!r}, expected no Origin"
        assert refused(send(path, "GET /v1", f"Origin: {origin}", host="brickd")) == (403, "web_page", text)


def test_two_origins_are_refused(path: Path) -> None:
    for second in (f"http://{HERE}", "http://evil.example"):
        found = send(path, "GET /v1", f"Origin: http://{HERE}", f"Origin: {second}")
        assert refused(found)[:2] == (403, "web_page")


# ---- Sec-Fetch


@pytest.mark.parametrize(
    ("site", "status"),
    [("none", 200), ("same-origin", 200), ("cross-site", 403), ("same-site", 403), ("", 403), ("none, none", 403)],
)
def test_a_browser_reads_for_its_user_and_for_the_servers_own_page(path: Path, site: str, status: int) -> None:
    found = send(path, "GET /v1", f"Sec-Fetch-Site: {site}", *BROWSER)
    assert found.status == send(path, "HEAD /v1", f"Sec-Fetch-Site: {site}", *BROWSER).status == status
    if status == 403:
        _, kind, text = refused(found)
        assert (kind, text.partition(":")[0]) == (
            "web_page", f"Sec-Fetch-Site is {site!r}, expected same-origin or none",
        )  # fmt: skip


@pytest.mark.parametrize(
    "header",
    ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none", "sec-fetch-mode: navigate", "SEC-FETCH-USER: ?1",
     f"Origin: http://{HERE}"],
)  # fmt: skip
def test_no_page_can_control_the_daemon(path: Path, header: str) -> None:
    key, _, value = header.partition(": ")
    text = f"{key.lower()} is {value!r}, expected no such header: "
    for method in ("POST", "PUT"):
        status, kind, told = refused(send(path, f"{method} /v1/down", header))
        assert (status, kind, told[: len(text)]) == (403, "web_page", text)
    assert ask(path, "/v1").status == 200, "the daemon still runs"


# ---- every path


def test_no_path_answers_a_page_not_even_a_stream_or_a_file(path: Path) -> None:
    endpoints = ask(path, "/v1").document["endpoints"]
    lines = [f"{each['method']} {each['path'].replace('{name:path}', 'x')}" for each in endpoints]
    assert {"GET /v1/events/stream", "GET /v1/record/file", "POST /v1/record", "POST /v1/down"} < set(lines)
    for line in [*lines, "GET /nothing"]:
        assert refused(send(path, line, "Sec-Fetch-Site: cross-site"))[:2] == (403, "web_page"), line
    assert ask(path, "/v1").status == 200, "the daemon still runs"


@pytest.mark.parametrize("header", ["Host: evil.example", f"Host: {HERE}\r\nOrigin: null"])
def test_a_page_is_refused_before_its_body_is_read(path: Path, header: str) -> None:
    with connected(path) as client:
        client.sendall(
            f"POST /v1/set HTTP/1.1\r\n{header}\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert answer(rest(client)).status in (403, 421), "no 100 Continue, and no wait for the body"


def test_an_order_of_a_page_is_not_carried_out(path: Path, daemon: Daemon) -> None:
    form, before = b"threshold=slower_percent%3D99", daemon.orders.thresholds
    ordered = f"POST /v1/set HTTP/1.1\r\n%sContent-Length: {len(form)}\r\n\r\n"
    for headers in (
        "Host: evil.example\r\n",
        f"Host: {HERE}\r\nOrigin: null\r\n",
        f"Host: {HERE}\r\nSec-Fetch-Mode: x\r\n",
    ):
        with connected(path) as client:
            client.sendall((ordered % headers).encode() + form)
            assert answer(rest(client)).status in (403, 421)
        assert daemon.orders.thresholds == before
    with connected(path) as client:
        client.sendall((ordered % "Host: localhost\r\n").encode() + form)
        assert answer(rest(client)).status == 200
    assert daemon.orders.thresholds != before, "and the same order of curl is"


@pytest.mark.ci
def test_a_page_that_reaches_the_socket_of_a_daemon_changes_nothing_and_does_not_end_it(prefix: str) -> None:
    with running() as daemon:
        before = daemon.ask("/set", b"")
        for header in ("Origin: null", "Sec-Fetch-Site: same-origin", f"Origin: http://{HERE}"):
            for order in ("/v1/set?threshold=slower_percent%3D99", "/v1/silence?id=x&for=1h", "/v1/down"):
                assert refused(send(runtime().socket, f"POST {order}", header))[:2] == (403, "web_page")
        assert daemon.ask("/set", b"") == before
        assert daemon.ask("")["pid"] == daemon.pid
        found = send(runtime().socket, "GET /v1/events/stream", "Origin: http://evil.example")
        assert refused(found)[:2] == (403, "web_page")
        assert asked_by_client("down", post=True).document()["pid"] == daemon.pid


# ---- clients that are not browsers


@pytest.mark.parametrize("line", ["GET /v1/status", "POST /v1/forget"])
def test_a_client_of_any_earlier_version_is_answered(path: Path, daemon: Daemon, line: str) -> None:
    headers = (f"brickd-prefix: {daemon.daemon().prefix}", "content-length: 0")
    assert send(path, line, *headers, host="brickd", version="1.0").status == 200


def test_the_client_of_this_version_is_answered(path: Path) -> None:
    assert asked_by_client("").document()["source"] == "daemon"
    assert asked_by_client("forget", post=True).document()["forgotten"] == 0


def test_the_headers_of_curl_are_accepted(path: Path) -> None:
    for host in ("localhost", "brickd"):
        assert send(path, "GET /v1", "User-Agent: curl/7.88.1", "Accept: */*", host=host).status == 200
        assert send(path, "POST /v1/forget", "User-Agent: curl/7.88.1", "Content-Length: 0", host=host).status == 200


@pytest.mark.ci
def test_curl_reads_and_controls_through_the_socket(path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    curl = ["curl", "--silent", "--unix-socket", str(path)]
    for url, *options in (["http://localhost/v1/status"], ["http://localhost/v1/forget", "--request", "POST"]):
        printed = subprocess.run([*curl, url, *options], capture_output=True, check=True).stdout
        assert json.loads(printed)["source"] == "daemon"
