"""Windows show the work between two snapshots, while workers start, end or change their uuid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from forge import golden, segment_of
from hypothesis import given
from hypothesis import strategies as st
from made_up_workers import MadeUp, programs

from brickd.base.units import SECOND
from brickd.model.brick_totals import bricks
from brickd.model.retained_workers import RetainedTotals
from brickd.model.survey_snapshot import EVERY_NS, Snapshot
from brickd.model.windows import SLOTS, Window, Windows, since
from brickd.model.worker_origins import Origin, RecentlyMerged
from brickd.model.worker_totals import Share, Slot, slot
from brickd.model.workers import Survey, Worker
from brickd.query.query import MINUTE_S, OVER
from brickd.shm.ledger import Ledger, ledger_of
from brickd.shm.memory_budget import kept_of, packed_size
from brickd.shm.records import named_later
from brickd.shm.removed_workers import OTHERS
from brickd.shm.segment_copy import CallPath
from brickd.state.daemon_state import Memory
from brickd.state.day_file import CELLS, LENGTHS_NS

COUNTERS = ("names", "paths", "sites", "names_refused", "names_cut", "no_lane", "lanes_refused", "blocks_refused")
NOTHING = dict.fromkeys(COUNTERS, 0) | named_later("process")
UUID = {number: bytes([number]) * 16 for number in range(1, 9)}


LONG_AGO = -100 * SECOND
BOOTED_NS = -1000 * SECOND


def ticks(ns: int) -> int:
    """Return the ticks of every worker's clock at a time."""
    return 3 * (ns - BOOTED_NS)


def worker(
    made: MadeUp,
    uuid: int | bytes,
    *,
    took: bytes = bytes(16),
    alive: bool = True,
    born_ns: int = LONG_AGO,
    born_ticks: int | None = None,
) -> Worker:
    """Return a worker with its present totals."""
    reading = made.reading()
    uuid = UUID[uuid] if isinstance(uuid, int) else uuid
    anchor = ticks(born_ns) if born_ticks is None else born_ticks
    header: Any = {**reading.header, "uuid": uuid, "clock": 1, "anchor_ticks": anchor, "anchor_ns": born_ns - BOOTED_NS}
    process: Any = {**NOTHING, "ended": int(not alive), "took": int.from_bytes(took[:8], "little")}
    reading = replace(reading, header=header, process=process, pid=7 if alive else None)
    return Worker(f"{made.service}/{uuid[0]}", reading, ledger_of(reading))


def snapshot(*workers: Worker, now_ns: int = 0) -> Snapshot:
    survey = Survey(list(workers), [], clocks={1: (ticks(now_ns), now_ns - BOOTED_NS)})
    return Snapshot.of(survey, now_ns, now_ns + 1_700_000_000 * SECOND)


def work(made: MadeUp, name: str, *durations: int) -> None:
    for duration in durations:
        made.begin(name)
        made.spend(duration)
        made.end(elements=1)


def counts(workers: Iterable[Worker]) -> dict[str, tuple[int, int, int]]:
    """Return the spans, elements and total time of each brick."""
    found = bricks(workers)
    return {each.name: (each.row["count"], each.row["elements"], round(each.row["total_ns"])) for each in found}


def after(began: Snapshot, *now: Worker) -> dict[str, tuple[int, int, int]]:
    return counts(since((began,), now))


def replay(made: MadeUp, later: MadeUp) -> MadeUp:
    """Let the first worker repeat the work of the second worker; return the first."""
    made.tick_ns = later.tick_ns
    for path, sums in zip(later.paths, later.sums, strict=True):
        name = next(text for text, number in later.numbers.items() if number == path.name)
        for duration in sums.durations:
            made.begin(name, path.layer)
            made.spend(duration)
            made.end(elements=0)
    return made


@pytest.mark.ci
@given(programs(given=False, room=False), programs(given=False, room=False))
def test_a_window_holds_only_records_made_in_it(first: MadeUp, then: MadeUp) -> None:
    first.tick_ns = then.tick_ns
    began = snapshot(worker(first, 1))
    alone = replay(MadeUp(service=first.service), then)
    assert after(began, worker(replay(first, then), 1)) == counts([worker(alone, 1)])


def test_unready_and_invalid_paths_remove_nothing_from_a_window() -> None:
    """A segment whose paths have other indexes than before is either the worker's next segment or invalid."""
    then, now = MadeUp(), MadeUp()
    for name in ("a", "b", "c", "d"):
        work(then, name, 5)
    for name in ("d", "c", "b", "a", "e"):
        work(now, name, 5, 6)
    began = worker(then, 1)
    paths: list[CallPath | None] = list(began.reading.paths)
    (a,) = (number for number, path in enumerate(then.paths) if then.numbers["a"] == path.name)
    assert a == 1
    paths[1] = None  # the path is claimed, but not written yet
    for number, parent in ((2, 2), (3, 4)):  # the parent is the path itself, or a later one
        paths[number] = then.paths[number]._replace(parent=parent)
    broken = began._replace(reading=replace(began.reading, paths=paths))
    both, one = (2, 2, 11), (1, 1, 6)
    assert after(snapshot(began), worker(now, 1)) == {"a": one, "b": one, "c": one, "d": one, "e": both}
    assert counts(since((snapshot()._replace(survey=Survey([broken], [])),), [worker(now, 1)])) == {
        "a": both, "b": both, "c": both, "d": one, "e": both,
    }  # fmt: skip


def test_a_path_that_becomes_unready_is_not_matched_to_an_earlier_one() -> None:
    then, now = MadeUp(), MadeUp()
    work(then, "a", 5)
    for name in ("b", "a"):
        work(now, name, 5, 6)
    later = worker(now, 1)
    unready = later._replace(reading=replace(later.reading, paths=[None, *later.reading.paths[1:]]))
    assert after(snapshot(worker(then, 1)), unready) == {"a": (1, 1, 6), "b": (2, 2, 11)}


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("born_ns", [0, 3 * SECOND])
def test_a_worker_that_started_within_the_window_counts_completely(alive: bool, born_ns: int) -> None:
    came = MadeUp()
    work(came, "a", 5, 7)
    assert after(snapshot(), worker(came, 1, born_ns=born_ns, alive=alive)) == {"a": (2, 2, 12)}


@pytest.mark.parametrize("alive", [True, False])
def test_a_worker_that_could_not_be_read_before_is_not_in_the_window(alive: bool) -> None:
    """The totals of the worker at the beginning of the window are unknown."""
    old = MadeUp()
    work(old, "a", 5, 7)
    assert after(snapshot(), worker(old, 1, born_ns=-1, alive=alive)) == {}


def test_a_late_start_needs_both_clocks_as_evidence() -> None:
    """One clock alone proves nothing.

    A counter may restart while the machine is suspended, and a time namespace has a kernel clock of its own.
    """
    old = MadeUp()
    work(old, "a", 5)
    assert after(snapshot(), worker(old, 1, born_ns=SECOND, born_ticks=0)) == {}
    assert after(snapshot(), worker(old, 1, born_ns=-SECOND, born_ticks=2**60)) == {}


def test_without_clocks_in_a_snapshot_no_worker_counts_as_new() -> None:
    """Recordings of earlier versions do not contain the workers' clocks."""
    came, began = MadeUp(), snapshot()
    work(came, "a", 5)
    without = began._replace(survey=began.survey._replace(clocks={}))
    assert after(without, worker(came, 1, born_ns=SECOND)) == {}


def test_a_worker_that_continues_an_unseen_segment_is_not_in_the_window() -> None:
    """The totals that the worker took over from a lost segment may be older than the window."""
    goes_on = MadeUp()
    work(goes_on, "a", 5)
    assert after(snapshot(), worker(goes_on, 2, took=UUID[1], born_ns=SECOND)) == {}


def test_a_snapshot_of_the_same_moment_starts_no_window() -> None:
    windows = Windows()
    windows.take(snapshot(now_ns=SECOND))
    assert windows.over([], SECOND, 10 * SECOND) is None
    assert windows.over([], SECOND + 1, 10 * SECOND) == Window([], 1)


def test_a_worker_that_died_keeps_its_work_in_the_window() -> None:
    dies = MadeUp()
    work(dies, "a", 5)
    began = snapshot(worker(dies, 1))
    work(dies, "a", 7)
    assert after(began, worker(dies, 1, alive=False)) == {"a": (1, 1, 7)}


def test_a_worker_that_lost_its_segment_continues_in_the_window() -> None:
    goes_on = MadeUp()
    work(goes_on, "a", 5)
    began = snapshot(worker(goes_on, 1))
    work(goes_on, "a", 7)
    assert after(began, worker(goes_on, 2, took=UUID[1], born_ns=SECOND)) == {"a": (1, 1, 7)}


def merged_workers(*gone: Worker, before: int = 0) -> Worker:
    """Return the merged entry of dead workers as a daemon shows it.

    Its list of merged workers lacks the first `before` ones.
    """
    memory, lately = Memory("made-up"), RecentlyMerged()
    for number, each in enumerate(gone):
        into = memory.add_up(RetainedTotals(each.name, each.reading))
        if number >= before:
            lately.add(0, Origin.of(each.reading), into.reading.uuid)
    (one,) = memory.older.values()
    return shown(one, lately)


def shown(older: RetainedTotals, lately: RecentlyMerged) -> Worker:
    reading = replace(older.reading, pid=None)
    added = lately.by_aggregate(0).get(reading.uuid, ())
    return Worker(older.name, reading, ledger_of(reading), older.workers, added=added)


def test_workers_merged_within_the_window_count_their_work_in_it() -> None:
    first, second, third = MadeUp(), MadeUp(), MadeUp()
    work(first, "a", 5)
    work(second, "b", 1)
    work(second, "a", 11)
    began = snapshot(worker(first, 1, alive=False), worker(second, 2))
    work(second, "b", 2)
    work(third, "b", 3)
    gone = [worker(first, 1, alive=False), worker(second, 2, alive=False)]
    older = merged_workers(*gone, worker(third, 3, alive=False, born_ns=SECOND))
    assert after(began, older) == {"b": (2, 2, 5)}
    later = snapshot(older, now_ns=EVERY_NS)
    assert after(later, older) == {}
    assert after(later, merged_workers(*gone, worker(third, 3, alive=False), before=3)) == {}
    # In the first case, a worker was merged after the snapshot. It already existed at the time of the snapshot, but the
    # snapshot does not contain it. In the second case, it is not known which workers were merged.
    assert after(began, merged_workers(*gone, worker(third, 3, alive=False))) == {}
    assert after(began, merged_workers(*gone, worker(third, 3, alive=False, born_ns=SECOND), before=2)) == {}


def test_an_aggregate_that_lost_workers_is_not_in_the_window() -> None:
    made = [MadeUp() for _ in range(3)]
    for each in made:
        work(each, "a", 5)
    gone = [worker(each, number, alive=False) for number, each in enumerate(made, 1)]
    assert [*since((snapshot(merged_workers(*gone)),), [merged_workers(*gone[:2])])] == []


def test_a_live_worker_is_not_subtracted_from_an_aggregate() -> None:
    stays, first, second = MadeUp(), MadeUp(), MadeUp()
    work(stays, "a", 5)
    began = snapshot(worker(stays, 1))
    work(first, "a", 7)
    work(second, "a", 9)
    older = merged_workers(
        *(worker(made, number, alive=False, born_ns=1) for made, number in ((first, 2), (second, 3)))
    )
    assert after(began, worker(stays, 1), older) == {"a": (2, 2, 16)}


def test_a_merged_worker_with_a_lost_segment_counts_only_later_work() -> None:
    first, second = MadeUp(), MadeUp()
    work(first, "a", 5)
    work(second, "a", 7)
    began = snapshot(worker(first, 1), worker(second, 2))
    work(second, "a", 9)
    older = merged_workers(worker(first, 1, alive=False), worker(second, 3, took=UUID[2], alive=False, born_ns=SECOND))
    assert after(began, older) == {"a": (1, 1, 9)}


def test_a_worker_merged_into_others_is_subtracted_across_services() -> None:
    first, second = MadeUp(service="one"), MadeUp(service="two")
    work(first, "a", 5)
    work(second, "b", 7)
    began = snapshot(worker(first, 1), worker(second, 2))
    work(second, "b", 9)
    moved = [
        RetainedTotals(made.name, made.reading).of_service(OTHERS) for made in (worker(first, 1), worker(second, 2))
    ]
    assert after(began, merged_workers(*(Worker(each.name, each.reading, Ledger()) for each in moved))) == {
        "b": (1, 1, 9)
    }


def test_a_worker_missing_in_the_first_snapshot_counts_from_the_next_one() -> None:
    windows, made, goes_on = Windows(), MadeUp(), MadeUp()
    windows.take(snapshot(worker(made, 1), now_ns=SECOND))
    for seconds, durations in ((11, [5, 5]), (21, [5]), (31, [5, 5, 5])):
        work(made, "a", 7)
        work(goes_on, "b", *durations)
        windows.take(snapshot(worker(made, 1), worker(goes_on, 2, took=UUID[3]), now_ns=seconds * SECOND))
    window = windows.over([worker(made, 1), worker(goes_on, 2, took=UUID[3])], 40 * SECOND, 60 * SECOND)
    assert window is not None
    assert counts(window.workers) == {"a": (3, 3, 21), "b": (4, 4, 20)}


def test_a_window_begins_at_the_snapshot_nearest_to_its_length() -> None:
    windows, made = Windows(), MadeUp()
    assert windows.over([], 0, 10 * SECOND) is None
    for seconds in range(0, 200, 10):
        windows.take(snapshot(worker(made, 1), now_ns=seconds * SECOND))
        work(made, "a", seconds)
    now = [worker(made, 1)]
    lengths = {}
    for seconds in (10, 28, 60, 200):
        window = windows.over(now, 194 * SECOND, seconds * SECOND)
        assert window is not None
        lengths[seconds] = (window.length_ns // SECOND, counts(window.workers)["a"][0])
    assert lengths == {10: (14, 2), 28: (24, 3), 60: (64, 7), 200: (64, 7)}


def test_a_query_may_ask_for_every_window_that_is_kept() -> None:
    assert (OVER.least * SECOND, MINUTE_S * SECOND) == (EVERY_NS, SLOTS * EVERY_NS)
    assert OVER.most * SECOND == CELLS[1] * LENGTHS_NS[1]
    assert CELLS[0] * LENGTHS_NS[0] == 3600 * SECOND


def test_a_window_is_shorter_if_no_older_snapshot_exists() -> None:
    windows, made = Windows(), MadeUp()
    windows.take(snapshot(worker(made, 1), now_ns=SECOND))
    work(made, "a", 1)
    window = windows.over([worker(made, 1)], 4 * SECOND, 60 * SECOND)
    assert window is not None
    assert (window.length_ns, counts(window.workers)) == (3 * SECOND, {"a": (1, 1, 1)})


def test_over_the_memory_limit_the_oldest_snapshots_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sizes = MadeUp(), []
    work(made, "a", 1)
    took = [snapshot(worker(made, 1), now_ns=seconds * SECOND) for seconds in range(0, 70, 10)]
    one = sum(kept_of([took[0].survey.workers[0].reading], packed_size))
    shared = packed_size(took[0].survey.workers[0].reading.summaries)
    for room in (1, one, one + shared - 1, one + shared, one + 6 * shared):
        monkeypatch.setattr("brickd.model.windows.KEPT_BYTES", room)
        kept = Windows()
        for each in took:
            kept.take(each)
        window = kept.over([worker(made, 1)], 60 * SECOND + 1, 60 * SECOND)
        assert window is not None
        sizes.append((window.length_ns - 1) // (10 * SECOND) + 1)
    assert sizes == [1, 1, 1, 2, 7]


def test_an_aggregate_with_too_much_to_subtract_is_not_in_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = MadeUp(), MadeUp()
    work(one, "a", 5)
    work(two, "a", 6)
    began = snapshot(worker(one, 1), worker(two, 2))
    both = sum(len(each.reading.summaries) for each in began.survey.workers)
    work(one, "a", 7)
    sum_of_both = merged_workers(worker(one, 1, alive=False), worker(two, 2, alive=False))
    monkeypatch.setattr("brickd.model.windows.BASES_BYTES", both)
    assert after(began, sum_of_both) == {"a": (1, 1, 7)}
    monkeypatch.setattr("brickd.model.windows.BASES_BYTES", both - 1)
    assert after(began, sum_of_both) == {}
    monkeypatch.setattr("brickd.model.windows.BASES_BYTES", 1)
    assert after(began, worker(one, 1)) == {"a": (1, 1, 7)}


def test_a_forgotten_worker_is_not_subtracted_from_a_later_aggregate() -> None:
    made = {number: MadeUp() for number in range(1, 8)}
    for number, each in made.items():
        work(each, "a", *[5] * (10 - number))
    older = merged_workers(worker(made[1], 1, alive=False), worker(made[2], 2, alive=False))
    began = snapshot(older, worker(made[3], 3, alive=False), worker(made[4], 4), worker(made[5], 5))
    work(made[5], "a", 7)
    # All workers except the fifth were forgotten. The fourth one first died and was merged with the others, and only
    # then was it forgotten.
    others = merged_workers(*(worker(made[number], number, alive=False, born_ns=SECOND) for number in (6, 7)))
    assert after(began, worker(made[5], 5), others) == {"a": (8, 8, 4 * 5 + 3 * 5 + 7)}


def test_a_worker_forgotten_after_the_survey_counts_in_the_window() -> None:
    windows, gone = Windows(), MadeUp()
    work(gone, "a", 5, 5)
    windows.take(snapshot(worker(gone, 1), now_ns=SECOND))
    work(gone, "a", 7)
    window = windows.over([worker(gone, 1, alive=False)], 4 * SECOND, 60 * SECOND)
    assert window is not None
    assert counts(window.workers) == {"a": (1, 1, 7)}


def test_a_slot_has_the_workers_of_a_brick_side_by_side() -> None:
    fast, slow, idle = MadeUp(), MadeUp(), MadeUp()
    workers = ((fast, 1), (slow, 2), (idle, 3))
    for made, _ in workers:
        work(made, "warm", 1)
    began = snapshot(*(worker(*each) for each in workers))
    work(fast, "gemm", 10, 10)
    work(slow, "gemm", 15, 17)
    found = slot(began, snapshot(*(worker(*each) for each in workers), now_ns=EVERY_NS))
    assert found.bricks == {("made", "gemm"): (Share("made/1", 2, 20.0, 2), Share("made/2", 2, 32.0, 2))}
    assert (found.length_ns, found.ended.at_ns - found.began.at_ns) == (EVERY_NS, EVERY_NS)


def test_the_usual_calls_of_a_recursion_are_known_while_its_outermost_span_is_open() -> None:
    made = MadeUp()
    made.begin("recur")
    began = snapshot(worker(made, 1))
    work(made, "recur", 1_000, 1_000, 1_000, 9_000)
    (share,) = slot(began, snapshot(worker(made, 1), now_ns=EVERY_NS), 0.0).bricks["made", "recur"]
    assert (share.count, share.self_ns) == (4, 12_000)
    assert share.usual_ns == pytest.approx(1_000, rel=0.2)


def test_a_recursion_has_no_usual_calls_if_most_of_its_spans_are_inside_others() -> None:
    made = MadeUp()
    began = snapshot(worker(made, 1))
    for _ in range(4):
        made.begin("recur")
        work(made, "recur", 1_000)
        made.end()
    (share,) = slot(began, snapshot(worker(made, 1), now_ns=EVERY_NS), 0.0).bricks["made", "recur"]
    assert (share.usual_ns, share.call_ns) == (None, 500)


def test_calls_that_took_no_time_have_no_usual_time() -> None:
    made = MadeUp()
    began = snapshot(worker(made, 1))
    work(made, "gemm", 0, 0)
    (share,) = slot(began, snapshot(worker(made, 1), now_ns=EVERY_NS), 0.0).bricks["made", "gemm"]
    assert (share.usual_ns, share.call_ns) == (None, 0)


def of_bricks(found: Slot) -> dict[tuple[str, str], str]:
    return {key: found.categories[key] for key in found.bricks}


def test_equal_brick_names_of_different_services_are_separate() -> None:
    one, other = MadeUp(service="one"), MadeUp(service="other")
    began = snapshot()
    one.begin("sync", category="Collective")
    one.end()
    other.begin("sync", category="FFN")
    other.end()
    found = slot(began, snapshot(worker(one, 1, born_ns=1), worker(other, 2, born_ns=1), now_ns=EVERY_NS))
    assert of_bricks(found) == {("one", "sync"): "Collective", ("other", "sync"): "FFN"}
    alike = [MadeUp(service=service) for service in ("one", "other")]
    for made in alike:
        made.begin("sync", category="Collective")
        made.end()
    came = [worker(made, number, born_ns=1) for number, made in enumerate(alike, 1)]
    found = slot(began, snapshot(*came, now_ns=EVERY_NS))
    assert of_bricks(found) == {("one", "sync"): "Collective", ("other", "sync"): "Collective"}


@given(st.permutations(range(1, 5)))
def test_the_order_of_workers_changes_no_slot(order: list[int]) -> None:
    made = {number: MadeUp() for number in order}
    began = snapshot(*(worker(made[number], number) for number in order))
    for number in order:
        work(made[number], "gemm", 10 * number)
        work(made[number], "norm", number)
    found = slot(began, snapshot(*(worker(made[number], number) for number in sorted(order)), now_ns=EVERY_NS))
    assert [share.self_ns for share in found.bricks["made", "gemm"]] == [10.0, 20.0, 30.0, 40.0]


def test_snapshots_do_not_keep_lanes() -> None:
    made = MadeUp()
    work(made, "a", 5)
    one = worker(made, 1)
    with segment_of(golden()) as segment:
        lanes = segment.read().lanes
    kept = Windows()
    kept.take(snapshot(one._replace(reading=replace(one.reading, lanes=lanes))))
    assert [each.reading.lanes for snapshot in kept._kept for each in snapshot.survey.workers] == [[]]
