"""The counts of each site, from one comparison to the next: which workers they cover, which category they have, and
when they are dropped.
"""

from __future__ import annotations

from test_watch import BAD, GOOD, HERE, Service

from brickd.analysis.numerics.online_state import ServiceSite, SiteCounts
from brickd.analysis.numerics.recent_counts import FingerprintCounts as Counts
from brickd.analysis.numerics.tally import Tally
from brickd.shm.sites import Tier, WorkerNames

API = {"api"}
ATTENTION = WorkerNames([None, ("k1", 2), ("attention", 0)], [None, (1, 3, 0)])


def test_a_look_adds_new_counts_and_how_many_had_a_counterpart() -> None:
    service = Service(2)
    tally = Tally(service.numerics, {HERE: SiteCounts("other", 5)})
    service.send(GOOD, BAD)
    assert tally.take(API) == {("api", Tier.TENSORS): Counts(2, met=2)}
    assert tally[HERE] == SiteCounts("other", 7, met=2, unlike=1)
    service.send(GOOD, GOOD, given=8)
    service.send(GOOD, GOOD, given=9)
    assert tally.take(API) == {("api", Tier.TENSORS): Counts(4, met=4)}
    assert tally[HERE] == SiteCounts("other", 11, met=6, unlike=1)
    assert tally.take(API) == {}
    service.send(GOOD, given=10)
    assert tally.take(API) == {("api", Tier.TENSORS): Counts(1)}, "no other worker had these inputs"


def test_a_service_without_known_workers_is_not_counted_and_restarts() -> None:
    service = Service(2)
    tally = Tally(service.numerics, {ServiceSite("gone", "k1", 3): SiteCounts("other", 5)})
    service.send(GOOD, GOOD)
    tally.take(API)
    assert list(tally.sites()) == [HERE]
    for given in (8, 9):
        assert tally.take({"other"}) == {}
        assert tally.sites() == {}
        assert not tally._places, "the counts keep nothing of the place"
        service.send(GOOD, BAD, given=given)
    service.send(GOOD, GOOD, given=10)
    assert tally.take({"other"}) == {}
    service.send(GOOD, GOOD, given=11)
    assert tally.take(API) == {("api", Tier.TENSORS): Counts(2, met=2)}
    assert tally[HERE] == SiteCounts("other", 2, met=2)


def test_the_category_is_that_of_the_compared_workers() -> None:
    """One worker's name for the kernel says that the kernel is stateful."""
    service = Service(2)
    stateful = service.worker("u2", ATTENTION)
    tally = Tally(service.numerics, {HERE: SiteCounts("of an earlier daemon")})
    both_workers = service.workers
    for producers, category in (
        ([stateful], "of an earlier daemon"),
        (both_workers, "other"),
        ([stateful], "other"),
        ([*both_workers, stateful], "other"),
    ):
        service.workers = producers
        service.send(GOOD, GOOD, GOOD)
        tally.take(API)
        counts = tally[HERE]
        assert counts is not None
        assert counts.category == category


def test_judged_sites_are_counted_until_nothing_is_known_of_them() -> None:
    service = Service(2)
    service.send(GOOD, BAD)
    tally = Tally(service.numerics, {})
    tally.take(API)
    site = service.numerics.sites.number(service.workers[0].tables.site(1))
    tally.judge("api", site, 2)
    tally.judge("api", site, 1)
    assert tally[HERE] == SiteCounts("other", 2, met=2, unlike=1, judged=3)
    tally.unjudge(HERE)
    assert tally[HERE] == SiteCounts("other", 2, met=2, unlike=1)
    nowhere = ServiceSite("api", "k9", 0)
    tally.unjudge(nowhere)
    assert tally[nowhere] is None
