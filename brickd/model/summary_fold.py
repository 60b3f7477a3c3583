"""Adds up the summaries of many workers, keyed as the caller wants: by brick or by node of a tree.

Owns: the row to which each path belongs, and how time is assigned to rows. Must not know: files, workers, the meaning
of a key. Invariants: The self times add up to the recorded time. In the recorded time, each moment is counted once. In
the total of a row, a moment counts once, even if a span of the row is inside another span of the same row. The order of
readings changes nothing. Marks have no time, and have rows only if the caller requests them.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from brickd.model.usual_calls import usual_mean
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading

Key = TypeVar("Key", bound=Hashable)

_KNOWN_PATHS_MAX = 1 << 18  # how many paths have kept rows, which also keep the tables of dead workers in memory
_LEAF = 0.9  # above this share of self time, the histogram of total times is also used for self times


class PathRows(NamedTuple):
    """For each path, its row (-1: none), the nearest path above it that has times, and the `_reader.PART_*` flags."""

    rows: array[int]
    parents: array[int]
    flags: bytes


class Sums(NamedTuple):
    """The sums of a reading under one key; `usual_ns` is the mean self time of usual calls."""

    spans: int
    self_ns: float
    elements: int
    usual_ns: float | None = None


class SummaryFold(Generic[Key]):
    """The totals of every key. A row is identified by its index in `keys`.

    With `marks`, marks also have rows, which have counts and add nothing to other rows. Without `marks`, a span below a
    mark counts as if it were directly below the span around that mark.
    """

    def __init__(self, *, marks: bool = False) -> None:
        self._marks = marks
        self.keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        self._fold = _reader.Fold()
        self._like: tuple[object, ...] = ()
        self._known: dict[Hashable, tuple[tuple[object, ...], PathRows]] = {}
        self._known_paths = 0
        self._places: PathRows

    def _new_places(self, reading: Reading, key_of: Callable[[CallPath, int], Key]) -> PathRows:
        count = len(reading.paths)
        rows, parents, flags = array("i", [-1]) * count, array("i", [-1]) * count, bytearray(count)
        spans = array("i", [-1]) * count  # for each path, the path itself or the nearest path above it that is a span
        holds = bytearray(count)  # for each path, whether a span directly below it counts
        open_rows: Counter[int] = Counter()  # the rows of the paths from the root to the current one
        below: list[list[int]] = [[] for _ in range(count)]
        to_visit: list[int] = []
        for number in reversed(range(count)):
            path = reading.paths[number]
            if path is not None:
                (to_visit if path.parent < 0 else below[path.parent]).append(number)
        while to_visit:
            number = to_visit.pop()
            if number < 0:  # the subtree of the path was visited
                open_rows[rows[~number]] -= 1
                continue
            path = reading.paths[number]
            if path is None:
                continue
            above = path.parent
            if above >= 0 and not path.marks and not holds[above]:
                to_visit += below[number]  # spans below a mark have no time
                continue
            span = spans[above] if above >= 0 else -1
            spans[number] = span if path.marks else number
            holds[number] = path.holds_spans and (above < 0 or holds[above])
            if path.marks and (
                not self._marks or path.unit == _reader.UNIT_ROWS
            ):  # paths of these kinds are not in the call tree
                to_visit += below[number] if path.holds_spans else ()
                continue
            around = above if self._marks else span
            key = key_of(path, rows[around] if around >= 0 else -1)
            row = rows[number] = self._numbers.setdefault(key, len(self.keys))
            if row == len(self.keys):
                self.keys.append(key)
            if path.marks:
                flags[number] = _reader.PART_OUTER | _reader.PART_NS  # times that the host reports are in nanoseconds
                to_visit += below[number]
                continue
            parents[number] = span
            flags[number] = (0 if open_rows[row] else _reader.PART_OUTER) | (
                _reader.PART_NS if path.unit != _reader.UNIT_TICKS else 0
            )
            open_rows[row] += 1
            to_visit.append(~number)
            to_visit += below[number]
        return PathRows(rows, parents, bytes(flags))

    def add(
        self, reading: Reading, key_of: Callable[[CallPath, int], Key], group: Hashable = None, whose: int = 0
    ) -> None:
        """Add the totals of a reading.

        Args:
            reading: the reading.
            key_of: returns the key of a path, from the path and the row of its parent (-1 for a root).
            group: the part of the keys that is the same for all paths and names.
            whose: the index of this reading, to which a row's `worst` may refer.
        """
        self._fold.add(reading.summaries, *self.rows_of(reading, key_of, group), reading.tick_ns, whose)

    def rows_of(self, reading: Reading, key_of: Callable[[CallPath, int], Key], group: Hashable = None) -> PathRows:
        """Return the rows of a reading's paths, with rows for new keys; the arguments are those of `add`.

        The rows of an earlier reading that has the same paths are reused.
        """
        like = (reading.paths, reading.names, group)
        if like != self._like:
            key = id(reading.paths), id(reading.names), group  # these objects are kept alive in `_known`
            if key not in self._known:
                self._known_paths += len(reading.paths)
                if self._known_paths > _KNOWN_PATHS_MAX:
                    self._known, self._known_paths = {}, len(reading.paths)
                self._known[key] = like, self._new_places(reading, key_of)
            self._like, self._places = self._known[key]
        return self._places

    def row(self, number: int) -> _reader.Row:
        """Return the totals of a row, its worst reading, and the mean of that reading divided by the median of all."""
        return self._fold.row(number)

    def histogram(self, number: int) -> list[int]:
        """Return the number of spans of a row in each bucket, in ticks of the first reading."""
        return self._fold.histogram(number)

    def only(self, reading: Reading, key_of: Callable[[CallPath, int], Key], group: Hashable = None) -> _reader.Fold:
        """Return the rows of one reading, without adding the reading; the arguments are those of `add`."""
        fold = _reader.Fold()
        fold.add(reading.summaries, *self.rows_of(reading, key_of, group), reading.tick_ns)
        return fold

    def alone(
        self,
        reading: Reading,
        key_of: Callable[[CallPath, int], Key],
        group: Hashable = None,
        usual_from_ns: float = math.inf,
    ) -> Iterator[tuple[Key, Sums]]:
        """Yield the sums of every key in one reading, without adding the reading; the arguments are those of `add`.

        The mean of the usual calls is computed only for sums whose self time is at least `usual_from_ns`.
        """
        fold = self.only(reading, key_of, group)
        for number, (key, sums) in enumerate(zip(self.keys, fold.sums(), strict=False)):
            if sums[0]:
                usual_ns = _usual_ns(fold, number, reading.tick_ns) if sums[1] >= usual_from_ns else None
                yield key, Sums(*sums, usual_ns)


def _usual_ns(fold: _reader.Fold, number: int, tick_ns: float) -> float | None:
    """Return the mean self time of the usual calls; None if too much of the time belongs to other spans."""
    row = fold.row(number)
    # The histogram has every span, also those inside a span of the same name, which `total_ns` omits. If only such
    # spans ended in a window, `total_ns` is 0.
    spans_ns = row["mean_ns"] * row["count"]
    if not spans_ns or row["self_ns"] < _LEAF * spans_ns:
        return None
    return usual_mean(fold.histogram(number), spans_ns / tick_ns) * tick_ns * row["self_ns"] / spans_ns
