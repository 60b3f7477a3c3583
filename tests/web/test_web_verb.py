"""`brickd web`: a process of its own that serves the page, and the URL of the daemon's own page."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from metric_pages import get
from running import going, running
from serving import Answer
from verbs import brickd, document

from brickd.base.paths import runtime


def parts(url: str) -> tuple[str, str]:
    """Return the address and the token of the URL of a page."""
    address, _, token = url.strip().removeprefix("http://").partition("/#token=")
    return address, token


def at(url: str, path: str) -> Answer:
    address, token = parts(url)
    return get(address, path, f"Authorization: Bearer {token}")


@contextmanager
def web(*options: str) -> Iterator[str]:
    """Yield the URL of a page; then end its process with SIGTERM."""
    with going("web", "--http", "127.0.0.1:0", "-o", "jsonl", *options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)["page_url"]
        process.terminate()
        assert process.wait() == 0, process.stderr.read()


def test_a_page_is_served_next_to_a_daemon_that_may_start_later(prefix: str) -> None:
    with web() as url:
        found = at(url, "/v1/status")
        assert (found.status, found.document["error"]["kind"]) == (503, "no_daemon")
        assert get(parts(url)[0], "/").status == 200
        assert get(parts(url)[0], "/v1/status").status == 401
        with running() as daemon:
            assert at(url, "/v1").document["pid"] == daemon.pid
            assert at(url, "/v1").document["page"] is None
    assert stat.S_IMODE(runtime().web_token.stat().st_mode) == 0o600


def test_the_url_of_the_daemons_page_is_printed_with_its_token(prefix: str) -> None:
    with running(options=("--http", "127.0.0.1:0")) as daemon:
        url = brickd("web", "--url").stdout
        assert url.count("\n") == 1
        assert at(url, "/v1").document["pid"] == daemon.pid
        assert document("web", "--url")["page_url"] == url.strip()
        page = daemon.ask("")["page"]
        assert page == {"address": parts(url)[0], "token_file": str(runtime().web_token)}
        with web() as own:
            assert parts(own)[1] == parts(url)[1], "a page that is open in a browser goes on at the other address"


@pytest.mark.ci
def test_the_url_has_the_token_of_a_file_at_any_path(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("chosen")
    (tmp_path / "token").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    with running(options=("--http", "127.0.0.1:0", "--http-token-file", "token")) as daemon:
        monkeypatch.chdir("/")
        url = brickd("web", "--url").stdout
        assert parts(url)[1] == "chosen"
        assert at(url, "/v1").document["pid"] == daemon.pid
    with web("--token-file", str(tmp_path / "token")) as url:
        assert parts(url)[1] == "chosen"


@pytest.mark.ci
def test_a_page_that_does_not_exist_has_no_url(prefix: str) -> None:
    without = brickd("web", "--url")
    assert (without.returncode, without.stdout) == (3, "")
    with running():
        found = brickd("web", "--url")
        assert (found.returncode, found.stdout) == (2, "")
        assert "the daemon serves no web page: run brickd web" in found.stderr


@pytest.mark.ci
def test_wrong_options_of_web_are_refused(prefix: str, tmp_path: Path) -> None:
    for options, reason in (
        (("--http", "0.0.0.0:0"), "reachable from other machines"),
        (("--url", "--http", "127.0.0.1:0"), "give no other address or token"),
        (("--url", "--token-file", "x"), "give no other address or token"),
        (("--http", "127.0.0.1:0", "--token-file", str(tmp_path / "none")), "cannot be opened"),
    ):
        found = brickd("web", *options)
        assert (found.returncode, found.stdout) == (2, "")
        assert reason in found.stderr
    runtime().directory.mkdir(parents=True, exist_ok=True)
    runtime().directory.chmod(0o777)
    found = brickd("web", "--http", "127.0.0.1:0")
    assert "expected a directory that only user" in found.stderr
    assert "or give a token of your own: --token-file FILE" in found.stderr


@pytest.mark.parametrize("named", [False, True])
def test_output_that_may_be_a_log_has_the_file_of_the_token_and_not_the_token(
    prefix: str, tmp_path: Path, *, named: bool
) -> None:
    file = tmp_path / "own token" if named else runtime().web_token
    if named:
        file.write_text("of-my-own-0123456789\n")
        file.chmod(0o600)
    with going("web", "--http", "127.0.0.1:0", *(("--token-file", os.path.relpath(file)) if named else ())) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        token = file.read_text().strip()
        assert line.endswith(f"/ (its token is in {file})\n")
        assert token not in line
        assert token.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.terminate()
        process.wait()
