"""Draining events: each record is either delivered, unchanged and in order, or counted."""

from __future__ import annotations

import os
from typing import Any

import dtypes
import forge
import numpy as np
import pytest
from forge import U64
from hypothesis import given
from hypothesis import strategies as st
from rings import BATCH, DEFER, FINALIZE, MEASURED, SLOT, SPAN, events, events_of, rings

from brickd.shm import _reader

MOST = 65536  # the most records that a pass takes from one segment


def numbered(many: int, first: int = 1) -> dtypes.Array:
    made: dtypes.Array = np.zeros(many, dtypes.dtype("defer"))
    made["kind"], made["slots"] = DEFER, 1
    made["sequence"] = made["id"] = np.arange(first, first + many)
    return made


SOURCE = _reader.KIND_SOURCE
KNOWN = (DEFER, FINALIZE, MEASURED, SOURCE, _reader.KIND_CANARY)
AMOUNT = st.sampled_from([0, 1, 2**48, 2**63 - 1, 2**63, U64])
RECORD = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([*KNOWN, *KNOWN, 0, SPAN, 99, 65535]),
        "slots": st.sampled_from([1, 1, 1, 1, 2, 4, 0, 65535]),
        "path": st.sampled_from([0, 63, 64, 2**32 - 1]),
        "gap": st.sampled_from([1, 1, 1, 3, 0, -1]),
    }
    | dict.fromkeys(("start", "elements", "bytes", "stream", "step", "id"), AMOUNT)
)


def believable(one: Any) -> bool:
    """Return whether a record of a known kind is valid."""
    of_kind = {DEFER: ("start", "elements", "bytes"), FINALIZE: ("start",), MEASURED: ("stream",)}
    amounts = of_kind.get(int(one["kind"]), ())
    return one["slots"] == 1 and (one["kind"] != DEFER or one["path"] < 64) and all(one[a] < 2**63 for a in amounts)


@pytest.mark.ci
@given(st.lists(st.lists(RECORD, max_size=16), max_size=5))
def test_valid_events_are_delivered_in_order_and_others_counted(passes: list[list[dict[str, int]]]) -> None:
    rejected = skipped = gaps = last = sequence = taken = 0
    with rings(paths=64) as r:
        drain = r.drain()
        for each in passes:
            made = []
            for record in each:
                sequence = max(sequence + record["gap"], 0)
                made.append({k: v for k, v in record.items() if k != "gap"} | {"sequence": sequence})
            records = events(*made)
            wanted = []
            at = 0
            while at < len(records):
                one = records[at]
                taken += 1
                if not 0 < one["slots"] <= len(records) - at:
                    rejected += 1
                    break
                if one["sequence"] <= last or (one["kind"] in KNOWN and not believable(one)):
                    rejected += 1
                else:
                    gaps += int(one["sequence"]) - last - 1 if last or taken == 1 else 0
                    last = int(one["sequence"])
                    skipped += one["kind"] not in KNOWN
                    wanted += [one.tobytes()] if one["kind"] in KNOWN else []
                at += int(one["slots"])
            r.add(0, "event", records)
            assert events_of(_reader.drain([drain])[2]) == b"".join(wanted)
            assert (drain.rejected, drain.skipped, drain.gaps) == (rejected, skipped, gaps)
            assert drain.cursors() == [(0, r.heads[0, "event"], taken, last, 0)]
            r.publish(drain)


def test_missing_sequence_numbers_are_counted_as_dropped() -> None:
    with rings() as r:
        drain = r.drain()
        for first, gaps in ((3, 2), (4, 2), (10, 7)):
            r.add(0, "event", numbered(1, first))
            assert events_of(_reader.drain([drain])[2]) == numbered(1, first).tobytes()
            assert drain.gaps == gaps


@pytest.mark.ci
def test_a_ring_of_many_records_is_read_in_several_passes() -> None:
    records = numbered(2 * MOST + 3)
    with rings(event_slots=1 << 18) as r:
        r.add(0, "event", records)
        drain = r.drain()
        found = []
        for complete in (False, False, True):
            found.append(events_of(_reader.drain([drain])[2]))
            assert drain.complete is complete
        assert [len(each) // SLOT for each in found] == [MOST, MOST, 3]
        assert b"".join(found) == records.tobytes()
        assert _reader.drain([drain])[2] == []
        assert drain.complete


def test_a_pass_continues_with_the_lanes_not_yet_read() -> None:
    with rings(lanes=3, event_slots=1 << 16) as r:
        for lane in range(3):
            r.add(lane, "event", numbered(MOST // 2 + 10))
        drain = r.drain()
        first, second = events_of(_reader.drain([drain])[2]), events_of(_reader.drain([drain])[2])
        own = numbered(MOST // 2 + 10).tobytes()
        assert first + second == 3 * own
        assert len(first) == MOST * SLOT


@pytest.mark.parametrize("before", [BATCH - 2, BATCH - 1])
def test_an_unknown_event_is_skipped_by_its_slots_across_batches(before: int) -> None:
    records = numbered(before + 3000 + 2)
    records["kind"][before], records["slots"][before] = 99, 3000
    with rings(event_slots=8192) as r:
        r.add(0, "event", records)
        drain = r.drain()
        kept = records[[*range(before), before + 3000, before + 3001]]
        assert events_of(_reader.drain([drain])[2]) == kept.tobytes()
        assert (drain.skipped, drain.gaps, drain.cursors()[0][1:3]) == (1, 2999, (before + 3002, before + 3))


def test_an_event_of_zero_slots_ends_only_its_lane() -> None:
    with rings(lanes=2) as r:
        broken = numbered(5)
        broken["slots"][2] = 0
        r.add(0, "event", broken)
        r.add(1, "event", numbered(4))
        drain = r.drain()
        assert events_of(_reader.drain([drain])[2]) == broken[:2].tobytes() + numbered(4).tobytes()
        assert drain.rejected == 1
        assert [cursor[1] for cursor in drain.cursors()] == [5, 4]


def test_records_of_several_segments_come_with_their_index() -> None:
    with rings() as idle, rings() as one, rings() as other:
        one.add(0, "event", numbered(2))
        other.add(0, "event", numbered(3))
        drains = [idle.drain(), one.drain(), idle.drain(), other.drain()]
        assert _reader.drain(drains)[2] == [(1, numbered(2).tobytes(), None), (3, numbered(3).tobytes(), None)]
        assert _reader.drain(drains)[2] == []


def test_unreturned_slots_are_counted() -> None:
    with rings() as r:
        drain = r.drain()
        for first, held in ((1, 4 / 16), (5, 8 / 16)):
            r.add(0, "event", numbered(4, first))
            _reader.drain([drain])
            assert (drain.fill, drain.held) == (4 / 8, held), "a consumer may keep half of the ring"
            r.publish(drain, events=False)
        r.publish(drain)
        _reader.drain([drain])
        assert (drain.fill, drain.held) == (0, 0)


def test_activity_is_the_sum_of_all_lanes() -> None:
    with rings(lanes=3) as r:
        for lane in range(3):
            r.put("lane", lane, opened=1, begun=10**lane, summarized=2 * 10**lane, event_attempts=3 * 10**lane)
        drain = r.drain()
        _reader.drain([drain])
        assert (drain.activity, drain.ended) == (666, False)


def test_a_worker_that_ended_normally_is_marked_as_ended() -> None:
    ((offset, count, code),) = [row[2:] for row in _reader.later() if row[:2] == ("process", "ended")]
    assert (count, code) == (1, "Q")
    with rings() as r:
        drain = r.drain()
        os.pwrite(r.fd, b"\1", forge.place(r.page, "process") + offset)
        _reader.drain([drain])
        assert drain.ended
