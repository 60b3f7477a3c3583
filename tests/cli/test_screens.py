"""The text of documents, without a command: which line of a table shows which entry of a document."""

from __future__ import annotations

from typing import Any

import pytest
from faults import Start
from verbs import document, started

from brickd.screens import bricks, hang, history, status, workers
from brickd.screens.screen import Screen
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


@pytest.mark.ci
def test_the_tables_of_screens_have_one_line_for_each_entry_in_the_order_of_the_document(worker: Start) -> None:
    for _ in range(2):
        started(worker, TWO)
    found = document("workers")
    shown(workers.table_of(found), workers.render(found, WIDE), found["workers"], "name")
    found = document("bricks")
    shown(bricks.table_of(found, ("cv",)), bricks.render(found, WIDE, ("cv",)), found["bricks"], "name")
    found = document("hang", "--watch", "0.01")
    shown(hang.table_of(found), hang.render(found, WIDE), found["open"], "worker")
    found = document("status")
    shown(status.worker_table(found["workers"]), status.render(found, WIDE), found["workers"], "name")
    shown(status.brick_table(found, 10), status.render(found, WIDE), found["bricks"], "name")


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
