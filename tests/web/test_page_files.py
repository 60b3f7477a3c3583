"""The files of the web page: a fixed table, with headers that restrict the page."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from metric_pages import get
from port_server import port_serving
from serving import Answer, Daemon, answer, connected, rest

from brickd.base.paths import runtime
from brickd.web.assets import STATIC, TYPES, assets
from brickd.web.page import HEADERS, public_files

Send = Callable[..., Answer]

FILES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())
PATHS = sorted(public_files())


def at_socket(target: str, *headers: str, method: str = "GET") -> Answer:
    """Send a request of a browser that reaches the daemon's socket through `ssh -L`."""
    with connected(runtime().socket) as client:
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost:9230", *headers, "", ""]
        client.sendall("\r\n".join(lines).encode("latin-1"))
        return answer(rest(client))


@pytest.fixture(params=["port", "socket"])
def send(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Send]:
    """Return a function that sends a request to the TCP port or to the socket of a daemon, without a token."""
    if request.param == "socket":
        yield at_socket
        return
    with port_serving(daemon) as address:
        yield lambda target, *headers, method="GET": get(address, target, *headers, method=method)


def test_the_table_has_each_file_of_the_package_and_no_other() -> None:
    assert list(assets()) == FILES
    assert {name: asset.body for name, asset in assets().items()} == {n: (STATIC / n).read_bytes() for n in FILES}
    assert "index.html" in FILES


def test_each_file_in_the_sources_has_a_known_type() -> None:
    sources = Path(__file__).parents[2] / "brickd" / "web" / "static"
    files = [path for path in sources.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= set(TYPES)
    assert sorted(path.relative_to(sources).as_posix() for path in files) == FILES, "and is installed"


def test_only_the_page_listens_to_what_outlives_a_view() -> None:
    """A view that was left would otherwise stay in memory as long as the page is open."""
    lasting = re.compile(r"matchMedia|MutationObserver|setInterval|(document|window|documentElement)\.addEventListener")
    found = {name for name, asset in assets().items() if name.endswith(".js") and lasting.search(asset.body.decode())}
    assert found == {"main.js"}


def test_the_shell_is_at_the_root_and_all_other_files_are_below_web() -> None:
    assert [path for path in PATHS if not path.startswith("/web/")] == ["/"]
    assert public_files()["/"] is assets()["index.html"]
    assert len(PATHS) == len(FILES)


def test_every_file_is_served_with_its_type_to_anybody(send: Send) -> None:
    for path in PATHS:
        found = send(path)
        assert (found.status, found.body) == (200, public_files()[path].body)
        assert found.headers["content-type"] == public_files()[path].content_type
        assert int(found.headers["content-length"]) == len(found.body)


def test_a_browser_runs_scripts_only_if_they_have_the_type_of_scripts(send: Send) -> None:
    types = {Path(path).suffix: send(path).headers["content-type"] for path in PATHS if path != "/"}
    expected = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
    assert {suffix: of for suffix, of in types.items() if suffix} == expected


def test_the_headers_of_a_file_restrict_the_page(send: Send) -> None:
    headers = send("/").headers
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    expected = {
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
        "content-type": "text/html; charset=utf-8",
    }
    assert {key: headers[key] for key in expected} == expected
    assert set(HEADERS) == {"content-security-policy", *list(expected)[:4]}
    assert not {key for key in headers if key.startswith("access-control-")} | ({"set-cookie", "server"} & set(headers))


def test_the_shell_has_no_script_and_no_style_inside(send: Send) -> None:
    shell = send("/").body.decode()
    assert " style=" not in shell
    assert "<style" not in shell
    assert all("src=" in each.partition(">")[0] for each in shell.split("<script")[1:])


def test_head_has_the_length_of_a_file_and_no_body(send: Send) -> None:
    found = send("/", method="HEAD")
    assert (found.status, found.body) == (200, b"")
    assert int(found.headers["content-length"]) == len(public_files()["/"].body)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_file_has_no_other_method(send: Send, method: str) -> None:
    found = send("/", method=method)
    assert (found.status, found.headers["allow"]) == (HTTPStatus.METHOD_NOT_ALLOWED, "GET, HEAD")
    assert found.document["error"]["kind"] == "no_such_method"


@pytest.mark.parametrize("header", ["Origin: null", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"])
def test_a_page_of_another_origin_does_not_even_get_the_shell(send: Send, header: str) -> None:
    found = send("/", header)
    assert (found.status, found.document["error"]["kind"]) == (403, "web_page")


OUTSIDE = (
    *("/web", "/web/", "/web//", "//", "//web/index.html", "/web/index.html", "/index.html", "/web/nothing.js"),
    *(
        "/web/../assets.py",
        "/web/%2e%2e/assets.py",
        "/web/..%2fassets.py",
        "/web/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
    ),
    *("/web/....//assets.py", "/web/..\\assets.py", "/web/%5c..%5cassets.py", "/web/%00", "/web/index.html%00.js"),
    *("/web//etc/passwd", "/web/%2fetc%2fpasswd", "/web/%c0%ae%c0%ae/assets.py", "/%77eb/", "/web/" + 9000 * "a"),
    *(
        "/web/" + "../" * 500 + "etc/passwd",
        "/./",
        "/web/./page.css",
        "/web/page%2ecss",
        "http://localhost/",
        "*",
        "/WEB/",
    ),
)


def test_a_path_that_is_not_in_the_table_gets_no_file(send: Send) -> None:
    for target in OUTSIDE:
        found = send(target)
        assert found.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND), (target, found)
        assert found.document["error"]["kind"] in ("no_token", "no_such_path"), target


def test_a_query_belongs_to_no_path(send: Send) -> None:
    assert send("/?").status == 200


def test_bytes_that_are_no_path_get_no_file(daemon: Daemon) -> None:
    with port_serving(daemon) as address:
        for target in (b"/web/\x00", b"/web/\xff", b"/web/ x", b"", b"/web/\x7f"):
            host, port = address.split(":")
            with socket.create_connection((host, int(port)), timeout=30) as client:
                client.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
                found = answer(rest(client))
            assert found.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED), target
