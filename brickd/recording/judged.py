"""Whether what a recording says of a worker can be: it is believed no more than a segment is.

Owns: what every field of a reading may be. Must not know: files, how a reading is written. Invariant: of a reading that
passes every view can be made, as of one that was read from a segment; what does not pass is a ValueError that says what
was seen and what was wanted.
"""

from __future__ import annotations

import functools
import json
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from brickd import _reader
from brickd.reading import CLOCKS, Path, Reading, Site
from brickd.records import named_later

_MOST = {"Q": 2**64 - 1, "I": 2**32 - 1, "H": 2**16 - 1, "i": 2**31 - 1}
_LEAST = {"i": -(2**31)}
_PATHS_MAX = 2 * _reader.NUMBERS_MAX  # each, and beside each what is only bounded
_TICK_NS_MAX = 1e6
_SAID_MAX = 200
_CONTAINERS_MAX = 1 << 22  # an empty one takes 24 times the memory that it takes in a file

Found = TypeVar("Found")


def reading(found: Reading) -> Reading:
    """A reading with the fields that this brickd knows, whose tables were judged where they stood.

    Raises:
        ValueError: it cannot be one.
    """
    _require(isinstance(found.file, str), "a file's name", found.file)
    _require(found.header.get("clock") in CLOCKS, "a clock", found.header.get("clock"))
    _require(isinstance(found.tick_ns, float | int) and 0 < found.tick_ns < _TICK_NS_MAX, "a tick's ns", found.tick_ns)
    optional(found.pid, whole)
    optional(found.now_ticks, functools.partial(whole, least=-(2**63)))
    for number in (found.odd, found.moving, found.memory_bytes, found.flags, *found.deferred.values()):
        whole(number)
    _require(all(isinstance(name, str) for name in found.deferred), "names of counters", found.deferred)
    _summaries(found)
    numbers = [number for number, _, _ in limited(found.lanes, _reader.LANES_MAX)]
    _require(len(set(numbers)) == len(numbers), "each lane once", numbers)
    lanes = [
        (whole(number, most=_reader.LANES_MAX), _fields("lane", lane), _fields("consumer", consumer))
        for number, lane, consumer in found.lanes
    ]
    header, process = _fields("header", found.header), _fields("process", found.process)
    return replace(found, header=header, process=process, lanes=lanes, tick_ns=float(found.tick_ns))


def names(found: Sequence[tuple[str, int] | None]) -> None:
    """Those of a reading, and of all that share them.

    Raises:
        ValueError: they cannot be.
    """
    _require(len(found) <= _reader.NUMBERS_MAX, f"at most {_reader.NUMBERS_MAX} names", len(found))
    for name in found:
        if name is not None:
            written, category = name
            text(written)
            whole(category)


def paths(found: Sequence[Path | None]) -> None:
    """As `names`."""
    _require(len(found) <= _PATHS_MAX, f"at most {_PATHS_MAX} paths", len(found))
    for number, path in enumerate(found):
        if path is not None:
            # So that no walk to the root can run in a circle.
            whole(path.parent, -1, number - 1)
            whole(path.name)
            whole(path.layer, -1, _MOST["i"])
            _require(0 <= path.unit < _reader.UNITS, "a unit", path.unit)


def sites(found: Sequence[Site | None]) -> None:
    """As `names`."""
    _require(len(found) <= _reader.SITES_MAX, f"at most {_reader.SITES_MAX} sites", len(found))
    for site in found:
        if site is not None:
            whole(site.name)
            whole(site.layer, -1, _MOST["i"])
            whole(site.unit)


def bits(found: object, most: int) -> int:
    """So many bits, as hexadecimal digits.

    Raises:
        ValueError: they are not.
    """
    number = int(limited(text(found), most // 4), 16)
    _require(number >= 0, "no sign", found)
    return number


def _summaries(found: Reading) -> None:
    summaries, latency, size = len(found.summaries), len(found.latency), _reader.SUMMARY_BYTES
    _require(summaries == len(found.paths) * size, f"{len(found.paths)} summaries", summaries // size)
    _require(latency <= summaries, "no more latencies than summaries", latency // size)
    if not latency:
        bounds = any(path is not None and path.unit == _reader.UNIT_BOUND for path in found.paths)
        _require(not bounds, "latencies of what is only bounded", latency)


@functools.cache
def _shape(record: str) -> tuple[tuple[str, int, str], ...]:
    rows = {row[1]: row for row in (*_reader.later(), *_reader.layout()) if row[0] == record}
    return tuple((name, count, code) for _, name, _, count, code in rows.values() if not name.startswith("reserved"))


def _fields(record: str, found: Mapping[str, Any]) -> Any:
    """Those fields of a struct that this brickd knows; what a later minor named was zero before it."""
    complete = {**named_later(record), **found}
    return {name: _field(complete[name], count, code) for name, count, code in _shape(record)}


def _field(value: Any, count: int, code: str) -> Any:
    if code == "B":
        _require(isinstance(value, bytes) and len(value) == count, f"{count} bytes", value)
        return value
    if count == 1:
        return whole(value, _LEAST.get(code, 0), _MOST[code])
    _require(isinstance(value, tuple) and len(value) == count, f"{count} numbers", value)
    return tuple(whole(each, _LEAST.get(code, 0), _MOST[code]) for each in value)


def whole(value: Any, least: int = 0, most: int = _MOST["Q"]) -> int:
    """A whole number within a range."""
    _require(type(value) is int and least <= value <= most, f"a whole number of {least} to {most}", value)
    return int(value)


def number(value: Any) -> float:
    """A number that is one."""
    _require(type(value) in (int, float) and math.isfinite(value), "a number", value)
    return float(value)


def text(value: Any) -> str:
    """A string."""
    _require(isinstance(value, str), "a text", value)
    return str(value)


def document(body: bytes, most: int = _reader.CHUNK_BYTES_MAX) -> Any:
    """What JSON of no more than so many bytes says, if it takes no more memory than what brickd writes may take."""
    _require(len(body) <= most, f"at most {most} bytes", len(body))
    containers = body.count(b"[") + body.count(b"{")
    _require(containers <= _CONTAINERS_MAX, f"at most {_CONTAINERS_MAX} lists and objects", containers)
    return json.loads(body)


def limited(value: Sized, most: int) -> Any:
    """Something of no more than so many parts."""
    _require(len(value) <= most, f"at most {most}", len(value))
    return value


def optional(value: Any, judge: Callable[[Any], Found]) -> Found | None:
    """The same, or nothing."""
    return None if value is None else judge(value)


def _require(holds: bool, wanted: str, seen: Any) -> None:
    if not holds:
        raise ValueError(f"{reprlib.repr(seen)[:60]} is there, wanted is {wanted}")


@contextmanager
def judging() -> Iterator[None]:
    """Read what may be anything: whatever goes wrong is a ValueError."""
    try:
        yield
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        said = str(error)[:_SAID_MAX]  # it may quote what it met
        raise ValueError(f"holds not what this brickd wants: {type(error).__name__}: {said}") from None
