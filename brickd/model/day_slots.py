"""A slot of the last day: the work of each service and of each worker between two snapshots.

The work of a service is stored as sums of readings. Owns: the content of a slot, and how slots are added up. Must not
know: the stored format of a slot, when a slot begins. Invariants: the work of a slot was recorded within the time of
the slot; a sum has the counts and times of all its slots.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from brickd.base.json_values import U64_MAX
from brickd.model.retained_workers import RetainedTotals
from brickd.model.summary_fold import SummaryFold
from brickd.model.survey_snapshot import Snapshot
from brickd.model.windows import since
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.reading_sums import PathSums, PathTables
from brickd.shm.segment_copy import Reading

WORKERS_MAX = 256  # further workers of a slot are one row without a name
BUCKETS = 128  # of a summary
_TICKS_ALIKE = 1e-3  # the relative difference of two measured lengths of a tick of one clock

WorkerName = tuple[str, str]  # a service, and the name of a worker


class WorkerWork(NamedTuple):
    """The work of one worker: how many spans it has in each bucket, in ticks of `tick_ns`, and how much it lost."""

    spans: int
    self_ns: float
    lost: int
    tick_ns: float
    histogram: tuple[int, ...]

    def and_(self, other: WorkerWork) -> WorkerWork:
        """Return the sum of the two. If their clocks differ, only the histogram of the one with more spans is kept."""
        same = math.isclose(self.tick_ns, other.tick_ns, rel_tol=_TICKS_ALIKE)
        most = self if self.spans >= other.spans else other
        return WorkerWork(
            min(self.spans + other.spans, U64_MAX),
            self.self_ns + other.self_ns,
            min(self.lost + other.lost, U64_MAX),
            most.tick_ns,
            limited(map(operator.add, self.histogram, other.histogram)) if same else most.histogram,
        )


def limited(counts: Iterable[int]) -> tuple[int, ...]:
    """Return the counts, limited to the largest storable number, because a hostile worker's counts may be larger."""
    found = tuple(counts)
    return found if max(found) <= U64_MAX else tuple(min(count, U64_MAX) for count in found)


@dataclass(frozen=True, slots=True)
class DaySlot:
    """A slot.

    Attributes:
        began_ns, ended_ns: when it began and ended, since 1970.
        totals: the sums, keyed by service and clock.
        workers: the work of each worker, keyed by service and name; empty if it was not decoded.
        lost: what each worker lost, for all workers that recorded or lost anything.
        folded: the number of call paths that were added to `other`.
        longest_ns: the length of the slot; for a sum of slots, the length of the longest one.
        covered_ns: the sum of the lengths of its slots, measured by a clock that is never set.
    """

    began_ns: int
    ended_ns: int
    totals: Mapping[str, RetainedTotals] = field(default_factory=dict)
    workers: Mapping[WorkerName, WorkerWork] = field(default_factory=dict)
    lost: Mapping[WorkerName, int] = field(default_factory=dict)
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
        return DaySlot(
            min(self.began_ns, later.began_ns),
            max(self.ended_ns, later.ended_ns),
            totals,
            workers,
            {name: self.lost.get(name, 0) + later.lost.get(name, 0) for name in self.lost.keys() | later.lost.keys()},
            max(self.folded, later.folded),
            max(self.longest_ns, later.longest_ns),
            self.covered_ns + later.covered_ns,
        )


@dataclass(slots=True)
class SlotTables:
    """The tables that slots of the same workers share: they map each worker's call paths to the paths of a sum."""

    fold: SummaryFold[None] = field(default_factory=SummaryFold)
    paths: dict[str, PathTables] = field(default_factory=dict)


def slot(before: Snapshot, after: Snapshot, tables: SlotTables | None = None) -> DaySlot:
    """Return the work of all workers between two snapshots.

    `tables` are the tables of earlier slots, if there are any.
    """
    tables = tables or SlotTables()
    lost_before = {worker.reading.uuid: worker.ledger.lost() for worker in before.survey.workers}
    lost_before |= {uuid[:16]: lost for uuid, lost in lost_before.items()}
    sums: dict[str, PathSums] = {}
    counts: Counter[str] = Counter()
    workers: dict[WorkerName, WorkerWork] = {}
    for worker in since((before,), after.survey.workers):
        work = _work(worker, max(0, worker.ledger.lost() - _lost(worker, lost_before)), tables.fold)
        if any(counts_of(worker.reading)):
            # Each reading measures the length of a tick again, with a tiny error.
            key = f"{worker.service}/{worker.reading.clock}"
            counts[key] += worker.together
            if key in sums:
                sums[key].add(worker.reading)
            else:
                sums[key] = PathSums(worker.reading, tables.paths.get(key))
        if work.spans or work.lost:
            name = (worker.service, worker.name)
            name = name if name in workers or len(workers) < WORKERS_MAX else ("", "")
            workers[name] = workers[name].and_(work) if name in workers else work
    tables.paths = {key: each.tables for key, each in sums.items()}
    readings = {key: _bare(each.reading()) for key, each in sums.items()}
    totals = {key: RetainedTotals(each.service, each, counts[key]) for key, each in readings.items()}
    ended_ns = max(before.at_ns, after.at_ns)
    covered_ns = after.now_ns - before.now_ns
    lost = {name: work.lost for name, work in workers.items()}
    return DaySlot(before.at_ns, ended_ns, totals, workers, lost, 0, covered_ns, covered_ns)


def _lost(worker: Worker, before: Mapping[str, int]) -> int:
    """Return how much had been lost at the earlier snapshot.

    This is the loss of the worker or of its lost segment, and of the workers that were merged into it.
    """
    origins = worker.added if worker.together > 1 else ()
    took = worker.reading.process["took"]
    known = before.get(worker.reading.uuid, before.get(took.to_bytes(8, "little").hex(), 0) if took else 0)
    return known + sum(before.get(origin.uuid, 0) for origin in origins)


def counts_of(reading: Reading) -> memoryview:
    """The counts of a reading's call paths."""
    return memoryview(reading.summaries).cast("B").cast("Q")[:: _reader.SUMMARY_BYTES // 8]


def _work(worker: Worker, lost: int, fold: SummaryFold[None]) -> WorkerWork:
    own, tick_ns = fold.only(worker.reading, lambda *_: None), worker.reading.tick_ns
    spans, self_ns, _ = own.sums()[0] if own.sums() else (0, 0.0, 0)
    histogram = limited(own.histogram(0)) if spans else (0,) * BUCKETS
    return WorkerWork(min(spans, U64_MAX), self_ns, min(lost, U64_MAX), tick_ns, histogram)


def _bare(reading: Reading) -> Reading:
    """Return a sum with only its call paths and times: everything else describes one worker over its whole life."""
    header = {**reading.header, "index": -1, "coordinates": b""}
    process = {name: (0,) * len(value) if isinstance(value, tuple) else 0 for name, value in reading.process.items()}
    return replace(
        reading,
        header=cast("_reader.Header", header),
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


def total(slots: Iterable[DaySlot]) -> DaySlot | None:
    """Add up slots; return None if there are none."""
    found: DaySlot | None = None
    for each in slots:
        found = each if found is None else found.and_(each)
    return found


# ---- workers of a sum


def as_workers(of: DaySlot) -> list[Worker]:
    """Return the sums as workers, one for each service and clock."""
    return [
        Worker(each.name, each.reading, ledger_of(each.reading), max(2, each.workers)) for each in of.totals.values()
    ]
