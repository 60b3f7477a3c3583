"""Made-up segments: the stored golden segment, and changes of its bytes.

This module computes the offsets itself, from nothing but the table of fields and the counts. So it is a second
implementation of brick_layout_compute.
"""

from __future__ import annotations

import functools
import gzip
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dtypes
import numpy as np
import posix_ipc

from brickd.shm import _reader, records
from brickd.shm.segment import Segment
from brickd.shm.segment_copy import Reading

GOLDEN = Path(__file__).parent.parent / "golden"
PAGE = 4096
BLOCK = 64
U64 = 2**64 - 1


MINORS = (
    "1.0",
    "1.1",
    "1.2",
    "1.3",
    "1.4",
    "1.5",
    "1.6",
    "1.7",
    "1.8",
    "1.9",
    "1.10",
    "1.11",
    "1.12",
    "1.13",
    "1.14",
    "1.15",
)


@functools.cache
def golden(minor: str = "1.0") -> bytes:
    """Return the golden segment of a minor version, with the user of the tests as its owner."""
    image = bytearray(gzip.decompress((GOLDEN / f"segment-{minor}.bin.gz").read_bytes()))
    put(image, "header", {"uid": os.geteuid()})
    return seal(image)


@functools.cache
def field(record: str, name: str) -> tuple[int, str, int]:
    """Return offset, code and size of a struct's field, even if a later minor version added the field."""
    rows = [*_reader.layout(), *_reader.later()]
    ((offset, count, code),) = [row[2:] for row in rows if row[:2] == (record, name)]
    return offset, code, count * struct.calcsize(code)


def header_value(image: bytes | bytearray, name: str) -> int:
    offset, code, _ = field("header", name)
    return int(struct.unpack_from(f"<{code}", image, offset)[0])


def _pages(length: int) -> int:
    return -(-length // PAGE) * PAGE


_COUNTS = ("lanes", "paths", "names", "sites", "span_slots", "event_slots")


def regions(image: bytes | bytearray) -> Mapping[str, int]:
    """Return the offset of each region, the size of a lane's area and the size of the file, from the counts of a
    header.
    """
    return _regions(*(header_value(image, name) for name in _COUNTS))


@functools.cache
def _regions(*counts: int) -> Mapping[str, int]:
    count = dict(zip(_COUNTS, counts, strict=True))
    size = {name: dtypes.dtype(name).itemsize for name in ("consumer", "process", "lane", "name", "summary", "record")}
    at = {"header": 0, "control": PAGE, "consumer": 2 * PAGE}
    at["process"] = at["consumer"] + _pages(count["lanes"] * size["consumer"])
    at["lane"] = at["process"] + size["process"]
    at["path"] = at["process"] + _pages(size["process"] + count["lanes"] * size["lane"])
    at["site"] = at["path"] + _pages(count["paths"] * 8)
    at["name"] = at["site"] + _pages(count["sites"] * 8)
    at["area"] = at["name"] + _pages(count["names"] * size["name"])
    at["summary"] = _pages(count["paths"] * 8)
    at["span_ring"] = at["summary"] + count["paths"] * size["summary"]
    at["event_ring"] = at["span_ring"] + _pages(count["span_slots"] * size["record"])
    at["stride"] = at["event_ring"] + _pages(count["event_slots"] * size["record"])
    at["size"] = at["area"] + count["lanes"] * at["stride"]
    return at


def place(image: bytes | bytearray, record: str, index: int = 0, lane: int = 0) -> int:
    """Return the offset of the index-th struct of a kind; summaries and slots of rings also need `lane`."""
    at = regions(image)
    if record in ("summary", "span_ring", "event_ring"):
        size = dtypes.dtype("summary" if record == "summary" else "record").itemsize
        return at["area"] + lane * at["stride"] + at[record] + index * size
    return at[record] + index * (8 if record == "path" else dtypes.dtype(record).itemsize)


def put(
    image: bytearray, record: str, values: Mapping[str, Any], index: int = 0, lane: int = 0, *, kind: str | None = None
) -> None:
    """Set fields of one struct; for a slot of a ring, `kind` is the kind of record."""
    start = place(image, record, index, lane)
    for name, value in values.items():
        offset, code, size = field(kind or record, name)
        if isinstance(value, bytes):
            image[start + offset : start + offset + size] = value.ljust(size, b"\0")
            continue
        elements = value if isinstance(value, tuple) else (value,)
        struct.pack_into(f"<{len(elements)}{code}", image, start + offset, *elements)


def seal(image: bytearray) -> bytes:
    """Correct the header's checksum."""
    magic, crc = field("header", "magic")[0], field("header", "header_crc")[0]
    page = bytearray(image[:PAGE])
    page[magic : magic + 8] = bytes(8)
    page[crc : crc + 4] = bytes(4)
    struct.pack_into("<I", image, crc, zlib.crc32(page))
    return bytes(image)


def with_header(**values: Any) -> bytes:
    """Return the golden segment with other values in its header, and a correct checksum."""
    image = bytearray(golden())
    put(image, "header", values)
    return seal(image)


def placed(name: str, image: bytes, mode: int = 0o600) -> None:
    """Create a shared-memory object with these bytes without brickd's code, as any program could."""
    memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode)
    try:
        assert os.write(memory.fd, image) == len(image)
    finally:
        memory.close_fd()


def empty(**counts: int) -> bytes:
    """Return a segment with these counts: the header in its first page, then zeros."""
    image = bytearray(golden()[:PAGE])
    put(image, "header", counts)
    put(image, "header", {"size": regions(image)["size"]})
    return seal(image)


@contextmanager
def file(image: bytes = b"", *, holes: bool = False) -> Iterator[int]:
    """Return the descriptor of a file with these bytes; with `holes`, pages of zeros become holes."""
    fd = os.memfd_create("sparse")
    try:
        os.ftruncate(fd, len(image))
        for at in range(0, len(image), PAGE):
            page = image[at : at + PAGE]
            if not holes or any(page):
                os.pwrite(fd, page, at)
        yield fd
    finally:
        os.close(fd)


SPARSE = {"lanes": 1024, "paths": 65472, "names": 65472, "sites": 16384}  # the highest counts that a header may claim


def sparse(fd: int, service: str = "sparse") -> None:
    """Turn a file into a segment of 392 KiB. The segment has the highest counts and opened lanes, but is otherwise
    empty.
    """
    page = bytearray(empty(**SPARSE))
    put(
        page, "header", {"uuid": os.urandom(16), "service": service.encode(), "coordinates": b"", "index": -1, "pid": 0}
    )
    at = regions(page)
    process, lane = (bytearray(dtypes.dtype(record).itemsize) for record in ("process", "lane"))
    for name in ("names", "paths", "sites"):
        offset, code, _ = field("process", name)
        struct.pack_into(f"<{code}", process, offset, SPARSE[name])
    offset, code, _ = field("lane", "opened")
    struct.pack_into(f"<{code}", lane, offset, 1)
    os.ftruncate(fd, at["size"])
    os.pwrite(fd, process + bytes(lane) * SPARSE["lanes"], at["process"])
    os.pwrite(fd, seal(page), 0)


@contextmanager
def segment_of(image: bytes) -> Iterator[Segment]:
    """Return a segment in memory that has no name."""
    fd = os.memfd_create("forged")
    try:
        os.write(fd, image)
        yield Segment("forged", fd)
    finally:
        os.close(fd)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.rstrip(b"\0").hex()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def rows(array: dtypes.Array) -> list[dict[str, Any]]:
    """Return a structured array as JSON. Of a field with many elements, only the nonzero elements are returned, each
    with its index.
    """
    result = []
    for each in array:
        row: dict[str, Any] = {}
        for name in each.dtype.names or ():
            value = each[name]
            if not isinstance(value, np.ndarray):
                row[name] = value.item()
            elif name != "reserved":
                row[name] = {str(i): n for i, n in enumerate(value.tolist()) if n}
        result.append(row)
    return result


def flops(reading: Reading) -> dict[str, float]:
    """Return the floating-point operations of each path that has any."""
    offset = field("summary", "flops")[0]
    return {
        str(path): value
        for path in range(len(reading.summaries) // _reader.SUMMARY_BYTES)
        if (value := struct.unpack_from("<d", reading.summaries, path * _reader.SUMMARY_BYTES + offset)[0])
    }


def document(segment: Segment) -> dict[str, Any]:
    """Return the content of a segment as JSON."""
    reading = segment.read()
    rings = {str(number): segment.ring(number, events=False) for number, _, _ in reading.lanes}
    event_rings = {str(number): segment.ring(number, events=True) for number, _, _ in reading.lanes}
    return {
        "header": _plain(reading.header),
        "process": _plain(reading.process),
        "lanes": [{"number": n, "lane": _plain(lane), "consumer": _plain(tails)} for n, lane, tails in reading.lanes],
        "names": _plain(reading.names),
        "paths": [None if p is None else [p.parent, p.name, p.layer, p.unit] for p in reading.paths],
        "summaries": rows(dtypes.summaries(reading.summaries)),
        "flops": flops(reading),
        "odd": reading.odd,
        "moving": reading.moving,
        "spans": {
            n: {"first": first, "records": rows(dtypes.span_records(slots))} for n, (first, slots) in rings.items()
        },
        "events": {
            n: {"first": first, "records": _plain(records.events(slots)[0])}
            for n, (first, slots) in event_rings.items()
        },
    }


def later(record: str, name: str) -> int:
    """Return the offset of a field that a later minor version added."""
    ((offset,),) = [row[2:3] for row in _reader.later() if row[:2] == (record, name)]
    return offset
