"""The drain of spans: the valid records, the longest span of each path, and the newest spans are the same as in
numpy."""

from __future__ import annotations

import threading
from typing import Any

import dtypes
import numpy as np
import pytest
from forge import U64
from hypothesis import given
from hypothesis import strategies as st
from rings import BATCH, SPAN, STEP, longest, rings, spans

from brickd.shm import _reader

PATHS = 64


def assert_taken(drain: _reader.Drain, records: dtypes.Array) -> None:
    """Assert that the details are those of these records, in this order."""
    assert drain.spans == len(records)
    assert drain.longest() == longest(records)


def counted(many: int, seed: int = 0, **values: Any) -> dtypes.Array:
    """Return this number of valid records."""
    random = np.random.default_rng(seed)
    made: dtypes.Array = np.zeros(many, dtypes.dtype("span"))
    made["kind"], made["slots"] = SPAN, 1
    made["sequence"] = np.arange(1, many + 1)
    made["path"] = random.integers(0, PATHS, many)
    made["duration"] = 2 ** random.uniform(0, 40, many)
    made["child"] = made["duration"] // 3
    made["start"] = np.arange(many) * 1000 - np.minimum(made["duration"], np.arange(many) * 1000)
    made["step"] = random.integers(0, U64, many, np.uint64)
    made["elements"] = random.integers(0, 2**48, many)
    made["bytes"] = random.integers(0, 2**20, many)
    for name, value in values.items():
        made[name] = value
    return made


# ---- rings with arbitrary content

AMOUNTS = ("start", "duration", "child", "elements", "bytes")
EDGES = st.sampled_from([0, 1, 31, 32, 38, 2**20, 2**37, 2**48, 2**53, 2**62, 2**63 - 1])
AMOUNT = EDGES | st.integers(0, 2**48)
HOSTILE = AMOUNT | st.sampled_from([2**63, U64])
RECORD = st.fixed_dictionaries(
    {
        "path": st.integers(0, 3) | st.sampled_from([PATHS - 1, PATHS, 65535, 2**32 - 1]),
        "kind": st.sampled_from([SPAN, SPAN, SPAN, STEP, 0, 3, 999]),
        "slots": st.sampled_from([1, 1, 1, 1, 1, 2, 3, 0, 65535]),
        "gap": st.sampled_from([1, 1, 1, 1, 2, 100, 0, -3]),
        "start": HOSTILE,
        "duration": HOSTILE,
        "child": HOSTILE,
        "step": HOSTILE,
        "elements": HOSTILE,
        "bytes": HOSTILE,
    }
)
HONEST = RECORD.map(
    lambda r: r | {"path": r["path"] % 4, "kind": SPAN, "slots": 1, "gap": 1} | {n: r[n] % 2**50 for n in AMOUNTS}
)


def judged(records: dtypes.Array, head: int, last: int) -> tuple[dtypes.Array, int, int]:
    """Return the slots up to a head that a reader accepts. Also return how many slots it rejects, and how many are of
    other kinds.
    """
    good: list[int] = []
    rejected = skipped = at = 0
    while at < head:
        one = records[at]
        if not 0 < one["slots"] <= head - at:
            return records[good], rejected + 1, skipped
        if one["kind"] not in (SPAN, STEP):
            skipped += 1
        elif (
            one["slots"] != 1
            or one["path"] >= PATHS
            or one["sequence"] <= last
            or any(one[name] >= 2**63 for name in AMOUNTS)
            or (one["kind"] == STEP and one["bytes"] > one["elements"])
        ):
            rejected += 1
        else:
            good.append(at)
            last = int(one["sequence"])
        at += int(one["slots"])
    return records[good], rejected, skipped


@pytest.mark.ci
@given(st.lists(st.tuples(st.lists(RECORD | HONEST, max_size=16), st.sampled_from([0, 60, 64, 70])), max_size=6))
def test_valid_spans_are_taken_and_invalid_ones_counted(passes: list[tuple[list[dict[str, int]], int]]) -> None:
    """The last 64 records of a pass are checked one by one, so valid records are found after invalid ones."""
    believed, rejected, skipped, sequence, last = [], 0, 0, 0, 0
    with rings(paths=PATHS, span_slots=128) as r:
        drain = r.drain()
        for each, honest in passes:
            made = []
            for record in each:
                sequence = max(sequence + record["gap"], 0)
                made.append({k: v for k, v in record.items() if k != "gap"} | {"sequence": sequence})
            records = np.concatenate([spans(*made), counted(honest)])
            records["sequence"][len(made) :] += sequence
            sequence += honest
            r.add(0, "span", records)
            assert _reader.drain([drain])[2] == []
            good, bad, other = judged(records, len(records), last)
            last = int(good["sequence"][-1]) if len(good) else last
            believed.append(good)
            rejected += bad
            skipped += other
            assert drain.fill == len(records) / 128
            r.publish(drain)
        assert (drain.rejected, drain.skipped) == (rejected, skipped)
        assert_taken(drain, np.concatenate([spans(), *believed]))


@pytest.mark.parametrize("many", [1, 15, 16, 17, BATCH - 1, BATCH, BATCH + 1, 5000])
def test_spans_are_read_across_batches_and_the_end_of_the_ring(many: int) -> None:
    records = counted(3 * many)
    with rings(span_slots=8192) as r:
        r.move(0, "span", 8192 - many // 2)
        r.tail(0, "span", 8192 - many // 2)
        drain = r.drain()
        for first in range(0, 3 * many, many):
            r.add(0, "span", records[first : first + many])
            assert _reader.drain([drain])[2] == []
            r.publish(drain)
        assert drain.rejected == 0
        assert_taken(drain, records)
        assert drain.cursors() == [(8192 - many // 2 + 3 * many, 0, 0, 0, 8192 - many // 2)]


@pytest.mark.parametrize("before", [0, BATCH - 2, BATCH - 1, BATCH])
@pytest.mark.parametrize("slots", [2, 3, 3000, BATCH + 1])
def test_an_unknown_record_is_skipped_by_its_slots_at_any_batch_end(before: int, slots: int) -> None:
    records = counted(before + slots + 1)
    # all slots of the record look like a first slot, because the later slots of a record may have any content
    records["kind"][before : before + slots] = 77
    records["slots"][before] = slots
    with rings(span_slots=16384) as r:
        r.add(0, "span", records)
        drain = r.drain()
        assert _reader.drain([drain])[2] == []
        assert (drain.skipped, drain.rejected, drain.complete) == (1, 0, True)
        assert_taken(drain, records[[*range(before), before + slots]])


def test_after_a_record_of_zero_slots_the_rest_of_the_lane_is_skipped() -> None:
    with rings(lanes=2, span_slots=4096) as r:
        records = counted(3000)
        records["slots"][1500] = 0
        r.add(0, "span", records)
        r.add(1, "span", counted(10))
        drain = r.drain()
        _reader.drain([drain])
        assert (drain.spans, drain.rejected) == (1510, 1)
        assert [cursor[0] for cursor in drain.cursors()] == [3000, 10]


def test_the_elements_of_a_step_are_its_valid_rows() -> None:
    with rings() as r:
        records = spans({"path": 3, "elements": 32, "bytes": 30, "duration": 9, "sequence": 1}, kind=STEP)
        r.add(0, "span", records)
        drain = r.drain()
        _reader.drain([drain])
        assert drain.longest() == [(3, 9, 0, 0, 30)]


def test_of_spans_without_duration_the_first_is_the_longest() -> None:
    with rings() as r:
        r.add(0, "span", spans(*({"sequence": n, "start": 100 * n} for n in (1, 2, 3))))
        drain = r.drain()
        _reader.drain([drain])
        assert drain.longest() == [(0, 0, 100, 0, 0)]


# ---- the newest


def newest(drain: _reader.Drain) -> dtypes.Array:
    return np.frombuffer(drain.recent(), dtypes.dtype("span"))


@given(st.lists(st.integers(0, 150), min_size=1, max_size=4))
def test_the_newest_spans_of_one_lane_are_its_last(counts: list[int]) -> None:
    records = counted(sum(counts), duration=[70 - n % 70 for n in range(sum(counts))])
    records["start"] = np.arange(1, sum(counts) + 1) * 100 - records["duration"]
    with rings(span_slots=256) as r:
        drain = r.drain()
        for end in np.cumsum(counts):
            r.add(0, "span", records[r.heads.get((0, "span"), 0) : end])
            _reader.drain([drain])
            np.testing.assert_array_equal(newest(drain), records[:end][-64:])


def test_newest_spans_are_chosen_by_their_end_across_lanes() -> None:
    many = counted(600, start=np.arange(600) * 7, duration=5)
    lanes = np.random.default_rng(1).integers(0, 3, 600)
    with rings(lanes=3, span_slots=512) as r:
        drain = r.drain()
        for first in range(0, 600, 200):
            for lane in range(3):
                own = lanes[first : first + 200] == lane
                r.add(lane, "span", many[first : first + 200][own])
            _reader.drain([drain])
            np.testing.assert_array_equal(newest(drain), many[: first + 200][-64:])


def test_a_given_time_is_dated_by_its_record_and_not_its_duration() -> None:
    """The duration of a record says nothing about its age: an old record with a duration of 10^12 ns must not stay the
    newest.
    """
    given_ = spans({"sequence": 1, "path": 2, "start": 100, "duration": 10**12})
    spent = spans(*({"sequence": n, "path": 1, "start": 100 + n, "duration": 1} for n in range(1, 71)))
    with rings(lanes=2, span_slots=128) as r:
        r.path(1, _reader.UNIT_TICKS)
        r.path(2, _reader.UNIT_NS)
        r.add(0, "span", given_)
        r.add(1, "span", spent[:3])
        drain = r.drain()
        _reader.drain([drain])
        assert newest(drain)["path"].tolist() == [2, 1, 1, 1]
        r.add(1, "span", spent[3:])
        _reader.drain([drain])
        np.testing.assert_array_equal(newest(drain), spent[-64:])


# ---- several segments and threads


def test_many_segments_are_drained_in_one_call() -> None:
    every = [rings() for _ in range(20)]
    opened = [each.__enter__() for each in every]
    try:
        drains = []
        for n, r in enumerate(opened):
            r.add(0, "span", counted(n % 16, seed=n))
            drains.append(r.drain())
        assert _reader.drain(drains)[2] == []
        for n, drain in enumerate(drains):
            assert_taken(drain, counted(n % 16, seed=n))
    finally:
        for each in every:
            each.__exit__(None, None, None)


def test_one_segment_may_occur_twice_in_a_call() -> None:
    with rings() as r:
        r.add(0, "span", counted(5))
        drain = r.drain()
        assert _reader.drain([drain, drain])[2] == []
        assert_taken(drain, counted(5))


def test_only_drains_can_be_drained() -> None:
    with rings() as r, pytest.raises(TypeError, match=r"item 1 is a str, expected a Drain"):
        _reader.drain([r.drain(), "segment"])  # type: ignore[list-item]


def test_reading_during_a_pass_shows_complete_spans() -> None:
    """One thread drains while the other reads. If a record were inconsistent, it would differ from every span that was
    written.
    """
    records = counted(4096, path=1)
    every = np.arange(1, 4097, dtype=np.uint64)
    torn: list[Any] = []
    done, same = threading.Event(), ("duration", "start", "step", "elements")
    with rings(span_slots=4096) as r:
        drain = r.drain()

        def ask() -> None:
            while not done.is_set():
                torn.extend(row for row in drain.longest() if row != (1, *4 * row[1:2]))
                torn.extend(one for one in newest(drain) if len({one[name] for name in same}) != 1)
                drain.cursors()

        asking = threading.Thread(target=ask)
        asking.start()
        for _ in range(20):
            for name in same:
                records[name] = every
            every += np.uint64(4096)
            r.add(0, "span", records)
            assert _reader.drain([drain])[2] == []
            records["sequence"] += 4096
        done.set()
        asking.join()
    assert torn == []
    assert drain.spans == 20 * 4096
