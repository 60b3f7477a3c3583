"""The lists above the panel: which rows they have, in which order, with which signs, and how many of them are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from faults import Start
from top_screens import PLAIN
from verbs import SPANS, started

from brickd.query.queries import StatusQuery
from brickd.screens.screen import Screen
from brickd.screens.status import verdict_line
from brickd.top import lines, worker_list
from brickd.top.frame import Frame
from brickd.top.list_block import block
from brickd.top.panel_rows import Look, PanelRow
from brickd.top.panels import PANELS
from brickd.top.places import Selection
from brickd.top.source import LiveSource, Request
from brickd.top.sparkline import rates
from brickd.top.state import DAY, State
from brickd.top.upper import Upper, upper

Document = dict[str, Any]
Made = Callable[..., Document]


@pytest.fixture
def made(worker: Start) -> Made:
    """Return a function that makes a status with some workers and problems, from that of a real worker."""
    started(worker, SPANS, BRICKD_SERVICE="api")
    status = LiveSource().answer(Request("status", StatusQuery())).document
    (real,) = status["workers"]

    def make(*workers: Document, problems: int = 0, **changes: Any) -> Document:
        found = [{**real, "name": f"api/{number}", **each} for number, each in enumerate(workers)]
        problem: Document = {"service": "web", "workers": [], "text": "is slow", "silenced_until": None}
        problem["command"] = "brickd bricks --by worker --sort total"
        texts = [{**problem, "id": f"{number:08x}"} for number in range(problems)]
        return {**status, "workers": found, "problems": texts, **changes}

    return make


def signs(document: Document) -> dict[str, str]:
    return {row.name: row.sign for row in worker_list.rows(document, State())}


def test_the_sign_of_a_row_is_that_of_its_worst_fact(made: Made) -> None:
    ill: tuple[Document, ...] = (
        {"state": "died"},
        {"state": "quarantined"},
        {"problem": "is too old"},
        {"lost": 1},
        {"lost": 1},
        {},
    )
    document = made(*ill)
    document["problems"] = [{"service": "api", "workers": ["api/4"]}]
    assert [*signs(document).values()] == ["!", "!", "!", "!", "~", "!", " "]
    document["problems"] = []
    assert [*signs(document).values()] == [" ", "!", "!", "!", "~", "~", " "]
    unproven = {"service": "api", "verdict": "unproven", "recorded": True}
    for changes, sign in (
        ({}, "~"),
        ({"service": "web"}, " "),
        ({"verdict": "equal"}, " "),
        ({"recorded": False}, " "),
    ):
        assert signs({**document, "evidence": [unproven | changes]})["api"] == sign
    document["problems"] = [{"service": "api", "workers": []}]
    assert signs({**document, "evidence": [unproven]})["api"] == "!"


def test_a_service_comes_before_its_workers_and_files_that_are_no_segments_come_last(made: Made) -> None:
    document = made({"service": None, "name": "a-file"}, {}, {"service": "web", "name": "web/0"}, {"together": 7})
    rows = worker_list.rows(document, State())
    assert [row.name for row in rows] == ["api", "api/1", "api/3", "web", "web/0", "a-file"]
    assert rows[0].cells["state"] == "8 live"
    assert [row.cells["name"] for row in rows[:2]] == ["api", "  api/1"]


@pytest.mark.parametrize(
    ("order", "names"),
    [("name", "0123"), ("lost", "2013"), ("spans", "1302"), ("cpu", "3120"), ("memory", "2310")],
)
def test_the_orders_of_workers(made: Made, order: str, names: str) -> None:
    def spans(count: int) -> Document:
        return {"spans": {**ledger["spans"], "summarized": count}}

    (real,) = made({})["workers"]
    ledger = real["ledger"]
    document = made(
        {"lost": 3, "ledger": ledger | spans(0), "cpu_percent": None, "rss_bytes": None},
        {"lost": 2, "ledger": ledger | spans(9), "cpu_percent": 5.0, "rss_bytes": 1},
        {"lost": 9, "ledger": ledger | spans(0), "cpu_percent": 1.0, "rss_bytes": 9},
        {"lost": 0, "ledger": ledger | spans(4), "cpu_percent": 9.0, "rss_bytes": 5},
    )
    assert [row.name[-1] for row in worker_list.rows(document, State(order=order))][1:] == [*names]


def test_the_columns_marks_and_rates_of_the_list(made: Made) -> None:
    used = made({"cpu_percent": 5.0, "rss_bytes": 1}, {"cpu_percent": None, "rss_bytes": None}, {})

    def drawn(width: int, **changes: Any) -> tuple[str, list[str]]:
        state = State(**changes)
        return worker_list.drawn(worker_list.rows(used, state), {}, state, width, ascii_only=False)

    assert drawn(120)[0].split() == ["WORKER", "STATE", "CPU", "RSS", "SPANS", "LOST", "OPEN", "NOW"]
    plain = made({"cpu_percent": None, "rss_bytes": None})
    rows = worker_list.rows(plain, State())
    assert "CPU" not in worker_list.drawn(rows, {}, State(), 120, ascii_only=False)[0]
    assert "RSS" not in drawn(50)[0]
    assert "RSS" in drawn(50, order="memory")[0]
    marks = [line[:2] for line in drawn(80, subject="api/0", picked=("api/1",))[1]]
    assert marks == ["  ", " >", " *", "  "]
    for width, bars in ((39, 0), (40, 8), (54, 9), (180, 30), (240, 30)):
        assert {lines.width(lines.line(line)) for line in drawn(width)[1]} == {width}
        assert len(worker_list.rates_title(State(), width)) == bars
    titles = [worker_list.rates_title(State(rates_over=over), 120).rstrip() for over in (DAY, 3600.0)]
    assert titles == ["SPANS/S, DAY", "SPANS/S, HOUR"]
    assert worker_list.rates_title(State(), 60).rstrip() == "SPANS/S"


def heights(document: Document, room: int | None, width: int = 80, state: State = State()) -> tuple[int, int, Upper]:  # noqa: B008
    """Return how many lines the workers, with their title, and the problems get."""
    found = upper(state, Frame(state), document, width, room, PLAIN)
    rows = {name: each.height for name, each in found.lists.items()}
    return rows.get("workers", -1) + 1, rows.get("problems", 0), found


@pytest.mark.parametrize(
    ("workers", "problems", "room", "expected"),
    [
        (20, 0, 23, (6, 0)),  # at most 6 lines of workers on a small screen
        (20, 9, 23, (6, 3)),  # and 3 of problems
        (2, 1, 23, (4, 1)),  # a title, a service, two workers
        (20, 9, 10, (3, 3)),  # the panel keeps 4 lines
        (20, 9, 7, (2, 1)),
        (20, 9, 5, (0, 0)),
        (20, 0, 4, (0, 0)),
        (20, 0, 5, (0, 0)),  # a title without a row is useless
        (20, 0, 6, (2, 0)),
        (20, 0, 29, (6, 0)),
        (20, 0, 30, (10, 0)),  # a third of a high screen
        (20, 9, None, (22, 18)),  # all, each problem with its command
    ],
)
def test_how_many_lines_the_lists_get(
    made: Made, workers: int, problems: int, room: int | None, expected: tuple[int, int]
) -> None:
    high, low, found = heights(made(*[{}] * workers, problems=problems), room, 40 if room is None else 80)
    assert (high, low) == expected
    assert len(found.lines) == high + low
    assert list(found.trends) == ["api", *(f"api/{number}" for number in range(workers))][: max(0, high - 1)]


def test_a_sign_has_a_colour_and_a_name_that_looks_like_one_has_none(made: Made) -> None:
    state = State(names=("x",), focus="problems")

    def styles(rows: Sequence[PanelRow]) -> list[set[str]]:
        return [{each.style for each in one} for one in block(state, "panel", rows, 9).lines]

    names = [PanelRow("! 3 PROBLEMS", "! 3 PROBLEMS"), PanelRow("~ slow"), PanelRow("! lost", sign="!")]
    assert styles([*names, PanelRow("~ unknown", sign="~")]) == [{""}, {""}, {"red"}, {"yellow"}]
    document = made({"state": "died"}, {"lost": 1}, {}, problems=1)
    found = upper(state._replace(focus="panel"), Frame(state), document, 80, 23, Look())
    rows = [each for each in found.lines if lines.text(each)[:1] in "!~" or "live" in lines.text(each)]
    assert [{each.style for each in row} for row in rows] == [{""}, {"red"}, {"yellow"}, {""}, {"red"}]
    plain = upper(state._replace(focus="panel"), Frame(state), document, 80, 23, PLAIN)
    assert {each.style for each in plain.lines[-1]} == {"red"}


def test_rates_are_asked_for_the_workers_on_the_screen(made: Made) -> None:
    state = State(focus="workers", places={"workers": Selection("api/9", 10, 6)})
    assert list(heights(made(*[{}] * 20), 23, state=state)[2].trends) == [f"api/{number}" for number in range(5, 10)]


def test_on_a_large_screen_the_problems_and_the_ledger_are_at_the_right(made: Made) -> None:
    document = made(*[{}] * 3, problems=30)
    for width, room, is_wide in ((139, 30, False), (140, 29, False), (140, 30, True)):
        assert any(" │ " in lines.text(each) for each in heights(document, room, width)[2].lines) == is_wide
    _, low, found = heights(document, 48, 200, State(subject="api/1"))
    right = [lines.text(each).partition(" │ ")[2].rstrip() for each in found.lines]
    assert (len(found.lines), low) == (16, 12)  # a third; the ledger keeps three lines
    assert right[0].startswith("  PROBLEMS")
    assert right[0].endswith("1-12 of 30")
    assert right[13] == "  LEDGER"
    assert right[15].startswith("all ")  # of all workers, whatever the panel is about
    few = made(*[{}] * 3)
    _, low, found = heights(few, 48, 200)
    assert (low, "problems" in found.lists) == (0, False)
    assert len(found.lines) == 8  # PROBLEMS, the verdict, LEDGER, its head, all workers and three
    assert verdict_line(few, Screen(None, colour=False)) in lines.text(found.lines[1])
    assert len(heights(made(*[{}] * 40), 30, 140)[2].lines) == 10


def test_the_newest_slot_of_a_history_is_the_first_row(made: Made) -> None:
    slot = {"workers": 1, "count_per_second": 1.0, "p50_ns": 1, "p99_ns": 1, "self_ns": 1, "lost": 0}
    slots = [{**slot, "from": f"2026-01-01T00:0{number}:00Z"} for number in range(3)]
    rows = PANELS["history"].draw({"slots": slots, "brick": None}, Screen(80, colour=False), State()).rows
    assert [row.key for row in rows] == [each["from"] for each in reversed(slots)]


def test_a_gap_in_a_history_is_bounded_whatever_the_times_are() -> None:
    slots = [{"from": f"{year}-01-01T00:00:00Z", "count_per_second": 1.0} for year in (1970, 2026)]
    assert rates({"every_ns": 1, "slots": slots}) == [*[None] * 511, 1.0]
