"""The ledger of made-up counters: each counter is in exactly one term, and no part is larger than its whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dtypes import dtype
from forge import U64, golden, header_value, place, put, seal, segment_of

from brickd.shm import _reader, ledger
from brickd.shm.ledger import Ledger, ledger_of
from brickd.shm.records import kind_name
from brickd.shm.removed_workers import WorkerCounts
from brickd.shm.segment_copy import Reading

LANES = header_value(golden(), "lanes")
# Each counter has its own digit, so that a sum shows which counters it contains.
SPANS = {"summarized": 10, "open": 1_000, "abandoned": 10_000, "nested": 3, "unmatched": 7, "rejected": (100, 200)}
LANE = SPANS | {"opened": 1, "begun": 111_310, "span_head": 60, "span_dropped": (100, 200), "event_records": 60}
TAILS = {"span": (50, U64 - 50), "spans_lost": 20, "events_read": 40}
EVENTS = tuple(1_000 * (kind + 1) for kind in range(16))
DEFERRED = {term: number for number, term in enumerate(ledger.DEFERRED, 1)}


def image(*lanes: dict[str, Any], tails: dict[str, Any] | None = None, **process: int) -> bytes:
    """Return the golden segment with these lanes; all lanes have these tails."""
    made = bytearray(golden("1.7"))
    put(made, "process", {"no_lane": 0} | process)
    for record in ("lane", "consumer"):
        made[place(made, record) : place(made, record, LANES)] = bytes(LANES * dtype(record).itemsize)
    for number, lane in enumerate(lanes):
        put(made, "lane", {"event_dropped": EVENTS, "marks": 9, "marks_refused": 5} | lane, number)
        put(made, "consumer", TAILS | (tails or {}), number)
    return seal(made)


def reading(*lanes: dict[str, Any], tails: dict[str, Any] | None = None, **process: int) -> Reading:
    with segment_of(image(*lanes, tails=tails, **process)) as segment:
        return replace(segment.read(), deferred=DEFERRED)


def account(*, times: int = 1, alive: bool = False, **process: int) -> dict[str, Any]:
    """Return the expected ledger of this number of lanes."""
    spans = {"begun": 111_310, "summarized": 10, "rejected": 300, "open": 0, "abandoned": 11_000,
             "unpublished": 100_000, "nested": 3, "unmatched": 7, "removed": 0}  # fmt: skip
    if alive:
        spans |= {"open": 1_000, "abandoned": 10_000}
    return {
        "spans": {name: times * n for name, n in spans.items()} | {"no_lane": process.get("no_lane", 0)},
        "details": {
            "consumed": times * 30,
            "dropped": {"full": times * 100, "memory": times * 200},
            "in_ring": times * 10,
            "lost_with_daemon": times * 20,
            "removed": 0,
        },
        "events": {
            "consumed": times * 40,
            "dropped": {kind_name(kind): times * n for kind, n in enumerate(EVENTS)},
            "in_ring": times * 20,
            "lost_with_daemon": 0,
            "removed": 0,
        },
        "marks": {"wanted": times * 9, "refused": times * 5, "removed": 0},
        "deferred": DEFERRED,
        "lost": {
            "spans": times * (300 + 3) + process.get("no_lane", 0),
            "details": times * (300 + 20),
            "events": times * sum(EVENTS),
        },
    }


def test_each_counter_of_a_dead_worker_is_in_one_term() -> None:
    assert ledger_of(reading(LANE, no_lane=4)).document() == account(no_lane=4)


def test_open_spans_of_a_live_worker_are_not_abandoned() -> None:
    assert ledger_of(replace(reading(LANE), pid=1)).document() == account(alive=True)


def test_equal_lanes_are_counted_each_time() -> None:
    found = reading(*2 * [LANE], *(LANES - 2) * [LANE | {"unmatched": 8}])
    wanted = account(times=LANES)
    wanted["spans"]["unmatched"] += LANES - 2
    assert ledger_of(found).document() == wanted


def test_spans_are_refused_for_the_reason_that_their_lane_records() -> None:
    found = ledger_of(reading(LANE, LANE))
    assert (found.rejected, found.details_dropped) == ({"clock": 200, "room": 400}, {"full": 200, "memory": 400})


@pytest.mark.parametrize(
    ("tail", "consumed"),
    [
        ((59, U64 - 59), 59),
        ((60, U64 - 60), 60),
        ((61, U64 - 61), 0),
        ((U64, 0), 0),
        ((0, U64), 0),
        ((0, 0), 0),
        ((50, U64 - 51), 0),
        ((50, U64 - 49), 0),
        ((50, 50), 0),
    ],
)
def test_a_span_ring_is_consumed_up_to_a_valid_tail(tail: tuple[int, int], consumed: int) -> None:
    details = ledger_of(reading(LANE, tails={"span": tail, "spans_lost": 0})).details
    assert details == {"consumed": consumed, "in_ring": 60 - consumed, "lost_with_daemon": 0}


@pytest.mark.parametrize(("given", "lost"), [(49, 49), (50, 50), (51, 0), (U64, 0)])
def test_details_lost_with_a_daemon_never_exceed_consumed_ones(given: int, lost: int) -> None:
    details = ledger_of(reading(LANE, tails={"spans_lost": given})).details
    assert details == {"consumed": 50 - lost, "in_ring": 10, "lost_with_daemon": lost}


@pytest.mark.parametrize(("given", "read"), [(0, 0), (59, 59), (60, 60), (61, 0), (U64, 0)])
def test_events_read_never_exceed_recorded_ones(given: int, read: int) -> None:
    events = ledger_of(reading(LANE, tails={"events_read": given})).events
    assert events == {"consumed": read, "in_ring": 60 - read}


def test_losses_are_the_records_that_no_ring_and_total_has() -> None:
    found = ledger_of(reading(LANE, LANE, no_lane=4))
    assert found.lost() == 2 * (300 + 3 + 300 + 20 + sum(EVENTS)) + 4


def test_a_removal_record_counts_everything_its_worker_recorded() -> None:
    found = ledger_of(reading(LANE, LANE, no_lane=4))
    counts = WorkerCounts(spans=222_620, details=2 * 360, events=2 * (60 + sum(EVENTS)), marks=18, lost=found.lost())
    assert found.counts() == counts
    removed = Ledger()
    removed.add_removed(counts)
    document = removed.document()
    assert [document[what]["removed"] for what in ("spans", "details", "events", "marks")] == [*counts[:4]]
    assert removed.lost() == 0


def test_merged_ledgers_have_every_term_of_both() -> None:
    one, other = ledger_of(reading(LANE, no_lane=4)), ledger_of(reading(LANE, no_lane=4))
    one.add(other)
    wanted = account(times=2, no_lane=8)
    assert one.document() == wanted | {"deferred": {name: 2 * n for name, n in DEFERRED.items()}}
    assert one.rejected == {"clock": 200, "room": 400}


def test_a_segment_adds_up_the_counts_of_all_its_lanes() -> None:
    with segment_of(image(LANE | {"event_attempts": 5}, LANE | {"event_attempts": 6})) as segment:
        assert segment.activity() == 2 * (111_310 + 10) + 11
        assert segment.spans() == 20
        assert [segment.dropped(kind) for kind in range(16)] == [2 * n for n in EVENTS]
        assert len(EVENTS) == len(segment.read().lanes[0][1]["event_dropped"]) > _reader.KIND_CHECKED
