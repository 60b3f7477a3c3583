"""The text of documents, without a command."""

from __future__ import annotations

import os
import termios
from typing import Any

import pytest
from faults import Start
from verbs import document, started

from brickd.datasources.world import DaemonStatus
from brickd.screens import bricks, hang, history, status, stragglers, workers
from brickd.screens.screen import Screen, screen_of
from brickd.screens.table import EntryTable

WIDE = Screen(None, False)
TWO = """
for name in "often", "rarely", "often":
    with brick.span(name): pass
with brick.span("outer"), brick.span("inner"): pause()
"""


def shown(table: EntryTable, lines: list[str], entries: list[dict[str, Any]], key: str) -> None:
    """Check that a screen contains the table, and that the table has the entries in the order of the document."""
    assert [each[key] for each in table.entries] == [each[key] for each in entries] != []
    laid_out = table.lines(WIDE.width)
    assert len(laid_out) == len(entries) + 1
    assert "\n".join(laid_out) in "\n".join(lines)
    for entry, line in zip(entries, laid_out[1:], strict=True):
        assert str(entry[key]) in line


def test_the_table_of_a_screen_has_the_entries_in_the_order_of_the_document(worker: Start) -> None:
    started(worker, TWO)
    found = document("status")
    shown(status.worker_table(found["workers"]), status.render(found, WIDE), found["workers"], "name")
    shown(status.brick_table(found, 10), status.render(found, WIDE), found["bricks"], "name")
    assert [each["name"] for each in status.brick_table(found, 1).entries] == [
        each["name"] for each in found["bricks"][:1]
    ]


@pytest.mark.ci
def test_the_tables_of_several_workers_have_the_entries_in_the_order_of_the_documents(worker: Start) -> None:
    for _ in range(2):
        started(worker, TWO)
    found = document("workers")
    shown(workers.table_of(found), workers.render(found, WIDE), found["workers"], "name")
    found = document("bricks")
    shown(bricks.table_of(found, ("cv",)), bricks.render(found, WIDE, ("cv",)), found["bricks"], "name")
    found = document("hang", "--watch", "0.01")
    shown(hang.table_of(found), hang.render(found, WIDE), found["open"], "worker")


def test_columns_of_processor_time_and_memory_are_shown_only_with_a_value() -> None:
    (titles,) = workers.table_of({"workers": []}).lines()
    assert "THREADS" in titles
    assert "RSS" not in titles


def test_a_finding_with_too_many_workers_leaves_room_for_the_line_that_counts_the_others() -> None:
    def entries(number: int) -> int:
        return len(stragglers.table_of({"category": "ffn", "workers": [{}] * number}).entries)

    assert [entries(number) for number in (3, 8, 9, 100)] == [3, 8, 7, 7]


def test_the_waits_of_a_collective_have_their_own_columns() -> None:
    first, second = (stragglers.table_of({"category": each, "workers": []}).lines() for each in ("ffn", "Collective"))
    assert ("MEAN (self)" in first[0], "MEAN WAIT" in second[0]) == (True, True)


def working(name: str, state: str = "live", together: int = 1, spans: int = 1) -> dict[str, Any]:
    ledger = {"spans": {"summarized": spans}}
    return {
        "name": name,
        "service": name.split("/", maxsplit=1)[0],
        "state": state,
        "together": together,
        "ledger": ledger,
    }


def test_the_line_of_a_service_counts_its_workers_by_state_and_cuts_only_its_name() -> None:
    of = [working("a", spans=5), working("b", "died", 1_200, 2_000)]
    facts = "  1 live, 1,200 died  2,005 spans  daemon"
    assert status.service_line("service\n", of, "daemon", None) == r"service\n" + facts
    assert status.service_line("a_long_service", of, "daemon", 10 + len(facts)) == "a_long_se…" + facts
    assert status.service_line("a_long_service", of, "daemon", 20) == "a_long_…" + facts
    assert status.service_line("a", [], "daemon", None) == "a  0 live  0 spans  daemon"


def test_services_are_in_the_order_of_the_document() -> None:
    of = [working("b/0"), working("a/0"), working("b/1"), working("c") | {"service": None}]
    found = status.services_of({"workers": of})
    assert {name: [each["name"] for each in of] for name, of in found.items()} == {"b": ["b/0", "b/1"], "a": ["a/0"]}
    assert list(found) == ["b", "a"]


@pytest.mark.parametrize(
    ("problems", "silenced", "unproven", "lost", "past", "expected"),
    [
        (0, 0, 0, 0, False, ("no problem", "green")),
        (1, 0, 0, 0, False, ("1 PROBLEM", "red")),
        (2, 3, 1, 4, True, ("2 PROBLEMS, 3 silenced, lost: 4 spans", "red")),
        (0, 0, 2, 0, False, ("no problem, 2 unproven", "yellow")),
        (0, 0, 0, 0, True, ("no active problem", "yellow")),
    ],
)
def test_the_verdict_of_a_status_has_a_colour(
    problems: int, silenced: int, unproven: int, lost: int, past: bool, expected: tuple[str, str]
) -> None:
    found = {
        "problems": [{}] * problems,
        "silenced": [{}] * silenced,
        "workers": [working("a/0")],
        "evidence": [{"service": "a", "verdict": "unproven", "recorded": n < unproven} for n in range(3)],
        "ledger": {"lost": {"spans": lost, "details": 0, "events": 0}},
    }
    assert status.verdict(found, past=past) == expected


def test_colours_are_used_only_on_a_terminal_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    parent, child = os.openpty()
    with open(parent, "rb"), open(child, "w", encoding="utf-8") as terminal, open(os.devnull, "w") as file:
        assert (screen_of(terminal), screen_of(file)) == (Screen(None, True), Screen(None, False))
        termios.tcsetwinsize(child, (24, 80))
        assert screen_of(terminal) == Screen(80, True)
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setenv("NO_COLOR", "1")
        assert (screen_of(terminal), screen_of(file)) == (Screen(120, False), Screen(120, False))
    assert (Screen(80, False).paint("ok", "green"), Screen(80, True).paint("ok", "green")) == (
        "ok",
        "\x1b[32mok\x1b[0m",
    )


def slot(begin: str) -> dict[str, Any]:
    return {"from": begin, "workers": 1, "count": 2, "count_per_second": 0.2, "p50_ns": 1, "p99_ns": 2, "self_ns": 3,
            "lost": 0}  # fmt: skip


def test_a_history_shows_dates_only_if_it_has_several() -> None:
    one = {"brick": None, "slots": [slot("2026-01-02T12:00:00Z"), slot("2026-01-02T12:00:10Z")]}
    two = {"brick": "rope", "slots": [slot("2026-01-02T12:00:00Z"), slot("2026-01-03T12:00:00Z")]}
    assert [len(each["begin"]) for each in history.table_of(one).entries] == [8, 8]
    assert [len(each["begin"]) for each in history.table_of(two).entries] == [19, 19]
    assert history.render(one, WIDE) == history.table_of(one).lines()
    assert history.table_of({"brick": None, "slots": []}).entries == []
    assert history.render({"brick": None, "slots": []}, WIDE) == ["no slots yet"]


def test_a_status_with_workers_has_the_line_about_the_flight_recorder(worker: Start) -> None:
    started(worker, TWO)
    flying = DaemonStatus("1.0", 1, 0, 0, "test-", flight_recorder={"rests_ns": 0, "last": None})
    found = document("status") | {"daemon": flying.document()}
    assert status.render(found, WIDE).count("flight recorder  on") == 1


@pytest.mark.parametrize(
    ("recorder", "line"),
    [
        (None, None),
        ({"rests_ns": 0, "last": None}, "flight recorder  on"),
        ({"rests_ns": 0, "last": {"text": "4f1c09aa was \x1b"}}, "flight recorder  on; last: 4f1c09aa was \\x1b"),
        ({"rests_ns": 252 * 10**9, "last": {"text": "…"}}, "flight recorder  rests for 4.2 min; last: …"),
    ],
)
def test_a_status_has_a_line_about_the_flight_recorder_of_the_daemon(
    prefix: str, recorder: dict[str, Any] | None, line: str | None
) -> None:
    found = document("status") | {"daemon": {"flight_recorder": recorder}}
    lines = [text for text in status.render(found, WIDE) if text.startswith("flight recorder")]
    assert lines == ([] if line is None else [line])
    assert status.render(found | {"daemon": {}}, WIDE) == status.render(found | {"daemon": None}, WIDE)
    long = found | {"daemon": {"flight_recorder": {"rests_ns": 0, "last": {"text": "x" * 99}}}}
    assert len(status.render(long, Screen(40, False))[-1]) == 40
