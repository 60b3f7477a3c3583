"""Checks of readings that come from files: such files are not trusted, like segments.

Owns: the valid values of every field of a reading. Must not know: files, the encoding of readings. Invariants: Every
view can use a checked reading as it uses a reading of a segment. An invalid reading raises ValueError with the value
found and the value expected.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from brickd.base.json_values import I32_MAX, limited, number, optional, require, text, whole
from brickd.shm import _reader
from brickd.shm.records import named_later
from brickd.shm.segment_copy import CLOCKS, CallPath, Reading, SiteKey

_PATHS_MAX = 2 * _reader.NUMBERS_MAX  # each path may have a second path, for its bounds
TICK_NS_MAX = 1e6
_UNIT_MAX = 127  # later minor versions may define units up to this limit


def reading(found: Reading) -> Reading:
    """Check a reading whose tables were already checked, or raise ValueError. Unknown fields are dropped."""
    text(found.file)
    require(found.header.get("clock") in CLOCKS, "a clock", found.header.get("clock"))
    require(0 < number(found.tick_ns) < TICK_NS_MAX, "a tick's ns", found.tick_ns)
    optional(found.pid, whole)
    optional(found.now_ticks, functools.partial(whole, least=-(2**63)))
    for each in (found.odd, found.moving, found.memory_bytes, *found.deferred.values()):
        whole(each)
    _summaries(found)
    numbers = [number for number, _, _ in limited(found.lanes, _reader.LANES_MAX)]
    require(len(set(numbers)) == len(numbers), "each lane once", numbers)
    lanes = [
        (whole(number, most=_reader.LANES_MAX), _fields("lane", lane), _fields("consumer", consumer))
        for number, lane, consumer in found.lanes
    ]
    header, process = _fields("header", found.header), _fields("process", found.process)
    return replace(found, header=header, process=process, lanes=lanes, tick_ns=float(found.tick_ns))


def names(found: Sequence[tuple[str, int] | None]) -> None:
    """Check a table of names, or raise ValueError."""
    require(len(found) <= _reader.NUMBERS_MAX, f"at most {_reader.NUMBERS_MAX} names", len(found))
    for name in found:
        if name is not None:
            written, category = name
            text(written)
            whole(category)


def paths(found: Sequence[CallPath | None]) -> None:
    """Check a table of paths, or raise ValueError."""
    require(len(found) <= _PATHS_MAX, f"at most {_PATHS_MAX} paths", len(found))
    deferred: set[tuple[int, int, int]] = set()
    for place, path in enumerate(found):
        if path is not None:
            # A parent must come before its children, so that a walk from a path to the root always ends.
            whole(path.parent, -1, place - 1)
            whole(path.name)
            whole(path.layer, -1, I32_MAX)
            whole(path.unit, 0, _UNIT_MAX)
            if path.unit == _reader.UNIT_DEFERRED:
                deferred.add(path[:3])
            elif path.unit == _reader.UNIT_BOUND:
                require(path[:3] in deferred, "a deferred path before the path of its bounds", path)


def sites(found: Sequence[SiteKey | None]) -> None:
    """Check a table of sites, or raise ValueError."""
    require(len(found) <= _reader.SITES_MAX, f"at most {_reader.SITES_MAX} sites", len(found))
    for site in found:
        if site is not None:
            whole(site.name)
            whole(site.layer, -1, I32_MAX)
            whole(site.unit)


def _summaries(found: Reading) -> None:
    summaries, latency, size = len(found.summaries), len(found.latency), _reader.SUMMARY_BYTES
    require(summaries == len(found.paths) * size, f"{len(found.paths)} summaries", summaries // size)
    require(latency <= summaries, "no more latencies than summaries", latency // size)
    if not latency:
        bounds = any(path is not None and path.unit == _reader.UNIT_BOUND for path in found.paths)
        require(not bounds, "latencies of the bounded paths", latency)


@functools.cache
def _shape(record: str) -> tuple[tuple[tuple[str, int, str], ...], struct.Struct]:
    """Return the fields of a struct, without reserved fields, and the codec of its numeric fields."""
    rows = {row[1]: row for row in (*_reader.later(), *_reader.layout()) if row[0] == record}
    fields = tuple((name, count, code) for _, name, _, count, code in rows.values() if not name.startswith("reserved"))
    return fields, struct.Struct("<" + "".join(f"{count}{code}" for _, count, code in fields if code != "B"))


def _fields(record: str, found: Mapping[str, Any]) -> Any:
    """Return the known fields of a struct. A missing field that a later minor version added is 0."""
    shape, codec = _shape(record)
    complete = {**named_later(record), **found}
    numbers: list[Any] = []
    for name, count, code in shape:
        value = complete[name]
        if code == "B":
            # If the reading is an aggregate of several workers, this text has no zeros at its end, so it may be
            # shorter.
            require(isinstance(value, bytes) and len(value) <= count, f"at most {count} bytes as {name}", value)
        elif count == 1:
            numbers.append(value)
        else:
            require(isinstance(value, tuple) and len(value) == count, f"{count} numbers as {name}", value)
            numbers += value
    # All values are checked in one call, because a worker may have 1,024 lanes: this takes 8 µs instead of 27 µs.
    require(set(map(type, numbers)) == {int}, f"whole numbers in a {record}", numbers)
    codec.pack(*numbers)  # the message of struct.error has the valid range
    return {name: complete[name] for name, _, _ in shape}
