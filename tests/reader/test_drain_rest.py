"""The time between two passes: it ends at a full ring, a readable descriptor, or its limit."""

from __future__ import annotations

import os

from rings import events, rings, spans

from brickd.shm import _reader

NONE = (-1, -1)
FOREVER = 1_000_000  # looks: the timeout stops a test that needs all of them


def numbered(count: int) -> list[dict[str, int]]:
    return [{"sequence": n + 1} for n in range(count)]


def test_with_nothing_in_the_rings_it_looks_as_often_as_it_may() -> None:
    with rings() as r:
        assert _reader.rest([r.drain()], NONE, 1, 3, 0.0) == (False, False)


def test_it_ends_as_soon_as_there_is_anything_if_that_is_enough() -> None:
    with rings() as idle, rings() as r:
        drains = [idle.drain(), r.drain()]
        _reader.drain(drains)
        r.add(0, "span", spans(*numbered(1)))
        assert _reader.rest(drains, NONE, 1, FOREVER, 0.0) == (False, False)


def test_it_ends_when_a_ring_is_full_enough_of_an_event_ring_half_counts_as_all() -> None:
    for ring, records, enough in (("span", spans, 4 / 128), ("event", events, 4 / 8)):
        with rings() as r:
            drain = r.drain()
            _reader.drain([drain])
            r.add(0, ring, records(*numbered(4)))
            assert _reader.rest([drain], NONE, 1, FOREVER, enough) == (False, False)


def test_it_ends_for_a_head_that_went_back_since_the_pass_will_say_so() -> None:
    with rings() as r:
        drain = r.drain()
        r.add(0, "span", spans(*numbered(4)))
        _reader.drain([drain])
        r.put("lane", 0, span_head=1)
        assert _reader.rest([drain], NONE, 1, FOREVER, 1.0) == (False, False)


def test_a_descriptor_that_can_be_read_ends_it_and_is_named() -> None:
    with rings() as r:
        fd = os.eventfd(1)
        try:
            assert _reader.rest([r.drain()], (-1, fd), 1000, FOREVER, 0.0) == (False, True)
            assert _reader.rest([r.drain()], (fd, -1), 1000, FOREVER, 0.0) == (True, False)
        finally:
            os.close(fd)
