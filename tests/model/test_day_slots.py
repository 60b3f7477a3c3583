"""Slots of the last day: their sums, their stored form, and what happens to call paths without room."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from forge import golden, segment_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_up_workers import MadeUp, programs
from test_windows import counts, replay, snapshot, work, worker

from brickd.base.units import SECOND
from brickd.model import day_codec, day_slots, summary_fold
from brickd.model.brick_totals import bricks
from brickd.model.day_codec import decode, encode
from brickd.model.day_slots import DaySlot, SlotTables, WorkerWork, as_workers, slot
from brickd.model.retained_workers import RetainedTotals
from brickd.model.worker_origins import Origin
from brickd.model.workers import Worker
from brickd.shm import _reader, reading_sums
from brickd.shm.segment_copy import CallPath, Reading

ROOM = 1 << 20


def self_ns(of: DaySlot) -> float:
    return sum(brick.row["self_ns"] for brick in bricks(as_workers(of)))


def stored(of: DaySlot, most: int = ROOM) -> DaySlot:
    return decode(encode(of, most), of.began_ns, of.ended_ns)


@functools.cache
def fields() -> tuple[Any, Any]:
    """All fields of a header and of a process."""
    with segment_of(golden()) as segment:
        reading = segment.read()
    return reading.header, reading.process


def whole(of: Worker) -> Worker:
    """Return a worker with all fields of a segment."""
    header, process = fields()
    reading = replace(of.reading, header=header | of.reading.header, process=process | of.reading.process)
    return of._replace(reading=reading)


def of_two(made: MadeUp, other: MadeUp) -> DaySlot:
    """The slot that has all the work of two workers."""
    workers = (whole(worker(each, number, born_ns=SECOND)) for number, each in ((1, made), (2, other)))
    return slot(snapshot(), snapshot(*workers, now_ns=10 * SECOND))


@given(programs(given=False, room=False), programs(given=False, room=False))
def test_a_slot_has_the_work_of_all_workers_in_its_time(first: MadeUp, then: MadeUp) -> None:
    then.tick_ns = first.tick_ns
    found = of_two(first, then)
    assert counts(as_workers(found)) == counts([worker(first, 1), worker(then, 2)])
    spans = {name: work.spans for (_, name), work in found.workers.items()}
    workers = worker(first, 1), worker(then, 2)
    recorded = {each.name: sum(brick.row["count"] for brick in bricks([each])) for each in workers}
    assert spans == {name: count for name, count in recorded.items() if count}


def test_a_sum_describes_no_single_worker() -> None:
    """The file keeps sums for two days, so they have nothing of a worker's process, memory or place in its service."""
    with segment_of(golden()) as segment:
        full = segment.read()
    made = MadeUp()
    work(made, "a", 5)
    one = whole(worker(made, 1, born_ns=SECOND))
    header: Any = one.reading.header | {"index": 3, "coordinates": b"tp=1"}
    process: Any = one.reading.process | {"ended": 1, "no_lane": 7}
    reading = replace(
        one.reading,
        header=header,
        process=process,
        lanes=full.lanes,
        sites=full.sites or [None],
        deferred={"bounded": 2},
        odd=1,
        moving=1,
        memory_bytes=4096,
    )
    assert reading.lanes
    (found,) = slot(snapshot(), snapshot(one._replace(reading=reading), now_ns=10 * SECOND)).totals.values()
    got = found.reading
    assert (got.header["index"], got.coordinates, set(_flat(got.process.values()))) == (-1, "", {0})
    assert (list(got.lanes), list(got.sites), dict(got.deferred)) == ([], [], {})
    assert (got.odd, got.moving, got.memory_bytes, got.pid, got.now_ticks) == (0, 0, 0, None, None)


def _flat(values: Iterable[Any]) -> Iterator[int]:
    for value in values:
        yield from value if isinstance(value, tuple) else (value,)


@pytest.mark.ci
@given(programs(given=False, room=False), programs(given=False, room=False))
def test_the_sum_of_two_slots_is_the_slot_of_their_whole_time(first: MadeUp, then: MadeUp) -> None:
    then.tick_ns = first.tick_ns
    began = snapshot()
    middle = snapshot(worker(first, 1, born_ns=SECOND), now_ns=10 * SECOND)
    ended = snapshot(worker(replay(first, then), 1, born_ns=SECOND), now_ns=20 * SECOND)
    whole = slot(began, ended)
    added = slot(began, middle).and_(slot(middle, ended))
    assert (added.began_ns, added.ended_ns) == (whole.began_ns, whole.ended_ns)
    assert counts(as_workers(added)) == counts(as_workers(whole))
    assert {name: work.spans for name, work in added.workers.items()} == {
        name: work.spans for name, work in whole.workers.items()
    }


@pytest.mark.ci
@pytest.mark.parametrize("kept", [0, 1 << 18])
@settings(max_examples=20)
@given(st.data(), programs(given=False, room=False), programs(given=False, room=False))
def test_tables_of_earlier_slots_change_no_figure(kept: int, data: st.DataObject, first: MadeUp, then: MadeUp) -> None:
    """Two workers may reach the same bricks in different orders; later slots use the rows of earlier slots."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading_sums, "_KNOWN_PATHS_MAX", kept)
        patched.setattr(summary_fold, "_KNOWN_PATHS_MAX", kept)
        then.tick_ns = first.tick_ns
        tables = SlotTables()
        for _ in range(3):
            order = data.draw(st.permutations([first, then]))
            workers = [worker(each, number, born_ns=SECOND) for number, each in enumerate(order, 1)]
            ended = snapshot(*workers, now_ns=10 * SECOND)
            found, expected = slot(snapshot(), ended, tables), slot(snapshot(), ended)
            assert counts(as_workers(found)) == counts(as_workers(expected)) == counts(workers)
            assert found.workers == expected.workers


def test_tables_are_not_used_again_if_most_of_their_paths_are_of_other_workers() -> None:
    few, many = MadeUp(), MadeUp()
    work(few, "a", 5)
    for number in range(40):
        work(many, f"brick {number}", 5)
    tables, sizes = SlotTables(), []
    for made in (few, many, few, few):
        of = worker(made, 1, born_ns=SECOND)
        slot(snapshot(), snapshot(of, now_ns=10 * SECOND), tables)
        ((kept),) = tables.paths.values()
        sizes.append(len(kept.paths))
    assert sizes == [2, 42, 2, 2]
    slot(snapshot(), snapshot(now_ns=10 * SECOND), tables)
    assert tables.paths == {}


@given(programs(given=False, room=False), programs(given=False, room=False))
def test_a_stored_slot_is_the_same(first: MadeUp, then: MadeUp) -> None:
    then.tick_ns = first.tick_ns
    found = of_two(first, then)
    again = stored(found)
    assert counts(as_workers(again)) == counts(as_workers(found))
    assert (again.workers, again.folded) == (found.workers, 0)
    assert stored(again).workers == found.workers


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 64))
@example(40, 3)
def test_call_paths_without_room_are_added_to_other_and_counted(names: int, kept: int) -> None:
    made = MadeUp()
    for number in range(names):
        work(made, f"brick {number}", *range(10, 11 + number))
    found = of_two(made, MadeUp())
    few = {key: day_codec._folded(each.reading, kept) for key, each in found.totals.items()}
    ((reading, folded),) = few.values()
    (totals,) = found.totals.values()
    after = replace(found, totals={"only": replace(totals, reading=reading)})
    assert self_ns(after) == pytest.approx(self_ns(found))
    left = {brick.name for brick in bricks(as_workers(after))}
    largest = {f"brick {number}" for number in range(max(0, names - kept), names)}
    assert (left, folded) == (largest | ({"other"} if names > kept else set()), max(0, names - kept))


def names_of(reading: Reading) -> set[str]:
    return {reading.name(path.name) for path in reading.paths if path is not None}


def test_times_in_other_units_are_not_added_to_other() -> None:
    made = MadeUp()
    work(made, "gemm", 50)
    made.give("nccl", 7)
    (totals,) = of_two(made, MadeUp()).totals.values()
    reading, folded = day_codec._folded(totals.reading, 0)
    assert (names_of(reading), folded) == ({"other"}, 2)
    few = replace(of_two(made, MadeUp()), totals={"only": replace(totals, reading=reading)})
    assert self_ns(few) == 50, "the path other has ticks only"


def test_a_kept_call_path_keeps_those_above_it() -> None:
    made = MadeUp()
    made.begin("outer")
    made.begin("middle")
    work(made, "inner", 1_000)
    made.end()
    made.end()
    work(made, "aside", 5)
    (totals,) = of_two(made, MadeUp()).totals.values()
    reading, folded = day_codec._folded(totals.reading, 1)
    assert names_of(reading) == {"other", "outer"}
    assert folded == 3
    made.begin("inner")
    made.spend(10_000)
    made.end()
    (totals,) = of_two(made, MadeUp()).totals.values()
    reading, folded = day_codec._folded(totals.reading, 3)
    assert names_of(reading) >= {"other", "outer", "middle", "inner"}


def test_a_slot_with_more_than_its_room_keeps_the_largest_bricks_and_then_only_its_time() -> None:
    made = MadeUp()
    for number in range(400):
        work(made, f"brick {number * 2654435761 % 2**32:x}", 1 + number)
    found = of_two(made, MadeUp())
    everything = len(encode(found, ROOM))
    for most, kept in ((everything, 400), (everything - 1, 256), (1_500, 0)):
        body = encode(found, most)
        again = decode(body, 0, 1)
        assert (len(body) <= most, again.folded) == (True, 400 - kept)
        assert self_ns(again) == pytest.approx(self_ns(found))
        assert stored(again).folded == again.folded
    nothing = decode(encode(replace(found, folded=7), 200), 0, 1)
    assert (nothing.totals, nothing.workers, nothing.lost, nothing.folded) == ({}, {}, {}, 408)
    (totals,) = found.totals.values()
    twice = replace(found, totals={"one/TSC": totals, "other/TSC": totals}, folded=7)
    assert decode(encode(twice, everything - 50), 0, 1).folded == 7 + 2 * 144


def test_a_call_path_below_an_open_span_keeps_its_place() -> None:
    made = MadeUp()
    made.begin("open")  # it has no time before its end
    work(made, "inner", 1_000)
    (totals,) = of_two(made, MadeUp()).totals.values()
    reading, _ = day_codec._folded(totals.reading, 1)
    assert names_of(reading) == {"other", "open", "inner"}


def test_a_sum_has_the_most_folded_paths_and_the_longest_slot_of_its_parts() -> None:
    one, other = DaySlot(0, 1, folded=3, longest_ns=1), DaySlot(1, 9, folded=5, longest_ns=8)
    for first, then in ((one, other), (other, one)):
        found = first.and_(then)
        assert (found.folded, found.longest_ns) == (5, 8)


def test_workers_whose_ticks_were_measured_with_a_tiny_error_are_added_up() -> None:
    """Each reading of a worker measures the length of a tick anew."""
    first, then = MadeUp(tick_ns=0.3851884009193253), MadeUp(tick_ns=0.3851884009853756)
    for made in (first, then):
        work(made, "a", 500, 700)
    found = of_two(first, then)
    assert len(found.totals) == 1
    assert counts(as_workers(found))["a"][0] == 4
    (one, other) = found.workers.values()
    assert sum(one.and_(other).histogram) == 4
    assert sum(one.and_(other._replace(tick_ns=1.0)).histogram) == 2, "buckets of another clock are other times"


def test_a_bound_is_stored_with_the_path_of_what_it_bounds() -> None:
    made = MadeUp()
    work(made, "a", 5)
    (totals,) = of_two(made, MadeUp()).totals.values()
    reading, added = totals.reading, _reader.Summaries(totals.reading.summaries)
    for path in (2, 3):
        added.add(path, 7 if path == 3 else 0, 0, 0)
    named = reading.names.index(("a", 0))
    paths = [
        *reading.paths[:2],
        *(CallPath(-1, named, -1, unit) for unit in (_reader.UNIT_DEFERRED, _reader.UNIT_BOUND)),
    ]
    summaries = bytearray(added.tobytes())
    summaries[2 * _reader.SUMMARY_BYTES : 3 * _reader.SUMMARY_BYTES] = bytes(
        _reader.SUMMARY_BYTES
    )  # nothing deferred yet
    latency = _reader.Summaries()
    latency.add(3, 9, 0, 0)
    bounded = replace(reading, paths=paths, summaries=bytes(summaries), latency=latency.tobytes())
    found = DaySlot(0, 1, {"api/TSC": RetainedTotals("api", bounded)})
    again = stored(found)
    assert counts(as_workers(again)) == counts(as_workers(found))


def test_a_worker_with_marks_only_counts_them() -> None:
    made = MadeUp()
    made.mark("kernel", _reader.UNIT_LAUNCHED, count=3)
    found = of_two(made, MadeUp())
    assert (len(found.totals), found.workers) == (1, {})


def test_counts_above_the_limit_are_stored() -> None:
    most = WorkerWork(2**64 - 1, 1.0, 2**64 - 1, 1.0, (2**64 - 1,) * 128)
    found = DaySlot(0, 1, {}, {("api", "api/0"): most.and_(most)})
    assert stored(found).workers[("api", "api/0")].lost == 2**64 - 1


def test_losses_before_a_worker_was_added_to_a_sum_do_not_count_again() -> None:
    made = MadeUp()
    work(made, "a", 5)
    lone = worker(made, 1)
    lone.ledger.rejected["room"] = 7
    origin = Origin(lone.reading.uuid, 0, 0, 0)
    merged = worker(made, 2)._replace(together=2, added=(origin,))
    merged.ledger.rejected["room"] = 9
    before = {worker(made, 2).reading.uuid: 1, lone.reading.uuid: 7}
    assert day_slots._lost(merged, before) == 8
    assert day_slots._lost(merged._replace(together=1), before) == 1


def test_marks_are_kept_before_times_because_they_have_no_other_place() -> None:
    made = MadeUp()
    for number in range(5):
        work(made, f"brick {number}", 50)
    made.mark("kernel", _reader.UNIT_LAUNCHED, count=3)
    (totals,) = of_two(made, MadeUp()).totals.values()
    reading, folded = day_codec._folded(totals.reading, 1)
    assert (names_of(reading), folded) == ({"other", "kernel"}, 5)


def test_a_slot_counts_the_workers_of_a_sum() -> None:
    made = MadeUp()
    work(made, "a", 5)
    lone = tuple(Origin.of(worker(made, number, born_ns=SECOND).reading) for number in (2, 3, 4))
    merged = worker(made, 1, born_ns=SECOND)._replace(together=3, added=lone)
    (totals,) = slot(snapshot(), snapshot(merged, now_ns=10 * SECOND)).totals.values()
    assert totals.workers == 3


def test_workers_of_two_clocks_are_two_sums() -> None:
    made = MadeUp()
    work(made, "a", 5)
    one, other = worker(made, 1, born_ns=SECOND), worker(made, 2, born_ns=SECOND)
    header: Any = {**other.reading.header, "clock": 3}
    other = other._replace(reading=replace(other.reading, header=header))
    clocks = {1: (0, 0), 3: (0, 0)}
    began = snapshot()
    began = began._replace(survey=began.survey._replace(clocks=clocks))
    found = slot(began, snapshot(one, other, now_ns=10 * SECOND))
    assert found.totals.keys() == {"made/TSC", "made/CLOCK_MONOTONIC_RAW"}
    assert [each.together for each in as_workers(found)] == [2, 2], "a sum is never shown as one worker"


def test_a_sum_has_the_losses_of_both_and_the_histogram_of_the_clock_with_more_spans() -> None:
    few, many = (WorkerWork(spans, 1.0, 3, tick_ns, (spans,) * 128) for spans, tick_ns in ((1, 1.0), (2, 0.5)))
    for one, other in ((few, many), (many, few)):
        both = one.and_(other)
        assert (both.spans, both.lost, both.tick_ns, both.histogram) == (3, 6, 0.5, many.histogram)
    first, then = DaySlot(0, 1, lost={("a", "b"): 1, ("a", "c"): 2}), DaySlot(1, 2, lost={("a", "b"): 5})
    assert first.and_(then).lost == {("a", "b"): 6, ("a", "c"): 2}


def test_a_known_worker_keeps_its_row_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_slots, "WORKERS_MAX", 1)
    made = MadeUp()
    work(made, "a", 5)
    one, again = worker(made, 1, born_ns=SECOND), worker(made, 2, born_ns=SECOND)._replace(name="made/1")
    found = slot(snapshot(), snapshot(one, again, now_ns=10 * SECOND))
    assert {name: work.spans for name, work in found.workers.items()} == {("made", "made/1"): 2}


def test_workers_beyond_the_limit_are_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_slots, "WORKERS_MAX", 1)
    first, then = MadeUp(), MadeUp()
    for made in (first, then):
        work(made, "a", 5)
    assert [work.spans for work in of_two(first, then).workers.values()] == [1, 1]
    assert list(of_two(first, then).workers) == [("made", "made/1"), ("", "")]
    one, other = (slot(snapshot(), snapshot(worker(first, n, born_ns=SECOND), now_ns=10 * SECOND)) for n in (1, 2))
    assert list(one.and_(other).workers) == [("made", "made/1"), ("", "")], "a sum of slots has the same limit"


def test_losses_of_a_slot_are_those_of_its_time() -> None:
    made = MadeUp()
    work(made, "a", 5)

    def lossy(lost: int) -> object:
        found = worker(made, 1, born_ns=SECOND)
        found.ledger.rejected["room"] = lost
        return found

    began, ended = (snapshot(lossy(lost), now_ns=at * SECOND) for lost, at in ((3, 10), (8, 20)))  # type: ignore[arg-type]
    (found,) = slot(began, ended).workers.values()
    assert (found.spans, found.lost) == (0, 5)
    (found,) = slot(snapshot(), began).workers.values()
    assert (found.spans, found.lost) == (1, 3)


def test_the_work_of_workers_is_decoded_on_request_and_their_names_always() -> None:
    made, other = MadeUp(), MadeUp()
    work(made, "a", 5)
    work(other, "a", 7)
    found = of_two(made, other)
    few = decode(encode(found, ROOM), 0, 1, work=False)
    assert not few.workers
    assert few.lost.keys() == {("made", "made/1"), ("made", "made/2")}
    assert few.and_(few).lost == stored(found).lost == few.lost


@pytest.mark.parametrize("step_s", [-3600, 0, 3600])
def test_a_step_of_the_clock_does_not_change_the_length_of_what_was_counted(step_s: int) -> None:
    began, ended = snapshot(), snapshot(now_ns=10 * SECOND)
    found = slot(began, ended._replace(at_ns=ended.at_ns + step_s * SECOND))
    assert (found.covered_ns, stored(found).covered_ns) == (10 * SECOND, 10 * SECOND)
    both = found.and_(replace(found, began_ns=5, ended_ns=9))
    assert (both.began_ns, both.ended_ns, both.covered_ns) == (5, found.ended_ns, 20 * SECOND)


@pytest.mark.parametrize("body", [b"", b"x", zlib.compress(b"{}"), zlib.compress(b"[" * 100_000)])
def test_a_damaged_slot_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"has an invalid structure|nested"):
        decode(body, 0, 1)


def changed(key: str, row: int, place: int, value: Any) -> bytes:
    """Return the stored slot of two workers, after one value in a row of a table was replaced.

    If `place` is negative, the row is removed instead.
    """
    made, other = MadeUp(), MadeUp()
    work(made, "a", 5)
    work(other, "a", 7)
    found = json.loads(zlib.decompress(encode(of_two(made, other), ROOM)))
    rows = json.loads(found[key]) if key == "work" else found[key]
    if place < 0:
        del rows[row]
    else:
        rows[row][place] = value
    found[key] = json.dumps(rows) if key == "work" else rows
    return zlib.compress(json.dumps(found).encode())


@pytest.mark.parametrize(
    ("key", "place", "value"),
    [
        ("work", 0, -1),
        ("work", 0, 1.5),
        ("work", 1, "5"),
        ("work", 2, 0),
        ("work", 2, -1.0),
        ("work", 2, 1e6),
        ("work", 2, None),
        ("work", 3, [0, -1]),
        ("work", 3, [-1, 1]),
        ("work", 3, [128, 1]),
        ("work", 3, [0, 1.0]),
        ("work", 3, [0, True]),
        ("work", 3, [0]),
        ("work", -1, None),
        ("workers", 1, "made/2"),
        ("workers", 2, -1),
        ("workers", -1, None),
    ],
)
def test_an_invalid_work_of_a_worker_is_refused(key: str, place: int, value: Any) -> None:
    assert stored(decode(changed("workers", 0, 2, 3), 0, 1)).lost[("made", "made/1")] == 3
    with pytest.raises(ValueError, match="has an invalid structure"):
        decode(changed(key, 0, place, value), 0, 1)


def test_every_truncated_or_changed_slot_is_refused_or_whole() -> None:
    made = MadeUp()
    work(made, "a", 5, 7)
    body = zlib.decompress(encode(of_two(made, MadeUp()), ROOM))
    for at in range(0, len(body), 7):
        for changed in (body[:at], body[:at] + b"\xff" + body[at + 1 :], body[:at] + b"0" + body[at + 1 :]):
            try:
                found = decode(zlib.compress(changed), 0, 1)
            except ValueError:
                continue
            bricks(as_workers(found))
