"""The API: it returns the same documents and error messages as the command line."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from conftest import SHM, readings
from faults import Start
from made_up_workers import HOSTILE
from serving import Daemon, answer, ask, connected, following, request, rest, still
from verbs import started

from brickd.api import event_stream
from brickd.base.paths import runtime
from brickd.base.thresholds import Thresholds
from brickd.client.client import ask as asked_by_client
from brickd.datasources.shared_memory import SharedMemory
from brickd.datasources.world import World
from brickd.errors import NoSuchWorker
from brickd.model.event_log import Log
from brickd.query.queries import (
    BricksQuery,
    HangQuery,
    InspectQuery,
    StatusQuery,
    TreeQuery,
    WorkersQuery,
)
from brickd.views import bricks, hang, inspect, status, tree, workers
from brickd.views.common import Answer


@pytest.fixture
def socket_path(daemon: Daemon) -> Path:
    return runtime().socket


STILL = 'with brick.span("outer"):\n    with brick.span("inner", category="norm"): pass\npause()'


HANG = HangQuery(watch=0.01, longer=0.0)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("target", "question", "view"),
    [
        ("status", StatusQuery(), status.answer),
        *(
            pytest.param(*each, marks=pytest.mark.ci)
            for each in (
                ("workers?name=api/1&name=batch", WorkersQuery(("api/1", "batch")), workers.answer),
                (
                    "bricks?sort=name&by=worker&top=3&name=api/0",
                    BricksQuery(("api/0",), "name", "worker", None, 3),
                    bricks.answer,
                ),
                ("tree?layers=true&depth=1", TreeQuery(layers=True, depth=1), tree.answer),
                (
                    "hang?watch=0.01&longer=0",
                    HANG,
                    lambda world, asked: hang.answer(world, asked, hang.look(world, asked)),
                ),
                ("inspect/api/1?records=0", InspectQuery("api/1", 0), inspect.answer),
            )
        ),
    ],
)
def test_a_view_is_the_same_document_over_the_socket(
    worker: Start, socket_path: Path, target: str, question: Any, view: Callable[[World, Any], Answer]
) -> None:
    for number, service in enumerate(("api", "api", "batch")):
        started(worker, STILL, BRICKD_SERVICE=service, BRICKD_WORKER=str(number))
    asked = ask(socket_path, f"/v1/{target}")
    assert (asked.status, asked.headers["content-type"]) == (200, "application/json")
    assert asked.document["source"] == "daemon"
    assert still(asked.document) == still(view(SharedMemory(), question).document)


def test_hang_does_not_wait_for_a_second_look_without_workers(socket_path: Path) -> None:
    assert ask(socket_path, "/v1/hang?watch=3600&longer=0").status == 200


@pytest.mark.ci
def test_a_segment_can_be_inspected_by_its_file(worker: Start, socket_path: Path, prefix: str) -> None:
    started(worker, STILL, BRICKD_SERVICE="a b")
    (reading,) = readings(prefix)
    for name in (reading.file, "a b/0", None):
        target = "/v1/inspect" if name is None else f"/v1/inspect/{quote(name, safe='')}"
        assert ask(socket_path, target).document["worker"] == "a b/0"
    assert ask(socket_path, "/v1/inspect?name=a%20b/0").document["segment"] == reading.file


@pytest.mark.ci
def test_an_error_names_its_kind(worker: Start, socket_path: Path, prefix: str) -> None:
    started(worker, STILL, BRICKD_SERVICE="api")
    started(worker, STILL, BRICKD_SERVICE="api")
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    for target, status_code, kind, message in (
        ("status?name=apo/0", 404, "no_such_worker", "no worker or service apo/0: did you mean api/0"),
        ("bricks?category=nrom", 400, "trouble", "no category nrom: did you mean norm?"),
        ("inspect", 400, "trouble", "2 workers, expected one: brickd inspect WORKER"),
        ("inspect/nobody", 404, "no_such_worker", "no worker, service or segment nobody: "),
        (f"inspect/{prefix}junk", 409, "segment_refused", f"{prefix}junk: "),
    ):
        asked = ask(socket_path, f"/v1/{target}")
        assert (asked.status, asked.document["error"]["kind"]) == (status_code, kind)
        assert asked.document["error"]["message"].startswith(message)


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        (request("/v1/bricks?top=0"), 400, "top is 0, expected a whole number of 1 or more"),
        (request("/v1/bricks?sort=self&sort=p50"), 400, "sort is given more than once"),
        (request("/v1/status?frobnicate=1"), 400, "no parameter 'frobnicate', expected name"),
        (request("/v1/status?name"), 400, "the query begins with name, expected name=value"),
        (request("/v1/inspect/a?name=b"), 400, "name is given more than once"),
        (request("/v1/down?now=1", b""), 400, "no parameter 'now', expected none"),
        (request("/v1/set", b'{"service": "api"}'), 400, 'the body begins with {"service": "api"}, expected name=val'),
        (request("/v1/set", b"spans=on"), 400, "no service is given, expected the name of a service"),
        (request("/v1/set", b"service=api&spans=perhaps"), 400, "spans is 'perhaps', expected one of on, off"),
        (request("/v1/set", b"service=nobody&spans=on"), 404, "no service nobody"),
        (request("/v1/set", b"x" * 20_000), 413, "the body of the request has "),
        (request("/v1/set"), 405, "method is GET, expected POST"),
        (request("/v1/status", b""), 405, "method is POST, expected "),
        (request("/v1/statu"), 404, "no path /v1/statu (GET /v1 lists the paths)"),
        (request("/v1/status/"), 404, "no path"),
        (request("/v2"), 404, "no path"),
        (
            request("/v1/status", None, "x: " + "y" * 20_000),
            431,
            " bytes, expected at most 16384: send fewer parameters",
        ),
        (
            b"GET /v1/status HTTP/1.1\r\nx: " + b"y" * 20_000,
            400,
            "expected HTTP with headers of at most 16384 bytes",
        ),
        (b"nonsense\r\n\r\n", 400, "expected HTTP with headers of"),
        (request("/v1/status", None, "Content-Length: x"), 400, "expected HTTP with headers of"),
    ],
)
def test_an_invalid_parameter_is_refused_with_the_expected_form(
    socket_path: Path, asked: bytes, status: int, text: str
) -> None:
    with connected(socket_path) as client:
        client.sendall(asked)
        refused = answer(rest(client))
    assert (refused.status, refused.headers["content-type"]) == (status, "application/json")
    assert text in refused.document["error"]["message"]


@pytest.mark.ci
def test_hostile_names_stay_strings_in_json(worker: Start, socket_path: Path, prefix: str) -> None:
    names = [HOSTILE, "<script>alert(1)</script>", "=cmd()", "a\x1b[2J", 'quote"\\', "two\nlines", "\u2028"]
    started(worker, f"for name in {names!r}:\n    with brick.span(name): pass\npause()", BRICKD_SERVICE="s\x1b]0;x\x07")
    junk = SHM / f"{prefix}junk\udc80\x1b[2J"
    junk.write_bytes(b"no segment")
    for target in ("bricks", "status", "tree", "workers", "hang?watch=0.01", "inspect/nobody%1b%ff"):
        body = ask(socket_path, f"/v1/{target}").body
        assert body.endswith(b"\n")
        assert body[:-1].isascii()
        assert body[:-1].decode("ascii").isprintable()
        json.loads(body)
    for target in ("inspect/{}", "inspect?name={}"):
        refused = ask(socket_path, f"/v1/{target.format(quote(os.fsencode(junk.name)))}")
        assert (refused.status, refused.document["error"]["kind"]) == (409, "segment_refused")
    bricks = ask(socket_path, "/v1/bricks").document["bricks"]
    assert sorted(brick["name"] for brick in bricks) == sorted(names)


def test_a_document_comes_with_its_notes(
    worker: Start, socket_path: Path, prefix: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(worker, STILL)
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    assert ask(socket_path, "/v1/hang?watch=0.01").document["words"] == [
        "quarantined and not judged: 1 (see brickd workers)"
    ]
    assert ask(socket_path, "/v1/status").document["words"] == []


def test_the_index_lists_every_endpoint_with_its_parameters(socket_path: Path, daemon: Daemon, prefix: str) -> None:
    index = ask(socket_path, "/v1").document
    assert (index["pid"], index["prefix"], index["checkpoint_problem"]) == (daemon.daemon().pid, prefix, None)
    listed = {(each["method"], each["path"]): each["parameters"] for each in index["endpoints"]}
    assert listed["GET", "/v1/bricks"]["sort"]["wanted"].startswith("one of self, total, ")
    assert listed["GET", "/v1/hang"]["watch"] == {
        "wanted": "a duration of 10ms to 1h (with ms, s, m or h; without a unit: seconds)",
        "default": 1.0,
        "help": "Read the open spans twice, with this time in between.",
    }
    assert ("POST", "/v1/set") in listed


def test_a_client_with_another_prefix_is_refused(worker: Start, socket_path: Path, daemon: Daemon) -> None:
    started(worker, STILL)
    asked = ask(socket_path, "/v1/status", None, "brickd-prefix: another-")
    assert (asked.status, asked.document["error"]["kind"]) == (421, "other_prefix")
    same = ask(socket_path, "/v1/status", None, f"brickd-prefix: {daemon.daemon().prefix}")
    assert same.status == 200


def test_a_failing_checkpoint_is_reported_as_a_problem(worker: Start, socket_path: Path, daemon: Daemon) -> None:
    started(worker, STILL)
    daemon.checkpoint_problem = "No space left on device"
    reported = ask(socket_path, "/v1/status").document
    assert reported["daemon"]["checkpoint_problem"] == "No space left on device"
    assert [(each["text"], each["command"]) for each in reported["problems"]] == [
        ("the daemon cannot save its state: No space left on device", "brickd events")
    ]


@pytest.mark.ci
def test_settings_reach_the_workers_of_a_service(worker: Start, socket_path: Path, prefix: str) -> None:
    started(worker, STILL, BRICKD_SERVICE="api")
    started(worker, STILL, BRICKD_SERVICE="batch")
    done = ask(socket_path, "/v1/set", b"service=api&spans=on&recording=off")
    assert done.document == {
        "schema_version": 1, "source": "daemon", "service": "api", "spans": "on", "recording": "off",
        "fingerprints": "default", "sites": ["all"], "workers": 1, "deaf": 0, "thresholds": Thresholds().documents(),
    }  # fmt: skip
    flags = {name: ask(socket_path, f"/v1/inspect/{name}/0").document["control"]["flags"] for name in ("api", "batch")}
    assert flags == {"api": 3, "batch": 0}
    assert ask(socket_path, "/v1/set", b"service=api").document == done.document, "an empty request sets nothing"


def test_the_totals_of_dead_workers_can_be_forgotten(worker: Start, socket_path: Path) -> None:
    started(worker, STILL).kill()
    assert ask(socket_path, "/v1/forget", b"").document["forgotten"] == 1
    assert ask(socket_path, "/v1/workers").document["workers"] == []


def test_events_are_returned_from_the_requested_number_on(socket_path: Path, daemon: Daemon) -> None:
    for number in range(1, 4):
        daemon.events.add("tried", f"the {number}th", worker="api/0")
    page = ask(socket_path, "/v1/events?since=1").document
    assert ([event["number"] for event in page["events"]], page["missed"], page["newest"]) == ([2, 3], 0, 3)
    page = ask(socket_path, "/v1/events?since=1h").document
    assert ([event["number"] for event in page["events"]], page["missed"], page["newest"]) == ([1, 2, 3], 0, 3)


@pytest.mark.ci
def test_a_stream_sends_past_and_new_events(socket_path: Path, daemon: Daemon) -> None:
    daemon.events.add("old", "")
    with following(socket_path, "/v1/events/stream") as stream:
        assert next(stream) == ("event", daemon.events.since(0).events[0].document())
        new = daemon.events.add("new", "")
        assert next(stream) == ("event", new.document())
    with following(socket_path, "/v1/events/stream?since=1") as stream:
        assert next(stream) == ("event", new.document())
    with following(socket_path, "/v1/events/stream?since=1h") as stream:
        assert [next(stream)[1]["kind"] for _ in range(2)] == ["old", "new"]
        newest = daemon.events.add("newest", "")
        assert next(stream) == ("event", newest.document())


@pytest.mark.ci
def test_a_status_stream_sends_the_status_repeatedly(worker: Start, socket_path: Path, daemon: Daemon) -> None:
    started(worker, STILL, BRICKD_SERVICE="api")
    with following(socket_path, "/v1/status/stream?seconds=0.1&name=api") as stream:
        result = [document for name, document in itertools.islice(stream, 4) if name == "status"]
    assert len(result) >= 2
    assert still(result) == still([ask(socket_path, "/v1/status?name=api").document] * len(result))
    refused = ask(socket_path, "/v1/status/stream?name=nobody")
    assert (refused.status, refused.document["error"]["kind"]) == (404, "no_such_worker")
    assert ask(socket_path, "/v1/status/stream?seconds=0").status == 400


def test_a_status_stream_ends_with_an_error_when_its_worker_is_gone(
    worker: Start, socket_path: Path, prefix: str
) -> None:
    started(worker, STILL, BRICKD_SERVICE="api").kill()
    (left,) = readings(prefix)
    reported = asked_by_client("status/stream", [("name", "api/0"), ("seconds", "0.1")]).events()
    assert next(reported)[0] == "status"
    (SHM / left.file).unlink()
    with pytest.raises(NoSuchWorker, match="no worker or service api/0: "):
        list(reported)


def test_an_event_after_the_loop_of_a_stream_closed_is_still_logged() -> None:
    log, loop = Log(), asyncio.new_event_loop()
    log.add("old", "")
    parts = event_stream.events(event_stream.Reader(), log, 0)
    loop.run_until_complete(anext(parts))
    loop.close()
    assert log.add("new", "").number == 2


def test_a_daemon_stopped_by_a_request_answers_it_and_ends_its_streams(socket_path: Path, daemon: Daemon) -> None:
    with connected(socket_path) as follower:
        follower.sendall(request("/v1/events/stream"))
        follower.recv(1)
        assert ask(socket_path, "/v1/down", b"").document["pid"] == daemon.daemon().pid
        assert rest(follower).endswith(b"0\r\n\r\n")
    assert not socket_path.exists()


def test_a_request_in_progress_when_the_daemon_ends_is_answered(
    worker: Start, socket_path: Path, daemon: Daemon
) -> None:
    started(worker, STILL, BRICKD_SERVICE="api")
    with connected(socket_path) as client:
        client.sendall(request("/v1/hang?watch=0.2"))
        assert ask(socket_path, "/v1/down", b"").status == 200
        assert [each["service"] for each in answer(rest(client)).document["services"]] == ["api"]


def test_a_defect_is_answered_as_an_error_and_the_daemon_continues(
    socket_path: Path, daemon: Daemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def survey() -> Any:
        raise ZeroDivisionError("hostile \x1b[2J")

    with monkeypatch.context() as patched:
        patched.setattr(daemon, "survey", survey)
        failed = ask(socket_path, "/v1/status")
        assert (failed.status, failed.document["error"]["kind"]) == (500, "defect")
        assert "ZeroDivisionError: hostile \\x1b[2J" in capsys.readouterr().err
        with open("/dev/full", "wb", buffering=0) as full:
            patched.setattr(sys, "stderr", io.TextIOWrapper(full, write_through=True))
            assert ask(socket_path, "/v1/status").document["error"]["kind"] == "defect"
    assert ask(socket_path, "/v1/status").status == 200
