"""The sum of several readings.

Owns: how the tables, summaries and counters of readings are added up. Must not know: files, the stored format of a
reading. Invariant: Every counter of a sum is the sum of the counters of the readings.
"""

from __future__ import annotations

import functools
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from brickd.base.json_values import U64_MAX
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading, name_in

_KNOWN_PATHS_MAX = 1 << 18  # limits the cache of PathTables, because it keeps the tables of dead workers in memory
_TIMES_LARGER = 8  # if a sum's tables are larger than a reading's by this factor, start new tables
# These fields describe the tables of a single process, so they cannot be added up.
_NO_TABLES = {"names": 0, "paths": 0, "sites": 0, "took": 0, "key": 0}


class PathTables:
    """The names and call paths of several readings of one service."""

    def __init__(self, first: Reading) -> None:
        self.names, self.paths = first.names, first.paths
        # A cache of `rows`. A worker has the same tables in each snapshot, so its rows need not be computed again. The
        # keys are the ids of the reading's tables. The values also hold these tables, so that no other table can get
        # the same id.
        self._known: dict[tuple[int, int], tuple[object, object, array[int]]] = {}
        self._known_paths = 0

    def rows(self, of: Reading) -> array[int]:
        """Add the new paths of a reading; return the indexes of all its paths in these tables."""
        key = id(of.paths), id(of.names)
        if key not in self._known:
            self.names, self.paths, rows = _tables(self.names, self.paths, of)
            self._known_paths += len(of.paths)
            if self._known_paths > _KNOWN_PATHS_MAX:
                self._known, self._known_paths = {}, len(of.paths)
            self._known[key] = of.paths, of.names, rows
        return self._known[key][2]


class PathSums:
    """The sum of the call paths of readings that have the same service and tick length.

    Attributes:
        tables: the tables of the sum, which a later sum of the same service may use again.
    """

    def __init__(self, first: Reading, tables: PathTables | None = None) -> None:
        self._first = first
        # Do not use tables again that are mostly full of paths that no reading has any more.
        again = tables is not None and len(tables.paths) <= _TIMES_LARGER * len(first.paths)
        self.tables = tables if tables is not None and again else PathTables(first)
        self._summaries, self._latency = _reader.Summaries(), _reader.Summaries()
        self.add(first)

    def add(self, other: Reading) -> None:
        """Add the call paths of another reading."""
        rows = self.tables.rows(other)
        self._summaries.merge(other.summaries, rows[: len(other.summaries) // _reader.SUMMARY_BYTES])
        self._latency.merge(other.latency, rows[: len(other.latency) // _reader.SUMMARY_BYTES])

    def reading(self) -> Reading:
        """Return a copy of the first reading that has all call paths and their sums."""
        names, paths = self.tables.names, self.tables.paths
        summaries = self._summaries.tobytes().ljust(len(paths) * _reader.SUMMARY_BYTES, b"\0")
        return replace(self._first, names=names, paths=paths, summaries=summaries, latency=self._latency.tobytes())


def added(one: Reading, other: Reading) -> Reading:
    """Return the sum of two readings that have the same service and tick length. The sum has all paths and one lane.

    Fields about a single process (pid, uuid, file) are those of `one`.
    """
    sums = PathSums(one)
    sums.add(other)
    ended = {"ended": one.process["ended"] & other.process["ended"]}
    return replace(
        sums.reading(),
        sites=[],
        lanes=together(one.lanes + other.lanes),
        process=cast("_reader.ProcessCounters", _sum([one.process, other.process]) | _NO_TABLES | ended),
        deferred={name: _total([count]) for name, count in (Counter(one.deferred) + Counter(other.deferred)).items()},
        odd=_total([one.odd, other.odd]),
        moving=_total([one.moving, other.moving]),
        memory_bytes=0,
    )


def _tables(
    names: list[tuple[str, int] | None], paths: list[CallPath | None], other: Reading
) -> tuple[list[tuple[str, int] | None], list[CallPath | None], array[int]]:
    """Return tables that include the names and paths of a reading.

    Also return the index that each of its paths has in these tables, or -1 if there was no room for the path.
    """
    count = len(other.paths)
    if paths[:count] == other.paths and names[: len(other.names)] == other.names:
        return names, paths, same_rows(count)
    numbers = {name_in(names, number): number for number in reversed(range(len(names)))}
    places = {path: number for number, path in reversed(list(enumerate(paths)))}
    names, paths = list(names), list(paths)

    def number_of(name: int) -> int | None:
        """Return the index that a name of `other` has in the sum; None if there is no room."""
        number = numbers.get(other.name(name), len(names))
        # Also add the category of the name, the category of that category, and so on: a worker may declare any name as
        # a category.
        while (text := other.name(name)) not in numbers and len(names) < _reader.NUMBERS_MAX:
            numbers[text] = len(names)
            entry = other.names[name] if name < len(other.names) else None
            name, following = 0 if entry is None else entry[1], len(names) + 1
            above = numbers.get(other.name(name), following if following < _reader.NUMBERS_MAX else 0) if name else 0
            names.append((text, above))
            if not name:
                break
        return number if number < len(names) else None

    rows = array("i", [-1]) * len(other.paths)
    for number, path in enumerate(other.paths):
        if path is None:
            continue
        above = rows[path.parent] if path.parent >= 0 else -1
        if len(paths) >= _reader.NUMBERS_MAX and other.name(path.name) not in numbers:
            rows[number] = 0 if path.unit == _reader.UNIT_TICKS else -1
            continue
        name = number_of(path.name)
        moved = None if name is None else CallPath(above, name, path.layer, path.unit)
        if moved is not None and moved not in places and len(paths) < _reader.NUMBERS_MAX:
            places[moved] = len(paths)
            paths.append(moved)
        # A path without room is counted as 'other' if its unit is ticks, as that of 'other' is. Otherwise, it gets -1.
        rows[number] = places.get(moved, 0 if path.unit == _reader.UNIT_TICKS else -1)
    return names, paths, rows


@functools.lru_cache(maxsize=64)
def same_rows(count: int) -> array[int]:
    """Return the rows of the paths of a reading that have the same indexes in the sum: 0, 1, 2 and so on.

    The array is shared, and must not be changed.
    """
    return array("i", range(count))


def together(
    lanes: Sequence[tuple[int, _reader.Lane, _reader.Consumer]],
) -> list[tuple[int, _reader.Lane, _reader.Consumer]]:
    """Return the sum of all lanes as one lane, or no lane if there are none."""
    if not lanes:
        return []
    lane, consumer = _sum([lane for _, lane, _ in lanes]), _sum([consumer for _, _, consumer in lanes])
    return [(0, cast("_reader.Lane", lane), _whole(cast("_reader.Consumer", consumer)))]


def _sum(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        name: tuple(map(_total, zip(*(row[name] for row in rows), strict=True)))
        if isinstance(rows[0][name], tuple)
        else _total(row[name] for row in rows)
        for name in rows[0]
    }


def _total(counts: Iterable[int]) -> int:
    """Return the sum, limited to the range of a counter, because a hostile worker's counts may exceed this range."""
    return min(sum(counts), U64_MAX)


def _whole(consumer: _reader.Consumer) -> _reader.Consumer:
    """Return a copy of the consumer line in which the second number of each tail is the complement of the first."""
    span, event = consumer["span"][0], consumer["event"][0]
    return {**consumer, "span": (span, span ^ (2**64 - 1)), "event": (event, event ^ (2**64 - 1))}
