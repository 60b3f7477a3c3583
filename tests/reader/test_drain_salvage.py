"""Records of a dead worker beyond its head: a drain takes each complete record once (ordering row O9)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import dtypes
import forge
import numpy as np
import pytest
from checked_record import CheckedRecord, Tensor
from conftest import readings
from faults import ALERT, Compile, native, program
from rings import events, events_of, refusal, rings, spans

from brickd.shm import _reader


def numbers(records: bytes) -> list[int]:
    sequence: list[int] = np.frombuffer(records, dtypes.dtype("record"))["sequence"].tolist()
    return sequence


def test_a_complete_record_at_the_head_is_salvaged_once() -> None:
    with rings() as r:
        r.add(0, "span", spans({"sequence": 1}, {"sequence": 4}))
        r.add(0, "event", events({"sequence": 2}))
        r.write(0, "span", spans({"sequence": 6, "start": 99}))
        r.write(0, "event", events({"sequence": 5}))
        r.put("lane", 0, span_attempts=6, event_attempts=5)
        drain = r.drain()
        assert numbers(events_of(_reader.drain([drain])[2])) == [2]
        assert drain.spans == 2
        drain.salvage()
        assert numbers(events_of(_reader.drain([drain])[2])) == [5]
        assert numbers(drain.recent()) == [1, 4, 6]
        for _ in range(2):
            drain.salvage()
            assert _reader.drain([drain])[2] == []
        assert (drain.spans, drain.gaps, drain.cursors()) == (3, 3, [(3, 2, 2, 5, 0)])
        r.publish(drain)
        assert (r.line(0)["span"][0], r.line(0)["event"][0]) == (2, 1)


@pytest.mark.parametrize(
    ("below", "there", "attempts"),
    [
        pytest.param(4, 5, 6, id="not the newest: an older record"),
        pytest.param(5, 5, 5, id="equal to the previous sequence"),
        pytest.param(6, 5, 5, id="below the previous sequence"),
        pytest.param(4, 0, 0, id="a hole"),
    ],
)
@pytest.mark.parametrize("ring", ["span", "event"])
def test_a_possibly_incomplete_record_is_not_salvaged(ring: str, below: int, there: int, attempts: int) -> None:
    with rings() as r:
        record = spans if ring == "span" else events
        r.add(0, ring, record({"sequence": below}))
        r.write(0, ring, record({"sequence": there}))
        r.put("lane", 0, **{f"{ring}_attempts": attempts})
        drain = r.drain()
        drain.salvage()
        assert numbers(events_of(_reader.drain([drain])[2])) == ([] if ring == "span" else [below])
        assert drain.spans == (ring == "span")


@pytest.mark.parametrize("slots", [1, 2, 16])
def test_in_a_full_ring_the_oldest_record_is_not_taken_for_the_next(slots: int) -> None:
    with rings(span_slots=slots, event_slots=slots) as r:
        r.add(0, "span", spans(*({"sequence": n + 1} for n in range(slots))))
        r.add(0, "event", events(*({"sequence": n + 1} for n in range(slots))))
        r.put("lane", 0, span_attempts=slots, event_attempts=slots)
        drain = r.drain()
        drain.salvage()
        assert len(events_of(_reader.drain([drain])[2])) == 64 * slots
        assert drain.spans == slots


def test_a_successor_compares_with_the_record_below_its_cursor() -> None:
    with rings() as r:
        r.add(0, "span", spans({"sequence": 7}))
        r.put("lane", 0, span_attempts=7)
        r.write(0, "span", spans({"sequence": 7}))
        drain = r.drain([(1, 0, 0, 0, 0)])
        drain.salvage()
        _reader.drain([drain])
        assert drain.spans == 0


@pytest.mark.parametrize("slot", [0, 1, 3])
def test_a_ring_truncated_before_the_salvage_is_refused(slot: int) -> None:
    with rings() as r:
        r.write(0, "event", CheckedRecord(Tensor(1)).slots())
        r.move(0, "event", 0)
        r.put("lane", 0, event_attempts=1)
        drain = r.drain()
        drain.salvage()
        at = forge.place(r.page, "event_ring", slot)
        os.ftruncate(r.fd, at)
        assert refusal(drain) == f"cannot read 64 bytes at {at}: the file was truncated or is unreadable"


def test_a_salvaged_record_is_checked_like_any_other() -> None:
    with rings() as r:
        r.write(0, "span", spans({"sequence": 1, "path": 2**20}))
        r.write(0, "event", events({"sequence": 1, "start": 2**63}))
        r.put("lane", 0, opened=1, span_attempts=1, event_attempts=1)
        drain = r.drain()
        drain.salvage()
        assert _reader.drain([drain])[2] == []
        assert (drain.spans, drain.rejected) == (0, 2)


@pytest.mark.ci
def test_no_record_is_salvaged_before_earlier_events_are_read() -> None:
    many = 65536 + 3
    with rings(event_slots=1 << 17) as r:
        r.add(0, "event", events(*({"sequence": n + 1} for n in range(many))))
        r.write(0, "event", events({"sequence": many + 1}))
        r.put("lane", 0, event_attempts=many + 1)
        drain = r.drain()
        drain.salvage()
        assert numbers(events_of(_reader.drain([drain])[2]))[-1] == 65536
        assert numbers(events_of(_reader.drain([drain])[2]))[-1] == many + 1


@pytest.mark.parametrize(
    ("point", "taken"),
    [
        ("record", 0),
        *(pytest.param(*each, marks=pytest.mark.ci) for each in (("record_sequence", 0), ("record_head", 1))),
    ],
)
def test_a_complete_span_not_yet_below_the_head_is_salvaged(
    compiled: Compile, prefix: str, point: str, taken: int
) -> None:
    with native(program(compiled, "steps", *ALERT), point, "20") as process:
        assert process.end() == -signal.SIGKILL
    (dead,) = readings(prefix)
    ((_, lane, _),) = dead.lanes
    fd = os.open(Path(_reader.DIRECTORY) / dead.file, os.O_RDWR)
    try:
        drain = _reader.Drain(fd)
        drain.salvage()
        assert _reader.drain([drain])[2] == []
    finally:
        os.close(fd)
    assert lane["span_attempts"] - lane["span_head"] == 1
    assert (drain.spans, drain.rejected) == (lane["span_head"] + taken, 0)
    assert numbers(drain.recent()) == list(range(1, lane["span_attempts"] + taken))
