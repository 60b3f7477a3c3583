"""The history of services or workers: a row for each period, from the slots of the last day.

Owns: how slots become rows. Must not know: where slots come from, documents. Invariants: A slot counts in exactly one
row. The counts and self times of all rows add up to the counts and self times of the bricks in the whole time.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from brickd.model.day_slots import DaySlot, WorkerWork, as_workers
from brickd.model.summary_fold import SummaryFold
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading

_AS_SUMMARY = struct.Struct("<QQ32xQ72x128Q")  # the count, total, max and histogram of a summary in the format
_LONGEST = 2**37  # the end of the last bucket, in ticks
_ONE_ROW = array("i", [0]), array("i", [-1]), bytes([_reader.PART_OUTER])


class HistoryRow(NamedTuple):
    """The work in one period.

    Attributes:
        began_ns, ended_ns: when the period began and ended, since 1970.
        covered_ns: the sum of the lengths of its slots.
        workers: the number of workers that recorded or lost anything.
        p50_ns, p99_ns: percentiles of the durations of spans; None without spans.
        lost: what these workers lost.
    """

    began_ns: int
    ended_ns: int
    covered_ns: int
    workers: int
    spans: int
    self_ns: float
    p50_ns: float | None
    p99_ns: float | None
    lost: int


class HistoryOf(NamedTuple):
    """The subject of a history.

    Attributes:
        names: the names of services and workers; empty for all.
        by_worker: whether some of the names are names of workers. If so, the history is made from the work of each
            worker; if not, it is made from the call trees of the services.
        brick: the brick to which the history is limited; None if all bricks are included.
    """

    names: Collection[str] = ()
    by_worker: bool = False
    brick: str | None = None

    def has(self, service: str, worker: str = "") -> bool:
        """Whether the history includes this service, or this worker of it."""
        return not self.names or service in self.names or worker in self.names


@dataclass(slots=True)
class _RowSums:
    """The sums of one row: its number, its bricks or workers, and its time without content."""

    number: int
    fold: SummaryFold[str | None] = field(default_factory=SummaryFold)
    whole: _reader.Fold = field(default_factory=_reader.Fold)
    time: DaySlot | None = None


class DayHistory:
    """The rows of a history, and of those of other bricks, so that slots are read only once.

    Attributes:
        bricks: the names of all bricks in the slots, if the history is of one brick.
        others: the rows of other bricks, if the history is of one brick, too.
        total: the sum of all slots, without their content; None if there are no slots.
    """

    def __init__(self, of: HistoryOf, every_ns: int, others: Iterable[str] = ()) -> None:
        self._of, self._every_ns = of, every_ns
        self.others: dict[str, list[HistoryRow]] = {each: [] for each in others}
        self.bricks: set[str] = set()
        self.total: DaySlot | None = None
        self._sums: _RowSums | None = None

    def rows(self, slots: Iterable[DaySlot]) -> Iterator[HistoryRow]:
        """Yield the rows of slots, which must be in order."""
        for each in slots:
            yield from self.add(each)
        yield from self.end()

    def add(self, slot: DaySlot) -> Iterable[HistoryRow]:
        """Add a slot; return the row before it, if the slot begins another row.

        Two slots are in the same row if the middle of each is in the same interval of `every_ns`.
        """
        number = (slot.began_ns + slot.ended_ns) // 2 // self._every_ns
        ended = self.end() if self._sums is not None and self._sums.number != number else ()
        sums = self._sums = self._sums or _RowSums(number)
        time = self._added(sums.fold, sums.whole, slot)
        sums.time = time if sums.time is None else sums.time.and_(time)
        return ended

    def end(self) -> Iterable[HistoryRow]:
        """Return the row to which slots were added, if there is one."""
        sums, self._sums = self._sums, None
        return () if sums is None or sums.time is None else (self._row(sums.fold, sums.whole, sums.time),)

    def _row(self, fold: SummaryFold[str | None], whole: _reader.Fold, time: DaySlot) -> HistoryRow:
        self.total = time if self.total is None else self.total.and_(time)
        self.bricks |= {key for key in fold.keys if key is not None}
        for brick, rows in self.others.items():
            rows.append(self._row_of(brick, fold, whole, time))
        return self._row_of(self._of.brick, fold, whole, time)

    def _row_of(
        self, brick: str | None, fold: SummaryFold[str | None], whole: _reader.Fold, time: DaySlot
    ) -> HistoryRow:
        number = fold.keys.index(brick) if brick in fold.keys else -1
        row = whole.row(0) if self._of.by_worker else fold.row(number)
        lost = [count for (service, name), count in time.lost.items() if self._of.has(service, name)]
        return HistoryRow(
            time.began_ns,
            time.ended_ns,
            time.covered_ns,
            len(lost),
            row["count"],
            row["self_ns"],
            row["p50_ns"] if row["count"] else None,
            row["p99_ns"] if row["count"] else None,
            sum(lost),
        )

    def _added(self, fold: SummaryFold[str | None], whole: _reader.Fold, slot: DaySlot) -> DaySlot:
        """Add a slot; return it without its content."""
        if self._of.by_worker:
            self._add_workers(whole, slot)
        else:
            self._add_services(fold, slot)
        return replace(slot, totals={}, workers={})

    def _add_services(self, fold: SummaryFold[str | None], slot: DaySlot) -> None:
        for worker in as_workers(slot):
            if self._of.has(worker.reading.service):
                fold.add(worker.reading, self._key_of(worker.reading))

    def _key_of(self, reading: Reading) -> Callable[[CallPath, int], str | None]:
        return lambda path, _: None if self._of.brick is None else reading.name(path.name)

    def _add_workers(self, fold: _reader.Fold, slot: DaySlot) -> None:
        for (service, name), work in slot.workers.items():
            if self._of.has(service, name):
                fold.add(_summary(work), *_ONE_ROW, work.tick_ns)


def _summary(work: WorkerWork) -> bytes:
    """Return the work of a worker as a summary that has one path."""
    return _AS_SUMMARY.pack(work.spans, round(work.self_ns / work.tick_ns), _LONGEST, *work.histogram)
