"""If a segment claims more than it contains, a reader reads and keeps only the contents."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from typing import Any

import forge
import pytest
from forge import BLOCK, PAGE, file, golden, place, put, segment_of
from hypothesis import given
from hypothesis import strategies as st
from rings import SLOT, events, rings, spans

from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.losses import losses
from brickd.shm.segment import Segment, _shared_paths
from brickd.shm.segment_copy import Reading

LINES = 1024 * (384 + 64)  # the bytes of both lines of each lane, for the highest number of lanes


def summary(image: bytearray, path: int, lane: int, duration: int) -> None:
    """Write the summary of one span on a path of a lane."""
    histogram = [0] * 128
    histogram[1] = 1
    put(image, "summary", {"count": 1, "total": duration, "min": duration, "max": duration}, path, lane)
    put(image, "summary", {"squares": float(duration**2), "histogram": tuple(histogram)}, path, lane)
    at = forge.regions(image)
    struct.pack_into("<Q", image, at["area"] + lane * at["stride"] + 8 * path, 2)


def counts_of(reading: Reading) -> dict[str, Any]:
    """Return everything in a reading, except rows beyond the last path that exists."""
    names = list(reading.names)
    while names and names[-1] is None:
        names.pop()
    return {
        "lanes": reading.lanes,
        "paths": reading.paths,
        "sites": reading.sites,
        "names": names,
        "summaries": bytes(reading.summaries),
        "odd": reading.odd,
    }


def test_a_segment_costs_its_contents_and_not_its_claims() -> None:
    with file() as fd:
        forge.sparse(fd)
        held = os.fstat(fd).st_blocks * 512
        segment = Segment("sparse", fd)
        reading = segment.read()
        assert segment.extent() == (1024, 1, 0, 0, 0, 0)
        assert segment.fetched < 4 * LINES
        assert os.fstat(fd).st_blocks * 512 == held < 400 * 1024
    assert (len(reading.lanes), reading.names, reading.paths, reading.sites) == (1024, [], [], [])
    assert reading.process["paths"] == 65472, "the reader shows the number that the segment claims"
    assert len({id(lane) for _, lane, _ in reading.lanes}) == 1, "all idle lanes share one Python object"


@pytest.mark.parametrize("last", [None, 0, 31, 32, 1023])
def test_a_table_ends_with_its_last_allocated_page(last: int | None) -> None:
    with rings(names=1024, paths=2048, sites=2048) as r:
        r.put("process", 0, names=1024, paths=2048, sites=2048)
        for table, size in (("name", 128), ("path", 8), ("site", 8)) if last is not None else ():
            os.pwrite(r.fd, bytes(size), forge.regions(r.page)[table] + (last or 0) * size)
        extent = Segment("sparse", r.fd).extent()
        assert (extent.names, extent.paths, extent.sites) == tuple(
            0 if last is None else (last * size // PAGE + 1) * PAGE // size for size in (128, 8, 8)
        )


@pytest.mark.parametrize("record", ["lane", "consumer"])
def test_lanes_that_differ_in_either_line_are_counted_separately(record: str) -> None:
    with rings(lanes=64) as r:
        for lane in range(64):
            r.put("lane", lane, opened=1)
        segment = Segment("sparse", r.fd)
        assert segment.extent().lanes == 1
        for lane in range(0, 64, 2):
            r.put(record, lane, **{"thread" if record == "lane" else "spans_lost": 7})
        reading = segment.read()
        assert segment.extent().lanes == len(reading.alike()) == 64


@pytest.mark.ci
@given(
    st.dictionaries(st.tuples(st.integers(0, 1), st.integers(0, 191)), st.integers(38, 44), max_size=6),
    st.sets(st.integers(1, 63), max_size=4),
)
def test_a_segment_with_holes_reads_like_one_without(totals: dict[tuple[int, int], int], named: set[int]) -> None:
    image = bytearray(forge.empty(lanes=2, paths=192, names=64, sites=64))
    image += bytes(forge.header_value(image, "size") - len(image))
    put(image, "process", {"names": 64, "paths": 192, "sites": 64})
    for lane in range(2):
        put(image, "lane", {"opened": 1}, lane)
    for (lane, path), duration in totals.items():
        struct.pack_into("<Q", image, forge.place(image, "path", path), 1 << 63 | 0xFFFF)
        summary(image, path, lane, duration)
    for number in named:
        put(image, "name", {"word": 0x80000002, "text": b"ab"}, number)
    whole = forge.seal(image)
    with file(whole) as dense, file(whole, holes=True) as sparse:
        segment = Segment("sparse", sparse)
        wanted = counts_of(Segment("dense", dense).read())
        got = counts_of(segment.read())
        paths = len(got["paths"])
        assert (got["names"], got["lanes"], got["odd"]) == (wanted["names"], wanted["lanes"], 0)
        assert got["paths"] == wanted["paths"][:paths]
        assert not any(wanted["paths"][paths:])
        assert got["summaries"] == wanted["summaries"][: len(got["summaries"])]
        assert not any(wanted["summaries"][len(got["summaries"]) :])
        assert segment.extent().blocks == len({(lane, path // BLOCK) for lane, path in totals})


@pytest.mark.ci
def test_summary_blocks_that_are_holes_are_not_read() -> None:
    image = bytearray(forge.empty(lanes=1, paths=65472, names=64, sites=64))
    image += bytes(forge.regions(image)["size"] - len(image))
    put(image, "process", {"names": 1, "paths": 65472})
    put(image, "lane", {"opened": 1})
    for path in (0, 64 * 500 + 63, 65471):
        struct.pack_into("<Q", image, forge.place(image, "path", path), 1 << 63 | 0xFFFF)
        summary(image, path, 0, 40)
    with file(forge.seal(image), holes=True) as fd:
        segment = Segment("sparse", fd)
        assert segment.extent() == (1, 1, 0, 65472, 0, 3)
        before = segment.fetched
        reading = segment.read()
        blocks = 3 * (BLOCK * _reader.SUMMARY_BYTES + 2 * BLOCK * 8)
        assert segment.fetched - before < blocks + 65472 * 8 + 32 * PAGE
    assert sum(row is not None for row in reading.paths) == 3


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=5))
def test_equal_lanes_are_each_counted(runs: list[tuple[int, int]]) -> None:
    with segment_of(golden()) as segment:
        reading = segment.read()
    (_, one, consumer), (_, other, _) = reading.lanes
    changed: _reader.Lane = {**one, "thread": 7, "amounts": 3}
    kinds = [(one, consumer), (other, consumer), (changed, consumer)]
    together = [kinds[kind] for kind, times in runs for _ in range(times)]
    shared = replace(reading, lanes=[(number, *lane) for number, lane in enumerate(together)])
    apart = replace(shared, lanes=[(n, lane.copy(), tails.copy()) for n, lane, tails in shared.lanes])
    assert sum(times for _, _, times in shared.alike()) == len(together) == len(apart.alike())
    assert ledger_of(shared) == ledger_of(apart)
    assert losses(shared, ledger_of(shared)) == losses(apart, ledger_of(apart))


@pytest.mark.ci
def test_large_tables_are_not_cached_beyond_their_segment() -> None:
    for rows, remembered in ((4096, 1), (4097, 0)):
        image = bytearray(forge.empty(lanes=1, paths=8192, names=64, sites=64))
        image += bytes(forge.regions(image)["size"] - len(image))
        put(image, "process", {"names": 1, "paths": rows})
        struct.pack_into("<Q", image, place(image, "path", rows - 1), 1 << 63 | rows << 32 | 0xFFFF)
        before = _shared_paths.cache_info().misses
        with segment_of(forge.seal(image)) as segment:
            assert len(segment.read().paths) == rows
        assert _shared_paths.cache_info().misses - before == remembered


@pytest.mark.ci
def test_names_in_a_hole_are_not_read() -> None:
    image = bytearray(forge.empty(lanes=1, paths=64, names=65472, sites=64))
    image += bytes(forge.regions(image)["size"] - len(image))
    put(image, "process", {"names": 65472})
    for number in (1, 65471):
        put(image, "name", {"word": 0x80000002, "text": b"ab"}, number)
    with file(forge.seal(image), holes=True) as fd:
        segment = Segment("sparse", fd)
        names = segment.read().names
        assert segment.fetched < 2 * 2 * 256 * 128 + 16 * PAGE
    assert {number: name for number, name in enumerate(names) if name is not None} == {1: ("ab", 0), 65471: ("ab", 0)}


def test_a_truncated_file_is_refused_although_its_end_looks_like_a_hole() -> None:
    with file(golden(), holes=True) as fd:
        segment = Segment("cut", fd)
        segment.read()
        os.ftruncate(fd, len(golden()) - PAGE)
        with pytest.raises(Exception, match="truncated"):
            segment.read()


@pytest.mark.parametrize("ring", ["span", "event"])
def test_a_ring_in_a_file_hole_is_empty_with_any_head(ring: str) -> None:
    with rings(**{f"{ring}_slots": 1 << 20}) as r:
        r.move(0, ring, 1 << 20)
        segment = Segment("sparse", r.fd)
        before = segment.fetched
        assert segment.ring(0, events=ring == "event") == (0, b"")
        assert segment.fetched - before < PAGE
        r.heads[0, ring] = 0
        rows = [{"sequence": n + 1} for n in range(64)]
        r.write(0, ring, spans(*rows) if ring == "span" else events(*rows))
        before = segment.fetched
        first, slots = segment.ring(0, events=ring == "event")
        assert (first, slots[: 64 * SLOT]) == (0, os.pread(r.fd, 64 * SLOT, place(r.page, f"{ring}_ring")))
        assert segment.fetched - before < 8 * PAGE, "nothing after the first hole is read"
