"""The ledger: counts of everything attempted, recorded or lost.

Owns: how a segment's counters become a ledger, and how ledgers are added up. Must not know: files, screens. Invariants:
Every term is taken from a stored counter. For every worker and every sum of workers, begun = summarized + rejected +
open + abandoned + unpublished, and started = measured + bounded + pending + orphaned. The open spans of a dead process
are abandoned. The summaries contain all attempted marks except the refused ones. `removed` is separate from all other
terms: it counts workers about which nothing else is known, because their segments were removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from brickd.shm.records import kind_name
from brickd.shm.removed_workers import WorkerCounts
from brickd.shm.segment_copy import Reading

SPANS = (
    "begun", "summarized", "rejected", "open", "abandoned", "unpublished", "nested", "no_lane", "unmatched", "removed",
)  # fmt: skip
REJECTED = ("clock", "room")
DROPPED = ("full", "memory")
MARKS = ("wanted", "refused", "removed")
DEFERRED = ("started", "measured", "bounded", "pending", "orphaned", "late", "unmatched", "refused")


@dataclass(slots=True)
class Ledger:
    """One worker's ledger, or the sum of many."""

    spans: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    details: Counter[str] = field(default_factory=Counter)
    details_dropped: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    events_dropped: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    deferred: Counter[str] = field(default_factory=Counter)

    def add(self, other: Ledger) -> None:
        """Add another ledger to this one."""
        for name in self.__slots__:
            getattr(self, name).update(getattr(other, name))

    def add_removed(self, counts: WorkerCounts) -> None:
        """Add the counts of a removed worker. No total may already include these counts."""
        for stream in ("spans", "details", "events", "marks"):
            getattr(self, stream)["removed"] += getattr(counts, stream)

    def counts(self) -> WorkerCounts:
        """Return the counts to write into the record when this worker's segment is removed."""
        return WorkerCounts(
            spans=self.spans["begun"],
            details=_wanted(self.details, self.details_dropped),
            events=_wanted(self.events, self.events_dropped),
            marks=self.marks["wanted"],
            lost=self.lost(),
        )

    def lost_by_kind(self) -> dict[str, int]:
        """How many spans, details and events the worker tried to record but lost."""
        return {
            "spans": self.rejected.total() + self.spans["no_lane"] + self.spans["nested"],
            "details": self.details_dropped.total() + self.details["lost_with_daemon"],
            "events": self.events_dropped.total(),
        }

    def lost(self) -> int:
        """The number of all lost spans, details and events."""
        return sum(self.lost_by_kind().values())

    def document(self) -> dict[str, Any]:
        """The ledger as JSON."""
        return {
            "spans": {term: self.spans[term] for term in SPANS},
            "details": _stream(self.details, self.details_dropped),
            "events": _stream(self.events, self.events_dropped),
            "marks": {term: self.marks[term] for term in MARKS},
            "deferred": {term: self.deferred[term] for term in DEFERRED},
            "lost": self.lost_by_kind(),
        }


def _wanted(terms: Counter[str], dropped: Counter[str]) -> int:
    return terms["consumed"] + terms["in_ring"] + terms["lost_with_daemon"] + dropped.total()


def _stream(terms: Counter[str], dropped: Counter[str]) -> dict[str, Any]:
    return {
        "consumed": terms["consumed"],
        "dropped": {reason: n for reason, n in sorted(dropped.items()) if n},
        "in_ring": terms["in_ring"],
        "lost_with_daemon": terms["lost_with_daemon"],
        "removed": terms["removed"],
    }


def _add(to: Counter[str], counts: Iterable[tuple[str, int]], times: int) -> None:
    for name, count in counts:
        to[name] += times * count


def _consumed(tail: tuple[int, int], head: int) -> int:
    """Return the number of consumed records of a ring; 0 if its two counters contradict each other."""
    position, complement = tail
    return _of(position, head) if position ^ complement == 2**64 - 1 else 0


def _of(part: int, whole: int) -> int:
    """Return the part, or 0 if it is larger than the whole.

    That can happen, because any process of the user may write both numbers.
    """
    return part if part <= whole else 0


def ledger_of(reading: Reading) -> Ledger:
    """Return the ledger of a worker. A begun span that no other counter includes yet counts as unpublished."""
    ledger = Ledger()
    spans = ledger.spans
    for lane, consumer, n in reading.alike():
        rejected = sum(lane["rejected"])
        on_the_way = lane["begun"] - lane["summarized"] - rejected - lane["open"] - lane["abandoned"]
        spans["begun"] += n * lane["begun"]
        spans["summarized"] += n * lane["summarized"]
        spans["rejected"] += n * rejected
        spans["open" if reading.alive else "abandoned"] += n * lane["open"]
        spans["abandoned"] += n * lane["abandoned"]
        spans["unpublished"] += n * on_the_way
        spans["nested"] += n * lane["nested"]
        spans["unmatched"] += n * lane["unmatched"]
        _add(ledger.rejected, zip(REJECTED, lane["rejected"], strict=True), n)
        consumed = _consumed(consumer["span"], lane["span_head"])
        spans_lost, events_read = (
            _of(consumer["spans_lost"], consumed),
            _of(consumer["events_read"], lane["event_records"]),
        )
        ledger.details["consumed"] += n * (consumed - spans_lost)
        ledger.details["in_ring"] += n * (lane["span_head"] - consumed)
        ledger.details["lost_with_daemon"] += n * spans_lost
        _add(ledger.details_dropped, zip(DROPPED, lane["span_dropped"], strict=True), n)
        ledger.events["consumed"] += n * events_read
        ledger.events["in_ring"] += n * (lane["event_records"] - events_read)
        dropped = enumerate(lane["event_dropped"])
        _add(ledger.events_dropped, ((kind_name(kind), count) for kind, count in dropped if count), n)
        ledger.marks["wanted"] += n * lane["marks"]
        ledger.marks["refused"] += n * lane["marks_refused"]
    spans["no_lane"] += reading.process["no_lane"]
    ledger.deferred.update(reading.deferred)
    return ledger
