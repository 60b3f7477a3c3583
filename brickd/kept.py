"""A reading as a document, and several as one.

Owns: the form in which readings outlive their segments, and how readings are added up. Must not know: files.
Invariants: a reading comes back as it was; every counter of a sum is the sum of the counters.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from brickd import _reader
from brickd.packed import pack, unpack
from brickd.reading import Path, Reading

_BYTES = ("uuid", "boot_id", "service", "coordinates")  # of the header
_ARRAYS = ("summaries", "latency")
_PLAIN = (
    "file",
    "pid",
    "process",
    "names",
    "paths",
    "odd",
    "moving",
    "tick_ns",
    "now_ticks",
    "memory_bytes",
    "deferred",
)


def document(reading: Reading) -> dict[str, Any]:
    """A reading as JSON has it."""
    header = {name: value.hex() if isinstance(value, bytes) else value for name, value in reading.header.items()}
    return {
        **{name: getattr(reading, name) for name in _PLAIN},
        "header": header,
        "lanes": reading.lanes,
        **{name: pack(getattr(reading, name)) for name in _ARRAYS},
    }


def reading(document: Mapping[str, Any]) -> Reading:
    """What `document` said."""
    header = document["header"] | {name: bytes.fromhex(document["header"][name]) for name in _BYTES}
    return Reading(
        **{name: document[name] for name in _PLAIN}
        | {
            "header": header,
            "lanes": [(number, _tuples(lane), _tuples(consumer)) for number, lane, consumer in document["lanes"]],
            "names": [None if name is None else tuple(name) for name in document["names"]],
            "paths": [None if path is None else Path(*path) for path in document["paths"]],
        }
        | {name: unpack(document[name]) for name in _ARRAYS}
    )


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


# ---- several as one

# What a process counts of its own tables says nothing of several.
_NO_TABLES = {"names": 0, "paths": 0, "sites": 0, "took": 0}


def added(one: Reading, other: Reading) -> Reading:
    """Both as one reading with the paths of both and a single lane: of one service, their ticks of one length.

    What is told of one process alone (its pid, its uuid, its file) is that of the first.
    """
    names, numbers = list(one.names), {one.name(number): number for number in reversed(range(len(one.names)))}
    paths, places = list(one.paths), {path: number for number, path in reversed(list(enumerate(one.paths)))}

    def number_of(name: int) -> int:
        text = other.name(name)
        if text not in numbers:
            numbers[text] = len(names)
            names.append(None)
            entry = other.names[name] if name < len(other.names) else None
            names[numbers[text]] = (text, number_of(entry[1]) if entry is not None and entry[1] else 0)
        return numbers[text]

    rows = array("i", [-1]) * len(other.paths)
    for number, path in enumerate(other.paths):
        if path is None:
            continue
        above = rows[path.parent] if path.parent >= 0 else -1
        if len(paths) >= _reader.NUMBERS_MAX and other.name(path.name) not in numbers:
            rows[number] = 0 if path.unit == _reader.UNIT_TICKS else -1
            continue
        moved = Path(above, number_of(path.name), path.layer, path.unit)
        if moved not in places and len(paths) < _reader.NUMBERS_MAX:
            places[moved] = len(paths)
            paths.append(moved)
        # What has no room counts as other, where other counts the same: in ticks.
        rows[number] = places.get(moved, 0 if path.unit == _reader.UNIT_TICKS else -1)
    lanes = [lane for _, lane, _ in one.lanes + other.lanes]
    consumers = [consumer for _, _, consumer in one.lanes + other.lanes]
    ended = {"ended": one.process["ended"] & other.process["ended"]}
    together = (0, cast("_reader.Lane", _sum(lanes)), _whole(cast("_reader.Consumer", _sum(consumers))))
    return replace(
        one,
        names=names,
        paths=paths,
        summaries=_merged(one.summaries, other.summaries, rows).ljust(len(paths) * _reader.SUMMARY_BYTES, b"\0"),
        latency=_merged(one.latency, other.latency, rows),
        lanes=[together] if lanes else [],
        process=cast("_reader.Process", _sum([one.process, other.process]) | _NO_TABLES | ended),
        deferred=dict(Counter(one.deferred) + Counter(other.deferred)),
        odd=one.odd + other.odd,
        moving=one.moving + other.moving,
        memory_bytes=0,
    )


def _merged(one: bytes, other: bytes, rows: array[int]) -> bytes:
    table = _reader.Summaries(one)
    table.merge(other, rows[: len(other) // _reader.SUMMARY_BYTES])
    return table.tobytes()


def _sum(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Field by field."""
    return {
        name: tuple(map(sum, zip(*(row[name] for row in rows), strict=True)))
        if isinstance(rows[0][name], tuple)
        else sum(row[name] for row in rows)
        for name in (rows[0] if rows else ())
    }


def _whole(consumer: _reader.Consumer) -> _reader.Consumer:
    """With tails that are pairs again."""
    span, event = consumer["span"][0], consumer["event"][0]
    return {**consumer, "span": (span, span ^ (2**64 - 1)), "event": (event, event ^ (2**64 - 1))}
