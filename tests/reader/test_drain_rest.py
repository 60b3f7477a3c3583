"""How long the drain waits between two passes: until a ring is full, a descriptor is readable, or the time is over."""

from __future__ import annotations

import os

from rings import events, rings, spans

from brickd.shm import _reader

NONE = (-1, -1)
FOREVER = 1_000_000  # the number of times that the drain may look: so many that only a fault would need all


def numbered(count: int) -> list[dict[str, int]]:
    return [{"sequence": n + 1} for n in range(count)]


def test_with_empty_rings_the_rest_takes_its_full_time() -> None:
    with rings() as r:
        assert _reader.rest([r.drain()], NONE, 1, 3, 0.0) == (False, False)


def test_any_record_ends_the_rest_if_that_is_enough() -> None:
    with rings() as idle, rings() as r:
        drains = [idle.drain(), r.drain()]
        _reader.drain(drains)
        r.add(0, "span", spans(*numbered(1)))
        assert _reader.rest(drains, NONE, 1, FOREVER, 0.0) == (False, False)


def test_a_sufficiently_full_ring_ends_the_rest() -> None:
    for ring, records, enough in (("span", spans, 4 / 128), ("event", events, 4 / 8)):
        with rings() as r:
            drain = r.drain()
            _reader.drain([drain])
            r.add(0, ring, records(*numbered(4)))
            assert _reader.rest([drain], NONE, 1, FOREVER, enough) == (False, False)


def test_a_head_that_went_back_ends_the_rest() -> None:
    with rings() as r:
        drain = r.drain()
        r.add(0, "span", spans(*numbered(4)))
        _reader.drain([drain])
        r.put("lane", 0, span_head=1)
        assert _reader.rest([drain], NONE, 1, FOREVER, 1.0) == (False, False)


def test_a_readable_descriptor_ends_the_rest_and_is_returned() -> None:
    with rings() as r:
        fd = os.eventfd(1)
        try:
            assert _reader.rest([r.drain()], (-1, fd), 1000, FOREVER, 0.0) == (False, True)
            assert _reader.rest([r.drain()], (fd, -1), 1000, FOREVER, 0.0) == (True, False)
        finally:
            os.close(fd)
