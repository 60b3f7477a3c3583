"""The limits of a drain pass and of its memory hold even if the heads of the rings claim more."""

from __future__ import annotations

import os

import pytest
from forge import U64
from rings import SLOT, Rings, events, events_of, rings, spans

from brickd.shm import _reader

PASS_SLOTS = 65536  # the most slots that a pass copies from the rings of each kind: BRICK_PASS_SLOTS of drain.h


def copied(r: Rings, drain: _reader.Drain) -> int:
    """Return the number of bytes that the next pass reads from the rings."""
    before = drain.read
    _reader.drain([drain])
    lines = 128 + 384 * 2 + 64
    return drain.read - before - lines


@pytest.mark.parametrize("ring", ["span", "event"])
def test_a_pass_copies_a_bounded_number_of_slots(ring: str) -> None:
    with rings(**{f"{ring}_slots": 1 << 24}) as r:
        drain = r.drain()
        _reader.drain([drain])
        r.move(0, ring, 1 << 24)
        assert 0 < copied(r, drain) <= (PASS_SLOTS + 1) * SLOT
        assert os.fstat(r.fd).st_blocks * 512 < 1 << 20


@pytest.mark.ci
def test_slots_beyond_the_limit_of_a_pass_come_with_the_next() -> None:
    with rings(lanes=2, span_slots=1 << 17, event_slots=1 << 17) as r:
        many = PASS_SLOTS - 10
        for lane in range(2):
            r.add(lane, "span", spans(*({"sequence": n + 1} for n in range(many))))
            r.add(lane, "event", events(*({"sequence": n + 1} for n in range(many))))
        drain = r.drain()
        taken = [(len(events_of(_reader.drain([drain])[2])) // SLOT, drain.spans, drain.complete) for _ in range(3)]
        assert taken == [(PASS_SLOTS, PASS_SLOTS, False), (2 * many - PASS_SLOTS, 2 * many, True), (0, 2 * many, True)]
        assert (drain.rejected, drain.gaps) == (0, 0)


@pytest.mark.ci
def test_a_pass_that_has_not_reached_the_end_of_the_spans_is_incomplete() -> None:
    with rings(span_slots=1 << 17) as r:
        r.add(0, "span", spans(*({"sequence": n + 1} for n in range(PASS_SLOTS + 1))))
        drain = r.drain()
        assert [(_reader.drain([drain])[2], drain.spans, drain.complete)[1:] for _ in range(2)] == [
            (PASS_SLOTS, False),
            (PASS_SLOTS + 1, True),
        ]


@pytest.mark.parametrize("ring", ["span", "event"])
def test_slots_after_a_record_of_zero_slots_are_skipped_and_counted(ring: str) -> None:
    with rings(**{f"{ring}_slots": 1 << 20}) as r:
        drain, spool = r.drain(), _reader.Spool(64 << 20)
        _reader.drain([drain])
        drain.record_into(spool)
        r.move(0, ring, 1 << 20)
        _reader.drain([drain])
        assert (drain.rejected, spool.refused_slots) == (1, (1 << 20) - PASS_SLOTS)


def test_a_pass_stops_between_drains_after_the_requested_bytes() -> None:
    with rings() as one, rings(lanes=8) as other, rings() as third:
        drains = [each.drain() for each in (one, other, third)]
        _reader.drain(drains)
        for number, each in enumerate((one, other, third)):
            each.add(0, "event", events({"sequence": 1, "start": number}))
        assert _reader.drain(drains, 0, 0) == (0, 0, [])
        before = sum(drain.read for drain in drains)
        reached, bytes_read, found = _reader.drain(drains, 0, 1)
        assert bytes_read == sum(drain.read for drain in drains) - before > 0
        assert (reached, [index for index, _, _ in found]) == (1, [0])
        read = drains[0].read
        reached, _, found = _reader.drain(drains, reached, U64)
        assert (reached, [index for index, _, _ in found]) == (3, [1, 2])
        assert drains[0].read == read
        assert _reader.drain(drains, 3, U64) == (3, 0, [])
        assert _reader.drain(drains, 7, U64) == (3, 0, [])
        with pytest.raises(ValueError, match="first is -1"):
            _reader.drain(drains, -1, 1)


def test_the_memory_of_a_drain_follows_its_paths_and_is_freed() -> None:
    with rings(span_slots=64, paths=256) as r:
        drain = r.drain()
        _reader.drain([drain])
        before = drain.resident
        r.add(0, "span", spans(*({"sequence": n + 1, "path": n} for n in range(32))))
        _reader.drain([drain])
        assert drain.resident == before + 256 * 8 + 32 * 40
        drain.forget_details()
        assert (drain.resident, drain.longest(), drain.recent()) == (before, [], b"")
        r.add(0, "span", spans({"sequence": 33, "path": 5, "duration": 7}))
        _reader.drain([drain])
        assert [path for path, *_ in drain.longest()] == [5]


def test_cursors_of_empty_rings_are_one_object() -> None:
    with rings(lanes=8) as r:
        for lane in range(8):
            r.move(lane, "event", 0)
        r.add(5, "event", events({"sequence": 1}))
        drain = r.drain()
        _reader.drain([drain])
        cursors = drain.cursors()
        assert cursors == [(0, 0, 0, 0, 0)] * 5 + [(0, 1, 1, 1, 0)] + [(0, 0, 0, 0, 0)] * 2
        assert len({id(cursor) for cursor in cursors}) == 2
