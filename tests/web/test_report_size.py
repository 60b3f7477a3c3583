"""What a report leaves out to stay small, and in which order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from faults import Start
from verbs import SPANS, started

from brickd.datasources.shared_memory import SharedMemory
from brickd.errors import BrickdError
from brickd.query.queries import BricksQuery, CoverageQuery, HangQuery, HistoryQuery, StatusQuery, TreeQuery
from brickd.query.query import Query
from brickd.web import report_documents as report_module
from brickd.web.report import report_page
from brickd.web.report_documents import BYTES_MAX, ReportDocument, left_out, report_documents, watched

MB = 1_000_000


class Answers:
    """Answers with documents of chosen sizes, and remembers the queries."""

    def __init__(self, *, status: int = 0, coverage: int = 0, tree: int = 0, history: int = 0, rows: int = 1) -> None:
        self.sizes = {StatusQuery: status, CoverageQuery: coverage, TreeQuery: tree, HistoryQuery: history}
        self.rows, self.tops = rows, list[tuple[str | None, int | None]]()

    def __call__(self, view: str, query: Query) -> dict[str, Any]:
        if not isinstance(query, BricksQuery):
            return {"is": "x" * self.sizes.get(type(query), 0)}
        self.tops.append((query.by, query.top))
        kept = min(self.rows, query.top or 0)
        rows = [{"name": f"brick {number % 60}"} for number in range(kept)]
        return {"bricks": rows, "rest": {"bricks": self.rows - kept}}


def made(answers: Answers, **limits: Any) -> list[ReportDocument]:
    """Return the documents of these answers."""
    history = {"is": "x" * answers.sizes[HistoryQuery]}
    return report_documents(answers, lambda bricks: ((each, history) for each in bricks), **limits)


def size(documents: Sequence[ReportDocument]) -> int:
    return sum(len(each.embedded()) for each in documents)


def of(documents: Sequence[ReportDocument], view: str, **parameters: Any) -> ReportDocument:
    (found,) = (each for each in documents if (each.view, each.parameters) == (view, parameters))
    return found


def histories(documents: Sequence[ReportDocument]) -> list[bool]:
    """Tell for each brick whether its history is inside."""
    return [each.document is not None for each in documents if "brick" in each.parameters]


def test_nothing_is_left_out_of_a_small_report() -> None:
    found = made(Answers(history=1000, rows=50))
    assert histories(found) == [True] * 50
    assert left_out(found) == []


def test_the_largest_page_has_less_than_3_mb() -> None:
    empty = made(Answers())
    full = BYTES_MAX - size(empty)
    found = made(Answers(status=full))
    assert size(found) == BYTES_MAX
    assert len(report_page(found, "2026-03-11T03:12:40Z")) < 3 * MB


def test_histories_fill_the_room_that_the_other_documents_leave() -> None:
    answers = Answers(history=100_000, rows=40)
    without = size(made(answers, bricks_seconds=0.0))
    found = made(answers, bytes_max=without + 250_000)
    assert histories(found) == [True] * 2 + [False] * 38
    assert left_out(found) == ["latency: 38 of 40 bricks"]
    assert size(found) <= without + 250_000


def test_a_brick_without_room_even_for_a_reason_is_not_in_the_report() -> None:
    answers = Answers(history=1000, rows=3)
    documents = made(answers, bricks_seconds=0.0)
    one = len(documents[-1].embedded())
    assert len(histories(made(answers, bytes_max=size(documents)))) == 3
    assert len(histories(made(answers, bytes_max=size(documents) - 1))) == 2
    assert len(histories(made(answers, bytes_max=size(documents) - one - 1))) == 1


def test_the_cells_of_workers_are_left_out_before_anything_else() -> None:
    answers = Answers(rows=4096, coverage=500)
    made(answers, bricks_seconds=0.0, bytes_max=MB)
    assert answers.tops == [(None, 100_000), ("worker", 4096)]
    found = made(answers, bricks_seconds=0.0, bytes_max=140_000)
    assert answers.tops[2:] == [(None, 100_000), ("worker", 4096), ("worker", 2048)]
    cells = of(found, "bricks", by="worker", top=4096)
    assert cells.document is not None
    assert len(cells.document["bricks"]) == 2048
    assert left_out(found) == ["latency: 60 of 60 bricks", "workers: 2,048 cells with the least self time"]


def test_the_tree_by_layers_then_bricks_then_the_tree_and_the_coverage_are_left_out() -> None:
    answers = Answers(rows=2000, tree=20_000, coverage=10_000)

    def told(bytes_max: int) -> list[str]:
        found = left_out(made(answers, bricks_seconds=0.0, bytes_max=bytes_max))
        return [line for line in found if not line.startswith("latency")]

    layers = "tree: it is too large for a report (brickd tree --layers)"
    cells, bricks = "workers: 1,744 cells with the least self time", "bricks: {} bricks with the least self time"
    assert told(85_000) == [layers, cells]
    assert told(62_000) == [layers, bricks.format("1,000"), cells]
    assert told(47_000) == [layers, bricks.format("1,800"), cells]
    tree = "tree: it is too large for a report (brickd tree)"
    assert told(30_000) == [tree, layers, bricks.format("1,800"), cells]
    coverage = "coverage: it is too large for a report (brickd coverage)"
    assert told(15_000) == [tree, layers, coverage, bricks.format("1,800"), cells]


def test_an_error_is_left_out_too() -> None:
    def answers(view: str, query: Query) -> dict[str, Any]:
        if view == "hang":
            raise BrickdError("nothing to see")
        return Answers()(view, query)

    assert left_out(report_documents(answers, lambda _: [("brick 0", {})])) == ["hang: nothing to see"]


def test_a_brick_without_work_in_the_last_hour_is_not_left_out() -> None:
    absent = BrickdError("no brick in the last 1h")
    found = report_documents(Answers(rows=60), lambda bricks: ((each, absent) for each in bricks))
    assert left_out(found) == ["latency: 10 of 60 bricks"]
    assert of(found, "history", over="1h", every="1m", brick="brick 0").error == "no brick in the last 1h"


def test_no_history_is_made_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()  # each reading is a second later
    monkeypatch.setattr(report_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    asked = list[str]()

    def made(bricks: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for each in bricks:
            asked.append(each)
            yield each, {}

    found = report_documents(Answers(rows=9), made, bricks_seconds=4.0)
    assert asked == ["brick 0", "brick 1", "brick 2"]
    assert histories(found) == [True] * 3 + [False] * 6
    assert histories(report_documents(Answers(rows=9), made, bricks_seconds=1.0)) == [False] * 9


def test_open_spans_are_looked_at_twice_with_a_pause_unless_there_is_no_worker(
    worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()
    monkeypatch.setattr(report_module, "time", SimpleNamespace(sleep=slept.append))
    watched(SharedMemory(), HangQuery(watch=0.5))
    assert slept == []
    started(worker, SPANS)
    watched(SharedMemory(), HangQuery(watch=0.5))
    assert slept == [0.5]


@pytest.mark.parametrize("name", ["</script>", "<!--", "<script>", "\u2028\u202e\x00\ud800"])
def test_an_embedded_document_is_ascii_without_an_opening_bracket(name: str) -> None:
    text = ReportDocument("status", {"brick": name}, {"name": name}, name).embedded()
    assert text.isascii()
    assert "<" not in text
    assert json.loads(text)["document"]["name"] == name
