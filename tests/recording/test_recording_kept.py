"""What a reader of a recording keeps in memory: slots, events, and notes about missing data."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rings import SLOT
from test_recording_rings import numbered

from brickd.model.event_log import Event
from brickd.recording.chunks import RingRecords
from brickd.recording.damage import Damage, DroppedChunks, End
from brickd.recording.file_index import RecordedEvents
from brickd.recording.newest_slots import Tails

PIECES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 2]),  # the lane; the reader does not request one of the lanes
        st.sampled_from([False, False, True]),
        st.sampled_from([0, 1, 40, 900, 1_400, 1_400]),  # the number of slots
        st.sampled_from([0, 0, 0, 1, 5]),  # the number of slots at the beginning that belong to an earlier record
        st.sampled_from([0, 0, 0, 1, 700]),  # the number of missing slots before these slots
    ),
    max_size=12,
)


@given(PIECES, st.sampled_from([1, 1023, 1024, 1500]))
def test_the_newest_slots_of_each_ring_are_kept_without_gaps(
    pieces: list[tuple[int, bool, int, int, int]], newest: int
) -> None:
    tails = Tails([0, 1], newest)
    ends: Counter[tuple[int, bool]] = Counter()
    began: dict[tuple[int, bool], int] = {}  # the first slot after the last gap
    for lane, events, count, inside, missing in pieces:
        ring = lane, events
        empty = began.get(ring, ends[ring]) == ends[ring]
        first = ends[ring] + missing
        tails.take(RingRecords(0, lane, events, inside, first, numbered(count, first=first).tobytes()))
        if missing or empty:
            began[ring] = first + min(inside, count)
        ends[ring] = first + count
        for each in ((lane, events) for lane in (0, 1) for events in (False, True)):
            at, slots = tails.ring(each[0], events=each[1])
            length, room = len(slots) // SLOT, max(newest, 1024)
            assert slots == numbered(length, first=at).tobytes()
            if each in began:
                assert at + length == ends[each]
                assert min(room, ends[each] - began[each]) <= length <= room + room // 4
        assert tails.ring(2, events=events) == (0, b"")


@given(st.lists(st.lists(st.integers(1, 30), max_size=20), max_size=3), st.integers(1, 6), st.integers(0, 35))
def test_the_newest_events_are_kept_once_each_and_others_are_missed(
    files: list[list[int]], kept: int, since: int
) -> None:
    events = RecordedEvents(kept)
    for numbers in files:
        other = RecordedEvents(kept)
        for number in numbers:
            other.add(Event(number, 0, "kind", str(number)))
        events.merge(other)
    every = sorted({number for numbers in files for number in numbers})
    page = events.since(since)
    shown = [number for number in every[-kept:] if number > since]
    assert [event.number for event in page.events] == shown
    assert page.newest == (every[-1] if every else 0)
    reported = [number for number in range(every[0], every[-1] + 1) if number > since] if every else []
    assert page.missed == len(reported) - len(shown)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (End(ended=True), []),
        (End(), []),
        (End(why="cut"), ["cut"]),
        (End(ended=True, damages=[Damage(1, 9, "odd")]), ["damaged from byte 1 to 9: odd"]),
        (End(ended=True, damages_more=1), ["damaged in 1 more place"]),
        (End(ended=True, missing=2), ["2 chunks are lost"]),
        (
            End(ended=True, skipped=Counter({9: 1, 7: 2}), skipped_more=3),
            [
                "2 chunks ignored: this brickd does not know the kind 7",
                "1 chunk ignored: this brickd does not know the kind 9",
                "3 chunks ignored: this brickd does not know the other kinds either",
            ],
        ),
        (End(ended=True, refused=DroppedChunks(1, 2_000, 0)), ["the recording had no room for 1 chunk of 2,000 bytes"]),
        (End(ended=True, refused=DroppedChunks(0, 0, 1)), ["the recording had no room for 1 slot of rings"]),
        (
            End(ended=True, refused=DroppedChunks(2, 3, 4)),
            ["the recording had no room for 2 chunks of 3 bytes and 4 slots of rings"],
        ),
    ],
)
def test_missing_parts_of_a_file_are_described(end: End, words: list[str]) -> None:
    assert end.words() == words


def test_all_defects_are_described_with_the_worst_first() -> None:
    end = End(why="cut", damages_more=2, missing=1, skipped=Counter({5: 1}), refused=DroppedChunks(1, 1, 0))
    end.damage(1, 2, "odd")
    assert [each.partition(" ")[0] for each in end.words()] == ["damaged", "damaged", "1", "cut", "1", "the"]
