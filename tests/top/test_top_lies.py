"""`brickd top` with a process at the daemon's socket that answers anything but a document."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import pytest
from faults import Start
from lying_daemons import body, lying
from serving import Daemon
from top_screens import Top
from verbs import SPANS, started

from brickd.base.paths import runtime
from brickd.errors import BrickdError
from brickd.query.queries import StatusQuery
from brickd.top import panels
from brickd.top.header import Cells
from brickd.top.panels import PANELS
from brickd.top.source import LiveSource, Request
from brickd.top.state import State
from brickd.views.fetch_answer import FetchedAnswer

NOT_A_DAEMON = {
    "nothing": b"",
    "a head that ends": b"HTTP/1.0 200",
    "a body that ends": body("{}")[:-1],
    "no JSON": body("{"),
    "no object": body("[[1]]"),
    "deep": body("[" * 100_000),
    "no length": b"HTTP/1.0 200 OK\r\n\r\n{}",
    "a negative length": b"HTTP/1.0 200 OK\r\ncontent-length: -1\r\n\r\n{}",
    "a long body": b"HTTP/1.0 200 OK\r\ncontent-length: 999999999999\r\n\r\n{}",
    "not HTTP": b"\x1b[2J\x00\xff\r\n\r\n",
}
VALUES: list[Any] = [
    None,
    [],
    {},
    "\x1b[2J\n[red]",
    -1,
    10**400,
    1e308,
    float("nan"),
    True,
    [None],
    [{}],
    [[]],
    {"": 0},
]


@pytest.mark.parametrize("answer", NOT_A_DAEMON.values(), ids=NOT_A_DAEMON)
def test_a_process_that_is_no_daemon_is_named_and_shared_memory_shown(worker: Start, answer: bytes) -> None:
    started(worker, BRICKD_SERVICE="api")
    with lying(lambda path: answer):
        lines = Top().lines
    assert lines[0].startswith("brickd top  no problem  ")
    assert lines[1].startswith("~ the ")
    assert any(line.startswith("norm") for line in lines)


@pytest.mark.usefixtures("prefix")
def test_a_process_that_is_no_daemon_is_asked_again_only_after_a_rest() -> None:
    with lying(lambda path: b"") as asked:
        top = Top(LiveSource())
        assert top.lines[1].startswith("~ the daemon at ")
        assert [words.count("shared memory is read instead") for words in top.frame.status.words] == [1]
        assert len(asked) == 1
        Top(LiveSource(rest_seconds=0.0))
        assert len(asked) == 3  # for the status and for the bricks


@pytest.mark.usefixtures("prefix")
def test_a_daemon_that_has_ended_is_named_and_the_next_one_asked_at_once() -> None:
    with lying(lambda path: b"") as asked, socket.socket(socket.AF_UNIX) as ended:
        path = runtime().socket
        path.rename(path.with_suffix(".other"))
        ended.bind(os.fspath(path))
        ended.close()
        top = Top(LiveSource())
        assert top.lines[1].startswith("~ the daemon at ")
        path.with_suffix(".other").rename(path)
        assert asked == []
        top.ask()
        assert len(asked) == 1


@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize("answer", ["{}", '{"schema_version": 2}', '{"error": {"kind": "\\u001b"}}'])
def test_another_version_is_named_in_one_line(answer: str) -> None:
    with lying(lambda path: body(answer)):
        top = Top(size=Cells(200, 24))
        assert top.lines[1].startswith("! ")
        assert not [line for line in top.lines[2:-1] if line]
        assert not any("Traceback" in line for line in top.lines)


def damaged(of: Any, value: Any, at: int) -> Any:
    """Return a copy of a document in which the value number `at` is another one."""
    number = -1

    def copy(of: Any) -> Any:
        nonlocal number
        number += 1
        if number == at:
            return value
        if isinstance(of, dict):
            return {key: copy(each) for key, each in of.items()}
        return [copy(each) for each in of] if isinstance(of, list) else of

    return copy(of)


def size(of: Any) -> int:
    """Return the number of values in a document."""
    values = of.values() if isinstance(of, dict) else of if isinstance(of, list) else ()
    return 1 + sum(map(size, values))


class Lying(LiveSource):
    """A source of documents that the test has made. `unlike` is not asked, so that no socket is needed."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents

    def answer(self, request: Request) -> FetchedAnswer:
        return FetchedAnswer(self.documents[request.view], ())


def check(documents: dict[str, Any], panel: str) -> None:
    """Check that a screen of these documents is drawn."""
    drawn = Top(Lying(documents), State(panel=panel)).drawn
    assert len(drawn.lines) == 24
    assert all(each.text.isprintable() for line in drawn.lines for each in line)


@pytest.mark.ci
def test_any_value_may_be_in_the_place_of_any_other(worker: Start, daemon: Daemon) -> None:
    """Every value of each document is replaced by a value of another kind: the screen says so, or shows it."""
    for _ in range(2):
        started(worker, SPANS, BRICKD_SERVICE="api")
    status = LiveSource().answer(Request("status", StatusQuery())).document
    for panel in PANELS.values():
        good = {"status": status, "history": None}
        with contextlib.suppress(BrickdError):  # there are no stragglers yet
            if (request := panels.request(State(panel=panel.name), status, recorded=False)) is not None:
                good[request.view] = LiveSource().answer(request).document
        for view in [panel.view or "status", *(["status"] if panel.name == "bricks" else [])]:
            for at in range(size(good[view]) if view in good else 0):
                check({**good, view: damaged(good[view], VALUES[at % len(VALUES)], at)}, panel.name)
