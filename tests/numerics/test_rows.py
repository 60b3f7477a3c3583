"""Rows of running workers are compared if their input rows are equal; a worker may have several outputs for a row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from checked_record import CheckedRecord, Tensor
from test_watch import TABLES, Service

from brickd.analysis.numerics import online_codec, watch_round
from brickd.analysis.numerics.comparison import Comparison, EvidenceClass, Party, compare
from brickd.analysis.numerics.evidence import recall
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.match import Class
from brickd.analysis.numerics.online_state import Compared, ServiceSite
from brickd.analysis.numerics.row_verdict import RowPair, judge_pairs, row_pairs
from brickd.analysis.numerics.watch_round import Roll
from brickd.shm import _reader
from brickd.shm.sites import Site, Tier

HERE = ServiceSite("api", "k1", 3, Tier.ROWS)
SITE = 1
ROWS = _reader.CHECKED_ROWS | _reader.CHECKED_STATELESS | _reader.CHECKED_STEP
BFLOAT16 = 11
FAR, NEAR = (0.5, *(0.0,) * 15), (1e-8, 1e-8, *(0.0,) * 14)


def right(row: int) -> Tensor:
    return Tensor(1000 + row)


def coarse(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype=BFLOAT16)


def far(row: int) -> Tensor:
    """Return an output that differs from the right one by more than rounding."""
    return Tensor(2000 + row, sketch=FAR)


def near(row: int) -> Tensor:
    """Return an output that differs from the right one by rounding."""
    return Tensor(3000 + row, sketch=NEAR)


def record(*pairs: tuple[Tensor, int], step: int = 1, rows: int = 64, **more: int) -> CheckedRecord:
    """Return the record of a call with some output rows and their input rows."""
    tensors = [tensor for output, row in pairs for tensor in (output, Tensor(row))]
    output, *inputs = tensors
    return CheckedRecord(output, tuple(inputs), step=step, position=rows, flags=ROWS, **more)  # type: ignore[arg-type]


def doubts(compared: Compared) -> dict[ServiceSite, str]:
    """Return why the rows of sites are not judged."""
    return {place: doubt.why for place, doubt in compared.row_doubts.items()}


class Fleet(Service):
    """Workers that send rows."""

    def each(self, worker: int, *records: CheckedRecord) -> None:
        for one in records:
            self.workers[worker].receive(one.slots())

    def healthy(self, workers: Iterable[int], rows: Iterable[int]) -> None:
        for worker in workers:
            for row in rows:
                self.each(worker, record((right(row), row), step=row))

    def pairs(self) -> dict[tuple[int, int], RowPair]:
        numbers = {each.number: n for n, each in enumerate(self.workers)}
        site = self.numerics.sites.number(TABLES.site(SITE)) | _reader.SITE_ROWS
        found = row_pairs(self.numerics.fingerprints, self.numerics.service_number("api"), site)
        return {(numbers[each.one], numbers[each.other]): each for each in found}

    def compare(self) -> Comparison:
        about = self.numerics.about([each.uuid for each in self.workers])
        parties = [Party(f"api/{n}", each.number) for n, each in enumerate(about.producers.values())]
        return compare(about, parties, EvidenceClass.ROW)


# ---- records


def test_each_pair_of_a_record_of_rows_is_a_fingerprint() -> None:
    fleet = Fleet(2)
    for worker in (0, 1):
        fleet.each(worker, record(*((right(row), row) for row in range(4))))
    counts = fleet.look().sites[HERE]
    assert (counts.fingerprints, counts.met, counts.unlike, counts.bare, counts.stateful) == (8, 8, 0, 0, 0)


def test_rows_and_whole_tensors_are_never_compared() -> None:
    fleet = Fleet(2)
    fleet.each(0, record((right(7), 7)))
    fleet.each(1, CheckedRecord(far(7), (Tensor(7),), flags=_reader.CHECKED_STATELESS))
    compared = fleet.look()
    assert {place.tier: (each.fingerprints, each.met) for place, each in compared.sites.items()} == {
        Tier.ROWS: (1, 0), Tier.TENSORS: (1, 0)
    }  # fmt: skip
    assert not compared.findings


def test_rows_of_a_stateful_site_are_compared() -> None:
    fleet = Fleet()
    names = TABLES._replace(names=[None, ("attention", 0)], sites=[None, (1, 3, 0)])
    fleet.workers = [fleet.worker(f"u{n}", names) for n in (0, 1)]
    for worker in (0, 1):
        fleet.each(worker, replace(record((right(7), 7)), flags=ROWS & ~_reader.CHECKED_STATELESS))
    (counts,) = fleet.look().sites.values()
    assert (counts.met, counts.stateful) == (2, 0)


@pytest.mark.parametrize("inputs", [0, 2, 4, 6, 8])
def test_a_record_without_whole_pairs_is_refused(inputs: int) -> None:
    fleet = Fleet(1)
    fleet.each(0, replace(record((right(1), 1)), inputs=(Tensor(1),) * inputs))
    assert (fleet.numerics.fingerprints.refused, fleet.numerics.fingerprints.end) == (1, 0)


def test_a_row_that_was_not_read_is_refused_and_the_others_stay() -> None:
    fleet = Fleet(1)
    unread = replace(right(2), dtype=0)
    fleet.each(0, record((right(1), 1), (unread, 2), (right(3), 3)))
    assert (fleet.numerics.fingerprints.refused, fleet.numerics.fingerprints.end) == (1, 2)


@pytest.mark.parametrize(("first", "second", "met"), [(64, 127, 2), (64, 128, 0), (63, 64, 0), (1, 1, 2), (2, 3, 2)])
def test_rows_of_calls_with_other_powers_of_two_rows_are_not_compared(first: int, second: int, met: int) -> None:
    fleet = Fleet(2)
    fleet.each(0, record((right(1), 1), rows=first))
    fleet.each(1, record((right(1), 1), rows=second))
    assert fleet.look().sites[HERE].met == met


def test_nan_in_a_row_is_not_counted_as_a_birth_again() -> None:
    fleet = Fleet(1)
    fleet.each(0, record((replace(right(1), nan=3), 1)))
    assert not fleet.numerics.fingerprints.births()


# ---- pairs


def test_a_worker_is_apart_at_a_row_if_the_other_never_had_its_newest_output() -> None:
    fleet = Fleet(2)
    fleet.each(0, record((right(1), 1)), record((near(1), 1)), record((right(2), 2)))
    fleet.each(1, record((near(1), 1)), record((far(2), 2)))
    assert fleet.pairs()[0, 1][2:5] == (2, (1, 1), (1, 1))


def test_an_output_is_far_only_if_it_is_far_from_each_output_of_the_other_worker() -> None:
    fleet = Fleet(2)
    fleet.each(0, record((right(1), 1)), record((far(1), 1)))
    fleet.each(1, record((near(1), 1)))
    assert fleet.pairs()[0, 1][2:6] == (1, (1, 1), (1, 0), (1, 0))
    fleet.each(1, record((far(1), 1)))
    assert fleet.pairs()[0, 1][2:6] == (1, (0, 0), (0, 0), (1, 1))


def test_a_fault_that_begins_later_is_found_although_the_worker_was_right_before() -> None:
    fleet = Fleet(3)
    fleet.healthy(range(3), range(8))
    assert not fleet.look().findings
    for row in range(3):
        fleet.each(0, record((far(row), row), step=100 + row))
        fleet.healthy((1, 2), (row,))
    (finding,) = fleet.look().findings.values()
    assert set(finding.outliers) == {"u0"}
    compared = fleet.compare()
    assert (compared.verdict, compared.outlier) == ("diverged", 0)


def test_nan_with_other_bits_is_not_far() -> None:
    fleet = Fleet(2)
    nothing = replace(right(1), nan=64, l2=0.0)
    fleet.each(0, record((nothing, 1)))
    fleet.each(1, record((replace(nothing, checksum=77), 1)))
    assert fleet.pairs()[0, 1][2:5] == (1, (1, 1), (0, 0))


def test_eight_outputs_of_a_row_are_kept() -> None:
    fleet = Fleet(2)
    outputs = [Tensor(10 + n, sketch=FAR) for n in range(9)]
    fleet.each(0, *(record((output, 1), step=n) for n, output in enumerate(outputs)))
    for expected, output in ((0, outputs[0]), (0, outputs[6]), (1, outputs[7])):
        fleet.each(1, record((output, 1), step=99))
        fleet.numerics.fingerprints.mute([])
        apart = fleet.pairs()[0, 1].apart[1]
        assert apart == expected
        fleet.numerics.fingerprints.mute([fleet.workers[1].number])


Outputs = tuple[Callable[[int], Tensor], Callable[[int], Tensor]]
OUTPUTS: dict[str, Outputs] = {
    "far": (far, right),
    "near": (near, right),
    "coarse": (lambda row: coarse(near(row)), lambda row: coarse(right(row))),
}


@contextmanager
def differing(rows: int, steps: int, *, equal: int = 0, by: str = "far") -> Iterator[Fleet]:
    fleet = Fleet(3, bytes_max=1 << 24)
    output, expected = OUTPUTS[by]
    for row in range(rows):
        fleet.each(0, record((output(row), row), step=row % steps))
        for worker in (1, 2):
            fleet.each(worker, record((expected(row), row), step=row))
    for row in range(1000, 1000 + equal):
        for worker in range(3):
            fleet.each(worker, record((expected(row), row), step=row))
    yield fleet


def test_a_new_fault_in_coarse_outputs_is_found_although_most_rows_are_older() -> None:
    fleet = Fleet(2, bytes_max=1 << 24)
    for row in range(200):
        for worker in (0, 1):
            fleet.each(worker, record((coarse(right(row)), row), step=row))
    wrong = [True] * 16 + [False] * 3
    for row, (is_wrong, differs) in enumerate(zip(wrong, [False] * 13 + [True] * 5 + [False], strict=True), 200):
        fleet.each(0, record((coarse((right, near)[is_wrong](row)), row), step=row))
        fleet.each(1, record((coarse(right(row)), row), step=row))
        assert fleet.pairs()[0, 1].differs == (differs, differs), row


def test_coarse_rows_of_one_step_do_not_differ() -> None:
    fleet = Fleet(2)
    for row in range(16):
        fleet.each(0, record((coarse(near(row)), row), step=1))
        fleet.each(1, record((coarse(right(row)), row), step=row))
    assert fleet.pairs()[0, 1].differs == (False, True)
    fleet.each(0, *(record((coarse(near(row)), row), step=2) for row in range(16)))
    assert fleet.pairs()[0, 1].differs == (True, True), "each output came again in another step"


def test_the_case_of_a_pair_is_its_far_row_even_if_it_was_apart_later() -> None:
    fleet = Fleet(2)
    for row in range(10):
        fleet.each(0, record(((far if row == 1 else near)(row), row), step=row))
        fleet.each(1, record((right(row), row), step=row))
        case = 2 * min(row, 1)
        assert fleet.pairs()[0, 1].newest[0] == (case, case + 1)


def test_a_worker_that_changes_its_outputs_for_known_rows_is_the_one_that_differs() -> None:
    """The requests share a beginning, so the same rows come again and again. At first, the worker's outputs are right
    and equal to those of the other workers.
    """
    fleet = Fleet(3, bytes_max=1 << 24)
    rows = range(16)
    for worker in range(3):
        fleet.each(worker, *(record((coarse(right(row)), row), step=row) for row in rows))
    fleet.each(0, *(record((coarse(near(row)), row), step=100 + row) for row in rows))
    assert {of: each.differs for of, each in fleet.pairs().items()} == {
        (0, 1): (True, False), (0, 2): (True, False), (1, 2): (False, False)
    }  # fmt: skip
    (finding,) = fleet.look().findings.values()
    assert set(finding.outliers) == {"u0"}
    fleet.each(0, *(record((coarse(right(row)), row), step=200 + row) for row in rows[:3]))
    assert fleet.pairs()[0, 1].differs == (False, False), "13 of 16 rows are fewer than seven eighths"


@pytest.mark.parametrize(
    ("rows", "steps", "equal", "by", "differ"),
    [
        (3, 2, 100, "far", True),
        (2, 2, 0, "far", False),
        (40, 2, 0, "near", False),
        (8, 2, 0, "coarse", True),
        (7, 2, 0, "coarse", False),
        (8, 2, 1, "coarse", True),
        (8, 2, 2, "coarse", False),
        (14, 2, 2, "coarse", True),
    ],
)
def test_workers_differ_by_three_far_rows_or_eight_coarse_ones_that_are_apart(
    rows: int, steps: int, equal: int, by: str, differ: bool
) -> None:
    with differing(rows, steps, equal=equal, by=by) as fleet:
        assert [pair.differs for pair in fleet.pairs().values()] == [(differ, differ), (differ, differ), (False, False)]
        found = fleet.look()
        assert [dict(each.outliers) for each in found.findings.values()] == [{"u0": 1}] * differ
        assert (fleet.compare().diverged > 0) == differ


def test_rows_of_one_step_name_no_outlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_round, "_WAIT_NS", 0)
    with differing(32, 1) as fleet:
        assert [pair.differs for pair in fleet.pairs().values()] == [(False, True), (False, True), (False, False)]
        (finding,) = fleet.look().findings.values()
        assert not finding.outliers, "the differences may come from one wrong call"


def test_a_row_that_is_repeated_in_another_step_counts_as_two_steps() -> None:
    with differing(3, 1) as fleet:
        for step, differs in ((0, False), (0, False), (5, True), (5, True)):
            fleet.each(0, record((far(0), 0), step=step))
            assert fleet.pairs()[0, 1].differs[0] == differs, "two calls of a module in one step count as one step"


@pytest.mark.parametrize(("steps", "differs"), [((1, 1, 1), False), ((1, 2), True), ((1, 2, 2), True)])
def test_rows_of_one_call_in_two_steps_are_enough(steps: tuple[int, ...], *, differs: bool) -> None:
    """Only the newest fingerprint of each output is current, but the steps of earlier ones are remembered."""
    fleet = Fleet(2)
    for step in steps:
        fleet.each(0, record(*((far(row), row) for row in range(3)), step=step))
    fleet.healthy((1,), range(3))
    assert fleet.pairs()[0, 1].differs[0] == differs


def test_an_output_without_values_is_never_far() -> None:
    fleet = Fleet(2)
    for row in range(9):
        fleet.each(0, replace(record((far(row), row), step=row), fnv1a=0))
        fleet.each(1, replace(record((right(row), row), step=row), fnv1a=0))
    assert fleet.pairs()[0, 1][2:5] == (9, (9, 9), (0, 0))


def test_each_kind_of_evidence_counts_only_its_own_fingerprints() -> None:
    fleet = Fleet(2)
    for worker in (0, 1):
        fleet.each(worker, record((right(1), 1), (right(2), 2)))
        fleet.each(worker, CheckedRecord(right(1), (Tensor(1),), flags=_reader.CHECKED_STATELESS))
    about = fleet.numerics.about([each.uuid for each in fleet.workers])
    parties = [Party(f"api/{n}", each.number) for n, each in enumerate(about.producers.values())]
    evidence = (EvidenceClass.INPUT, EvidenceClass.ROW, EvidenceClass.RUN)
    found = {str(each): compare(about, parties, each).matched.fingerprints for each in evidence}
    assert found == {"input": 2, "row": 4, "run": 2}


def test_workers_without_steps_are_told_apart_by_time() -> None:
    for times, differs in (((5, 5, 6), True), ((5, 5, 5), False)):
        fleet = Fleet(2)
        for row, ticks in enumerate(times):
            for worker, output in ((0, far(row)), (1, right(row))):
                fleet.each(worker, replace(record((output, row), ticks=ticks), flags=ROWS & ~_reader.CHECKED_STEP))
        assert fleet.pairs()[0, 1].differs == (differs, differs)


# ---- verdicts


def test_the_outlier_is_reported_once_with_its_evidence() -> None:
    with differing(9, 9) as fleet:
        (finding,) = fleet.look().findings.values()
        assert (finding.place, finding.cases, set(finding.outliers)) == (HERE, 1, {"u0"})
        assert (finding.first.against.worker, finding.first.other.worker) in {("u1", "u0"), ("u2", "u0")}
        assert fleet.kinds == ["diverged"]
        ((_, text, of),) = fleet.logged
        what = "rows of k1 layer 3, relative error 0.5; its input rows were equal"
        assert text == f"api/0 differs from the others: {what}"
        assert of["worker"] == "api/0"
        fleet.healthy((1, 2), range(9))
        assert fleet.look().findings[HERE].cases == 1, "the worker that differs has sent nothing new"
        fleet.each(0, record((far(1), 1), step=50))
        found = fleet.look().findings[HERE]
        assert (found.cases, found.outliers) == (2, {"u0": 2})


def test_a_worker_that_computes_right_again_gives_no_new_case() -> None:
    with differing(9, 9) as fleet:
        fleet.look()
        fleet.healthy(range(3), range(9))
        assert fleet.look().findings[HERE].cases == 1
        assert not any(any(pair.apart) for pair in fleet.pairs().values())


def test_two_workers_disagree() -> None:
    fleet = Fleet(2)
    for row in range(4):
        fleet.each(0, record((far(row), row), step=row))
        fleet.each(1, record((right(row), row), step=row))
    (finding,) = fleet.look().findings.values()
    assert (dict(finding.outliers), sorted(finding.named)) == ({}, ["u0", "u1"])
    assert fleet.compare().outlier is None


@pytest.mark.parametrize(
    ("others", "wait_ns", "reported"),
    [(1, 1 << 62, False), (40, 1 << 62, False), (40, 0, True), (0, 1 << 62, True)],
)
def test_two_workers_disagree_only_when_a_third_one_cannot_tell_or_after_a_while(
    others: int, wait_ns: int, *, reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_round, "_WAIT_NS", wait_ns)
    fleet = Fleet(3, bytes_max=1 << 24)
    for row in range(40):
        fleet.each(0, record((far(row), row), step=row))
        fleet.each(1, record((right(row), row), step=row))
    fleet.healthy((1, 2), range(100, 100 + others))  # the third worker shares no row with the first worker yet
    assert [bool(each.outliers) for each in fleet.look().findings.values()] == [False] * reported
    assert bool(fleet.watch._rows_since) == (not reported)
    fleet.healthy((2,), range(1))
    (finding,) = fleet.look().findings.values()
    assert (set(finding.outliers), fleet.watch._rows_since) == ({"u0"}, {})


def pair(one: int, other: int, *far: int, differs: tuple[bool, bool] = (False, False)) -> RowPair:
    of_one, of_other, *_ = (*far, 0, 0)
    numbers = (one, other)
    return RowPair(one, other, 9, (of_one, of_other), (of_one, of_other), (0, 0), (numbers, numbers), differs)


BOTH = (True, True)


def test_an_outlier_is_far_from_two_workers_that_agree() -> None:
    apart, once, never = pair(0, 1, 9, 9, differs=BOTH), pair(0, 2, 1, 1), pair(0, 2)
    assert judge_pairs([apart, once, pair(1, 2)]).group.outliers == {0}
    assert not judge_pairs([apart, never, pair(1, 2)]).group.outliers
    assert not judge_pairs([apart, once, pair(1, 2, 1)]).group.outliers
    assert not judge_pairs([apart._replace(differs=(False, True)), once, pair(1, 2)]).group.outliers
    assert not judge_pairs([apart, pair(0, 2, 0, 1), pair(1, 2)]).group.outliers, "only the other worker was far"


def test_a_healthy_worker_that_only_the_outlier_differs_from_is_not_named() -> None:
    """Only the wrong worker really differs from the second worker.

    The third worker differs from the second one just once, by rounding.
    """
    apart, rounded = pair(0, 1, 9, 9, differs=BOTH), pair(1, 2)._replace(apart=(1, 0))
    assert not judge_pairs([apart, rounded]).group.outliers
    assert not judge_pairs([apart, rounded, pair(0, 2)]).group.outliers


@pytest.mark.parametrize(("bad", "named"), [(2, {0, 1}), (5, {0, 1, 2, 3, 4}), (6, set()), (7, set())])
def test_several_equally_wrong_workers_are_named_if_most_are_right(bad: int, named: set[int]) -> None:
    """If 7 of 12 workers are wrong in the same way, the wrong numbers have the majority, so no rule can tell who is
    right.
    """
    pairs = [
        pair(one, other, 9, 9, differs=BOTH) if one < bad <= other else pair(one, other)
        for other in range(12)
        for one in range(other)
    ]
    found = judge_pairs(pairs).group.outliers
    assert found == (named if bad < 7 else set(range(7, 12)))


def test_a_site_where_most_workers_contradict_themselves_is_not_row_wise() -> None:
    pairs = [pair(0, 1, 9, 9, differs=BOTH), pair(0, 2, 9, 9, differs=BOTH), pair(1, 2)]
    assert judge_pairs([each._replace(unlike_own=(3, 0)) for each in pairs]).group.other is None
    assert judge_pairs([each._replace(unlike_own=(2, 2)) for each in pairs]).group.outliers == {0}
    assert judge_pairs([pairs[0]._replace(unlike_own=(3, 0)), *pairs[1:]]).group.outliers == {0}


def test_three_workers_that_all_differ_name_nobody_and_report_nothing() -> None:
    pairs = [pair(one, other, 9, 9, differs=BOTH) for one, other in ((0, 1), (0, 2), (1, 2))]
    assert judge_pairs(pairs).group.other is None
    assert judge_pairs([*pairs[:2], pair(1, 2, 1)]).group.other is None, "a single far output is no agreement"
    assert judge_pairs([*pairs[:2], pair(1, 2, 0, 1)]).group.other is None
    assert judge_pairs([*pairs[:2], pair(1, 2)]).group.outliers == {0}


def test_two_against_two_name_no_outlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_round, "_WAIT_NS", 0)
    fleet = Fleet(4)
    for row in range(8):
        for worker in range(4):
            fleet.each(worker, record(((far, right)[worker < 2](row), row), step=row))
    (finding,) = fleet.look().findings.values()
    assert not finding.outliers


@pytest.mark.ci
def test_rare_differences_by_rounding_are_healthy() -> None:
    fleet = Fleet(3, bytes_max=1 << 24)
    for row in range(200):
        for worker in range(3):
            output = near if row % 3 == worker and row % 2 else right
            fleet.each(worker, record((output(row), row), step=row))
    found = fleet.look()
    assert (found.findings, found.sites[HERE].unlike > 0) == ({}, True)
    compared = fleet.compare()
    assert (compared.verdict, compared.outlier, compared.counts[Class.WITHIN] > 0) == ("within", None, True)


def test_a_verdict_by_rows_survives_the_daemons_end() -> None:
    with differing(9, 9) as fleet:
        before = fleet.look()
        saved = online_codec.decode(json.loads("".join(online_codec.encode(before))))
        assert before.sites[HERE].unlike > 0
        assert (saved.findings, saved.sites, saved.recent) == (before.findings, before.sites, before.recent)


# ---- diff


def test_diff_by_row_names_the_outlier_and_the_site() -> None:
    with differing(9, 9, equal=5) as fleet:
        found = fleet.compare()
        assert (found.verdict, found.outlier) == ("diverged", 0)
        assert found.first is not None
        about = fleet.numerics.sites[found.first.site]
        assert about == Site("k1", 3, "other")
        assert found.first.judgement.blame == "culprit"
        assert found.counts == {Class.IDENTICAL: 5 * 2 + 9, Class.DIVERGED: 9}


def test_diff_by_row_names_an_outlier_that_shares_enough_rows_with_only_one_of_the_others() -> None:
    fleet = Fleet(3)
    fleet.healthy([0, 2], [1, 2])
    fleet.healthy([2], [3])
    for row in (1, 2, 3):
        fleet.each(1, record((far(row), row), step=row))
    assert {pair: each.differs for pair, each in fleet.pairs().items()} == {
        (0, 1): (False, False),
        (0, 2): (False, False),
        (1, 2): (True, True),
    }
    found = fleet.compare()
    assert (found.outlier, found.counts[Class.DIVERGED]) == (1, 3)


def test_one_row_of_a_known_outlier_is_enough() -> None:
    with differing(9, 9) as fleet:
        found = fleet.look()
        later = Fleet(3)
        later.each(0, record((far(1), 1)))
        later.healthy((1, 2), (1,))
        assert later.compare().diverged == 0
        about = later.numerics.about([each.uuid for each in later.workers])
        recall(about, replace(found, oldest={}), {})
        parties = [Party(f"api/{n}", each.number) for n, each in enumerate(about.producers.values())]
        for first in (0, 1):
            compared = compare(about, parties[first:], EvidenceClass.ROW)
            assert (compared.diverged, compared.outlier) == (1 - first, None if first else 0)


def test_evidence_of_rows_is_recalled_if_rows_were_evicted_and_whole_tensors_were_not() -> None:
    with differing(9, 9) as fleet:
        for worker in range(3):
            fleet.each(worker, CheckedRecord(right(1), (Tensor(1),), flags=_reader.CHECKED_STATELESS))
        found = fleet.look()
        assert found.oldest.keys() == {("api", Tier.TENSORS), ("api", Tier.ROWS), ("api", Tier.HISTORY)}
        about, shards = Numerics(), dict.fromkeys(("u0", "u1", "u2"), "")
        recall(about, found, shards)
        assert about.fingerprints.end == 0, "all rows are still in the window"
        recall(about, replace(found, oldest={**found.oldest, ("api", Tier.ROWS): 1 << 63}), shards)
        assert about.fingerprints.end > 0


def test_the_oldest_rows_are_known_apart_from_the_oldest_whole_tensors() -> None:
    fleet = Fleet(numerics=Numerics(1 << 20, shares=True))
    fleet.workers = [fleet.worker("u0")]
    fleet.each(0, record((right(1), 1)))
    assert fleet.look().oldest.keys() == {("api", Tier.ROWS)}


def test_too_few_rows_that_differ_are_within_tolerance() -> None:
    with differing(2, 2, equal=5) as fleet:
        found = fleet.compare()
        assert (found.verdict, found.counts[Class.WITHIN], found.diverged) == ("within", 2, 0)
        assert doubts(fleet.look()) == {}, "rounding may be the cause"


# ---- the choice of the workers, of the site and of the time


def test_of_two_workers_one_that_contradicts_itself_is_still_compared() -> None:
    (only,) = [pair(0, 1, 9, 9, differs=BOTH)._replace(unlike_own=(3, 0))]
    assert judge_pairs([only]).group.other is not None


def test_a_worker_that_differs_only_from_one_outside_of_the_majority_is_no_outlier() -> None:
    agreeing = [pair(one, other) for one, other in ((2, 3), (2, 4), (3, 4))]
    assert not judge_pairs([pair(0, 1, 9, 9, differs=BOTH), pair(0, 2, 1), *agreeing]).group.outliers


def test_a_third_worker_with_equal_rows_may_soon_tell_which_of_two_is_wrong() -> None:
    differing = pair(0, 1, 9, 9, differs=BOTH)
    assert judge_pairs([differing, pair(1, 2)]).waits
    assert not judge_pairs([differing, pair(2, 3)]).waits, "these two workers do not differ"
    assert not judge_pairs([differing, pair(0, 2, 9, 9, differs=BOTH), pair(1, 2)]).waits, (
        "the outlier is already known"
    )


@pytest.mark.parametrize(("outlier", "case"), [(0, (20, 10)), (1, (11, 21))])
def test_the_case_is_the_last_row_where_the_outlier_was_far(outlier: int, case: tuple[int, int]) -> None:
    newest = ((10, 20), (11, 21))
    apart = pair(0, 1, 9, 9, differs=BOTH)._replace(newest=newest)
    other = 1 - outlier
    third = pair(outlier, 2, 1, differs=(False, False))
    group = judge_pairs([apart, third, pair(other, 2)]).group
    assert (set(group.outliers), (group.against, group.other)) == ({outlier}, case)
    one_side = apart._replace(differs=(outlier == 0, outlier == 1))
    group = judge_pairs([one_side]).group
    assert (set(group.outliers), (group.against, group.other)) == (set(), case)


def test_the_case_is_against_a_worker_of_the_majority() -> None:
    far = [pair(0, peer, 3, 3, differs=BOTH) for peer in (1, 2)]
    group = judge_pairs([*far, pair(0, 3, 9, 9, differs=BOTH), pair(1, 2)]).group
    assert (set(group.outliers), group.against in (1, 2)) == ({0}, True)


def test_dead_workers_are_judged_only_if_no_living_ones_have_rows() -> None:
    with differing(9, 9) as fleet:
        names = {worker.uuid: f"api/{n}" for n, worker in enumerate(fleet.workers)}
        assert not fleet.watch.look(lambda: Roll(names, {"api"}, {"u1", "u2"})).findings
        fleet.each(0, record((far(1), 1), step=77))
        assert fleet.watch.look(lambda: Roll(names, {"api"}, ())).findings


def test_a_look_judges_a_bounded_number_of_sites_and_the_next_look_the_others() -> None:
    fleet = Fleet(3, bytes_max=1 << 24)
    for site in range(1, 7):
        for row in range(3):
            for worker in range(3):
                fleet.each(worker, record(((right, far)[worker == 0](row), row), step=row, site=site))
    assert [len(fleet.look().findings), fleet.watch.waits, len(fleet.look().findings)] == [4, True, 6]


NAMED = TABLES._replace(
    names=[None, ("mlp", 0), ("mlp.down", 0)], sites=[None, (2, 3, 0), (1, 3, 0), (2, 5, 0), (1, 7, 0)]
)


@pytest.mark.parametrize(("sites", "first"), [((1, 2), ("mlp", 3)), ((1, 4), ("mlp.down", 3))])
def test_the_first_difference_is_at_the_outermost_site_of_its_layer(
    sites: tuple[int, ...], first: tuple[str, int]
) -> None:
    fleet = Fleet(bytes_max=1 << 24)
    fleet.workers = [fleet.worker(f"u{n}", NAMED) for n in range(3)]
    for row in range(3):
        for site in sites:
            for worker in range(3):
                fleet.each(
                    worker, record(((right, far)[worker == 0](row), row), step=row, site=site, ticks=site + 10 * row)
                )
    found = fleet.compare().first
    assert found is not None
    assert fleet.numerics.sites[found.site][:2] == first


def test_a_row_with_a_majority_is_shown_before_one_of_two_workers() -> None:
    fleet = Fleet(3)
    for row in range(4):
        for worker in range(2 + (row == 3)):
            fleet.each(worker, record(((right, far)[worker == 0](row), row), step=row, ticks=row))
    found = fleet.compare()
    assert (found.outlier, found.first is not None and len(found.first.row.members)) == (0, 3)


def test_a_finding_on_whole_tensors_says_nothing_about_rows() -> None:
    fleet = Fleet(3)
    for worker in range(3):
        fleet.each(worker, CheckedRecord((right, far)[worker == 0](1), (Tensor(1),), flags=_reader.CHECKED_STATELESS))
    found = fleet.look()
    assert found.findings
    about = fleet.numerics.about([each.uuid for each in fleet.workers])
    recall(about, found, {})
    assert not about.named
