"""brickd top with its cursor in the past of a real daemon: the workers and problems are those of that time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest
from faults import Start
from past_daemon import Past, past_daemon
from top_screens import Top
from verbs import SPANS, started

from brickd.base.units import SECOND
from brickd.query.orders import Setting
from brickd.top.header import Cells
from brickd.top.source import Request, _function
from brickd.top.state import State
from brickd.views.common import Answer
from brickd.views.fetch_answer import FetchedAnswer

WIDE = Cells(120, 24)


class DaemonSource:
    """Asks a daemon in this process."""

    recorded = False

    def __init__(self, past: Past) -> None:
        self._past = past
        self.stops: Callable[[], bool] = lambda: False

    def together(self) -> AbstractContextManager[object]:
        return nullcontext()

    def answer(self, request: Request) -> FetchedAnswer:
        answer: Answer = _function(f"brickd.views.{request.view}:answer")(self._past.daemon, request.query)
        return FetchedAnswer(answer.document, answer.words)

    def newest(self) -> float:
        return time.time()


@pytest.fixture
def past(worker: Start, prefix: str) -> Iterator[Past]:
    """A daemon that saw recording off from 10 s to 20 s, and a worker that died before 30 s; then it slept."""
    with past_daemon() as found:
        started(worker, SPANS, BRICKD_SERVICE="api")
        other = started(worker, SPANS, BRICKD_SERVICE="other")
        found.look(0)
        found.daemon.orders.set(Setting(service="api", recording="off"))
        found.look(10)
        found.daemon.orders.set(Setting(service="api", recording="on"))
        found.look(20)
        other.kill()
        for at_s in (30, 40, 200, 210):
            found.look(at_s)
        yield found


def screen(past: Past, at_s: float | None, panel: str = "bricks", size: Cells = WIDE) -> list[str]:
    cursor = None if at_s is None else past.began_ns / SECOND + at_s
    return Top(DaemonSource(past), State(panel=panel, cursor=cursor), size).lines


def has(lines: list[str], text: str) -> bool:
    return any(text in line for line in lines)


def test_the_screen_has_the_workers_and_problems_of_the_time_of_the_cursor(past: Past) -> None:
    now, off, well, died = (screen(past, at_s) for at_s in (None, 15, 25, 35))
    assert "AT " in off[0]
    assert ["  1 PROBLEM  " in lines[0] for lines in (off, well, died)] == [True, False, True]
    assert "  no active problem  " in now[0], "all this was 1,000 s ago"
    assert "  no problem  " in well[0]
    assert off[1].startswith("~ workers and problems are those of ")
    assert [has(lines, "recording is off in 1 worker of api") for lines in (off, well, died)] == [True, False, False]
    assert [has(lines, "other/0 died") for lines in (off, well, died)] == [False, False, True]
    for lines, state in ((now, "died"), (off, "live"), (well, "live"), (died, "died")):
        (row,) = [line for line in lines if line[2:].startswith("  other/0")]
        assert row.split()[row.split().index("other/0") + 1] == state


@pytest.mark.parametrize("size", [Cells(80, 24), Cells(200, 50)])
@pytest.mark.parametrize(
    ("at_s", "note"),
    [(100, "~ the workers and problems of "), (-500, "! nothing is kept of ")],
    ids=["slept", "before"],
)
def test_a_time_that_the_daemon_did_not_see_shows_no_worker_and_no_problem(
    past: Past, size: Cells, at_s: float, note: str
) -> None:
    top = Top(DaemonSource(past), State(cursor=past.began_ns / SECOND + 35), size)
    assert has(top.lines, "other/0 died")
    for panel in ("problems", "ledger", "events", "bricks"):
        top.state = top.state._replace(cursor=past.began_ns / SECOND + at_s, panel=panel)
        top.ask()
        assert "  problems not known  " in top.lines[0]
        assert top.lines[1].startswith(note)
        assert not any(has(top.lines, text) for text in ("no problem", "died", " live", "no workers"))
        assert panel != "problems" or has(top.lines, "the problems of this time are not known")
        assert panel != "ledger" or has(top.lines, "the ledger of this time is not kept")


@pytest.mark.parametrize("paused", [False, True])
def test_a_screen_of_20_columns_says_that_its_time_is_past(past: Past, paused: bool) -> None:
    cursor = past.began_ns / SECOND + 35
    top = Top(DaemonSource(past), State(cursor=cursor, paused=paused), Cells(20, 10))
    assert top.lines[0].startswith(f"top  AT {time.strftime('%H:%M:%S', time.localtime(cursor))}")


def test_the_rows_of_now_are_not_shown_at_a_time_that_is_not_kept(past: Past) -> None:
    top = Top(DaemonSource(past), State(period=None), WIDE)
    assert has(top.lines, "BRICK  CATEGORY"), top.text
    top.state = top.state._replace(cursor=past.began_ns / SECOND - 500)
    top.ask()
    assert not has(top.lines, "BRICK  CATEGORY")
    assert top.frame.panel.document is None


@pytest.mark.parametrize(("subject", "named"), [("other/0", True), ("other", True), ("api/0", False), ("api", False)])
def test_the_problems_of_a_chosen_worker_name_it_or_its_service(past: Past, subject: str, named: bool) -> None:
    state = State(panel="problems", cursor=past.began_ns / SECOND + 35, subject=subject)
    lines = Top(DaemonSource(past), state, WIDE).lines
    (at,) = [n for n, line in enumerate(lines) if f"PROBLEMS of {subject}" in line]
    assert has(lines[at:], "other/0 died; ") is named
    assert has(lines[at:], f"no active problem names {subject}") is not named
