"""A slot of the last day: what each service did between two snapshots, as sums of readings, and what each worker did.

Owns: the content of a slot, its stored form, and how slots are added up. Must not know: files, when a slot begins.
Invariants: the work of a slot was recorded in its time; a sum of slots has the counts and times of all of them; call
paths without room are added to the path `other`, and their number is kept.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from brickd.base.json_values import U64_MAX, composed, document, listed, number, plain, unicode, validating, whole
from brickd.model.retained_workers import RetainedTotals
from brickd.model.summary_fold import SummaryFold
from brickd.model.survey_snapshot import Snapshot
from brickd.model.windows import since
from brickd.model.workers import Worker
from brickd.shm import _reader, segment_codec
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import CallPath, Reading

WORKERS_MAX = 256  # further workers of a slot are one row without a name
_KEPT_PATHS = (4096, 1024, 256, 64, 0)  # tried in this order, until a slot fits
_BODY_MAX = 1 << 24
_LEVEL = 1  # of compression
_BUCKETS = 128  # of a summary
_TICKS_ALIKE = 1e-3  # the relative difference of two measured lengths of a tick of one clock


class WorkerWork(NamedTuple):
    """The work of one worker: its spans by bucket, in ticks of `tick_ns`, and what it lost."""

    spans: int
    self_ns: float
    lost: int
    tick_ns: float
    histogram: tuple[int, ...]

    def and_(self, other: WorkerWork) -> WorkerWork:
        """The sum of both; of two clocks, the histogram of the one with more spans."""
        same = math.isclose(self.tick_ns, other.tick_ns, rel_tol=_TICKS_ALIKE)
        most = self if self.spans >= other.spans else other
        added = tuple(map(_total, zip(self.histogram, other.histogram, strict=True))) if same else most.histogram
        return WorkerWork(
            _total((self.spans, other.spans)),
            self.self_ns + other.self_ns,
            _total((self.lost, other.lost)),
            most.tick_ns,
            added,
        )


def _total(counts: Iterable[int]) -> int:
    """Return the sum, limited to what a stored number may be: the counts of a hostile worker may exceed it."""
    return min(sum(counts), U64_MAX)


@dataclass(frozen=True, slots=True)
class DaySlot:
    """A slot.

    Attributes:
        began_ns, ended_ns: its time, since 1970.
        totals: the sums, by service and clock.
        workers: the work of each worker, by service and name.
        folded: the number of call paths that were added to `other`.
        longest_ns: the longest slot of a sum, or 0.
        covered_ns: the sum of the lengths of its slots.
    """

    began_ns: int
    ended_ns: int
    totals: Mapping[str, RetainedTotals] = field(default_factory=dict)
    workers: Mapping[tuple[str, str], WorkerWork] = field(default_factory=dict)
    folded: int = 0
    longest_ns: int = 0
    covered_ns: int = 0

    def and_(self, later: DaySlot) -> DaySlot:
        """The sum of this slot and a later one."""
        totals, workers = dict(self.totals), dict(self.workers)
        for key, each in later.totals.items():
            totals[key] = totals[key].and_(each) if key in totals else each
        for name, work in later.workers.items():
            known = name if name in workers or len(workers) < WORKERS_MAX else ("", "")
            workers[known] = workers[known].and_(work) if known in workers else work
        longest_ns = max(self.longest_ns, later.longest_ns)
        folded, covered_ns = max(self.folded, later.folded), self.covered_ns + later.covered_ns
        return DaySlot(self.began_ns, later.ended_ns, totals, workers, folded, longest_ns, covered_ns)


def slot(before: Snapshot, after: Snapshot) -> DaySlot:
    """Return the work of all workers between two snapshots."""
    lost_before = {worker.reading.uuid: worker.ledger.lost() for worker in before.survey.workers}
    lost_before |= {uuid[:16]: lost for uuid, lost in lost_before.items()}
    fold: SummaryFold[None] = SummaryFold()
    totals: dict[str, RetainedTotals] = {}
    workers: dict[tuple[str, str], WorkerWork] = {}
    for worker in since((before,), after.survey.workers):
        work = _work(worker, max(0, worker.ledger.lost() - _lost(worker, lost_before)), fold)
        if any(_counts(worker.reading)):
            own = RetainedTotals(worker.service, _bare(worker.reading), worker.together)
            # Each reading measures the length of a tick anew, with a tiny error.
            key = f"{worker.service}/{worker.reading.clock}"
            totals[key] = totals[key].and_(own) if key in totals else own
        if work.spans or work.lost:
            name = (worker.service, worker.name) if len(workers) < WORKERS_MAX else ("", "")
            workers[name] = workers[name].and_(work) if name in workers else work
    ended_ns = max(before.at_ns, after.at_ns)
    length_ns = ended_ns - before.at_ns
    return DaySlot(before.at_ns, ended_ns, totals, workers, 0, length_ns, length_ns)


def _lost(worker: Worker, before: Mapping[str, int]) -> int:
    """Return what the worker, those that were added to it, or its lost segment had lost before."""
    origins = worker.added if worker.together > 1 else ()
    took = worker.reading.process["took"]
    known = before.get(worker.reading.uuid, before.get(took.to_bytes(8, "little").hex(), 0) if took else 0)
    return known + sum(before.get(origin.uuid, 0) for origin in origins)


def _counts(reading: Reading) -> memoryview:
    """The counts of a reading's call paths."""
    return memoryview(bytes(reading.summaries)).cast("Q")[:: _reader.SUMMARY_BYTES // 8]


def _work(worker: Worker, lost: int, fold: SummaryFold[None]) -> WorkerWork:
    """Return the work of one worker; `fold` is of all workers, because most have the same call paths."""
    own, tick_ns = fold.only(worker.reading, lambda *_: None), worker.reading.tick_ns
    spans, self_ns, _ = own.sums()[0] if own.sums() else (0, 0.0, 0)
    histogram = tuple(min(count, U64_MAX) for count in own.histogram(0)) if spans else (0,) * _BUCKETS
    return WorkerWork(min(spans, U64_MAX), self_ns, min(lost, U64_MAX), tick_ns, histogram)


def _bare(reading: Reading) -> Reading:
    """Return the reading with only its call paths and times: all else is of the worker's whole life."""
    process = {name: (0,) * len(value) if isinstance(value, tuple) else 0 for name, value in reading.process.items()}
    return replace(
        reading,
        process=cast("_reader.ProcessCounters", process),
        lanes=[],
        sites=[],
        deferred={},
        odd=0,
        moving=0,
        memory_bytes=0,
        pid=None,
        now_ticks=None,
    )


# ---- workers of a sum


def as_workers(of: DaySlot) -> list[Worker]:
    """Return the sums as workers, one for each service and clock."""
    return [
        Worker(each.name, each.reading, ledger_of(each.reading), max(2, each.workers)) for each in of.totals.values()
    ]


# ---- its stored form


def encode(of: DaySlot, most: int) -> bytes:
    """Encode a slot in at most `most` bytes, with fewer call paths if necessary, or else without its content."""
    for kept in _KEPT_PATHS:
        totals, folded = dict[str, RetainedTotals](), of.folded
        for key, each in of.totals.items():
            reading, lost = _folded(each.reading, kept)
            totals[key] = RetainedTotals(each.name, reading, each.workers)
            folded += lost
        body = _body(replace(of, totals=totals, folded=folded))
        if len(body) <= most:
            return body
    paths = sum(len(each.reading.paths) for each in of.totals.values())
    return _body(replace(of, totals={}, workers={}, folded=of.folded + paths))


def _body(of: DaySlot) -> bytes:
    return zlib.compress(_text(of).encode(), _LEVEL)


def _text(of: DaySlot) -> str:
    workers = [
        [service, name, work.spans, work.self_ns, work.lost, work.tick_ns, _sparse(work.histogram)]
        for (service, name), work in of.workers.items()
    ]
    tables = segment_codec.SharedTables.over([each.reading for each in of.totals.values()]).texts()
    return composed(
        {
            "totals": composed({key: each.text() for key, each in of.totals.items()}),
            "workers": plain(workers),
            "folded": plain(of.folded),
            **tables,
        }
    )


def decode(body: bytes, began_ns: int, ended_ns: int) -> DaySlot:
    """Decode the output of `encode`. ValueError: it is invalid."""
    with validating():
        text = zlib.decompressobj().decompress(body, _BODY_MAX)
        found = document(text, _BODY_MAX)
        tables = segment_codec.SharedTables.of(found)
        totals = {
            unicode(key): RetainedTotals(unicode(name), segment_codec.reading(reading, tables), whole(workers, 1))
            for key, (name, reading, workers) in found["totals"].items()
        }
        workers = dict(map(_worker, listed(found["workers"], WORKERS_MAX + 1)))
        length_ns = ended_ns - began_ns
        return DaySlot(began_ns, ended_ns, totals, workers, whole(found["folded"]), length_ns, length_ns)


def _worker(row: Any) -> tuple[tuple[str, str], WorkerWork]:
    service, name, count, self_ns, lost, tick_ns, histogram = row
    work = WorkerWork(whole(count), number(self_ns), whole(lost), number(tick_ns), _dense(histogram))
    return (unicode(service), unicode(name)), work


def _sparse(histogram: Iterable[int]) -> list[int]:
    """The buckets that are not empty, and their counts, one after the other."""
    return [part for bucket, count in enumerate(histogram) if count for part in (bucket, count)]


def _dense(sparse: Any) -> tuple[int, ...]:
    histogram = [0] * _BUCKETS
    for bucket, count in zip(sparse[::2], sparse[1::2], strict=True):
        histogram[whole(bucket, most=_BUCKETS - 1)] = whole(count)
    return tuple(histogram)


# ---- fewer paths


def _folded(reading: Reading, most: int) -> tuple[Reading, int]:
    """Return the reading with its recorded paths, about `most` of them with the most time; and how many it lost.

    Times of the other paths are added to path 0, `other`, if they are in ticks. Other units have no such path.
    """
    counts = _counts(reading)
    totals = memoryview(bytes(reading.summaries)).cast("Q")[1 :: _reader.SUMMARY_BYTES // 8]
    deferred = {path[:3]: n for n, path in enumerate(reading.paths) if path and path.unit == _reader.UNIT_DEFERRED}
    paths = list(enumerate(reading.paths[: len(counts)]))
    recorded = [(path.unit == _reader.UNIT_TICKS, -totals[n], n) for n, path in paths if path is not None and counts[n]]
    kept = {0}
    for *_, place in sorted(recorded)[:most]:
        above = place
        while above >= 0 and above not in kept and (path := reading.paths[above]) is not None:
            kept.add(above)
            if path.unit == _reader.UNIT_BOUND and path[:3] in deferred:
                kept.add(deferred[path[:3]])  # a bound needs the path of what it bounds
            above = path.parent
    rows = array("i", (n if n in kept else _place(path) for n, path in enumerate(reading.paths)))
    summaries = _reader.Summaries()
    summaries.merge(reading.summaries, rows[: len(counts)])
    few = replace(
        reading,
        paths=[path if n in kept else None for n, path in enumerate(reading.paths)],
        summaries=summaries.tobytes(),
    )
    nothing = replace(
        reading, names=reading.names[:1], paths=reading.paths[:1], summaries=bytes(_reader.SUMMARY_BYTES), latency=b""
    )
    return segment_codec.added(nothing, few), sum(n not in kept for *_, n in recorded)


def _place(path: CallPath | None) -> int:
    return 0 if path is not None and path.unit == _reader.UNIT_TICKS else -1
