"""Verbs give the same answers with and without a daemon, and handle any answer of another server."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import SHM
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from serving import Daemon, serving, still
from verbs import SPANS, brickd, document, started

from brickd.base.paths import runtime
from brickd.client import client
from brickd.client.client import Asked, NoAnswer, TurnedAway
from brickd.errors import BrickdError, NoSuchWorker, WrongQuestion

STUCK = "with brick.span('loop'), brick.span({!r}): pause()"
PLACE = Path("/the/socket")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("status", 0),
        ("workers api/0 batch", 0),
        ("bricks --sort name --by service --category ffn", 0),
        ("tree --layers", 0),
        ("hang --watch 0.05 --longer 0", 1),
        ("inspect batch/0 -n 3", 0),
    ],
)
def test_a_verb_prints_the_same_with_and_without_a_daemon(worker: Start, daemon: Daemon, line: str, code: int) -> None:
    for brick in ("all_reduce", "all_reduce", "moe_gemm"):
        started(worker, STUCK.format(brick), BRICKD_SERVICE="api")
    started(worker, SPANS, BRICKD_SERVICE="batch")
    asked, screen = document(*line.split(), code=code), brickd(*line.split()).stdout
    daemon.end()
    alone = document(*line.split(), code=code)
    assert (asked["source"], alone["source"]) == ("daemon", "shared memory")
    assert still(asked) == still(alone)
    assert shape(screen) == shape(brickd(*line.split()).stdout.replace("shared memory", "daemon"))


def shape(screen: str) -> list[list[str]]:
    """Return, for each line, the words that have no digits."""
    return [[word for word in line.split() if word.isalpha() and len(word) > 2] for line in screen.splitlines()]


@pytest.mark.ci
def test_an_error_has_the_same_line_and_exit_code_with_a_daemon(worker: Start, daemon: Daemon, prefix: str) -> None:
    for _ in range(2):
        started(worker, BRICKD_SERVICE="api")
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    lines = ["status a\x1b", "bricks --category nrom", "inspect", f"inspect {prefix}junk"]
    asked = [parsed(line) for line in lines]
    daemon.end()
    assert asked == [parsed(line) for line in lines]
    assert [code for code, *_ in asked] == [4, 2, 2, 2]


def parsed(line: str) -> tuple[int, str, str]:
    ended = brickd(*line.split(" "))
    return ended.returncode, ended.stdout, ended.stderr


def test_notes_of_a_daemons_document_are_printed(worker: Start, daemon: Daemon, prefix: str) -> None:
    started(worker)
    (SHM / f"{prefix}junk\x1b").write_bytes(b"no segment")
    asked = brickd("hang", "--watch", "0.01", "--json")
    daemon.end()
    for ended in (asked, brickd("hang", "--watch", "0.01", "--json")):
        assert ended.stderr.splitlines()[-1] == "brickd: quarantined and not judged: 1 (see brickd workers)"
        assert "words" not in json.loads(ended.stdout)


@pytest.mark.ci
def test_a_daemon_of_another_prefix_is_not_queried(worker: Start, daemon: Daemon, prefix: str) -> None:
    started(worker)
    other = brickd("status", "--json", BRICKD_SHM_PREFIX=f"{prefix}other-")
    assert (json.loads(other.stdout)["workers"], other.stderr) == ([], "")
    assert json.loads(other.stdout)["source"] == "shared memory"
    assert document("status")["source"] == "daemon"


@pytest.mark.usefixtures("prefix")
def test_a_prefix_may_have_any_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRICKD_SHM_PREFIX", "test-brickd-ä b\r\nx: y-")
    with serving(runtime().socket):
        assert document("status")["source"] == "daemon"


def test_a_socket_without_a_listener_means_no_daemon(worker: Start) -> None:
    started(worker)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(runtime().socket))
        ended = brickd("status", "--json")
    assert (ended.stderr, json.loads(ended.stdout)["source"]) == ("", "shared memory")


@pytest.mark.slow
def test_a_stopped_daemon_is_waited_for_until_the_time_limit(worker: Start) -> None:
    started(worker)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(os.fspath(runtime().socket))
        silent.listen()
        ended = brickd("status", "--json")
    where = runtime().socket
    assert ended.stderr == f"brickd: the daemon at {where} does not answer; shared memory is read instead\n"
    assert len(json.loads(ended.stdout)["workers"]) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("worker", "daemon")
def test_a_user_without_permission_reads_shared_memory_and_sees_a_note(nobody: list[str]) -> None:
    runtime().directory.chmod(0o755)
    for mode, words in (
        (0o600, "does not accept user "),
        (0o666, "refuses user "),
    ):
        runtime().socket.chmod(mode)
        command = [*nobody, sys.executable, "-P", "-m", "brickd", "status", "--json"]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        assert words in ended.stderr
        assert ended.stderr.endswith("; shared memory is read instead\n")
        assert json.loads(ended.stdout)["source"] == "shared memory"


# ---- other servers


@contextmanager
def answering(reported: bytes, *, closed: bool = True) -> Iterator[Asked]:
    """Send a request to a server that sends this answer."""
    client_end, server_end = socket.socketpair()
    with server_end:
        client_end.settimeout(0.05)
        server_end.sendall(reported)
        if closed:
            server_end.shutdown(socket.SHUT_WR)
        yield Asked(client_end, PLACE)
        client_end.close()


def reply(body: str, head: str = "HTTP/1.1 200 OK", length: int | None = None) -> bytes:
    return f"{head}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        (b"", "broken"),
        (b"HTTP/1.1 200 OK\r\n", "strange"),
        (reply("{}", length=9), "broken"),
        (reply("[]"), "strange"),
        (reply('{"a": '), "strange"),
        (reply("[" * 50_000), "strange"),
        (reply("{}", length=1 << 60), "strange"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "strange"),
        (reply('{"error": {"kind": "other_prefix", "message": "x"}}'), "elsewhere"),
        (reply('{"error": {"kind": "busy", "message": "x"}}'), "busy"),
    ],
)
def test_an_invalid_answer_is_reported_by_its_defect(reported: bytes, why: str) -> None:
    with answering(reported) as asked, pytest.raises(NoAnswer) as caught:
        asked.document()
    assert caught.value.why == why
    assert str(PLACE) in str(caught.value)


def test_a_silent_stream_has_no_time_limit() -> None:
    with answering(b'HTTP/1.1 200 OK\r\n\r\nevent: event\ndata: {"number": 1}\n\n', closed=False) as asked:
        assert next(asked.events()) == ("event", {"number": 1})
        assert asked._connection.gettimeout() is None


def test_a_refused_stream_raises_the_error() -> None:
    refused = reply('{"error": {"kind": "wrong_question", "message": "since is x"}}', "HTTP/1.1 400 Bad Request")
    with answering(refused) as asked, pytest.raises(WrongQuestion, match="since is x"):
        list(asked.events())


def test_a_silent_server_is_waited_for_until_the_time_limit() -> None:
    with answering(b"", closed=False) as asked:
        assert not asked.arrives(0.01)
        with pytest.raises(NoAnswer, match="does not answer") as caught:
            asked.document()
    assert caught.value.why == "silent"


def test_an_error_answer_is_raised() -> None:
    for kind, error in (("no_such_worker", NoSuchWorker), ("stranger", TurnedAway), ("a later kind", BrickdError)):
        body = json.dumps({"error": {"kind": kind, "message": "no worker x"}})
        with answering(reply(body)) as asked, pytest.raises(error, match="no worker x") as caught:
            asked.document()
        assert type(caught.value) is error


BODY = st.binary(max_size=40) | st.sampled_from([b"{}", b'{"error": []}', b'{"error": {}}', b'{"a": NaN}'])
HEAD = st.sampled_from([b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: ", b"HTTP/1.1 \r\n:\r\n\r\n"])


@given(HEAD, st.sampled_from([b"", b"2\r\n\r\n", b"10000\r\n\r\n", b"-1\r\n\r\n", b"x\r\n\r\n"]), BODY)
def test_any_answer_is_a_document_or_an_error(head: bytes, length: bytes, body: bytes) -> None:
    for stream in (False, True):
        with answering(head + length + body) as asked, contextlib.suppress(BrickdError):
            assert isinstance(list(asked.events()) if stream else asked.document(), list | dict)


@pytest.mark.ci
@given(st.lists(st.tuples(st.sampled_from(["event", "missed"]), st.dictionaries(st.text(), st.integers())), max_size=5))
def test_the_events_of_a_stream_are_read_one_by_one(events: list[tuple[str, dict[str, int]]]) -> None:
    lines = "".join(f"id: 7\nevent: {name}\ndata: {json.dumps(reported)}\n\n" for name, reported in events)
    with answering(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + lines.encode()) as asked:
        assert list(asked.events()) == events


def test_without_a_daemon_the_error_names_the_command_that_starts_one(prefix: str) -> None:
    with pytest.raises(NoAnswer, match=r"no daemon answers at .*/socket \(start one: brickd up\)") as caught:
        client.ask("status")
    assert caught.value.why == "none"
