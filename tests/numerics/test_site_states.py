"""The state of a site, which follows from its counts: each limit, and the order of the states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checked_record import CheckedRecord, Tensor
from made_up_workers import MadeUp

from brickd.analysis.numerics import evidence
from brickd.analysis.numerics.coverage import SiteState, state_of, thinned
from brickd.analysis.numerics.online_state import Case, Compared, KeptEvidence, ServiceSite, SiteCounts
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.sites import site_digest

HERE = ServiceSite("api", "mlp", 3)


@pytest.mark.parametrize(
    ("met", "unlike", "repeats"),
    [
        (100, 0, True),
        (99, 0, False),
        (105, 5, True),  # 100 equal comparisons, exactly twenty times the 5 unlike comparisons
        (104, 5, False),
        (125, 6, False),  # 119 equal comparisons, less than twenty times the 6 unlike comparisons
        (126, 6, True),
        (0, 0, False),
    ],
)
def test_a_kernel_is_repeatable_after_a_hundred_equal_and_twenty_per_unequal(
    met: int, unlike: int, *, repeats: bool
) -> None:
    assert SiteCounts("ffn", met, met=met, unlike=unlike).repeats is repeats


def test_alone_counts_comparable_fingerprints_without_a_counterpart() -> None:
    assert SiteCounts("ffn", fingerprints=10, bare=3, stateful=2, met=1).alone == 4
    assert SiteCounts("ffn", fingerprints=1, met=2).alone == 0


def test_a_case_is_complete_if_both_outputs_are_kept() -> None:
    reported, bare = KeptEvidence("u0", b"slots", "", ""), KeptEvidence("u1", b"", "", "")
    pairs = ((reported, reported), (reported, bare), (bare, reported), (bare, bare))
    assert [Case(1, *pair).whole for pair in pairs] == [True, False, False, False]


def test_a_site_belongs_to_its_service_or_to_all() -> None:
    assert [ServiceSite(service, "mlp", 3).is_of({"api"}) for service in ("api", "batch", "")] == [True, False, False]
    assert [ServiceSite(service, "", -1).is_of({"api"}) for service in ("api", "batch", "")] == [True, False, True]


def test_counts_add_up_field_by_field() -> None:
    once = SiteCounts("ffn").and_(1, 2, 3, 4, 5, 6, 7)
    assert once == SiteCounts("ffn", fingerprints=1, bare=2, met=3, unlike=4, gone=5, stateful=6, judged=7)
    assert once.and_(10, 20, 30, 40, 50, 60) == SiteCounts("ffn", 11, 22, 33, 44, 55, 66, 7)


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({"fingerprints": 9, "met": 2, "unlike": 1}, SiteState.UNJUDGED),
        ({"fingerprints": 9, "met": 2, "unlike": 1, "judged": 1}, SiteState.COMPARED),
        ({"fingerprints": 9, "met": 2, "stateful": 3}, SiteState.COMPARED),
        ({"fingerprints": 9, "stateful": 1}, SiteState.STATEFUL),
        ({"fingerprints": 9, "bare": 9}, SiteState.NO_INPUTS),
        ({"fingerprints": 9, "bare": 8}, SiteState.ALONE),
        ({"fingerprints": 9}, SiteState.ALONE),
        ({}, SiteState.SILENT),
    ],
)
def test_the_state_of_a_recorded_site_follows_from_its_counts(counts: dict[str, int], state: SiteState) -> None:
    for nothing in ([], [HERE]):
        assert state_of(Compared(), HERE, SiteCounts("ffn", **counts), nothing, [HERE]) == state


def test_a_silent_site_is_off_if_no_worker_records_it() -> None:
    def state(category: str = "ffn", fingerprints: int = 0, **places: Any) -> SiteState:
        counts = SiteCounts(category, fingerprints)
        return state_of(Compared(), HERE, counts, places.get("off", ()), places.get("on", ()),
                        places.get("left_out", ()))  # fmt: skip

    assert state(off=[HERE]) == SiteState.OFF
    assert state(off=[HERE], left_out=[HERE]) == SiteState.OFF
    assert state(off=[HERE], on=[HERE], left_out=[HERE]) == SiteState.LEFT_OUT
    assert state("closed", left_out=[HERE]) == SiteState.LEFT_OUT
    assert state("closed") == SiteState.CLOSED
    assert state("closed", fingerprints=1) == SiteState.ALONE
    assert state(fingerprints=1, off=[HERE], left_out=[HERE]) == SiteState.ALONE


def test_differing_sites_come_first_then_contradicting_ones() -> None:
    found: Any = {HERE: None}
    counts = SiteCounts("ffn", 9, met=9, unlike=9)
    assert state_of(replace(Compared(), findings=found, doubts=found), HERE, counts, (), ()) == SiteState.DIFFERS
    assert state_of(replace(Compared(), doubts=found), HERE, counts, (), ()) == SiteState.UNREPEATED


def worker(asked: int = 0, header: int = 0, own: int = 0, *, alive: bool = True) -> Worker:
    made = MadeUp().reading()
    reported: Any = {**made.header, "rate": header}
    process: Any = {**made.process, "rate": own}
    reading = replace(made, header=reported, process=process, asked_rate=asked, pid=1 if alive else None)
    return Worker("api/0", reading, ledger_of(reading))


def test_the_lowest_sampling_rate_is_shown_with_its_number_of_workers() -> None:
    every = _reader.RATE_ALL
    assert thinned([]) == thinned([worker(asked=5, alive=False)]) == (every, False, 0, 0)
    assert thinned([worker(), worker()]) == (every, False, 2, 2)
    assert thinned([worker(asked=7), worker(header=7), worker(asked=9, header=1)]) == (7, False, 2, 3)
    assert thinned([worker(own=6), worker(asked=7)]) == (6, True, 1, 2)
    assert thinned([worker(own=6), worker(asked=6)]) == (6, False, 1, 2)
    # The daemon's setting overrides the worker's own setting. A rate above 1 counts as 1.
    assert thinned([worker(own=every + 1), worker(asked=7, own=6)]) == (7, False, 1, 2)
    assert thinned([worker(own=every + 1)]) == (every, False, 1, 1)


@pytest.mark.parametrize("flags", [0, _reader.CHECKED_STATELESS])
def test_stored_evidence_stays_comparable_at_a_site_that_now_looks_stateful(flags: int) -> None:
    site = site_digest("attention", 0) | _reader.SITE_STATEFUL
    stored = KeptEvidence("u0", CheckedRecord(Tensor(1), (Tensor(2),), flags=flags).slots(), "", "")
    fingerprints = _reader.Fingerprints(1 << 20)
    evidence.add(fingerprints, stored, 0, 0, site)
    ((_, _, held, *_, stateful),) = fingerprints.counts()
    assert (held, stateful) == (1, 0)
