"""Draining real workers: what a consumer reads from their rings, and what it asks of them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dtypes
import numpy as np
from conftest import Worker
from forge import PAGE
from rings import folded, longest

from brickd.shm import _reader
from brickd.shm.segment_files import find

Start = Callable[..., Worker]


@contextmanager
def only_segment(prefix: str) -> Iterator[int]:
    """Return the only segment of the test, open for a consumer."""
    (name,) = find(prefix)
    fd = os.open(Path(_reader.DIRECTORY) / name, os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)


def ask_for_spans(fd: int) -> None:
    os.pwrite(fd, struct.pack("<I", _reader.CONTROL_SPANS), PAGE)


def publish(fd: int, drain: _reader.Drain, *, events: bool = True) -> None:
    assert _reader.write_all(_reader.tails([drain], events)) == {}


def test_span_records_add_up_to_the_workers_own_totals(worker: Start, prefix: str) -> None:
    process = worker("""
        brick.init()
        a, b, c = (brick.brick(name) for name in "abc")
        pause()
        for round in range(4):
            for i in range(500):
                with a:
                    with b(elements=i, bytes=i * 3), c:
                        pass
                with brick.step(i, kind="decode", rows=i + 3, valid=i):
                    c.record(i * 1000)
            pause()
        """)
    process.paused()
    with only_segment(prefix) as fd:
        ask_for_spans(fd)
        drain, segment, rounds = _reader.Drain(fd), _reader.SegmentCopier(fd), []
        for _ in range(4):
            process.go()
            process.paused()
            _, slots = segment.ring(0, False)
            rounds.append(np.frombuffer(slots, dtypes.dtype("span"))[-500 * 5 :])
            assert _reader.drain([drain])[2] == []
            publish(fd, drain)
        own, records = dtypes.summaries(segment.summaries()[0]), np.concatenate(rounds)
        ours = folded(records)
        assert drain.longest() == longest(records)
        assert drain.recent() == records[-64:].tobytes()
        assert (drain.spans, drain.rejected, drain.skipped, drain.complete) == (4 * 500 * 5, 0, 0, True)
        for field in own.dtype.names or ():
            np.testing.assert_array_equal(ours[field], own[field][: len(ours)], err_msg=field)
        assert not own["count"][len(ours) :].any()
    process.go()
    assert process.end() == 0


def test_details_below_a_half_moved_tail_are_lost_with_their_reader(worker: Start, prefix: str) -> None:
    process = worker("""
        brick.init()
        a = brick.brick("a")
        pause()
        for round in range(3):
            for i in range(100):
                with a:
                    pass
            pause()
        """)
    process.paused()
    with only_segment(prefix) as fd:
        ask_for_spans(fd)
        drain = _reader.Drain(fd)
        process.go()
        process.paused()
        _reader.drain([drain])
        checkpoint = drain.cursors()
        process.go()
        process.paused()
        _reader.drain([drain])
        publish(fd, drain)
        process.go()
        process.paused()
        _reader.drain([drain])
        halfway, _ = _reader.tails([drain], True)
        _reader.write_all([halfway])
        # The tail 200 is complete, so the writer may accept it. The tail 300 is only half written (one of its two
        # words), so the writer must not accept it.
        successor = _reader.Drain(fd, checkpoint)
        _reader.drain([successor])
        ((span, *_, lost),) = successor.cursors()
        assert (span, lost, successor.spans) == (300, 200, 0)
