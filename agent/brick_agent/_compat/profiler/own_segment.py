"""The totals of this process since a start time, read from its segment without a daemon.

Owns: the start time, the subtraction, the conversion of ticks to nanoseconds. Must not know: the recording, bricks and
tiles. Invariants: reading does not change the segment, so other readers still see all data; a shortest or longest time
is either measured or marked as a bound; entries that change during the reading are included and counted as torn.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass

from brick_agent._compat.profiler.stats import BrickStats
from brick_agent._core import _totals

_TICKS, _GIVEN = 0, 1  # enum brick_unit
_OCTAVE, _QUARTERS, _LAST = 5, 4, 127  # bucket n begins at 2^(5 + n/4) ticks; the last bucket has no end

# The fields: path, parent, name, category, layer, unit, count, total, child, squares, min, max, elements, bytes, flops,
# histogram, again
_Entry = tuple[
    int, int, str | None, str | None, int, int, int, int, int, float, int, int, int, int, float, bytes, int
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Path:
    """The totals of one path of the call tree."""

    parent: int  # the number of the parent path; -1: no parent
    layer: int  # -1: no layer
    unit: int  # enum brick_unit: the unit of its time, or the kind of mark
    declared: str | None  # the category that was declared for its name
    stats: BrickStats  # without a category
    again_ns: int = 0  # the part of the total that is counted twice, because the path ran inside itself


@dataclass(frozen=True, slots=True)
class OwnTotals:
    """The totals, and the counts of missing data."""

    paths: dict[int, Path]  # by number
    torn: int  # the number of entries whose fields may differ by one span
    unread: int  # the number of spans whose ticks have an unknown length
    ledger: dict[str, int]  # the number of spans that are in no total, by reason


class Recorded:
    """The totals since the last begin(); with `marks`, also launches, transfers and nodes."""

    def __init__(self, *, marks: bool = False) -> None:
        self._marks = marks
        self.begin()

    def begin(self) -> None:
        """Start counting now."""
        _, _, entries, self._ledger = _totals(self._marks)
        self._process = os.getpid()  # a forked child starts with a new segment
        self._then: dict[int, _Entry] = {entry[0]: entry for entry in entries}

    def read(self) -> OwnTotals:
        """Read the totals since begin()."""
        if self._process != os.getpid():
            self._process, self._then, self._ledger = os.getpid(), {}, {}
        tick_ns, torn, entries, ledger = _totals(self._marks)
        paths, unread = {}, 0
        for entry in entries:
            length = tick_ns if entry[5] == _TICKS else 1.0
            then = self._then.get(entry[0])
            stats = _since(entry, then, length)
            if stats is None:
                unread += entry[6]
                stats = BrickStats(entry[2] or "other")
            again = entry[16] - (then[16] if then is not None and then[16] <= entry[16] else 0)
            paths[entry[0]] = Path(entry[1], entry[4], entry[5], entry[3], stats, round(again * length))
        for path in paths.values():
            if path.unit == _GIVEN and path.stats.count:
                _take_off(path, paths)
        lost = {what: n - self._ledger.get(what, 0) for what, n in ledger.items() if what != "open"}
        return OwnTotals(paths, torn, unread, {"open": ledger.get("open", 0), **lost})


def _take_off(given: Path, paths: dict[int, Path]) -> None:
    """Subtract from a span's self time a time that was given inside the span."""
    around = paths.get(given.parent)
    while around is not None and around.unit not in (_TICKS, _GIVEN):
        around = paths.get(around.parent)
    if around is not None:
        around.stats.self_ns = max(0, around.stats.self_ns - given.stats.total_ns)


def _since(now: _Entry, then: _Entry | None, tick_ns: float) -> BrickStats | None:
    _, _, name, _, _, _, count, total, child, squares, least, most, elements, size, flops, histogram, _ = now
    if count and not tick_ns:
        return None
    stats = BrickStats(name or "other")
    buckets = array("Q", histogram)
    if then is not None and then[6] and then[6] <= count:
        buckets = array("Q", (n - before for n, before in zip(buckets, array("Q", then[15]), strict=True)))
        if least >= then[10]:  # then no shorter time was measured since the start
            least, stats.min_exact = max(least, _start(next((n for n, of in enumerate(buckets) if of), 0))), False
        if most <= then[11]:
            last = next((n for n in range(_LAST, -1, -1) if buckets[n]), 0)
            most, stats.max_exact = (most if last == _LAST else min(most, _start(last + 1))), False
        count, total, child, squares = count - then[6], total - then[7], child - then[8], squares - then[9]
        elements, size, flops = elements - then[12], size - then[13], flops - then[14]
    if not count:
        return BrickStats(name or "other")
    stats.count, stats.total_ns = count, round(total * tick_ns)
    stats.self_ns = stats.total_ns - min(round(child * tick_ns), stats.total_ns)
    # Round in the same way as for the total, so that rounding causes no variance.
    scale = stats.total_ns / total if total else tick_ns
    stats.squares = max(squares, 0.0) * scale * scale
    stats.min_ns, stats.max_ns = round(least * tick_ns), round(most * tick_ns)
    if count == 1:
        stats.min_ns = stats.max_ns = stats.total_ns
        stats.min_exact = stats.max_exact = True
    stats.total_elements, stats.total_bytes, stats.total_flops = elements, size, max(flops, 0.0)
    stats.buckets = {_middle(n) * tick_ns: of for n, of in enumerate(buckets) if of}
    return stats


def _start(bucket: int) -> int:
    return int(2 ** (_OCTAVE + bucket / _QUARTERS)) if bucket else 0


def _middle(bucket: int) -> float:
    return 2 ** (_OCTAVE + (bucket + 0.5) / _QUARTERS) if bucket else float(2 ** (_OCTAVE - 1))
