"""A snapshot that fails does not prevent other snapshots."""

from __future__ import annotations

import sys

from brickd.daemon.sampler import Sampler
from brickd.errors import DaemonEnds
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey


class Taker:
    """A receiver that keeps its snapshots, or raises an exception if the test wants that."""

    def __init__(self, *, fails: bool = False) -> None:
        self.taken: list[Snapshot] = []
        self.fails = fails

    def take(self, snapshot: Snapshot) -> None:
        if self.fails:
            raise ValueError("no room")
        self.taken.append(snapshot)


def sampled(survey: Survey | Exception, *takers: Taker) -> list[str]:
    """Take the first snapshot, and return the failures."""
    failed: list[str] = []

    def look() -> Survey:
        if isinstance(survey, Exception):
            raise survey
        return survey

    sampler = Sampler(look, takers, lambda: failed.append(str(sys.exception())))
    sampler.start()
    sampler.end()
    return failed


def test_the_first_snapshot_is_taken_at_the_start() -> None:
    taker = Taker()
    assert sampled(Survey([], [], {7: 3}), taker) == []
    (snapshot,) = taker.taken
    assert snapshot.survey.foreign == {7: 3}
    assert snapshot.at_ns > 1_700_000_000 * 10**9


def test_a_taker_that_fails_does_not_affect_the_others() -> None:
    bad, good = Taker(fails=True), Taker()
    assert sampled(Survey([], []), bad, good) == ["no room"]
    assert len(good.taken) == 1


def test_a_failing_survey_is_reported_and_gives_no_snapshot() -> None:
    taker = Taker()
    assert sampled(ValueError("a defect"), taker) == ["a defect"]
    assert taker.taken == []


def test_an_unlistable_directory_is_not_a_defect_of_the_sampler() -> None:
    taker = Taker()
    assert sampled(PermissionError(13, "no"), taker) == []
    assert taker.taken == []


def test_a_daemon_that_ends_is_not_a_defect_of_the_sampler() -> None:
    taker = Taker()
    assert sampled(DaemonEnds("the daemon is stopping"), taker) == []
    assert taker.taken == []


def test_a_sampler_that_ends_gives_its_snapshot_to_no_further_taker() -> None:
    class Last(Taker):
        def take(self, snapshot: Snapshot) -> None:
            super().take(snapshot)
            sampler._ending.set()

    last, other = Last(), Taker()
    sampler = Sampler(lambda: Survey([], [], {}), [last, other], lambda: None)
    sampler.start()
    sampler.end()
    assert (len(last.taken), len(other.taken)) == (1, 0)
