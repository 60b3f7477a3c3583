"""The series of spans: for each service a histogram, for each worker a count and a sum.

Owns: which sums go into which series, and the bounds of the histograms. Must not know: other series, how a page is
sent. Invariants: No count and no sum ever decreases, unless totals are forgotten. Sums are whole numbers of ticks, so
this holds whatever tick length a reading measured, and in whatever order workers die and are merged. The count at a
bound never includes a span that is longer than the bound. The text of a series is made only once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from brickd.metrics.exposition import Exposition, label, series
from brickd.metrics.families import BOUNDS, OTHER_BRICKS, SPANS, WORKER_BOUNDS, WORKER_SPANS, Family
from brickd.model.exported_series import BRICKS_MAX, OTHER, Brick, ExportedSeries
from brickd.model.summary_fold import PathRows, SummaryFold
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading

# The bounds go from 1 microsecond to 10 seconds. Each is about 3 times the one before it, and the last bound is
# infinite.
BOUNDS_NS = (*(part * 10**power for power in range(3, 10) for part in (1, 3)), 10**10)
LES = (*(repr(ns / 1e9) for ns in BOUNDS_NS), "+Inf")

_OCTAVE, _PER_OCTAVE = 5, 4  # the first bucket ends at 2**(5 + 1/4) ticks
_PAGES_PER_FOLD = 64  # a fold remembers every brick of every worker that ever was, so it is made anew at times
# Two places follow the places of the exported bricks: one for all other bricks whose times were measured, and one for
# all other bricks whose times are only upper bounds.
_OTHERS: tuple[Brick, ...] = ((OTHER, False), (OTHER, True))


@lru_cache(maxsize=16)
def bounds_of(tick_ns: float) -> bytes:
    """Return, for each bucket of a summary, the index of the first bound that the bucket's spans do not exceed."""
    ends = [2 ** (_OCTAVE + (bucket + 1) / _PER_OCTAVE) * tick_ns for bucket in range(_reader.BUCKETS - 1)]
    return bytes([*(bisect_left(BOUNDS_NS, end) for end in ends), len(BOUNDS_NS)])


class SpanSeries:
    """The series of all services. Their texts and the places of bricks are kept from one page to the next.

    Attributes:
        exported: the bricks that have their own series, and the tick lengths.
    """

    def __init__(self, exported: ExportedSeries) -> None:
        self.exported = exported
        self._services: dict[str, _Service] = {}

    def write(self, workers: Mapping[str, Sequence[Worker]], shown: Mapping[str, str], into: Exposition) -> None:
        """Add the series of these workers.

        `workers` is keyed by the label of the service; `shown` maps uuids to labels.
        """
        self._services = {name: self._services.get(name) or _Service(name) for name in workers}
        self.exported = self.exported.only(workers)
        measured = defaultdict[str, list[float]](list)
        # The oldest worker has measured the length of its ticks most exactly.
        for worker in sorted((each for of in workers.values() for each in of), key=_began):
            measured[worker.reading.clock].append(worker.reading.tick_ns)
        for clock, ticks in measured.items():
            self.exported = self.exported.with_ticks(clock, ticks)
        for name, of in workers.items():
            self.exported = self._services[name].write(of, shown, self.exported, into)


def _began(worker: Worker) -> tuple[bool, int]:
    return not worker.reading.alive, worker.reading.header["started_ns"]


class _Rows(NamedTuple):
    """The rows of a worker's paths, and the tables from which they were made."""

    paths: list[CallPath | None]
    names: list[tuple[str, int] | None]
    rows: PathRows


class _Service:
    """The series of one service."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._fold: SummaryFold[Brick] = SummaryFold()
        self._rows: dict[str, _Rows] = {}
        self._pages = 0
        self._bricks: tuple[Brick, ...] = ()
        self._heads: list[tuple[list[str], str, str]] = []
        self._of_workers: dict[str, list[tuple[str, str] | None]] = {}

    def write(
        self, workers: Sequence[Worker], shown: Mapping[str, str], exported: ExportedSeries, into: Exposition
    ) -> ExportedSeries:
        if self._pages % _PAGES_PER_FOLD == 0:
            self._fold, self._rows = SummaryFold(), {}
        self._pages += 1
        self._rows = {worker.reading.uuid: self._rows_of(worker.reading) for worker in workers}
        have = exported.bricks.get(self._name, ())
        if len(have) < BRICKS_MAX and not {*have, *_OTHERS}.issuperset(self._fold.keys):
            exported = exported.with_bricks(self._name, self._by_time(workers, exported))
            have = exported.bricks.get(self._name, ())
        if have != self._bricks:
            self._bricks, self._heads, self._of_workers = have, [], {}
        every = (*have, *_OTHERS)
        numbers = {brick: number for number, brick in enumerate(every)}
        places = array("i", (numbers.get(key, numbers[OTHER, key[1]]) for key in self._fold.keys))
        sums: dict[float, _reader.Durations] = {}
        kept, self._of_workers = self._of_workers, {}
        for worker in workers:
            tick_ns, rows = self._add(worker.reading, exported, places, sums)
            name = shown.get(worker.reading.uuid) if worker.together == 1 else None
            if name is not None:
                self._of_workers[name] = kept.get(name, [])
                self._write_worker(name, tick_ns, rows, every, into)
        self._write(sums, every, into)
        others = len({*self._fold.keys}.difference(every)) if len(have) == BRICKS_MAX else 0
        into.add(OTHER_BRICKS, others, self._name)
        return exported

    def _rows_of(self, reading: Reading) -> _Rows:
        """Return the rows of a worker's paths; these rows seldom change from one page to the next."""
        before = self._rows.get(reading.uuid)
        if before is not None and before.paths == reading.paths and before.names == reading.names:
            return before
        return _Rows(reading.paths, reading.names, self._fold.rows_of(reading, _key_of(reading)))

    def _add(
        self, reading: Reading, exported: ExportedSeries, places: array[int], sums: dict[float, _reader.Durations]
    ) -> tuple[float, list[tuple[int, int, int]]]:
        """Add a reading to the sums of its tick length; return this length, and the sums of the reading alone."""
        tick_ns = exported.tick(reading.clock, reading.tick_ns)
        rows = self._rows[reading.uuid].rows
        into = sums.setdefault(tick_ns, _reader.Durations())
        bounds = bounds_of(tick_ns), bounds_of(1.0)
        return tick_ns, into.add(reading.summaries, rows.rows, rows.flags, places, *bounds)

    def _by_time(self, workers: Iterable[Worker], exported: ExportedSeries) -> list[Brick]:
        """Return the bricks that have spans, sorted by total time. The largest comes first."""
        sums: dict[float, _reader.Durations] = {}
        places = array("i", range(len(self._fold.keys)))
        for worker in workers:
            self._add(worker.reading, exported, places, sums)
        rows = {brick: _total(sums, number) for number, brick in enumerate(self._fold.keys)}
        order = sorted(rows, key=lambda brick: (-rows[brick][1], brick))
        return [brick for brick in order if rows[brick][0]]

    def _write(self, sums: Mapping[float, _reader.Durations], every: Sequence[Brick], into: Exposition) -> None:
        self._heads += [_heads(self._name, *brick) for brick in every[len(self._heads) :]]
        for number, ((_, bounded), (buckets, count_of, sum_of)) in enumerate(zip(every, self._heads, strict=True)):
            count, seconds, within = _total(sums, number)
            if not count and number >= len(every) - len(_OTHERS):
                continue
            lines = into.lines[BOUNDS if bounded else SPANS]
            lines += [f"{head}{below}\n" for head, below in zip(buckets, accumulate(within), strict=False)]
            lines += (f"{sum_of}{seconds!r}\n", f"{count_of}{count}\n")

    def _write_worker(
        self,
        name: str,
        tick_ns: float,
        rows: Sequence[tuple[int, int, int]],
        every: Sequence[Brick],
        into: Exposition,
    ) -> None:
        heads = self._of_workers[name]
        heads += [None] * (len(every) - len(heads))
        measured, bounds = into.lines[WORKER_SPANS], into.lines[WORKER_BOUNDS]
        for number, (count, ticks, ns) in enumerate(rows):
            if (head := heads[number]) is None:
                if not count:
                    continue
                brick, bounded = every[number]
                family = WORKER_BOUNDS if bounded else WORKER_SPANS
                head = heads[number] = _pair(family, service=self._name, worker=name, brick=brick)
            lines = bounds if every[number][1] else measured
            lines.append(f"{head[0]}{_seconds(ticks * tick_ns + ns)!r}\n{head[1]}{count}\n")


def _total(sums: Mapping[float, _reader.Durations], number: int) -> tuple[int, float, Sequence[int]]:
    """Return three sums over all tick lengths for one place: the spans, their seconds, and the spans in each bucket."""
    rows = [(tick_ns, sums[tick_ns].row(number)) for tick_ns in sorted(sums)]
    ns = sum(ticks * tick_ns for tick_ns, (_, ticks, _, _) in rows) + sum(ns for _, (_, _, ns, _) in rows)
    return (
        sum(count for _, (count, _, _, _) in rows),
        _seconds(ns),
        [sum(each) for each in zip(*map(itemgetter(3), map(itemgetter(1), rows)), strict=True)],
    )


def _seconds(ns: float) -> float:
    return ns / 1e9


def _heads(service: str, brick: str, bounded: bool) -> tuple[list[str], str, str]:
    """Return the beginnings of a brick's lines: those of its buckets, its count and its sum."""
    family = BOUNDS if bounded else SPANS
    sum_of, count_of = _pair(family, service=service, brick=brick)
    buckets = [] if bounded else LES
    return [series(f"{family.name}_bucket", service=service, brick=brick, le=le) for le in buckets], count_of, sum_of


def _pair(family: Family, **labels: str) -> tuple[str, str]:
    return series(f"{family.name}_sum", **labels), series(f"{family.name}_count", **labels)


def _key_of(reading: Reading) -> Callable[[CallPath, int], Brick]:
    known: dict[int, str] = {}

    def key_of(path: CallPath, _: int) -> Brick:
        if path.name not in known:
            known[path.name] = label(reading.name(path.name))
        return known[path.name], path.unit == _reader.UNIT_BOUND

    return key_of
