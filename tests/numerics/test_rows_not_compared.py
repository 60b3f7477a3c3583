"""Rows that cannot be compared are counted for each reason; invalid or false rows never make brickd name a healthy
worker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from checked_record import Tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_workers import MadeUp
from test_rows import HERE, ROWS, Fleet, doubts, far, record, right
from test_watch import TABLES

from brickd.analysis.evidence_verdicts import Comparisons, EvidenceVerdict, verdicts
from brickd.analysis.numerics import online_codec, row_workers, watch
from brickd.analysis.numerics.coverage import SiteState, state_of
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.numerics.recent_counts import WINDOW_NS, FingerprintCounts, of_document, plain
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.sites import Tier


def by_row(compared: Compared) -> EvidenceVerdict:
    """Return the verdict that follows from comparing the rows of the service."""
    reading = MadeUp(service="api").reading()
    workers = [Worker("api/0", reading, ledger_of(reading))]
    found = verdicts(Comparisons(compared, (), None), workers)
    return next(each for each in found if each.evidence == "row")


# ---- another context


def test_a_row_that_another_worker_had_only_in_another_context_is_counted_for_that() -> None:
    """Another backend rounds differently, so a comparison between backends would report a difference between healthy
    workers.
    """
    fleet = Fleet(3)
    for row in range(4):
        fleet.each(0, record((right(row), row), step=row, backend=1))
        fleet.each(1, record((far(row), row), step=row, backend=2))
    fleet.each(2, record((right(9), 9)))
    found = fleet.look()
    assert not found.findings
    verdict = by_row(found)
    assert (verdict.verdict, dict(verdict.not_comparable)) == ("unproven", {"alone": 1, "context": 8})
    assert verdict.why == "0 of 9 rows compared: 8 that another worker had only in another context, 1 without a " \
        "counterpart in another worker"  # fmt: skip


@pytest.mark.parametrize(
    ("backends", "apart"),
    [((1, 1), 0), ((1, 2), 2), ((1, 1, 2), 1), ((1, 1, 2, 2), 0), ((1, 2, 3), 3), ((1,), 0)],
)
def test_contexts_with_two_workers_are_not_apart(backends: Sequence[int], apart: int) -> None:
    fleet = Fleet(len(backends))
    for worker, backend in enumerate(backends):
        fleet.each(worker, record((right(1), 1), backend=backend))
    fleet.look()
    number = fleet.numerics.service_number("api")
    assert fleet.numerics.fingerprints.rows_apart(number, Tier.ROWS) == (apart, 0)


def test_two_contexts_of_one_worker_are_not_apart() -> None:
    fleet = Fleet(2)
    fleet.each(0, record((right(1), 1), backend=1), record((right(1), 1), backend=2))
    fleet.each(1, record((right(2), 2), backend=1))
    fleet.each(0, record((right(2), 3), backend=1))
    assert fleet.numerics.fingerprints.rows_apart(fleet.numerics.service_number("api"), Tier.ROWS) == (0, 0)
    assert fleet.numerics.fingerprints.rows_apart(77, Tier.ROWS) == (0, 0)


def test_contexts_are_counted_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(2)
    fleet.each(0, record((right(1), 1), backend=1))
    assert fleet.look().rows_apart == {("api", Tier.ROWS): (0, 0)}
    fleet.each(1, record((right(1), 1), backend=2))
    assert fleet.look().rows_apart == {("api", Tier.ROWS): (0, 0)}
    monkeypatch.setattr(watch, "_APART_NS", 0)
    fleet.each(1, record((right(1), 1), backend=3))
    assert fleet.look().rows_apart == {("api", Tier.ROWS): (3, 0)}


# ---- many workers


def test_rows_of_too_many_workers_are_counted_and_never_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_workers, "ROW_WORKERS_MAX", 2)
    fleet = Fleet(3)
    fleet.healthy(range(3), range(3))
    fleet.each(2, record(*((far(row), row) for row in range(4)), step=9))
    found = fleet.look()
    assert not found.findings, "the third worker's rows are not compared"
    assert (found.sites[HERE].fingerprints, found.sites[HERE].met) == (6, 6)
    verdict = by_row(found)
    assert (verdict.looked_at, verdict.compared, dict(verdict.not_comparable)) == (13, 6, {"workers": 7})
    assert fleet.numerics.row_workers.take() == {}, "rows are counted once"


def test_a_worker_takes_the_place_of_one_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_workers, "ROW_WORKERS_MAX", 2)
    fleet = Fleet(3)
    fleet.healthy(range(3), (1,))
    fleet.numerics.forget(["u0"])
    fleet.healthy((2,), (1,))
    assert dict(fleet.numerics.row_workers.left_out) == {("api", Tier.ROWS): 1}
    assert fleet.numerics.fingerprints.end == 3


def test_a_worker_takes_the_place_of_one_whose_rows_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_workers, "ROW_WORKERS_MAX", 2)
    fleet = Fleet(3, bytes_max=1)
    fleet.healthy((0,), (1,))
    fleet.healthy((1,), range(200))
    assert fleet.numerics.fingerprints.first > 1
    fleet.healthy((2,), (1,))
    assert not fleet.numerics.row_workers.left_out


def test_whole_tensors_of_further_workers_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_workers, "ROW_WORKERS_MAX", 1)
    fleet = Fleet(2)
    fleet.healthy((0,), (1,))
    whole = replace(record((right(1), 1)), flags=_reader.CHECKED_STATELESS)
    fleet.each(1, whole, record((right(1), 1)), whole)
    assert fleet.numerics.fingerprints.end == 3


def test_counts_of_an_older_daemon_have_no_rows_that_are_left_out() -> None:
    assert [slot.counts for slot in of_document([[7, 4, 1, 1, 2]])] == [FingerprintCounts(4, 1, 1, 2)]
    recent = of_document([[7, 9, 0, 0, 2, 3]])
    assert plain(recent) == [[7, 9, 0, 0, 2, 3]]
    assert (recent[0].counts.compared, recent[0].counts.alone) == (2, 4)


# ---- invalid rows


def test_rows_of_nan_are_equal_or_unknown_but_never_far() -> None:
    fleet = Fleet(3)
    nothing = Tensor(5, l2=0.0, nan=64)
    for row in range(9):
        for worker in range(3):
            checksum = 6 if worker == 0 and row > 4 else 5  # the checksum of a NaN with other bits
            fleet.each(worker, record((replace(nothing, checksum=checksum), row), step=row))
    found = fleet.look()
    assert (found.findings, found.sites[HERE].met) == ({}, 27)


def test_rows_of_zeros_are_compared_like_other_rows() -> None:
    fleet = Fleet(3)
    zero, wrong = Tensor(0, l2=0.0), Tensor(9, l2=1.0, sketch=(0.5, *(0.0,) * 15))
    for row in range(3):
        for worker in range(3):
            fleet.each(worker, record((wrong if worker == 1 else zero, row), step=row))
    (finding,) = fleet.look().findings.values()
    assert set(finding.outliers) == {"u1"}


def test_equal_rows_of_one_call_count_as_one_row() -> None:
    fleet = Fleet(2)
    for step in (1, 2):
        fleet.each(0, record(*[(far(1), 1)] * 4, step=step))
        fleet.each(1, record(*[(right(1), 1)] * 4, step=step))
    pair = fleet.pairs()[0, 1]
    assert (pair.rows, pair.far) == (1, (1, 1))
    assert not fleet.look().findings, "differences at three different rows are needed"


def test_batches_of_one_row_are_compared_with_each_other_only() -> None:
    fleet = Fleet(2)
    fleet.each(0, record((right(1), 1), rows=1), record((right(2), 2), rows=1))
    fleet.each(1, record((right(1), 1), rows=1), record((far(2), 2), rows=2))
    assert fleet.look().sites[HERE].met == 2
    assert fleet.pairs()[0, 1].rows == 1


def test_an_impossible_number_of_rows_is_harmless() -> None:
    fleet = Fleet(2)
    for rows in (0, 2**64 - 1):
        for worker in (0, 1):
            fleet.each(worker, record((right(1), 1), rows=rows))
    assert fleet.look().sites[HERE].met == 4


@pytest.mark.ci
def test_a_million_different_rows_take_bounded_memory_and_each_is_counted() -> None:
    fleet = Fleet(1, bytes_max=1 << 20)
    many = 1_000_000
    one = [record(*((right(row), row) for row in range(first, first + 4))).slots() for first in range(0, 400, 4)]
    batch = b"".join(one)
    for _ in range(many // 400):
        fleet.workers[0].receive(batch)
    fingerprints = fleet.numerics.fingerprints
    assert fingerprints.end == many
    assert fingerprints.end - fingerprints.first < 8_000
    counts = fleet.look().sites[HERE]
    assert (counts.fingerprints, counts.met) == (many, 0)


# ---- a worker that writes false rows

OUTPUTS = (right, far, lambda row: Tensor(4000 + row, sketch=(-0.5, *(0.0,) * 15)))
ROW, OUTPUT, STEP, BACKEND = st.integers(0, 5), st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)
LIES = st.lists(st.tuples(ROW, OUTPUT, STEP, BACKEND, st.sampled_from((64, 1, 4096))), max_size=40)
SHARED = st.lists(st.tuples(ROW, STEP), max_size=20)


@pytest.mark.ci
@settings(max_examples=200, deadline=None)
@given(SHARED, SHARED, LIES, st.booleans())
def test_a_worker_that_writes_false_rows_gets_no_healthy_worker_named(
    one: list[tuple[int, int]], other: list[tuple[int, int]], lies: list[tuple[int, int, int, int, int]], first: bool
) -> None:
    """The worker that writes false rows knows the rows of all others, and may begin before or after them."""
    fleet = Fleet(3)
    honest, liar = ((1, 2), 0) if first else ((0, 1), 2)
    for worker, rows in zip(honest, (one, other), strict=True):
        for row, step in rows:
            fleet.each(worker, record((right(row), row), step=10 * worker + step))
    for row, output, step, backend, rows_of_call in lies:
        fleet.each(liar, record((OUTPUTS[output](row), row), step=step, backend=backend, rows=rows_of_call))
    found = fleet.look()
    assert all(set(finding.outliers) <= {f"u{liar}"} for finding in found.findings.values())
    compared = fleet.compare()
    assert compared.outlier in (None, liar)


def test_a_worker_that_lies_about_all_rows_is_named_itself() -> None:
    fleet = Fleet(3)
    fleet.healthy((0, 1), range(8))
    for row in range(8):
        fleet.each(2, record((far(row), row), step=row, backend=0))
        fleet.each(2, replace(record((far(row), row), step=row), flags=ROWS | 128))
    (finding,) = fleet.look().findings.values()
    assert set(finding.outliers) == {"u2"}


# ---- sites that are only presumed to be row-wise

PRESUMED = TABLES._replace(sites=[None, *((n, 3, _reader.SITE_PRESUMED) for n in range(1, len(TABLES.sites)))])


def presumed(workers: int = 3) -> Fleet:
    """Workers with a site whose code belongs to the host."""
    fleet = Fleet()
    fleet.workers = [fleet.worker(f"u{n}", PRESUMED) for n in range(workers)]
    return fleet


def mixed(fleet: Fleet) -> None:
    """Send rows of a site that mixes the rows of a batch.

    Two healthy workers had the same batch, and the third worker had a different one.
    """
    for row in range(4):
        for worker, output in enumerate((far, right, right)):
            fleet.each(worker, record((output(row), row), step=row))


def test_a_site_that_is_only_presumed_to_be_row_wise_gets_no_worker_named() -> None:
    fleet = presumed()
    mixed(fleet)
    found = fleet.look()
    assert (found.findings, doubts(found)) == ({}, {HERE: "unconfirmed"})
    verdict = by_row(found)
    assert (verdict.verdict, dict(verdict.unknown)) == ("unproven", {"unconfirmed": 1})
    assert verdict.why is not None
    assert verdict.why.endswith("; rows of 1 site unknown (1 not confirmed to be row-wise)")
    assert state_of(found, HERE, found.sites[HERE], (), ()) == SiteState.UNJUDGED
    compared = fleet.compare()
    assert (compared.diverged, compared.compared, compared.not_comparable) == (0, 4, {"unsteady": 4})
    assert not compared.differences
    certain = Fleet(3)
    mixed(certain)
    assert certain.look().findings
    assert certain.compare().diverged == 4


@pytest.mark.parametrize(("repeated", "confirmed"), [(2, False), (3, True)])
def test_three_rows_that_a_worker_computed_again_in_another_step_confirm_a_site(
    repeated: int, *, confirmed: bool
) -> None:
    fleet = presumed()
    for row in range(100, 100 + repeated):
        for step in (1, 1, 2):
            fleet.each(1, record((right(row), row), step=step))
    fleet.each(2, record((right(200), 200), step=1), record((right(200), 200), step=1))  # the same step
    for step, output in ((1, right), (1, right), (2, right), (3, far)):
        fleet.each(2, record((output(300), 300), step=step))  # contradicts itself
    mixed(fleet)
    found = fleet.look()
    assert [set(each.outliers) for each in found.findings.values()] == [{"u0"}] * confirmed
    assert bool(found.row_doubts) == (not confirmed)
    assert (fleet.compare().diverged > 0) == confirmed


def test_a_site_that_is_confirmed_later_is_judged_then() -> None:
    fleet = presumed()
    mixed(fleet)
    assert fleet.look().row_doubts
    for row in range(4):
        fleet.each(1, record((right(row), row), step=50))
        fleet.each(0, record((far(row), row), step=50))
    found = fleet.look()
    assert (set(found.findings[HERE].outliers), found.row_doubts) == ({"u0"}, {})


def test_a_site_where_workers_contradict_themselves_is_counted() -> None:
    fleet = Fleet(2)
    for row in range(4):
        for worker in (0, 1):
            for step in (1, 2):
                output = Tensor(10_000 * worker + 100 * row + step, sketch=(0.5 * step + worker, *(0.0,) * 15))
                fleet.each(worker, record((output, row), step=10 * row + step))
    found = fleet.look()
    assert (found.findings, doubts(found)) == ({}, {HERE: "unsteady"})
    assert dict(by_row(found).unknown) == {"unsteady": 1}
    assert state_of(found, HERE, found.sites[HERE], (), ()) == SiteState.UNREPEATED


@pytest.mark.parametrize(("later_ns", "doubted"), [(WINDOW_NS - 1, True), (WINDOW_NS, False)])
def test_a_doubt_lasts_as_long_as_a_comparison_counts_also_over_a_restart(
    later_ns: int, *, doubted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the doubt, the comparisons of the last hour would prove that the rows are equal."""
    now_ns = 10 * WINDOW_NS
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    fleet = presumed()
    mixed(fleet)
    saved = online_codec.decode(json.loads("".join(online_codec.encode(fleet.look()))))
    assert doubts(saved) == {HERE: "unconfirmed"}
    assert by_row(saved).verdict == "unproven"
    again = Fleet(3, before=saved)
    now_ns += later_ns
    again.healthy((0,), (9,))
    assert bool(again.look().row_doubts) == doubted
