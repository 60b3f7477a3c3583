"""Deferred work: incomplete passes, limits, and state that was taken over from an earlier segment of the process."""

from __future__ import annotations

import json

import pytest
from test_deferred import account, defer, finalize, long_ago, measured, passes, total

from brickd.model import deferred
from brickd.model.deferred import Deferred
from brickd.shm.clock import Now


def after(records: bytes, *complete: bool, work: Deferred | None = None) -> Deferred:
    """Return the deferred work after these records and after passes that are complete or incomplete."""
    work = work or Deferred()
    work.take(records, long_ago)
    for each in complete:
        work.settle(1.0, complete=each)
    return work


def restarted(work: Deferred) -> Deferred:
    return Deferred.of(json.loads("".join(work.pieces())))


# ---- passes


@pytest.mark.parametrize("passed", [(), (False,), (False,) * 9, (True,), (True, False), (False, True, False)])
def test_a_finalize_settles_with_the_second_complete_pass_and_not_earlier(passed: tuple[bool, ...]) -> None:
    work = after(defer(100, id=1) + finalize(200), *passed)
    assert (account(work), work.settled) == ((0, 0, 0, 1), False)
    assert (work.counts["finalized"], total(work.bound)) == (0, (0, 0))
    for _ in range(2 - sum(passed)):
        work.settle(1.0, complete=True)
    assert (account(work), work.settled, work.counts["finalized"]) == ((0, 1, 0, 0), True, 1)


@pytest.mark.parametrize("passed", [(), (False,) * 9, (True,), (True, False)])
def test_a_measurement_waits_for_its_start_until_the_second_complete_pass(passed: tuple[bool, ...]) -> None:
    work = after(measured(1, 17), *passed)
    assert (work.settled, work.counts["unmatched"]) == (False, 0)
    in_time = restarted(work)
    in_time.take(defer(100, id=1), long_ago)
    assert (total(in_time.measured), account(in_time)) == ((1, 17), (1, 0, 0, 0))
    assert in_time.settled, "no start waits any longer"
    for _ in range(2 - sum(passed)):
        work.settle(1.0, complete=True)
    assert (work.settled, work.counts["unmatched"]) == (True, 1)
    work.take(defer(100, id=1), long_ago)
    assert account(work) == (0, 0, 0, 1)


def test_a_start_at_the_time_of_its_finalize_is_closed_by_it() -> None:
    for stream in (3, None):
        work = passes(defer(100, 3, id=1) + finalize(500, stream), b"", b"", defer(500, 3, id=2) + defer(501, 3, id=3))
        assert (account(work), work.counts["late"], work.counts["finalized"]) == ((0, 2, 0, 1), 0, 1)
        assert (total(work.bound), total(work.latency)) == ((2, 400), (2, 400))


@pytest.mark.parametrize("stream", [3, None])
def test_an_earlier_finalize_that_settles_later_reopens_nothing(stream: int | None) -> None:
    work = passes(finalize(500, stream), b"", b"", finalize(300, stream), b"", b"", defer(400, 3, id=1))
    assert (account(work), work.counts["late"], total(work.latency)) == ((0, 1, 0, 0), 1, (1, 100))


def test_a_late_start_adds_no_time_to_its_own_path() -> None:
    work = passes(defer(100, id=1) + finalize(500), b"", b"", defer(499, id=2, path=2, elements=7, amount=9))
    assert (total(work.bound, 2), total(work.latency, 2), work.counts["late"]) == ((1, 0), (1, 1), 1)


# ---- limits


def test_without_complete_passes_everything_settles_when_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "WAITING_MAX", 8)
    work = after(b"".join(defer(n, id=n + 1) + finalize(n) for n in range(8)), False, False, False)
    once = after(b"", True, work=restarted(work))
    assert (account(work), account(once)) == ((0, 0, 0, 8), (0, 0, 0, 8)), "the highest number of starts that may wait"
    work = after(measured(99, 1), False, work=work)
    assert (account(work), work.settled) == ((0, 0, 0, 8), False)
    work = after(b"".join(finalize(n) for n in range(9)), False, work=work)
    assert account(work) == (0, 8, 0, 0)


@pytest.mark.parametrize("wait", [15, 16, 17, 18, 40])
def test_too_many_waiting_starts_orphan_the_oldest_and_an_eighth_more(
    monkeypatch: pytest.MonkeyPatch, wait: int
) -> None:
    monkeypatch.setattr(deferred, "WAITING_MAX", 16)
    work = after(b"".join(defer(1_000 - n, n % 3, id=n + 1) for n in range(wait)), False)
    stay = wait if wait <= 16 else 16 - 2
    assert account(work) == (0, 0, wait - stay, stay)
    work = after(finalize(2_000), True, True, work=restarted(work))
    assert total(work.latency) == (stay, sum(1_000 + n for n in range(stay)))


def test_measured_starts_wait_too_and_are_never_orphaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "WAITING_MAX", 16)
    starts = b"".join(defer(n, id=n + 1) + measured(n + 1, 5) for n in range(17))
    work = after(starts + defer(100, id=100), False)
    assert account(work) == (17, 0, 0, 1)


def test_over_the_limit_the_longest_idle_streams_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deferred, "STREAMS_MAX", 4)
    work = after(defer(5, 0, id=9) + b"".join(finalize(100 - n, n) for n in range(1, 4)), True, True, True)
    late = b"".join(defer(1, n, id=n + 1) for n in range(1, 4))
    assert after(late, True, True, work=restarted(work)).counts["late"] == 3, "four streams are not too many"
    work = after(finalize(200, 4), True, True, work=work)
    work = after(late, True, True, work=work)
    assert (work.counts["late"], account(work)) == (2, (0, 2, 0, 2)), "the third stream may still be open"


# ---- another segment of the process


def test_ids_in_both_segments_count_once_and_others_continue() -> None:
    lost, here = Deferred(), Deferred()
    lost.take(defer(100, 3, id=1) + defer(110, 3, id=2) + defer(115, 3, id=5) + measured(5, 7), long_ago)
    here.take(defer(200, 3, id=2) + defer(210, 4, id=3) + defer(220, 4, id=5), long_ago)
    here.absorb(lost)
    assert account(here) == (1, 0, 1, 4)
    here.take(defer(300, 3, id=1) + measured(2, 9) + measured(5, 11), long_ago)
    assert (here.counts["refused"], total(here.measured)) == (1, (3, 7 + 9 + 11))
    after(finalize(400), True, True, work=here)
    assert account(restarted(here)) == account(here) == (3, 2, 1, 0)
    assert total(here.latency) == (2, 300 + 190)


@pytest.mark.parametrize("stream", [3, None])
@pytest.mark.parametrize("first", ["lost", "here"])
def test_the_later_finalize_of_both_segments_applies(stream: int | None, first: str) -> None:
    ends = {"lost": 500, "here": 700} if first == "lost" else {"lost": 700, "here": 500}
    lost, here = (after(finalize(ends[which], stream), True, True) for which in ("lost", "here"))
    here.absorb(lost)
    work = after(defer(600, 3, id=1), True, True, work=here)
    assert (account(work), work.counts["late"], work.counts["finalized"]) == ((0, 1, 0, 0), 1, 2)


@pytest.mark.parametrize("passed", [(), (True,)])
def test_unsettled_work_of_the_other_segment_settles_after_two_passes(passed: tuple[bool, ...]) -> None:
    lost = after(measured(8, 5) + finalize(300, 3) + measured(9, 6), *passed)
    here = after(defer(100, 3, id=7) + finalize(50, 3), True)
    here.absorb(lost)
    here.settle(1.0, complete=True)
    assert account(here) == (0, 0, 0, 1)
    here.take(defer(200, 4, id=8), long_ago)
    assert account(here) == (1, 0, 0, 1)
    here.settle(1.0, complete=True)
    assert (account(here), here.counts["unmatched"], here.settled) == ((1, 1, 0, 0), 1, True)
    assert total(here.bound) == (1, 200)


def test_the_clock_is_read_only_for_long_measurements() -> None:
    asked: list[int] = []

    def now() -> Now:
        asked.append(1)
        return Now(1.0, 10**9)

    work = Deferred()
    work.take(defer(0, id=1) + defer(0, id=2) + measured(1, 10**9) + measured(2, 10**9 + 1), now)
    assert (asked, account(work)) == ([1], (2, 0, 0, 0))
