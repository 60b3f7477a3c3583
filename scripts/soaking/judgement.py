"""The comparison of the workers' accounts with brickd's numbers at the end.

Must not know: how accounts and numbers are made. A `Check` has the value seen and the value expected. If the amount is
exact, the `Check` also has the unexplained part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from brickd.model.brick_totals import bricks
from brickd.model.workers import Worker
from brickd.shm.ledger import Ledger
from soaking.account import Bounds
from soaking.plan import KERNEL, MEASURED_NS


@dataclass(frozen=True)
class Check:
    """A condition that must be true.

    Attributes:
        unexplained: how many records are missing or surplus; 0 if the check does not count records.
    """

    name: str
    seen: str
    wanted: str
    passed: bool
    unexplained: int = 0


def within(name: str, found: int, bounds: Bounds) -> Check:
    """Check that an amount is within bounds."""
    off = bounds.off(found)
    wanted = f"{bounds.low:,}" if bounds.low == bounds.high else f"{bounds.low:,} to {bounds.high:,}"
    return Check(name, f"{found:,}", wanted, not off, off)


def equal(name: str, found: int, wanted: int) -> Check:
    """Check that an amount has exactly this value."""
    return within(name, found, Bounds(wanted, wanted))


@dataclass
class Found:
    """The sums of brickd's numbers over some workers.

    Attributes:
        attempts: the attempts to record span details and events, as the counters in the segments show.
        finalized: the number of finalizes that the daemon read.
        counts: the count of each brick. Bounded times are counted separately.
        measured_ns: the sum of the measured times.
    """

    ledger: Ledger = field(default_factory=Ledger)
    attempts: Counter[str] = field(default_factory=Counter)
    finalized: int = 0
    counts: Counter[tuple[str, bool]] = field(default_factory=Counter)
    measured_ns: float = 0.0

    @classmethod
    def of(cls, workers: Iterable[Worker]) -> Found:
        """Return the sums over some workers."""
        found, workers = cls(), list(workers)
        for worker in workers:
            found.ledger.add(worker.ledger)
            found.finalized += worker.reading.deferred.get("finalized", 0)
            for _, lane, _ in worker.reading.lanes:
                found.attempts.update(details=lane["span_attempts"], events=lane["event_attempts"])
        for brick in bricks(workers):
            found.counts[brick.name, brick.bounded] += brick.row["count"]
            if (brick.name, brick.bounded) == (KERNEL, False):
                found.measured_ns += brick.row["total_ns"]
        return found


def judge(service: str, done: Mapping[str, Bounds], cut_lanes: int, found: Found) -> list[Check]:
    """Check the numbers of a service against the accounts of its workers.

    Args:
        service: the name of the service.
        done: the work that was done, by kind.
        cut_lanes: the number of lanes in which a kill may have interrupted a write. Each of these lanes may lack one
            record.
        found: brickd's numbers of the service, when nothing is left to read.
    """
    ledger, cut = found.ledger, Bounds(0, cut_lanes)
    spans, deferred, dropped = ledger.spans, ledger.deferred, ledger.events_dropped
    recorded = sum(n for (name, _), n in found.counts.items() if name != KERNEL)
    details = ledger.details["consumed"] + ledger.details["lost_with_daemon"] + ledger.details_dropped.total()
    events = ledger.events["consumed"] + dropped.total()
    ordered = done["defer"].plus(done["measured"]).plus(done["finalize"])
    checks = [
        within("spans begun, and those of threads without a lane", spans["begun"] + spans["no_lane"], done["spans"]),
        within("spans begun, less summarized, rejected, open, abandoned", spans["unpublished"], cut),
        within(
            "spans in the bricks' totals, less summarized",
            recorded - spans["summarized"],
            Bounds(0, spans["unpublished"]),
        ),
        equal("spans open after all workers have ended", spans["open"], 0),
        equal("spans rejected, unmatched, or from a signal's handler", _strange(ledger), 0),
        within(
            "span details wanted, less consumed, dropped, lost with a daemon", found.attempts["details"] - details, cut
        ),
        within("events wanted, less consumed and dropped", found.attempts["events"] - events, cut),
        within("events wanted", found.attempts["events"], ordered),
        equal("span details and events left in rings", ledger.details["in_ring"] + ledger.events["in_ring"], 0),
        within(
            "deferred starts, read or dropped",
            deferred["started"] + deferred["refused"] + dropped["defer"],
            done["defer"],
        ),
        within(
            "measurements, read or dropped",
            deferred["measured"] + deferred["unmatched"] + dropped["measured"],
            done["measured"],
        ),
        within("finalizes, read or dropped", found.finalized + dropped["finalize"], done["finalize"]),
        equal(
            "deferred starts, less measured, bounded, orphaned",
            deferred["started"] - deferred["measured"] - deferred["bounded"] - deferred["orphaned"],
            0,
        ),
        equal("measurements in the bricks' totals", found.counts[KERNEL, False], deferred["measured"]),
        equal("bounds in the bricks' totals", found.counts[KERNEL, True], deferred["bounded"]),
        equal("ns measured", round(found.measured_ns), MEASURED_NS * deferred["measured"]),
    ]
    return [Check(f"{service}: {c.name}", c.seen, c.wanted, c.passed, c.unexplained) for c in checks]


def _strange(ledger: Ledger) -> int:
    return ledger.spans["rejected"] + ledger.spans["unmatched"] + ledger.spans["nested"]
