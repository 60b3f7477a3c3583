"""Rings that a test fills with valid or invalid records, and a second implementation of their totals."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dtypes
import forge
import numpy as np
from forge import U64

from brickd.shm import _reader

SLOT = 64
BATCH = 4096  # the slots that a drain copies at once: BRICK_BATCH of drain.h
SPAN, STEP, DEFER = _reader.KIND_SPAN, _reader.KIND_STEP, _reader.KIND_DEFER
FINALIZE, MEASURED = _reader.KIND_FINALIZE, _reader.KIND_MEASURED
Cursor = tuple[int, int, int, int, int]

# For each bucket except the lowest one, the smallest number of ticks that is in it: the least integer whose fourth
# power is at least 2^(20 + bucket).
_BUCKETS = np.array(
    [next(t for t in range(int(2 ** (5 + b / 4)) - 1, 2**63) if t**4 >= 2 ** (20 + b)) for b in range(1, 128)]
)


def spans(*values: dict[str, int], **common: int) -> dtypes.Array:
    """Return records of spans; each takes one slot."""
    return _records("span", values, {"kind": SPAN, "slots": 1} | common)


def events(*values: dict[str, int], record: str = "defer", **common: int) -> dtypes.Array:
    """Return records of events; by default, starts of deferred work."""
    kind = {"defer": DEFER, "finalize": FINALIZE, "measured": MEASURED}[record]
    return _records(record, values, {"kind": kind, "slots": 1} | common)


def _records(record: str, values: tuple[dict[str, int], ...], common: dict[str, int]) -> dtypes.Array:
    array = np.zeros(len(values), dtypes.dtype(record))
    for name, value in common.items():
        array[name] = value
    for number, each in enumerate(values):
        for name, value in each.items():
            array[name][number] = value
    return array


@dataclass
class Rings:
    """A segment without a name; `heads` are the heads of each lane's span ring and event ring, in slots."""

    fd: int
    page: bytes
    heads: dict[tuple[int, str], int] = field(default_factory=dict)

    def slots(self, ring: str) -> int:
        return forge.header_value(self.page, f"{ring}_slots")

    def put(self, record: str, index: int, **values: int) -> None:
        for name, value in values.items():
            offset, code, _ = forge.field(record, name)
            at = forge.place(self.page, record, index) + offset
            os.pwrite(self.fd, struct.pack(f"<{code}", value), at)

    def tail(self, lane: int, ring: str, position: int, complement: int | None = None) -> None:
        pair = struct.pack("<QQ", position, position ^ U64 if complement is None else complement)
        os.pwrite(self.fd, pair, forge.place(self.page, "consumer", lane) + forge.field("consumer", ring)[0])

    def path(self, number: int, unit: int) -> None:
        """Create a path at the root of the call tree."""
        os.pwrite(self.fd, struct.pack("<Q", 1 << 63 | unit << 56 | 0xFFFF), forge.place(self.page, "path", number))

    def line(self, lane: int) -> Any:
        bytes_ = os.pread(self.fd, SLOT, forge.place(self.page, "consumer", lane))
        return np.frombuffer(bytes_, dtypes.dtype("consumer"))[0]

    def write(self, lane: int, ring: str, records: dtypes.Array | bytes | bytearray) -> None:
        """Store slots from the head on, wrapping around at the end of the ring; do not move the head."""
        slot = self.heads.get((lane, ring), 0) % self.slots(ring)
        room = (self.slots(ring) - slot) * SLOT
        data = records.tobytes() if isinstance(records, np.ndarray) else records
        os.pwrite(self.fd, data[:room], forge.place(self.page, f"{ring}_ring", slot, lane))
        os.pwrite(self.fd, data[room:], forge.place(self.page, f"{ring}_ring", 0, lane))

    def add(self, lane: int, ring: str, records: dtypes.Array | bytes | bytearray) -> None:
        """Add records as a worker does: first the records, then the head."""
        self.write(lane, ring, records)
        slots = len(records) if isinstance(records, np.ndarray) else len(records) // SLOT
        self.move(lane, ring, self.heads.get((lane, ring), 0) + slots)

    def move(self, lane: int, ring: str, head: int) -> None:
        """Set a head; the lane counts as opened."""
        self.heads[lane, ring] = head
        self.put("lane", lane, opened=1, **{f"{ring}_head": head})

    def drain(self, cursors: list[Cursor] | None = None) -> _reader.Drain:
        return _reader.Drain(self.fd, cursors)

    def publish(self, drain: _reader.Drain, *, events: bool = True) -> None:
        for _, offset, data in _reader.tails([drain], events):
            assert os.pwrite(self.fd, data, offset) == len(data)


@contextmanager
def rings(**counts: int) -> Iterator[Rings]:
    """Create an empty segment with these counts."""
    page = forge.empty(**({"lanes": 1, "span_slots": 16, "event_slots": 16} | counts))
    fd = os.memfd_create("rings")
    try:
        os.write(fd, page)
        os.ftruncate(fd, forge.header_value(page, "size"))
        yield Rings(fd, page)
    finally:
        os.close(fd)


def events_of(result: list[tuple[int, bytes | None, str | None]]) -> bytes:
    """Return the events of the only drained segment; assert that it was not refused."""
    if not result:
        return b""
    ((index, found, refused),) = result
    assert (index, refused) == (0, None)
    assert found is not None
    return found


def refusal(drain: _reader.Drain) -> str:
    """Return the reason why a drain pass refuses the segment."""
    ((_, _, refused),) = _reader.drain([drain])[2]
    assert refused is not None
    return refused


def folded(records: dtypes.Array) -> dtypes.Array:
    """Return the summaries of spans, keyed by path, as the thread that recorded the spans would sum them."""
    into = np.zeros(int(records["path"].max()) + 1 if len(records) else 0, dtypes.dtype("summary"))
    path, steps = records["path"], records["kind"] == STEP
    into["min"] = U64
    durations = records["duration"].astype(float)
    for name, values in (
        ("count", np.ones(len(records), np.uint64)),
        ("total", records["duration"]),
        ("child", records["child"]),
        ("squares", durations * durations),
        ("elements", np.where(steps, records["bytes"], records["elements"])),
        ("bytes", np.where(steps, 0, records["bytes"])),
    ):
        np.add.at(into[name], path, values)
    np.minimum.at(into["min"], path, records["duration"])
    np.maximum.at(into["max"], path, records["duration"])
    np.add.at(into["histogram"], (path, np.searchsorted(_BUCKETS, records["duration"], "right")), np.uint64(1))
    into["min"][into["count"] == 0] = 0
    return into


def longest(records: dtypes.Array) -> list[tuple[int, int, int, int, int]]:
    """Return the longest span of each path; of equally long spans, the first."""
    found = []
    for path in np.unique(records["path"]):
        own = records[records["path"] == path]
        one = own[np.argmax(own["duration"])]
        elements = one["bytes"] if one["kind"] == STEP else one["elements"]
        found.append((int(path), int(one["duration"]), int(one["start"]), int(one["step"]), int(elements)))
    return found
