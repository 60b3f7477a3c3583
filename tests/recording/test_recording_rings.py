"""Rings that are drained and recorded: each slot is recorded exactly once and unchanged. The recording does not change
the drain.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import dtypes
import forge
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rings import SLOT, Rings, events, refusal, rings, spans
from tapes import Read, begin, clean, flush, form, memory, read_fd

from brickd.recording.chunks import records
from brickd.shm import _reader

PATHS = 64
CHUNK_SLOTS = 16384
LIMIT = 1 << 24

Recorded = dict[tuple[int, int, bool], bytes]


def recorded(seen: Read) -> Recorded:
    """Return the slots of each ring of each lane; assert that they have no gap."""
    found: Recorded = {}
    for chunk in seen.chunks:
        assert chunk.kind == _reader.CHUNK_RECORDS
        each = records(chunk.body)
        before = found.get((each.worker, each.lane, each.events), b"")
        assert each.first == len(before) // SLOT
        assert 0 < len(each.slots) // SLOT <= CHUNK_SLOTS
        found[each.worker, each.lane, each.events] = before + each.slots
    return found


def taken(drain: _reader.Drain) -> tuple[object, ...]:
    """Return all counters and cursors of a drain."""
    numbers = (drain.activity, drain.spans, drain.rejected, drain.skipped, drain.gaps, drain.complete)
    return (*numbers, drain.fill, drain.held, drain.cursors(), drain.longest(), drain.recent())


SLOTS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from([1, 2, 3, 4, 5, 99]),
            "slots": st.sampled_from([1, 1, 1, 1, 1, 2, 3, 40, 0, 65535]),
            "path": st.sampled_from([0, 1, PATHS - 1, PATHS, 2**32 - 1]),
            "start": st.sampled_from([0, 7, 2**64 - 1]),
            "duration": st.integers(0, 2**64 - 1),
        }
    ),
    max_size=40,
)


@pytest.mark.ci
@given(st.lists(st.tuples(st.integers(0, 1), st.booleans(), SLOTS), max_size=4))
def test_rings_are_recorded_exactly_as_they_were(
    passes: list[tuple[int, bool, list[dict[str, int]]]],
) -> None:
    with rings(lanes=2, paths=PATHS, span_slots=64, event_slots=64) as r, memory() as fd:
        with_, without = r.drain(), r.drain()
        recording, spool = begin(fd, LIMIT), _reader.Spool()
        with_.record_into(spool, 7)
        stood: Recorded = {}
        for number, (lane, is_events, slots) in enumerate(passes):
            written = spans(*slots)
            written["sequence"] = np.arange(len(slots)) + 100 * number + 1
            r.add(lane, "event" if is_events else "span", written)
            if slots:
                stood[7, lane, is_events] = stood.get((7, lane, is_events), b"") + written.tobytes()
            assert _reader.drain([with_])[2] == _reader.drain([without])[2]
            assert taken(with_) == taken(without)
        flush(recording, spool)
        recording.close()
        seen = read_fd(fd)
        assert clean(seen.end)
        assert recorded(seen) == stood


def numbered(many: int, record: str = "span", first: int = 1) -> dtypes.Array:
    made = np.repeat(spans({}) if record == "span" else events({}), many)
    made["sequence"] = np.arange(first, first + many)
    return made


@pytest.mark.parametrize("ahead", [0, 1 << 20, 1 << 24])
def test_more_than_a_chunk_of_slots_becomes_several_chunks(ahead: int) -> None:
    with rings(span_slots=1 << 15) as r, memory() as fd:
        drain, spool = r.drain(), _reader.Spool()
        recording = begin(fd, LIMIT, ahead_bytes=ahead)
        drain.record_into(spool)
        stood = b""
        for number in range(3):  # each pass wraps around the end of the ring
            written = numbered(30_000, first=1 + 30_000 * number)
            r.add(0, "span", written)
            assert _reader.drain([drain])[2] == []
            r.publish(drain)
            flush(recording, spool)
            stood += written.tobytes()
        recording.close()
        seen = read_fd(fd)
        assert recorded(seen) == {(0, 0, False): stood}
        assert len(seen.chunks) == 6
        assert drain.spans == 90_000


@pytest.mark.ci
def test_events_left_for_the_next_pass_are_recorded_once() -> None:
    with rings(event_slots=1 << 18) as r, memory() as fd:
        written = numbered(2 * 65536 + 300, "event")
        # put a record across the limit of a pass
        written["kind"][65536 - 2 : 65536 + 1], written["slots"][65536 - 2] = 99, 3
        r.add(0, "event", written)
        drain = r.drain()
        recording, spool = begin(fd, LIMIT), _reader.Spool()
        drain.record_into(spool)
        while _reader.drain([drain])[2]:
            flush(recording, spool)
            seen = read_fd(fd)
            assert (seen.end.damages, seen.end.at) == ([], recording.bytes)
        recording.close()
        assert recorded(read_fd(fd)) == {(0, 0, True): written.tobytes()}


def test_salvaged_records_are_recorded() -> None:
    with rings() as r, memory() as fd:
        r.add(0, "span", spans({"sequence": 1}, {"sequence": 4}))
        r.add(0, "event", events({"sequence": 2}))
        last_span, last_event = spans({"sequence": 6, "start": 99}), events({"sequence": 5})
        r.write(0, "span", last_span)
        r.write(0, "event", last_event)
        r.put("lane", 0, span_attempts=6, event_attempts=5)
        drain = r.drain()
        recording, spool = begin(fd), _reader.Spool()
        drain.record_into(spool, 2)
        for _ in range(2):
            drain.salvage()
            _reader.drain([drain])
        flush(recording, spool)
        recording.close()
        found = recorded(read_fd(fd))
        assert found[2, 0, False] == spans({"sequence": 1}, {"sequence": 4}).tobytes() + last_span.tobytes()
        assert found[2, 0, True] == events({"sequence": 2}).tobytes() + last_event.tobytes()


# ---- no room


def drained(r: Rings, spool: _reader.Spool | None) -> _reader.Drain:
    drain = r.drain()
    drain.record_into(spool)
    assert _reader.drain([drain])[2] == []
    return drain


@pytest.mark.parametrize("limit", [256, 300, 512, 64 << 10, 100_000, 1_200_000])
@pytest.mark.parametrize("spare", [0, 4096])
def test_slots_beyond_the_limit_of_a_file_stay_in_the_spool(limit: int, spare: int) -> None:
    with rings(span_slots=1 << 15) as r, memory() as fd, memory() as other:
        written = numbered(30_000)
        r.add(0, "span", written)
        spool = _reader.Spool()
        assert taken(drained(r, spool)) == taken(drained(r, None))
        recording = _reader.Recording(fd, limit, bytes(16), 0, 0, 1 << 16, spare)
        with pytest.raises(OSError, match="File too large"):
            flush(recording, spool)
        assert recording.left_bytes <= max(spare + 2 * SLOT, limit - 256 - SLOT)
        recording.close()
        next_ = begin(other, LIMIT)
        flush(next_, spool)
        next_.close()
        assert os.fstat(fd).st_size <= limit
        files = [read_fd(fd), read_fd(other)]
        assert [seen.end.refused for seen in files] == [(0, 0, 0)] * 2
        assert recorded(Read([chunk for seen in files for chunk in seen.chunks], files[1].end)) == {
            (0, 0, False): written.tobytes()
        }


def test_by_default_a_recording_is_file_0_without_reserved_space() -> None:
    def filled(limit: int, *spare: int) -> int:
        with rings(span_slots=1 << 11) as r, memory() as fd:
            r.add(0, "span", numbered(2_000))
            spool = _reader.Spool()
            drained(r, spool)
            recording = _reader.Recording(fd, limit, bytes(16), 0, *((0, 1 << 16, *spare) if spare else ()))
            with pytest.raises(OSError, match="File too large"):
                flush(recording, spool)
            with form(fd) as opened:
                assert opened.title.number == 0
            return recording.slots

    for limit in range(50_000, 50_064, 8):
        assert filled(limit) == filled(limit, 0) >= filled(limit, 1)
    assert sum(filled(limit, 0) for limit in range(50_000, 50_064, 8)) > sum(
        filled(limit, 1) for limit in range(50_000, 50_064, 8)
    )


def test_discarded_slots_are_counted_as_the_loss_of_the_current_file() -> None:
    with rings(span_slots=1 << 15) as r, memory() as fd:
        r.add(0, "span", numbered(30_000))
        spool, recording = _reader.Spool(), begin(fd, 1 << 20)
        drained(r, spool)
        with pytest.raises(OSError, match="File too large"):
            flush(recording, spool)
        spool.clear()
        flush(recording, spool)
        recording.close()
        seen = read_fd(fd)
        slots = sum(len(records(chunk.body).slots) // SLOT for chunk in seen.chunks)
        assert seen.end.refused == (0, 0, spool.refused_slots) == (0, 0, 30_000 - slots)
        assert clean(seen.end)


def test_a_closed_recording_or_detached_spool_receives_nothing() -> None:
    with rings() as r, memory() as fd:
        recording, spool = begin(fd), _reader.Spool()
        drain = r.drain()
        acts: list[Callable[[], None]] = [
            lambda: drain.record_into(spool),
            lambda: drain.record_into(None),
        ]
        for act in acts:
            act()
            r.add(0, "span", spans({"sequence": 1 + r.heads.get((0, "span"), 0)}))
            _reader.drain([drain])
            r.publish(drain)
        flush(recording, spool)
        recording.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            flush(recording, spool)
        assert drain.spans == 2
        assert spool.refused_slots == 0
        assert recorded(read_fd(fd)) == {(0, 0, False): spans({"sequence": 1}).tobytes()}
        for wrong in (3, drain, recording, _reader.Spool):
            with pytest.raises(TypeError, match="expected a Spool or None"):
                drain.record_into(wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="expected a Spool"):
                recording.write(wrong, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 64, 3000, 200_000])
def test_a_recording_truncated_while_written_stops_and_keeps_waiting_slots(length: int) -> None:
    with rings(span_slots=1 << 15) as r, memory() as fd, memory() as other:
        r.add(0, "span", numbered(4000))
        recording, spool = begin(fd, LIMIT), _reader.Spool()
        drain = drained(r, spool)
        flush(recording, spool)
        recording.append(_reader.CHUNK_SNAPSHOT, 0, b"before")
        os.ftruncate(fd, length)
        late = numbered(3000, first=4001)
        r.add(0, "span", late)
        assert _reader.drain([drain])[2] == []
        with pytest.raises(OSError, match="Stale file handle"):
            flush(recording, spool)
        with pytest.raises(OSError, match="Stale file handle"):
            recording.append(_reader.CHUNK_SNAPSHOT, 0, b"after")
        with pytest.raises(OSError, match="Stale file handle"):
            recording.close()
        recording.close()
        assert os.fstat(fd).st_size == length
        assert (drain.spans, drain.complete, recording.left_bytes) == (7000, True, 0)
        recording = begin(other, LIMIT)
        flush(recording, spool)
        (chunk,) = read_fd(other).chunks
        assert (records(chunk.body).first, records(chunk.body).slots) == (4000, late.tobytes())


@pytest.mark.ci
def test_drains_are_recorded_while_their_thread_continues() -> None:
    with rings(lanes=2, span_slots=1 << 12) as r, memory() as fd:
        recording, spool = begin(fd, 1 << 26, ahead_bytes=1 << 16), _reader.Spool(8 << 20)
        over = threading.Event()

        def write() -> None:
            while not over.is_set():
                spool.wait(1000)
                flush(recording, spool)
                recording.append(_reader.CHUNK_SNAPSHOT, 0, b"between" * 100)

        thread = threading.Thread(target=write)
        drains = [r.drain(), r.drain()]
        for number, drain in enumerate(drains):
            drain.record_into(spool, number)
        thread.start()
        stood = b""
        try:
            for number in range(20):
                written = numbered(3000, first=1 + 3000 * number)
                for lane in range(2):
                    r.add(lane, "span", written)
                _reader.drain(drains)
                spool.wake()
                stood += written.tobytes()
        finally:
            over.set()
            spool.wake()
            thread.join()
        flush(recording, spool)
        recording.close()
        seen = read_fd(fd)
        assert clean(seen.end)
        if not spool.refused_slots:
            seen.chunks = [chunk for chunk in seen.chunks if chunk.kind == _reader.CHUNK_RECORDS]
            assert recorded(seen) == {(worker, lane, False): stood for worker in range(2) for lane in range(2)}


@pytest.mark.parametrize("lane", [0, 1, 2])
def test_a_ring_returns_the_slots_that_its_consumer_has_not_taken(lane: int) -> None:
    with rings(lanes=3, span_slots=8, event_slots=8) as r:
        for each in range(3):
            for ring in ("span", "event"):
                r.add(each, ring, numbered(8))
                r.tail(each, ring, 2 * each + (ring == "event"))
        segment = _reader.SegmentCopier(r.fd)
        for ring in ("span", "event"):
            taken = 2 * lane + (ring == "event")
            assert segment.ring(lane, ring == "event") == (taken, numbered(8).tobytes()[taken * SLOT :])
        with pytest.raises(IndexError, match="lane 3 of 3"):
            segment.ring(3, False)


def test_summaries_of_a_lane_beyond_the_last_are_refused() -> None:
    with rings(lanes=2) as r:
        segment = _reader.SegmentCopier(r.fd)
        for lane in (-1, 0, 1):
            assert segment.summaries(lane) == segment.summaries()
        with pytest.raises(IndexError, match="lane 2 of 2"):
            segment.summaries(2)


def test_records_have_the_time_of_their_drain() -> None:
    spool = _reader.Spool()
    with memory() as fd, rings() as r:
        recording, drain = begin(fd), r.drain()
        drain.record_into(spool)
        r.add(0, "span", numbered(3))
        before = time.time_ns()
        assert _reader.drain([drain])[2] == []
        after = time.time_ns()
        flush(recording, spool)
        recording.close()
        (chunk,) = read_fd(fd).chunks
        assert before <= chunk.at_ns <= after


def test_an_untouched_drain_counts_as_complete() -> None:
    with rings() as r:
        assert r.drain().complete
        drain = r.drain()
        assert _reader.drain([drain])[2] == []
        assert drain.complete


def test_nothing_is_recorded_of_a_ring_truncated_during_the_drain() -> None:
    spool = _reader.Spool()
    with memory() as fd, rings() as r:
        recording, drain = begin(fd), r.drain()
        drain.record_into(spool)
        r.add(0, "span", numbered(3))
        os.ftruncate(r.fd, forge.place(r.page, "span_ring"))
        assert "truncated" in refusal(drain)
        assert spool.ready()[0] == 0
        flush(recording, spool)
        recording.close()
        assert read_fd(fd).chunks == []
