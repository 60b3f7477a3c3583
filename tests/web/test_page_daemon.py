"""The web page of a real daemon: its URL, its token, and what is printed where."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from metric_pages import get
from running import UP, Running, running
from serving import Answer
from verbs import brickd

from brickd.base.paths import runtime

HTTP = ("--http", "127.0.0.1:0")


def parts(url: str) -> tuple[str, str]:
    """Return the address and the token of the URL of a page."""
    address, _, token = url.removeprefix("http://").partition("/#token=")
    return address, token


def with_token(url: str, path: str) -> Answer:
    address, token = parts(url)
    return get(address, path, f"Authorization: Bearer {token}")


@contextmanager
def detached(*options: str) -> Iterator[tuple[str, str]]:
    """Yield the URL of the page of a daemon in the background, and what the daemon prints when it ends."""
    started = brickd("up", "-d", *HTTP, "--json", *options)
    assert started.returncode == 0, started.stderr
    document = json.loads(started.stdout)
    try:
        yield document["page_url"], started.stdout
    finally:
        assert brickd("down").returncode == 0


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_a_daemon_prints_a_url_that_works_and_keeps_its_token() -> None:
    with detached() as (url, _):
        assert get(parts(url)[0], "/").status == 200
        assert with_token(url, "/v1/status").document["source"] == "daemon"
        assert with_token(url, "/metrics").status == 404, "without --metrics"
        mode = runtime().web_token.stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    with detached("--metrics") as (again, _):
        assert parts(again)[1] == parts(url)[1]
        assert get(parts(again)[0], "/metrics").status == 200
        assert get(parts(again)[0], "/v1/status").status == 401


@pytest.mark.ci
def test_the_token_of_a_file_is_the_only_token(prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a&b/ #c\n")
    file.chmod(0o600)
    with detached("--metrics", "--http-token-file", str(file)) as (url, _):
        address, token = parts(url)
        assert token == "a%26b%2F%20%23c"
        for path in ("/v1/status", "/metrics"):
            assert get(address, path).status == 401
            assert get(address, path, "Authorization: Bearer a&b/ #c").status == 200
        assert not runtime().web_token.exists()


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_the_token_is_in_no_log_and_in_no_command_line() -> None:
    with detached() as (url, _):
        address, token = parts(url)
        for path in ("/v1", "/v1/nothing", f"/{token}"):
            with_token(url, path)
            get(address, path, f"Authorization: Bearer {token}x")
        pid = with_token(url, "/v1").document["pid"]
        for name in ("cmdline", "environ", "comm"):
            assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        for path in ("/v1", "/v1/status", "/v1/events?since=0"):
            assert token.encode() not in with_token(url, path).body
    files = [path for path in runtime().directory.iterdir() if path.is_file() and path != runtime().web_token]
    assert runtime().log in files
    assert not [path for path in files if token.encode() in path.read_bytes()]


def test_output_that_may_be_a_log_has_no_token(prefix: str) -> None:
    with running(options=HTTP) as daemon:
        assert daemon.process.stdout is not None
        line = daemon.process.stdout.readline().decode()
        token = runtime().web_token.read_text().strip()
        assert line.startswith("web page: http://127.0.0.1:")
        assert line.endswith("/ (brickd web --url prints it with its token)\n")
        assert token not in line + daemon.said + daemon.end()


@pytest.mark.ci
def test_a_terminal_gets_the_token(prefix: str) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*UP, *HTTP], stdout=theirs, env=os.environ) as process, os.fdopen(ours, "rb") as lines:
        os.close(theirs)
        Running(process)
        first, second = lines.readline(), lines.readline()
        token = runtime().web_token.read_bytes().strip()
        assert first.startswith(b"the daemon runs")
        assert second.strip().endswith(b"/#token=" + token)
        process.terminate()
    assert process.returncode == 0


@pytest.mark.ci
def test_a_daemon_does_not_start_with_a_token_that_others_can_read(prefix: str) -> None:
    runtime().directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    runtime().web_token.write_text("a" * 43)
    runtime().web_token.chmod(0o644)
    found = brickd("up", "-d", *HTTP)
    assert found.returncode == 2
    assert f"remove it: rm {runtime().web_token}" in found.stderr
