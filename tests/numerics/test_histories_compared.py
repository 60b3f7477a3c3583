"""Rows with equal histories and lineages are compared to the last bit, whatever their input rows are."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from checked_record import CheckedRecord, Tensor
from test_watch import Service

from brickd.analysis.numerics.blame import Blame, Verdict
from brickd.analysis.numerics.comparison import Comparison, EvidenceClass, Party, compare, following
from brickd.analysis.numerics.diagnosis import headline
from brickd.analysis.numerics.match import Class
from brickd.shm import _reader
from brickd.shm.sites import Tier, of_tier, plain, tier_of

HISTORY = _reader.CHECKED_HISTORY | _reader.CHECKED_STATEFUL | _reader.CHECKED_POSITION | _reader.CHECKED_STEP
NEAR = (1e-8, 1e-8, *(0.0,) * 14)  # a difference that rounding explains
OUTER, INNER = 1, 2


def right(row: int) -> Tensor:
    return Tensor(1000 + row)


def wrong(row: int) -> Tensor:
    return Tensor(2000 + row, sketch=NEAR)


def record(
    output: Tensor, row: int, *, lineage: int = 9, step: int = 1, given: int | None = None, **more: int
) -> CheckedRecord:
    """Return the record of a row; the input row is `given`, or equal in all workers."""
    inputs = (Tensor(row if given is None else given),)
    return CheckedRecord(output, inputs, step=step, position=row, valid=lineage, flags=HISTORY, **more)  # type: ignore[arg-type]


class Fleet(Service):
    """Workers that send rows with histories."""

    def each(self, worker: int, *records: CheckedRecord) -> None:
        for one in records:
            self.workers[worker].receive(one.slots())

    def healthy(self, workers: Iterable[int], rows: Iterable[int] = range(4)) -> None:
        for worker in workers:
            self.each(worker, *(record(right(row), row, step=row) for row in rows))

    def faulty(self, worker: int, rows: Iterable[int] = range(4)) -> None:
        self.each(worker, *(record(wrong(row), row, step=row) for row in rows))

    def compare(self, evidence: EvidenceClass = EvidenceClass.HISTORY) -> Comparison:
        about = self.numerics.about([each.uuid for each in self.workers])
        parties = [Party(f"api/{n}", each.number) for n, each in enumerate(about.producers.values())]
        return compare(about, parties, evidence)


# ---- what is compared


def test_rows_with_equal_histories_and_lineages_are_compared() -> None:
    fleet = Fleet(3)
    fleet.healthy((0, 1, 2))
    found = fleet.compare()
    assert (found.verdict, found.compared) == (Verdict.IDENTICAL, 8)


def test_rows_are_compared_at_any_time_and_in_any_step() -> None:
    fleet = Fleet(2)
    fleet.each(0, record(right(1), 1, step=5, ticks=1))
    fleet.each(1, record(right(1), 1, step=9, ticks=2**40))
    assert fleet.compare().compared == 1


@pytest.mark.parametrize("what", ["lineage", "params", "backend"])
def test_rows_that_were_computed_in_another_way_are_not_compared(what: str) -> None:
    fleet = Fleet(2)
    fleet.healthy((0,))
    fleet.each(1, *(record(wrong(row), row, step=row, **{what: 2}) for row in range(4)))
    assert fleet.compare().compared == 0


def test_rows_after_other_tokens_are_not_compared() -> None:
    fleet = Fleet(2)
    fleet.healthy((0,), range(4))
    fleet.faulty(1, range(10, 14))
    found = fleet.compare()
    assert (found.verdict, sum(site.lone for site in found.matched.sites)) == (Verdict.NOT_COMPARABLE, 8)


@pytest.mark.parametrize("evidence", [EvidenceClass.INPUT, EvidenceClass.ROW, EvidenceClass.RUN])
def test_rows_with_histories_are_in_no_other_comparison(evidence: EvidenceClass) -> None:
    fleet = Fleet(2)
    fleet.healthy((0,))
    fleet.faulty(1)
    assert fleet.compare(evidence).matched.fingerprints == 0


def test_rows_with_histories_have_a_site_of_their_own() -> None:
    fleet = Fleet(1)
    fleet.healthy((0,), (1,))
    kept = fleet.numerics.fingerprints.read(0)
    assert kept is not None
    assert tier_of(kept[1]) is Tier.HISTORY
    for tier in Tier:
        assert tier_of(of_tier(kept[1], tier)) is tier
    assert of_tier(kept[1], Tier.HISTORY) == plain(kept[1])


def test_other_fingerprints_are_not_compared_by_history() -> None:
    fleet = Fleet(2)
    for worker in (0, 1):
        fleet.each(worker, CheckedRecord(right(1), (Tensor(1),)))
        rows = _reader.CHECKED_ROWS | _reader.CHECKED_STATELESS
        fleet.each(worker, CheckedRecord(right(1), (Tensor(1),), flags=rows))
    assert fleet.compare().matched.fingerprints == 0


@pytest.mark.parametrize(
    "broken",
    [
        CheckedRecord(right(1), (Tensor(1),), flags=HISTORY | _reader.CHECKED_ROWS),
        CheckedRecord(right(1), (Tensor(1), Tensor(2)), flags=HISTORY),
        CheckedRecord(Tensor(1, dtype=0), (Tensor(1),), flags=HISTORY),
    ],
    ids=["of rows", "two inputs", "not read"],
)
def test_an_impossible_record_is_refused(broken: CheckedRecord) -> None:
    fleet = Fleet(1)
    fleet.each(0, broken)
    assert (fleet.numerics.fingerprints.refused, fleet.numerics.fingerprints.end) == (1, 0)


# ---- verdicts


def test_a_difference_of_the_last_bit_in_three_rows_and_two_steps_diverges() -> None:
    fleet = Fleet(3)
    fleet.healthy((0, 1, 2), (7, 8, 9))
    fleet.healthy((0, 1), (1, 2, 3))
    fleet.faulty(2, (1, 2, 3))
    found = fleet.compare()
    assert (found.verdict, found.outlier, found.diverged) == (Verdict.DIVERGED, 2, 3)


@pytest.mark.parametrize(("rows", "steps"), [((1, 2), (1, 2)), ((1, 2, 3), (1, 1, 1))])
def test_too_few_rows_or_steps_name_no_worker(rows: tuple[int, ...], steps: tuple[int, ...]) -> None:
    fleet = Fleet(3)
    for worker, output in enumerate((right, right, wrong)):
        fleet.each(worker, *(record(output(row), row, step=step) for row, step in zip(rows, steps, strict=True)))
    found = fleet.compare()
    assert (found.verdict, found.diverged) == (Verdict.WITHIN, 0)
    assert headline(found, None).startswith("by history: rows with equal histories differ, but too few of them")


def test_a_worker_whose_earlier_outputs_were_right_diverges() -> None:
    fleet = Fleet(3)
    fleet.healthy((0, 1, 2))
    fleet.faulty(2)
    assert fleet.compare().outlier == 2


def test_a_worker_that_shares_one_of_several_outputs_agrees() -> None:
    """Another neighbour in the batch may choose another kernel."""
    fleet = Fleet(3)
    fleet.healthy((0, 1, 2))
    fleet.faulty(0)
    fleet.faulty(2)
    assert fleet.compare().diverged == 0


def test_two_workers_that_differ_disagree() -> None:
    fleet = Fleet(2)
    fleet.healthy((0,))
    fleet.faulty(1)
    found = fleet.compare()
    assert (found.verdict, found.outlier) == (Verdict.DIVERGED, None)


def test_if_most_workers_contradict_themselves_nothing_diverges() -> None:
    fleet = Fleet(3)
    for worker in (0, 1):
        for time in (0, 1):
            fleet.each(
                worker, *(record(Tensor(10_000 * (worker + 1) + 100 * time + row), row, step=row) for row in range(4))
            )
    fleet.faulty(2)
    found = fleet.compare()
    assert found.diverged == 0
    assert found.counts[Class.UNSTEADY] > 0


def test_if_one_of_three_contradicts_itself_it_diverges() -> None:
    fleet = Fleet(3)
    fleet.healthy((0, 1))
    for time in (0, 1):
        fleet.each(2, *(record(Tensor(10_000 + 100 * time + row), row, step=row) for row in range(4)))
    assert fleet.compare().outlier == 2


# ---- blame


def test_a_difference_after_an_equal_input_row_began_there_or_in_the_cache() -> None:
    fleet = Fleet(3)
    fleet.healthy((0, 1))
    fleet.faulty(2)
    first = fleet.compare().first
    assert first is not None
    assert first.judgement.blame == Blame.HERE_OR_CACHE


def test_the_site_where_it_began_leads_although_a_site_inside_it_was_recorded_first() -> None:
    fleet = Fleet(3)
    for row in range(4):
        for worker, output in ((0, right(row)), (1, right(row)), (2, wrong(row))):
            other = row if worker < 2 else 500 + row
            fleet.each(worker, record(output, row, step=row, site=INNER, given=other))
            fleet.each(worker, record(output, row, step=row, site=OUTER))
    found = fleet.compare()
    assert found.first is not None
    assert found.first.site == found.born()[0]
    assert [each.judgement.blame for each in found.differences] == [Blame.HERE_OR_CACHE] * 4 + [Blame.PROPAGATED] * 4
    assert (len(found.born()), following(found, found.born())) == (1, 1)


def test_without_input_rows_it_is_unknown_where_a_difference_began() -> None:
    fleet = Fleet(3)
    for worker in range(3):
        output = right if worker < 2 else wrong
        for row in range(4):
            fleet.each(worker, CheckedRecord(output(row), (), step=row, position=row, valid=9, flags=HISTORY))
    first = fleet.compare().first
    assert first is not None
    assert first.judgement.blame == Blame.UNKNOWN
