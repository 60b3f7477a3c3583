"""Windows: what was recorded between two looks, whoever came, went or changed its uuid in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from made_up import MadeUp, programs

from brickd.ledger import ledger_of
from brickd.memory import OTHERS, Gone
from brickd.shares import Share, Slot, slot
from brickd.snapshot import EVERY_NS, SECOND, Snapshot
from brickd.totals import bricks
from brickd.windows import Windows, since
from brickd.workers import Survey, Worker

COUNTERS = ("names", "paths", "sites", "names_refused", "names_cut", "no_lane", "lanes_refused", "blocks_refused")
NOTHING = dict.fromkeys(COUNTERS, 0)
UUID = {number: bytes([number]) * 16 for number in range(1, 9)}


def worker(made: MadeUp, number: int, *, took: bytes = bytes(16), alive: bool = True, age_ns: int = 0) -> Worker:
    """The worker of this number as it is now, of this age."""
    reading = made.reading()
    header: Any = {**reading.header, "uuid": UUID[number], "clock": 1, "anchor_ticks": 0}
    process: Any = {**NOTHING, "ended": int(not alive), "took": int.from_bytes(took[:8], "little")}
    now_ticks = round(age_ns / reading.tick_ns) if alive else None
    reading = replace(reading, header=header, process=process, pid=7 if alive else None, now_ticks=now_ticks)
    return Worker(f"{made.service}/{number}", reading, ledger_of(reading))


def snapshot(*workers: Worker, now_ns: int = 0) -> Snapshot:
    return Snapshot.of(Survey(list(workers), [], 0), now_ns, now_ns + 1_700_000_000 * SECOND)


def work(made: MadeUp, name: str, *durations: int) -> None:
    for duration in durations:
        made.begin(name)
        made.spend(duration)
        made.end(elements=1)


def counts(workers: Iterable[Worker]) -> dict[str, tuple[int, int, int]]:
    """By brick: spans, elements, and what they took together."""
    found = bricks(workers)
    return {each.name: (each.row["count"], each.row["elements"], round(each.row["total_ns"])) for each in found}


def after(began: Snapshot, *now: Worker, now_ns: int = EVERY_NS) -> dict[str, tuple[int, int, int]]:
    return counts(since(began, now, now, now_ns))


def replay(made: MadeUp, later: MadeUp) -> MadeUp:
    """The first worker goes on with what the second one did."""
    made.tick_ns = later.tick_ns
    for path, sums in zip(later.paths, later.sums, strict=True):
        name = next(text for text, number in later.numbers.items() if number == path.name)
        for duration in sums.durations:
            made.begin(name, path.layer)
            made.spend(duration)
            made.end(elements=0)
    return made


@given(programs(given=False, room=False), programs(given=False, room=False))
def test_a_window_holds_what_was_recorded_in_it_and_nothing_else(first: MadeUp, then: MadeUp) -> None:
    first.tick_ns = then.tick_ns
    began = snapshot(worker(first, 1))
    alone = replay(MadeUp(service=first.service), then)
    assert after(began, worker(replay(first, then), 1)) == counts([worker(alone, 1)])


def test_who_came_within_the_window_is_in_it_with_all() -> None:
    came = MadeUp()
    work(came, "a", 5, 7)
    assert after(snapshot(), worker(came, 1, age_ns=3 * SECOND)) == {"a": (2, 2, 12)}


def test_who_could_not_be_read_before_is_not_in_the_window_with_what_it_did_before() -> None:
    old = MadeUp()
    work(old, "a", 5, 7)
    assert after(snapshot(), worker(old, 1, age_ns=100 * SECOND)) == {}


def test_what_a_worker_did_before_it_died_stays_in_the_window() -> None:
    dies = MadeUp()
    work(dies, "a", 5)
    began = snapshot(worker(dies, 1))
    work(dies, "a", 7)
    assert after(began, worker(dies, 1, alive=False)) == {"a": (1, 1, 7)}


def test_who_lost_its_segment_goes_on_in_the_window() -> None:
    goes_on = MadeUp()
    work(goes_on, "a", 5)
    began = snapshot(worker(goes_on, 1))
    work(goes_on, "a", 7)
    assert after(began, worker(goes_on, 2, took=UUID[1], age_ns=SECOND)) == {"a": (1, 1, 7)}


def added_up(*gone: Worker) -> Worker:
    """Those that went long ago, as the daemon shows them."""
    one, *others = (Gone(each.name, each.reading) for each in gone)
    for each in others:
        one = one.and_(each)
    reading = replace(one.reading, pid=None)
    return Worker(one.name, reading, ledger_of(reading), one.workers)


def test_those_that_were_added_up_within_the_window_count_what_they_did_in_it() -> None:
    first, second, third = MadeUp(), MadeUp(), MadeUp()
    work(first, "a", 5)
    work(second, "b", 1)
    work(second, "a", 11)
    began = snapshot(worker(first, 1, alive=False), worker(second, 2))
    work(second, "b", 2)
    work(third, "b", 3)
    older = added_up(worker(first, 1, alive=False), worker(second, 2, alive=False), worker(third, 3, alive=False))
    assert after(began, older) == {"b": (2, 2, 5)}
    later = snapshot(older, now_ns=EVERY_NS)
    assert after(later, older, now_ns=2 * EVERY_NS) == {}


def test_who_is_still_there_takes_nothing_from_those_that_were_added_up() -> None:
    stays, first, second = MadeUp(), MadeUp(), MadeUp()
    work(stays, "a", 5)
    began = snapshot(worker(stays, 1))
    work(first, "a", 7)
    work(second, "a", 9)
    older = added_up(worker(first, 2, alive=False), worker(second, 3, alive=False))
    assert after(began, worker(stays, 1), older) == {"a": (2, 2, 16)}


def test_where_there_are_many_services_who_went_is_sought_among_those_of_all_others() -> None:
    first, second = MadeUp(service="one"), MadeUp(service="two")
    work(first, "a", 5)
    work(second, "b", 7)
    began = snapshot(worker(first, 1), worker(second, 2))
    work(second, "b", 9)
    moved = [Gone(made.name, made.reading).of_service(OTHERS) for made in (worker(first, 1), worker(second, 2))]
    reading = replace(moved[0].and_(moved[1]).reading, pid=None)
    older = Worker("others/older", reading, ledger_of(reading), 2)
    assert after(began, older) == {"b": (1, 1, 9)}


def test_a_window_begins_at_the_snapshot_that_is_nearest_to_its_length() -> None:
    windows, made = Windows(), MadeUp()
    assert windows.over([], [], 0, 1) is None
    for seconds in range(0, 200, 10):
        windows.take(snapshot(worker(made, 1), now_ns=seconds * SECOND))
        work(made, "a", seconds)
    now = [worker(made, 1)]
    lengths = {}
    for slots in (1, 6):
        window = windows.over(now, now, 194 * SECOND, slots)
        assert window is not None
        lengths[slots] = (window.length_ns // SECOND, counts(window.workers)["a"][0])
    assert lengths == {1: (14, 2), 6: (64, 7)}


def test_a_window_is_shorter_where_nothing_older_is_known() -> None:
    windows, made = Windows(), MadeUp()
    windows.take(snapshot(worker(made, 1), now_ns=SECOND))
    work(made, "a", 1)
    window = windows.over([worker(made, 1)], [worker(made, 1)], 4 * SECOND, 6)
    assert window is not None
    assert (window.length_ns, counts(window.workers)) == (3 * SECOND, {"a": (1, 1, 1)})


def test_who_was_forgotten_takes_nothing_from_those_that_are_added_up_later() -> None:
    windows = Windows()
    made = {number: MadeUp() for number in range(1, 8)}
    for number, each in made.items():
        work(each, "a", *[5] * (10 - number))
    older = added_up(worker(made[1], 1, alive=False), worker(made[2], 2, alive=False))
    alone, added, lives = worker(made[3], 3, alive=False), worker(made[4], 4), worker(made[5], 5)
    windows.take(snapshot(older, alone, added, lives, now_ns=SECOND))
    windows.forget([Gone(each.name, each.reading, each.together) for each in (older, alone)], {UUID[5].hex()})
    work(made[5], "a", 7)
    others = added_up(worker(made[6], 6, alive=False), worker(made[7], 7, alive=False))
    now = [worker(made[5], 5), others]
    window = windows.over(now, now, 4 * SECOND, 6)
    assert window is not None
    assert counts(window.workers) == {"a": (8, 8, 4 * 5 + 3 * 5 + 7)}


def test_who_was_forgotten_alone_takes_nothing_from_those_that_went_before_it() -> None:
    windows, stays, forgotten, later = Windows(), MadeUp(), MadeUp(), MadeUp()
    for each in (stays, forgotten, later):
        work(each, "a", 5, 5)
    gone = worker(forgotten, 3, alive=False)
    one, other = worker(stays, 1, alive=False), worker(MadeUp(), 2, alive=False)
    windows.take(snapshot(added_up(one, other), gone, now_ns=SECOND))
    windows.forget([Gone(gone.name, gone.reading)], set())
    now = [added_up(one, other, worker(later, 4, alive=False))]
    window = windows.over(now, now, 4 * SECOND, 6)
    assert window is not None
    assert counts(window.workers) == {"a": (2, 2, 10)}


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
    assert (found.length_ns, found.ended_at_ns - found.began_at_ns) == (EVERY_NS, EVERY_NS)


def of_bricks(found: Slot) -> dict[tuple[str, str], str]:
    return {key: found.categories[key] for key in found.bricks}


def test_what_one_service_calls_a_brick_says_nothing_of_anothers() -> None:
    one, other = MadeUp(service="one"), MadeUp(service="other")
    began = snapshot()
    one.begin("sync", category="Collective")
    one.end()
    other.begin("sync", category="FFN")
    other.end()
    found = slot(began, snapshot(worker(one, 1), worker(other, 2), now_ns=EVERY_NS))
    assert of_bricks(found) == {("one", "sync"): "Collective", ("other", "sync"): "FFN"}
    alike = [MadeUp(service=service) for service in ("one", "other")]
    for made in alike:
        made.begin("sync", category="Collective")
        made.end()
    found = slot(began, snapshot(worker(alike[0], 1), worker(alike[1], 2), now_ns=EVERY_NS))
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
