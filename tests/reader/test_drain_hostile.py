"""Draining hostile segments: a hostile segment is refused with a reason, or its bad records are counted. Other segments
are not affected.
"""

from __future__ import annotations

import os
import random
import threading

import dtypes
import forge
import numpy as np
import pytest
from forge import U64
from hypothesis import given
from hypothesis import strategies as st
from rings import Rings, events, events_of, refusal, rings, spans

from brickd.shm import _reader


def honest(many: int) -> dtypes.Array:
    return spans(*({"sequence": n + 1, "duration": n} for n in range(many)))


# ---- refused segments


def test_an_invalid_header_is_refused_with_the_reason() -> None:
    with rings() as r:
        os.pwrite(r.fd, b"\0" * 8, 0)
        with pytest.raises(ValueError, match=r"^not published yet: its worker is starting, or died while it started$"):
            r.drain()


def test_an_invalid_descriptor_is_an_os_error() -> None:
    with pytest.raises(OSError, match=r"Bad file descriptor"):
        _reader.Drain(-1)


@pytest.mark.parametrize("ring", ["span", "event"])
def test_a_head_that_goes_back_is_refused(ring: str) -> None:
    with rings() as r:
        r.add(0, ring, honest(5))
        drain = r.drain()
        _reader.drain([drain])
        r.move(0, ring, 4)
        assert refusal(drain) == f"lane 0: the head of the {ring} ring moved back from at least 5 to 4"


@pytest.mark.parametrize("ring", ["span", "event"])
@pytest.mark.parametrize("to", [5 + 17, 2**40, U64])
def test_a_head_that_jumps_beyond_its_ring_is_refused(ring: str, to: int) -> None:
    with rings(lanes=2) as r:
        r.add(1, ring, honest(5))
        drain = r.drain()
        _reader.drain([drain])
        r.move(1, ring, to)
        assert refusal(drain) == f"lane 1: the head of the {ring} ring jumped from at most 21 to {to}"


def test_a_refused_segment_stays_refused_and_is_reported_once() -> None:
    with rings() as r:
        r.add(0, "span", honest(5))
        drain = r.drain()
        _reader.drain([drain])
        r.move(0, "span", 4)
        assert "moved back" in refusal(drain)
        r.move(0, "span", 5)
        r.add(0, "span", spans({"sequence": 6}))
        assert _reader.drain([drain])[2] == []
        assert drain.spans == 5


def test_records_read_before_the_corruption_are_delivered() -> None:
    with rings(lanes=2) as r:
        drain = r.drain()
        _reader.drain([drain])
        good = events({"sequence": 1})
        r.add(0, "event", good)
        r.move(1, "event", 1000)
        ((index, found, refused),) = _reader.drain([drain])[2]
        assert (index, found) == (0, good.tobytes())
        assert refused is not None
        assert drain.cursors()[0] == (0, 1, 1, 1, 0)


@pytest.mark.parametrize("kept", ["consumer", "lane", "summary", "span_ring"])
def test_a_segment_truncated_during_the_drain_is_refused(kept: str) -> None:
    with rings(span_slots=4096) as r:
        drain = r.drain()
        r.add(0, "span", honest(4000))
        os.ftruncate(r.fd, forge.place(r.page, kept) + (64 * 2000 if kept == "span_ring" else 0))
        assert refusal(drain).endswith("the file was truncated or is unreadable")


def test_a_corrupt_segment_affects_no_other() -> None:
    with rings() as first, rings() as corrupt, rings() as last:
        drains = [first.drain(), corrupt.drain(), last.drain()]
        _reader.drain(drains)
        for r in (first, last):
            r.add(0, "event", events({"sequence": 1}))
        corrupt.move(0, "span", 2**63)
        (one, (index, found, refused), other) = _reader.drain(drains)[2]
        assert (one[0], one[2], other[0], other[2]) == (0, None, 2, None)
        assert (index, found) == (1, None)
        assert refused is not None


# ---- invalid values without an effect


def test_tails_overwritten_by_the_worker_have_no_effect_on_a_running_drain() -> None:
    with rings() as r:
        drain = r.drain()
        _reader.drain([drain])
        for n in range(10):
            r.add(0, "event", events({"sequence": n + 1}))
            r.add(0, "span", spans({"sequence": n + 1}))
            r.tail(0, "span", 1000 + n)
            r.tail(0, "event", n, 77)
            assert len(events_of(_reader.drain([drain])[2])) == 64
        r.publish(drain)
        assert r.line(0)["span"].tolist() == r.line(0)["event"].tolist() == [10, U64 - 10]
        assert drain.spans == 10


def test_a_header_that_changes_later_has_no_effect() -> None:
    with rings() as r:
        drain = r.drain()
        os.pwrite(r.fd, os.urandom(4096), 0)
        r.add(0, "span", honest(16))
        assert _reader.drain([drain])[2] == []
        assert drain.spans == 16


def test_a_ring_in_a_file_hole_is_rejected_once() -> None:
    with rings(span_slots=1 << 20, event_slots=1 << 20) as r:
        r.move(0, "span", 1 << 20)
        r.move(0, "event", 1 << 20)
        drain = r.drain()
        assert _reader.drain([drain])[2] == []
        assert (drain.spans, drain.rejected, drain.complete) == (0, 2, True)


def test_a_lane_behind_an_unowned_one_is_found_within_some_passes() -> None:
    """The first lane may have no owner: the thread that took it could not get memory."""
    with rings(lanes=40) as r:
        drain = r.drain()
        _reader.drain([drain])
        r.add(37, "span", honest(3))
        passes = 0
        while drain.spans == 0 and passes < 100:
            _reader.drain([drain])
            passes += 1
        assert (drain.spans, len(drain.cursors())) == (3, 38)


# ---- any content


def digest(drain: _reader.Drain) -> None:
    """Call every method of a drain."""
    longest = drain.longest()
    assert len(longest) <= drain.spans
    assert all(duration < 2**63 for _, duration, *_ in longest)
    assert len(drain.recent()) <= 64 * 64
    _reader.tails([drain], True)
    assert 0 <= drain.fill <= 2  # `fill` is 2 if an event ring is full, because it counts half rings
    assert 0 <= drain.held <= 1


def scribble(r: Rings, rng: random.Random) -> None:
    """Write a word into a place that a drain reads. The word is often invalid."""
    at = forge.regions(r.page)
    start = rng.choice([at["consumer"], at["process"], at["lane"], at["path"], *[at["area"] + at["span_ring"]] * 2])
    word = rng.choice(
        [0, 1, 2, 15, 16, 17, 64, 65, 0x1_0001_0000_0000, 2**31, 2**32, 2**62, 2**63, U64, rng.getrandbits(64)]
    )
    os.pwrite(r.fd, word.to_bytes(8, "little"), start + 8 * rng.randrange(128))


@given(st.integers(0, 2**32))
def test_a_drain_of_any_bytes_gives_data_or_a_reason(seed: int) -> None:
    rng = random.Random(seed)
    with rings(lanes=3, span_slots=32, event_slots=32) as r:
        for lane in range(rng.randrange(3)):
            r.add(lane, "span", honest(rng.randrange(20)))
            r.add(lane, "event", events(*({"sequence": n + 1} for n in range(rng.randrange(20)))))
        saved = [(rng.randrange(20), rng.randrange(20), 3, rng.randrange(20), 1)] * rng.randrange(4)
        drain = r.drain(rng.choice([None, saved]))
        for _ in range(6):
            for _, found, refused in _reader.drain([drain])[2]:
                assert refused is None or len(refused) > 10
                assert len(found or b"") % 64 == 0
            digest(drain)
            if rng.random() < 0.1:
                drain.salvage()
            for _ in range(rng.randrange(4)):
                scribble(r, rng)


def test_a_segment_that_changes_during_the_drain_gives_data_or_a_reason() -> None:
    done = threading.Event()
    with rings(lanes=3, span_slots=2048, event_slots=2048) as r:
        for lane in range(3):
            r.add(lane, "span", honest(1000))

        def mutate() -> None:
            rng = random.Random(0)
            while not done.is_set():
                scribble(r, rng)
                r.put("lane", rng.randrange(3), span_head=rng.randrange(3000), event_head=rng.randrange(3000), opened=1)

        changing = threading.Thread(target=mutate)
        changing.start()
        try:
            refused = 0
            for number in range(100_000):
                if number >= 100 and refused:  # continue until the other thread has also had a turn
                    break
                drain = r.drain()
                for _ in range(3):
                    refused += sum(why is not None for _, _, why in _reader.drain([drain])[2])
                digest(drain)
        finally:
            done.set()
            changing.join()
        assert refused > 0


def test_impossible_paths_and_times_are_counted_and_take_no_memory() -> None:
    absurd = np.concatenate(
        [
            spans(*({"sequence": n + 1, "path": path} for n, path in enumerate((64, 1023, 65535, 2**32 - 1)))),
            spans(*({"sequence": 9 + n, field: 2**63} for n, field in enumerate(("start", "duration", "child")))),
        ]
    )
    with rings(paths=64) as r:
        r.add(0, "span", absurd)
        drain = r.drain()
        _reader.drain([drain])
        assert (drain.spans, drain.rejected, drain.longest()) == (0, 7, [])
