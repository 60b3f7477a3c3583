"""Where a drain starts, and the tails that give slots back to the writer.

A cursor (span, event, events, sequence, spans_lost) comes from a checkpoint. A tail may come from any consumer.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import dtypes
import numpy as np
import pytest
from forge import U64
from hypothesis import example, given
from hypothesis import strategies as st
from rings import Cursor, Rings, events, events_of, rings, spans

from brickd.shm import _reader

SLOTS = 16
NONE: Cursor = (0, 0, 0, 0, 0)


class Tail(NamedTuple):
    """The two words of a tail in the file; both are zero if there was no consumer yet."""

    position: int
    complement: int

    def believed(self, head: int) -> bool:
        return self.position ^ self.complement == U64 and head - SLOTS <= self.position <= head


def at(position: int) -> Tail:
    return Tail(position, position ^ U64)


UNTOUCHED = Tail(0, 0)
TORN = Tail(7, 12345)


def after_first_pass(ring: str, head: int, tail: Tail, saved: Cursor | None, **line: int) -> tuple[Cursor, int]:
    """Drain a lane with this head once. Return the cursor after this pass, and how many breaks the pass counted."""
    with rings(span_slots=SLOTS, event_slots=SLOTS) as r:
        r.move(0, ring, head)
        r.put("lane", 0, event_records=head // 2)
        r.tail(0, ring, *tail)
        r.put("consumer", 0, **line)
        drain = r.drain(None if saved is None else [saved])
        _reader.drain([drain])
        return drain.cursors()[0], drain.breaks


# ---- span rings


@pytest.mark.parametrize(
    ("head", "tail", "saved", "lost"),
    [
        (10, UNTOUCHED, None, 0),
        (16, UNTOUCHED, None, 0),
        (17, UNTOUCHED, None, 17),
        (40, at(30), None, 30),
        (40, at(40), None, 40),
        (40, at(23), None, 40),
        (40, at(41), None, 40),
        (40, TORN, None, 40),
        (10, TORN, None, 10),
        (40, at(30), 30, 0),
        (40, at(30), 26, 4),
        (40, at(26), 30, 0),
        (40, UNTOUCHED, 30, 10),
        (10, UNTOUCHED, 3, 0),
        (40, TORN, 30, 10),
        (40, TORN, 40, 0),
        (40, at(30), 3, 27),
        (40, at(30), 41, 0),
        (40, TORN, 41, 0),
    ],
)
def test_details_overwritten_before_any_read_are_lost(head: int, tail: Tail, saved: int | None, lost: int) -> None:
    cursor, breaks = after_first_pass("span", head, tail, None if saved is None else (saved, 0, 0, 0, 5))
    assert cursor == (head, 0, 0, 0, lost + (5 if saved is not None else 0))
    assert breaks == 0


POSITION = st.integers(0, 60) | st.sampled_from([U64, U64 - 1, 2**63])
PAIR = st.builds(Tail, POSITION, POSITION) | POSITION.map(at)


@given(st.integers(0, 60), PAIR, POSITION)
def test_a_span_ring_is_read_from_the_later_of_checkpoint_and_tail(head: int, tail: Tail, saved: int) -> None:
    with rings(span_slots=SLOTS) as r:
        r.tail(0, "span", *tail)
        for n in range(head):
            r.add(0, "span", spans({"sequence": n + 1, "start": n}))
        drain = r.drain([(saved, 0, 0, 0, 0)])
        _reader.drain([drain])
        if tail.believed(head):
            start = max(saved, tail.position)
        else:  # the drain cannot know which slots the writer uses again
            start = saved if tail == UNTOUCHED and head <= SLOTS else head
        start = start if head - SLOTS <= start <= head else head
        read = np.frombuffer(drain.recent(), dtypes.dtype("span"))["start"]
        assert read.tolist() == list(range(start, head))
        assert drain.cursors() == [(head, 0, 0, 0, max(start - saved, 0))]


# ---- event rings


@pytest.mark.parametrize(
    ("head", "tail", "saved", "read", "breaks"),
    [
        (10, UNTOUCHED, None, 10, 0),
        (17, UNTOUCHED, None, 0, 1),
        (40, at(30), None, 10, 1),
        (10, at(0), None, 10, 0),
        (40, TORN, None, 0, 1),
        (40, at(30), (30, 15), 10, 0),
        (40, at(26), (30, 15), 10, 0),
        (40, TORN, (30, 15), 10, 0),
        (40, UNTOUCHED, (30, 15), 10, 0),
        (40, at(34), (30, 15), 6, 1),
        (40, TORN, (23, 15), 0, 1),
        (40, at(30), (23, 15), 10, 1),
        (40, at(30), (41, 15), 0, 1),
        (40, TORN, (41, 15), 0, 1),
    ],
)
def test_events_continue_from_the_checkpoint_and_a_break_is_detected(
    head: int, tail: Tail, saved: tuple[int, int] | None, read: int, breaks: int
) -> None:
    with rings(event_slots=SLOTS) as r:
        for n in range(head):
            r.add(0, "event", events({"sequence": n + 1}))
        r.put("lane", 0, event_records=head)
        r.tail(0, "event", *tail)
        r.put("consumer", 0, events_read=12)
        drain = r.drain(None if saved is None else [(0, *saved, saved[0], 0)])
        found = np.frombuffer(events_of(_reader.drain([drain])[2]), dtypes.dtype("defer"))["sequence"]
        assert found.tolist() == list(range(head - read + 1, head + 1))
        assert (drain.breaks, drain.gaps) == (breaks, 0)


def test_a_lane_unknown_to_the_checkpoint_is_read_from_its_beginning() -> None:
    with rings(lanes=3) as r:
        r.add(0, "event", events({"sequence": 1}))
        first = r.drain()
        _reader.drain([first])
        r.publish(first)
        r.add(0, "event", events({"sequence": 2}))
        r.add(2, "event", events({"sequence": 1}, {"sequence": 2}))
        second = r.drain(first.cursors())
        assert len(events_of(_reader.drain([second])[2])) == 3 * 64
        assert second.cursors() == [(0, 2, 2, 2, 0), NONE, (0, 2, 2, 2, 0)]
        assert second.breaks == 0


def test_cursors_are_kept_until_a_pass_and_for_unused_lanes() -> None:
    saved = [(1, 2, 3, 4, 5), (6, 7, 8, 9, 10)]
    with rings(lanes=2) as r:
        drain = r.drain(saved)
        assert drain.cursors() == saved
        r.move(0, "span", 3)
        r.move(0, "event", 2)
        _reader.drain([drain])
        assert len(drain.cursors()) == 2


@pytest.mark.parametrize("cursors", [[NONE] * 2, [(1, 2, 3)], [(0, 0, 0, 0, 0, 0)]])
def test_cursors_that_do_not_fit_the_segment_are_refused(cursors: list[Cursor]) -> None:
    with rings() as r, pytest.raises(ValueError, match=r"cursor"):
        r.drain(cursors)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_cursors_must_fit_into_64_bits(number: int) -> None:
    with rings() as r, pytest.raises((OverflowError, ValueError)):
        r.drain([(number, 0, 0, 0, 0)])


def test_a_successor_continues_from_the_checkpoint_and_reads_every_event_once() -> None:
    with rings() as r:
        drain = r.drain()
        found = b""
        for first in range(1, 101, 5):
            added = events(*({"sequence": n, "id": n} for n in range(first, first + 5)))
            r.add(0, "event", added)
            r.add(0, "span", spans(*({"sequence": n} for n in range(first, first + 5))))
            found += events_of(_reader.drain([drain])[2])
            r.publish(drain)
            drain = r.drain(drain.cursors())
        assert np.frombuffer(found, dtypes.dtype("defer"))["id"].tolist() == list(range(1, 101))
        assert drain.cursors() == [(100, 100, 100, 100, 0)]


# ---- tails


def test_no_tail_is_written_if_nothing_was_read() -> None:
    with rings(lanes=4) as r:
        drain = r.drain()
        assert _reader.tails([drain], True) == []
        r.put("lane", 0, opened=1)
        _reader.drain([drain])
        assert _reader.tails([drain], True) == []


def test_tails_are_written_once_complement_first_and_for_events_on_request() -> None:
    with rings(lanes=4) as r:
        r.move(0, "span", 0)
        r.add(1, "span", spans({"sequence": 1}))
        r.add(2, "event", events({"sequence": 1}, {"sequence": 2}))
        r.move(3, "span", 0)
        drain = r.drain()
        _reader.drain([drain])
        (_, offset, half), (_, again, whole) = _reader.tails([drain], False)
        assert (offset, len(half)) == (again, len(whole)) == (8192 + 64, 64)
        half_, whole_ = (np.frombuffer(each, dtypes.dtype("consumer"))[0] for each in (half, whole))
        assert (half_["span"].tolist(), whole_["span"].tolist()) == ([0, U64 - 1], [1, U64 - 1])
        assert _reader.tails([drain], False) == []
        for _, offset, data in _reader.tails([drain], True):
            assert (offset, len(data)) == (8192 + 2 * 64, 64)
            os.pwrite(r.fd, data, offset)
        assert (r.line(2)["event"].tolist(), r.line(2)["events_read"]) == ([2, U64 - 2], 2)
        assert _reader.tails([drain], True) == []


@pytest.mark.parametrize(("position", "complement"), [(1, 99), (1, 0), (0, 99), (0, 1)])
def test_a_torn_tail_is_repaired(position: int, complement: int) -> None:
    with rings() as r:
        r.add(0, "span", spans({"sequence": 1})[:position])
        r.tail(0, "span", position, complement)
        drain = r.drain()
        _reader.drain([drain])
        r.publish(drain)
        assert r.line(0)["span"].tolist() == [position, U64 - position]


def test_losses_are_published_to_readers_of_the_segment() -> None:
    with rings(span_slots=SLOTS) as r:
        r.move(0, "span", 40)
        r.tail(0, "span", 30)
        drain = r.drain([(24, 0, 0, 0, 2)])
        _reader.drain([drain])
        r.publish(drain)
        assert (r.line(0)["span"].tolist(), r.line(0)["spans_lost"]) == ([40, U64 - 40], 8)


def written(r: Rings, writes: list[tuple[int, int, bytes]], cut: int) -> None:
    """Write the data to the file, but only `cut` bytes."""
    for _, offset, data in writes:
        os.pwrite(r.fd, data[: max(cut, 0)], offset)
        cut -= len(data)


@given(st.integers(0, 2**20), st.integers(0, SLOTS), st.integers(0, SLOTS), st.integers(0, 128), st.integers(0, 128))
@example(before=0x1FF, first=1, second=1, cut=71, again=9)
def test_a_writer_never_believes_unread_slots_after_two_consumers_died(
    before: int, first: int, second: int, cut: int, again: int
) -> None:
    """The second consumer starts with the pair that the first one left half written. The writer continues while it has
    room.
    """
    with rings(span_slots=SLOTS, event_slots=SLOTS) as r:
        for ring in ("span", "event"):
            r.move(0, ring, before)
            r.tail(0, ring, before)
        read, room = before, dict.fromkeys(("span", "event"), before + SLOTS)
        saved = [(before, before, before, before, 0)]
        for more, kept in ((first, cut), (second, again)):
            numbers = [{"sequence": read + n + 1} for n in range(min(more, *(head - read for head in room.values())))]
            r.add(0, "span", spans(*numbers))
            r.add(0, "event", events(*numbers))
            read += len(numbers)
            drain = r.drain(saved)
            assert len(events_of(_reader.drain([drain])[2])) == 64 * len(numbers)
            saved = drain.cursors()
            written(r, _reader.tails([drain], True), kept)
            for ring, last in room.items():
                tail = Tail(*r.line(0)[ring].tolist())
                heads = [head for head in range(read, last + 1) if tail.believed(head)]
                assert tail.position <= read or not heads
                if read in heads:
                    room[ring] = max(tail.position + SLOTS, last)


@given(st.integers(0, 2**20), st.integers(0, SLOTS), st.integers(0, 128), st.integers(0, 128))
@example(before=2**16 - 3, more=8, position_at=128, complement_at=128)
def test_a_writer_believes_one_of_two_tails_during_an_update(
    before: int, more: int, position_at: int, complement_at: int
) -> None:
    """The writer loads the position first (O13), then the complement. Before each of the two loads, the consumer writes
    some bytes.
    """
    with rings(event_slots=SLOTS) as r:
        r.move(0, "event", before)
        r.tail(0, "event", before)
        r.add(0, "event", events(*({"sequence": n + 1} for n in range(more))))
        drain = r.drain([(0, before, before, 0, 0)])
        _reader.drain([drain])
        writes = _reader.tails([drain], True)
        written(r, writes, position_at)
        position = int(r.line(0)["event"][0])
        written(r, writes, max(position_at, complement_at))
        seen = Tail(position, int(r.line(0)["event"][1]))
        assert not seen.believed(before + more) or seen.position in (before, before + more)
