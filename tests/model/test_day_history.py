"""A history: each row has the right slots, and its figures are equal to those of the bricks and the workers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from made_up_workers import MadeUp, programs
from test_day_slots import of_two, stored
from test_windows import work

from brickd.base.units import SECOND
from brickd.model.brick_totals import bricks
from brickd.model.day_history import DayHistory, HistoryOf, HistoryRow, _summary
from brickd.model.day_slots import DaySlot, as_workers
from brickd.shm import _reader

NONE = HistoryOf()


def made(service: str, *durations: int) -> MadeUp:
    of = MadeUp(service)
    work(of, "a", *durations)
    return of


def only(of: HistoryOf, *slots: DaySlot) -> HistoryRow:
    (row,) = DayHistory(of, 1 << 62).rows(slots)
    return row


def two_services() -> DaySlot:
    """A slot of the workers api/1 and batch/2, in which both have the bricks a and b."""
    api, batch = made("api", 500, 700), made("batch", 90)
    for each in (api, batch):
        work(each, "b", 40)
    found = of_two(api, batch)
    return replace(found, lost={("api", "api/1"): 3, ("batch", "batch/2"): 4})


@pytest.mark.parametrize("every_s", [10, 20, 30, 60, 3600])
def test_a_slot_is_in_the_row_of_its_middle(every_s: int) -> None:
    slots = [DaySlot(n * 10 * SECOND, (n + 1) * 10 * SECOND, covered_ns=9 * SECOND) for n in (0, 1, 2, 5, 6, 11)]
    history = DayHistory(NONE, every_s * SECOND)
    rows = [(row.began_ns // SECOND, row.ended_ns // SECOND, row.covered_ns // SECOND) for row in history.rows(slots)]
    assert (
        rows
        == {
            10: [(0, 10, 9), (10, 20, 9), (20, 30, 9), (50, 60, 9), (60, 70, 9), (110, 120, 9)],
            20: [(0, 20, 18), (20, 30, 9), (50, 60, 9), (60, 70, 9), (110, 120, 9)],
            30: [(0, 30, 27), (50, 60, 9), (60, 70, 9), (110, 120, 9)],
            60: [(0, 60, 36), (60, 120, 18)],
            3600: [(0, 120, 54)],
        }[every_s]
    )
    assert history.total is not None
    assert (history.total.began_ns, history.total.ended_ns, history.total.covered_ns) == (0, 120 * SECOND, 54 * SECOND)


def test_a_slot_that_begins_in_one_row_may_be_in_the_next() -> None:
    slots = [DaySlot(began * SECOND, (began + 10) * SECOND) for began in (9, 14, 16)]
    assert [row.began_ns // SECOND for row in DayHistory(NONE, 20 * SECOND).rows(slots)] == [9, 16]


def test_without_slots_there_are_no_rows() -> None:
    history = DayHistory(NONE, SECOND)
    assert ([*history.rows(())], history.total) == ([], None)


@pytest.mark.parametrize(
    ("of", "spans", "self_ns", "lost", "workers"),
    [
        (NONE, 5, 1370, 7, 2),
        (HistoryOf(["api"]), 3, 1240, 3, 1),
        (HistoryOf(["batch"]), 2, 130, 4, 1),
        (HistoryOf(["api", "batch"], brick="b"), 2, 80, 7, 2),
        (HistoryOf(["api"], brick="a"), 2, 1200, 3, 1),
        (HistoryOf(["batch/2"], by_worker=True), 2, 130, 4, 1),
        (HistoryOf(["batch/2", "api"], by_worker=True), 5, 1370, 7, 2),
        (HistoryOf(["gone/1"], by_worker=True), 0, 0, 0, 0),
        (HistoryOf(brick="c"), 0, 0, 7, 2),
    ],
)
def test_only_the_named_services_workers_and_bricks_count(
    of: HistoryOf, spans: int, self_ns: int, lost: int, workers: int
) -> None:
    row = only(of, two_services())
    assert (row.spans, row.self_ns, row.lost, row.workers) == (spans, self_ns, lost, workers)
    assert (row.p50_ns is None) == (row.p99_ns is None) == (spans == 0)


def test_the_names_of_bricks_are_known_if_one_is_asked_for() -> None:
    for brick, known in (("a", {"a", "b", "other"}), ("c", {"a", "b", "other"}), (None, set())):
        history = DayHistory(HistoryOf(brick=brick), SECOND)
        assert len([*history.rows([two_services()])]) == 1
        assert history.bricks == known


def test_slots_of_a_row_are_added_up() -> None:
    one = two_services()
    later = replace(one, began_ns=one.ended_ns, ended_ns=one.ended_ns + 10 * SECOND)
    for of in (NONE, HistoryOf(["api/1"], by_worker=True)):
        row, both = only(of, one), only(of, one, later)
        assert (both.spans, both.self_ns, both.lost) == (2 * row.spans, 2 * row.self_ns, 2 * row.lost)
        assert (both.workers, both.p50_ns) == (row.workers, row.p50_ns)


@given(programs(given=False, room=False), programs(given=False, room=False))
def test_a_history_has_the_figures_of_the_bricks(first: MadeUp, then: MadeUp) -> None:
    then.tick_ns = first.tick_ns
    found = stored(of_two(first, then))
    rows = [brick.row for brick in bricks(as_workers(found))]
    row = only(NONE, found)
    assert row.spans == sum(each["count"] for each in rows)
    assert row.self_ns == pytest.approx(sum(each["self_ns"] for each in rows))
    assert only(HistoryOf([first.service, then.service], by_worker=True), found).spans == row.spans
    for brick in bricks(as_workers(found)):
        if not brick.bounded:
            alone = only(HistoryOf(brick=brick.name), found)
            assert (alone.spans, alone.p99_ns) == (brick.row["count"], brick.row["p99_ns"])


def test_percentiles_of_a_worker_are_those_of_its_spans_to_within_a_bucket() -> None:
    durations = [100 * 3**n for n in range(12) for _ in range(20)]
    api = made("api", *durations)
    api.tick_ns = 0.25
    found = of_two(api, MadeUp())
    by_worker, whole = only(HistoryOf(["api/1"], by_worker=True), found), only(NONE, found)
    assert by_worker.p50_ns == pytest.approx(whole.p50_ns, rel=0.19)
    assert by_worker.p99_ns == pytest.approx(whole.p99_ns, rel=0.19)
    assert by_worker.self_ns == whole.self_ns == sum(durations) / 4


def test_the_longest_spans_of_a_worker_are_in_the_last_bucket() -> None:
    found = of_two(made("api", 1 << 50), MadeUp())
    row = only(HistoryOf(["api/1"], by_worker=True), found)
    assert row.p99_ns is not None
    assert 2**36 < row.p99_ns <= 2**37


def test_the_work_of_a_worker_is_a_summary_of_the_format() -> None:
    """The offsets are also checked against the layout of the format."""
    (found,) = of_two(made("api", 500), MadeUp()).workers.values()
    summary = memoryview(_summary(found)).cast("Q")
    places = {row[1]: row[2] // 8 for row in _reader.layout() if row[0] == "summary"}
    assert (summary[places["count"]], summary[places["total"]]) == (1, 500)
    assert [*summary[places["histogram"] :]] == [*found.histogram]
    assert (summary[places["child"]], summary[places["min"]], summary[places["again"]]) == (0, 0, 0)


def test_the_rows_of_other_bricks_are_those_of_their_own_histories() -> None:
    slots = [two_services(), replace(two_services(), began_ns=20 * SECOND, ended_ns=30 * SECOND)]
    history = DayHistory(HistoryOf(brick="a"), SECOND, ("a", "b", "gone"))
    assert [*history.rows(slots)] == history.others["a"]
    for brick, rows in history.others.items():
        assert rows == [*DayHistory(HistoryOf(brick=brick), SECOND).rows(slots)]
    assert len(history.others["b"]) == 2
