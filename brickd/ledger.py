"""The ledger: the account of everything attempted, where it is now or why it is not.

Owns: how a segment's counters become the account of DESIGN, and how accounts are added up. Must not know: files,
screens. Invariants: every term comes from a stored counter; begun = summarized + rejected + open + abandoned +
unpublished for every worker and for every sum of workers, and started = measured + bounded + pending + orphaned; what a
dead process had open is abandoned; of the marks that were wanted, those that were not refused are in their summaries.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from brickd.reading import Reading
from brickd.records import kind_name

SPANS = ("begun", "summarized", "rejected", "open", "abandoned", "unpublished", "nested", "no_lane", "unmatched")
REJECTED = ("clock", "room")
DROPPED = ("full", "memory")
MARKS = ("wanted", "refused")
DEFERRED = ("started", "measured", "bounded", "pending", "orphaned", "late", "unmatched", "refused")


@dataclass(slots=True)
class Ledger:
    """One worker's account, or the sum of many."""

    spans: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    details: Counter[str] = field(default_factory=Counter)
    details_dropped: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    events_dropped: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    deferred: Counter[str] = field(default_factory=Counter)

    def add(self, other: Ledger) -> None:
        """Take another account into this one."""
        for name in self.__slots__:
            getattr(self, name).update(getattr(other, name))

    def lost(self) -> int:
        """How many spans, details and events were wanted and are nowhere."""
        spans = self.rejected.total() + self.spans["no_lane"] + self.spans["nested"]
        dropped = self.details_dropped.total() + self.events_dropped.total()
        return spans + dropped + self.details["lost_with_daemon"]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "spans": {term: self.spans[term] for term in SPANS},
            "details": _stream(self.details, self.details_dropped),
            "events": _stream(self.events, self.events_dropped),
            "marks": {term: self.marks[term] for term in MARKS},
            "deferred": {term: self.deferred[term] for term in DEFERRED},
        }


def _stream(terms: Counter[str], dropped: Counter[str]) -> dict[str, Any]:
    return {
        "consumed": terms["consumed"],
        "dropped": {reason: n for reason, n in sorted(dropped.items()) if n},
        "in_ring": terms["in_ring"],
        "lost_with_daemon": terms["lost_with_daemon"],
    }


def _consumed(tail: tuple[int, int], head: int) -> int:
    """How far a ring was consumed: a pair that cannot be means that nobody has."""
    position, complement = tail
    return _of(position, head) if position ^ complement == 2**64 - 1 else 0


def _of(part: int, whole: int) -> int:
    """A part of a whole; one that cannot be is none: the consumer's words lie where anybody may write."""
    return part if part <= whole else 0


def ledger_of(reading: Reading) -> Ledger:
    """A worker's account. In a live one a span may be on its way from one counter to the next: it is unpublished."""
    ledger = Ledger()
    spans = ledger.spans
    for _, lane, consumer in reading.lanes:
        rejected = sum(lane["rejected"])
        on_the_way = lane["begun"] - lane["summarized"] - rejected - lane["open"] - lane["abandoned"]
        spans["begun"] += lane["begun"]
        spans["summarized"] += lane["summarized"]
        spans["rejected"] += rejected
        spans["open" if reading.alive else "abandoned"] += lane["open"]
        spans["abandoned"] += lane["abandoned"]
        spans["unpublished"] += on_the_way
        spans["nested"] += lane["nested"]
        spans["unmatched"] += lane["unmatched"]
        ledger.rejected.update(dict(zip(REJECTED, lane["rejected"], strict=True)))
        consumed = _consumed(consumer["span"], lane["span_head"])
        spans_lost, events_read = (
            _of(consumer["spans_lost"], consumed),
            _of(consumer["events_read"], lane["event_records"]),
        )
        ledger.details["consumed"] += consumed - spans_lost
        ledger.details["in_ring"] += lane["span_head"] - consumed
        ledger.details["lost_with_daemon"] += spans_lost
        ledger.details_dropped.update(dict(zip(DROPPED, lane["span_dropped"], strict=True)))
        ledger.events["consumed"] += events_read
        ledger.events["in_ring"] += lane["event_records"] - events_read
        ledger.events_dropped.update({kind_name(kind): n for kind, n in enumerate(lane["event_dropped"]) if n})
        ledger.marks["wanted"] += lane["marks"]
        ledger.marks["refused"] += lane["marks_refused"]
    spans["no_lane"] += reading.process["no_lane"]
    ledger.deferred.update(reading.deferred)
    return ledger
