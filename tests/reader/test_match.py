"""The comparison of workers: which records are compared, and what the results are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from checked_record import NUMBERS, CheckedRecord, Tensor, add
from hypothesis import example, given
from hypothesis import strategies as st

from brickd.analysis.numerics.match import Class, Matched, match
from brickd.shm import _reader

MiB = 1 << 20
IN = (Tensor(7),)


def matched(
    *workers: Sequence[CheckedRecord],
    by_input: bool = False,
    rtol: float | None = None,
    rows_max: int = 4096,
    shards: Sequence[int] = (),
) -> Matched:
    fingerprints = _reader.Fingerprints(64 * MiB)
    for number, reported in enumerate(workers):
        add(fingerprints, number, reported, shard=shards[number] if shards else 0)
    return match(fingerprints, range(len(workers)), [0] * len(workers), by_input=by_input, rtol=rtol, rows_max=rows_max)


def classes(of: Matched) -> dict[str, int]:
    total: Counter[str] = Counter()
    for site in of.sites:
        total.update({Class(n).name: count for n, count in enumerate(site.classes) if count})
    return dict(total)


def numbers(of: Matched) -> list[int]:
    """Return, for each row, the number of its first fingerprint."""
    return [row.members[0].number for row in of.rows]


def off(checksum: int, by: float, l2: float = 1.0, **values: int) -> Tensor:
    return Tensor(checksum, l2, (by, *(0.0,) * 15), **values)


def test_no_records_give_an_empty_comparison() -> None:
    found = matched([], [])
    assert (found.fingerprints, found.rows, found.sites) == (0, [], [])


def test_by_run_equal_sites_steps_and_positions_are_paired() -> None:
    one = [CheckedRecord(Tensor(n), IN, step=n // 2, position=n % 2, ticks=n) for n in range(6)]
    assert classes(matched(one, one)) == {"IDENTICAL": 6}
    assert matched(one, one).steps == (3, 0, 0)
    assert matched(one, [CheckedRecord(Tensor(1), IN, step=9)]).steps == (0, 4, 0)


def test_the_first_difference_in_execution_order_leads() -> None:
    good = [CheckedRecord(Tensor(n), IN, position=n, ticks=100 + n) for n in range(6)]
    bad = [CheckedRecord(off(n + 50, 1.0) if n in (2, 4) else Tensor(n), IN, position=n, ticks=n) for n in range(6)]
    found = matched(good, bad[::-1])
    assert numbers(found) == [2, 4]
    assert [(row.class_, row.error, row.inputs_error) for row in found.rows] == [(Class.DIVERGED, 1.0, 0.0)] * 2
    assert classes(found) == {"IDENTICAL": 4, "DIVERGED": 2}


@pytest.mark.parametrize("by_input", [False, True])
def test_a_row_has_its_predecessors_in_any_arrival_order(by_input: bool) -> None:
    good = [CheckedRecord(Tensor(n), (Tensor(n),), position=n, ticks=100 + n) for n in range(6)]
    other = {1: replace(good[1], output=Tensor(1, shape=2)), 4: replace(good[4], output=off(50, 1.0))}
    bad = [other.get(n, each) for n, each in enumerate(good)]
    rows = matched(good, bad[::-1], good, by_input=by_input).rows
    assert [(row.class_, row.before) for row in rows] == [
        (Class.SHAPE, (2, 0, 0)),
        (Class.DIVERGED, (7, 0, 1)),
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_of_three_workers_the_minority_is_the_worst(order: tuple[int, ...]) -> None:
    records = [[CheckedRecord(Tensor(1), IN)], [CheckedRecord(Tensor(1), IN)], [CheckedRecord(off(2, 1.0), IN)]]
    found = matched(*(records[n] for n in order))
    (row,) = found.rows
    assert row.members[row.worst].worker == order.index(2)
    assert row.members[row.against].worker != order.index(2)
    assert classes(found) == {"IDENTICAL": 1, "DIVERGED": 1}


@pytest.mark.parametrize(
    ("given_", "against"),
    [
        pytest.param((7, 7, 7, 7, 7), 0, id="all given the same: the first of them"),
        pytest.param((5, 6, 7, 7, 8), 2, id="given the same as another: the first of those"),
    ],
)
def test_the_reference_is_the_output_of_the_most_similar_group_with_most_votes(
    given_: tuple[int, ...], against: int
) -> None:
    outputs = (off(1, 1.0), off(2, 1.0), off(3, 5.0), off(4, 5.0), off(5, 9.0))
    records = [[CheckedRecord(output, (Tensor(number),))] for output, number in zip(outputs, given_, strict=True)]
    (row,) = matched(*records).rows
    assert row.members[row.against].worker == against


@pytest.mark.parametrize(("given_", "against"), [((5, 6, 7, 8, 9), 0), ((5, 6, 6, 8, 9), 1), ((5, 6, 6, 5, 5), 0)])
def test_equal_outputs_count_no_more_than_near_ones(given_: tuple[int, ...], against: int) -> None:
    outputs = (off(1, 1.0), off(3, 5.0), off(3, 5.0), off(2, 1.0), off(5, 9.0))
    records = [[CheckedRecord(output, (Tensor(number),))] for output, number in zip(outputs, given_, strict=True)]
    (row,) = matched(*records).rows
    assert row.members[row.against].worker == against


def test_of_two_workers_the_first_is_the_reference() -> None:
    (row,) = matched([CheckedRecord(Tensor(1), IN)], [CheckedRecord(off(2, 0.5), IN)]).rows
    assert (row.against, row.worst) == (0, 1)


@pytest.mark.parametrize(
    ("dtype", "elements", "tolerance"),
    [
        (12, 64, 8 * (2**-24 + 2**-24 * 8)),
        (12, 4096, 8 * (2**-24 + 2**-24 * 64)),
        (13, 64, 8 * (2**-53 + 2**-53 * 8)),
        (11, 64, 8 * (2**-8 + 2**-24 * 8)),
        (10, 64, 8 * (2**-11 + 2**-24 * 8)),
    ],
)
def test_the_tolerance_follows_from_dtype_and_reduction(dtype: int, elements: int, tolerance: float) -> None:
    given_ = (Tensor(7, elements=elements),)

    def of(by: float) -> Matched:
        return matched(
            [CheckedRecord(off(1, 0.0, dtype=dtype), given_)], [CheckedRecord(off(2, by, dtype=dtype), given_)]
        )

    assert classes(of(0.99 * tolerance)) == {"WITHIN": 1}
    assert classes(of(1.01 * tolerance)) == {"DIVERGED": 1}
    assert of(0.5 * tolerance).sites[0].error == pytest.approx(0.5 * tolerance)


def test_a_given_tolerance_is_used_and_integers_have_none() -> None:
    one, other = [CheckedRecord(off(1, 0.0), IN)], [CheckedRecord(off(2, 0.1), IN)]
    assert classes(matched(one, other, rtol=0.2)) == {"WITHIN": 1}
    assert classes(matched(one, other, rtol=0.05)) == {"DIVERGED": 1}
    assert classes(matched(one, [CheckedRecord(off(2, 0.0), IN)], rtol=0.0)) == {"DIVERGED": 1}
    whole, number = [CheckedRecord(off(1, 0.0, dtype=5), IN)], [CheckedRecord(off(2, 0.0, dtype=5), IN)]
    assert classes(matched(whole, number, rtol=0.2)) == {"DIVERGED": 1}


def test_more_nan_in_one_output_is_never_within_tolerance() -> None:
    found = matched([CheckedRecord(Tensor(1), IN)], [CheckedRecord(Tensor(2, nan=1), IN)], rtol=10.0)
    assert classes(found) == {"DIVERGED": 1}
    assert found.rows[0].error is None


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (CheckedRecord(Tensor(2, shape=5), IN), "SHAPE"),
        (CheckedRecord(Tensor(2, dtype=5), IN), "DTYPE"),
        (CheckedRecord(Tensor(2), IN, valid=3), "VALID"),
        (CheckedRecord(Tensor(2), IN, params=3), "PARAMS"),
        (CheckedRecord(Tensor(2), IN, relation=1, of=3), "RELATION"),
    ],
)
def test_outputs_of_different_form_are_not_comparable_for_that_reason(other: CheckedRecord, why: str) -> None:
    found = matched([CheckedRecord(Tensor(1), IN)], [other])
    assert classes(found) == {why: 1}
    assert [Class(row.class_).name for row in found.rows] == [why]


def test_another_backend_or_precision_is_compared_only_by_run() -> None:
    one, other = [CheckedRecord(Tensor(1), IN)], [CheckedRecord(off(2, 1e-8), IN, backend=3)]
    assert classes(matched(one, other)) == {"WITHIN": 1}
    assert classes(matched(one, other, by_input=True)) == {"BACKEND": 1}
    assert classes(matched(one, [CheckedRecord(off(2, 0.02, dtype=11), IN)])) == {"WITHIN": 1}


def test_outputs_beyond_a_sketch_are_not_comparable_if_a_tolerance_applies() -> None:
    def of(one: CheckedRecord, **how: float) -> dict[str, int]:
        beyond = replace(one, output=replace(one.output, checksum=2, sketch=(float("inf"),) * 16))
        return classes(matched([replace(one, inputs=(Tensor(8),))], [beyond], **how))  # type: ignore[arg-type]

    assert of(CheckedRecord(Tensor(1), IN)) == {"RANGE": 1}
    assert of(CheckedRecord(Tensor(1), IN), rtol=0.0) == {"DIVERGED": 1}, "no difference is tolerated"
    assert of(CheckedRecord(Tensor(1, dtype=5), IN)) == {"DIVERGED": 1}, "integers are never nearly equal"
    assert of(CheckedRecord(Tensor(1), (Tensor(8),))) == {"DIVERGED": 1}, "equal inputs must give equal outputs"


def test_different_integer_inputs_are_different_under_any_tolerance() -> None:
    one, other = ([CheckedRecord(Tensor(1), (off(given_, by, dtype=5),))] for given_, by in ((7, 0.0), (8, 0.1)))
    assert matched(one, other, rtol=0.5).steps == (1, 0, 1)
    one, other = ([CheckedRecord(Tensor(1), (off(given_, by),))] for given_, by in ((7, 0.0), (8, 0.1)))
    assert matched(one, other, rtol=0.5).steps == (1, 0, 0)


def test_repeats_are_paired_in_order_if_all_workers_have_equally_many() -> None:
    one = [CheckedRecord(Tensor(n), IN, ticks=n) for n in (1, 2, 3)]
    assert classes(matched(one, one)) == {"IDENTICAL": 3}
    assert classes(matched(one, one[:2])) == {"REPEATS": 1}
    assert [row.against for row in matched(one, one[:2], one).rows] == [0]
    assert classes(matched(one[:1] * 3, one[:1] * 2)) == {"IDENTICAL": 1}


def test_repeats_of_several_threads_are_paired_in_execution_order() -> None:
    one = [CheckedRecord(off(n, 1.0 * n), IN, ticks=n) for n in range(4)]
    assert classes(matched(one, one[2:] + one[:2])) == {"IDENTICAL": 4}


def test_a_step_with_other_first_inputs_is_other_work_before_any_divergence() -> None:
    def steps(*wrong: int, inputs: Sequence[int] = ()) -> list[CheckedRecord]:
        return [
            CheckedRecord(
                off(10 * n + (n in wrong or n in inputs), 1.0 * (n in wrong or n in inputs)),
                (off(7 + (n in inputs), float(n in inputs)),),
                step=n,
                ticks=n,
            )
            for n in range(1, 5)
        ]

    assert classes(matched(steps(), steps(inputs=[2]))) == {"IDENTICAL": 3, "WORK": 1}
    assert matched(steps(), steps(inputs=[2])).steps == (4, 0, 1)
    assert classes(matched(steps(), steps(1, inputs=[2]))) == {"IDENTICAL": 2, "DIVERGED": 2}


# For each step: its number, whether it reads a state, and the first input of each worker.
STEPS = st.integers(2, 4).flatmap(
    lambda workers: st.lists(
        st.tuples(
            st.integers(1, 9),
            st.booleans(),
            st.lists(st.sampled_from([0, 0, 1, 2]), min_size=workers, max_size=workers),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda step: step[0],
    )
)


@pytest.mark.ci
@given(STEPS)
@example([(5, False, [0, 1, 1]), (3, True, [0, 0, 0]), (4, True, [0, 2, 1]), (1, True, [0, 0, 0])])
@example([(2, False, [0, 1, 2]), (1, False, [0, 2, 1]), (3, True, [0, 0, 0])])
@example([(1, False, [1, 0]), (2, True, [0, 0]), (3, False, [0, 0])])
def test_other_work_equals_that_of_a_plain_list(ran: list[tuple[int, bool, list[int]]]) -> None:
    """A step does other work if its inputs differ from those of the first worker, or if it reads a state that was
    written by other work.
    """
    workers = range(len(ran[0][2]))
    flags = {True: _reader.CHECKED_STATEFUL, False: 0}
    records = [
        [
            CheckedRecord(
                Tensor(1), (off(7 + inputs[worker], float(inputs[worker])),), step=step, flags=flags[state], ticks=n
            )
            for n, (step, state, inputs) in enumerate(ran)
        ]
        for worker in workers
    ]
    before: list[tuple[int, ...]] = [()] * len(workers)
    wanted: Counter[str] = Counter()
    for _, state, inputs in ran:
        other = [() if inputs[worker] == inputs[0] else (inputs[worker],) for worker in workers]
        works = Counter((before[worker] if state else (), other[worker]) for worker in workers)
        lone = sum(count == 1 for count in works.values())
        wanted["IDENTICAL"] += sum(count - 1 for count in works.values())
        wanted["WORK"] += lone - (lone == len(workers))
        before = [one + more for one, more in zip(before, other, strict=True)]
    assert classes(matched(*records)) == +wanted


DID = st.tuples(st.sampled_from([0, 0, 1, 2]), st.booleans())


@given(
    st.lists(st.tuples(st.booleans(), st.tuples(DID, DID)), min_size=1, max_size=5),
    st.permutations(range(5)),
)
@example([(False, ((1, False), (0, False))), (True, ((0, True), (0, True))), (False, ((1, False),) * 2)], [0, 1, 2])
@example([(True, ((0, True), (0, False))), (False, ((1, False), (1, False)))], [0, 1])
@example([(True, ((0, False),) * 2), (False, ((1, False),) * 2)], [1, 0])
@example([(False, ((1, False),) * 2), (True, ((0, False),) * 2)], [1, 0])
def test_an_earlier_divergence_explains_other_inputs(
    ran: list[tuple[bool, tuple[tuple[int, bool], ...]]], order: list[int]
) -> None:
    """An example says for each step whether the step reads a state. For each worker, it says how the inputs of the step
    differ and whether the step has a fault.

    The workers with faults did the steps in a different order from the two correct workers.
    """
    own = [step for step in order if step < len(ran)]
    wanted = Counter({"IDENTICAL": len(ran)})

    def record(step: int, ticks: int, inputs: int, wrong: bool) -> CheckedRecord:
        flags = _reader.CHECKED_STATEFUL if ran[step][0] else 0
        output = off(2, 1.0) if wrong else Tensor(1)
        return CheckedRecord(output, (off(7 + inputs, float(inputs)),), step=step, flags=flags, ticks=ticks)

    def did(worker: int) -> list[CheckedRecord]:
        parted_in: Counter[int] = Counter()
        for steps in (own, range(len(ran))):
            diverged = parted = False
            for step in steps:
                inputs, wrong = ran[step][1][worker]
                differs = inputs != 0 and not diverged
                parted_in[step] += differs
                parted |= differs
                diverged |= not differs and wrong and not (parted and ran[step][0])
        parting = {step for step, orders in parted_in.items() if orders == 2}
        for step, (state, each) in enumerate(ran):
            before = parting & ({*range(step)} | {*own[: own.index(step)]})
            is_other = step in parting or (state and before)
            wanted["WORK" if is_other else "DIVERGED" if each[worker][1] else "IDENTICAL"] += 1
        result = []
        for ticks, step in enumerate(own):
            inputs, wrong = ran[step][1][worker]
            # an input that differs from all others
            result.append(record(step, ticks, inputs + 10 * worker * (inputs != 0), wrong))
        return result

    well = [record(step, step, 0, False) for step in range(len(ran))]
    assert classes(matched(well, did(0), did(1), well)) == +wanted


@pytest.mark.parametrize("other", range(3))
def test_other_work_of_one_worker_leaves_the_repeats_of_others_compared(
    other: int,
) -> None:
    def worker(inputs: int) -> list[CheckedRecord]:
        twice = [CheckedRecord(off(n, float(n)), (off(7 + inputs, float(inputs)),), step=2, ticks=n) for n in (1, 2)]
        return [CheckedRecord(Tensor(1), IN, step=1), *twice]

    found = matched(*(worker(n == other) for n in range(3)))
    assert found.steps == (2, 0, 1)
    assert classes(found) == {"IDENTICAL": 2 + 2, "WORK": 1}


@pytest.mark.parametrize(("by_input", "first"), [(True, 0), (False, 1)])
def test_positions_in_execution_order_count_from_zero(by_input: bool, first: int) -> None:
    """In a comparison by run, position 0 belongs to the step itself, so the sites begin at 1."""
    one = [CheckedRecord(Tensor(1), (Tensor(n),), site=n, ticks=n) for n in range(1, 5)]
    sites = matched(one, one, by_input=by_input).sites
    assert sorted(site.moment for site in sites) == [first + n for n in range(4)]


def test_a_missing_site_is_uncertain_at_the_edges_of_the_window() -> None:
    both = [
        CheckedRecord(Tensor(1), IN, step=n, site=site, ticks=10 * n + site) for n in range(4) for site in (1, 2, 3)
    ]
    lacking = [each for each in both if each.site != 2 or each.step not in (1, 3)]
    found = matched(both, lacking)
    assert found.workers[0][1:] == (0, 0)
    assert found.workers[1][1:] == (1, 1)
    assert [(site.missing, site.uncertain) for site in found.sites] == [(0, 0), (1, 1), (0, 0)]
    assert classes(found) == {"IDENTICAL": 10}


def test_a_site_missing_in_a_step_is_uncertain_only_at_window_edges() -> None:
    both = [CheckedRecord(Tensor(1), IN, step=n, site=site, ticks=10 * n + site) for n in range(3) for site in (1, 2)]
    fingerprints = _reader.Fingerprints(MiB)
    for worker, reported in enumerate((both, [each for each in both if each.site != 2])):
        add(fingerprints, worker, reported)
    found = [
        match(fingerprints, [0, 1], [0, since], by_input=False, step=n).workers[1]
        for n, since in ((0, 0), (1, 0), (2, 0), (1, 5))
    ]
    assert [each[1:] for each in found] == [(0, 1), (1, 0), (0, 1), (0, 1)]


def test_by_input_equal_inputs_are_compared_at_any_time_without_tolerance() -> None:
    one = [CheckedRecord(Tensor(n), (Tensor(n),), step=n, ticks=n) for n in range(4)]
    other = [CheckedRecord(off(n + 9 * (n == 2), 1e-9), (Tensor(n),), step=7 - n, ticks=n) for n in range(4)]
    found = matched(one, other, by_input=True)
    assert classes(found) == {"IDENTICAL": 3, "DIVERGED": 1}
    assert numbers(found) == [2]
    assert found.steps == (0, 0, 0)


def test_by_input_a_self_contradicting_minority_is_the_outlier() -> None:
    steady = [CheckedRecord(Tensor(1), IN)] * 5
    once = [*steady, CheckedRecord(off(2, 1.0), IN)]
    found = matched(once, steady, by_input=True)
    (row,) = found.rows
    assert row.class_ == Class.DIVERGED
    assert [member.worker for member in row.members if member.class_ == Class.DIVERGED] == [0]
    assert classes(matched(once, once, by_input=True)) == {"UNSTEADY": 1}
    assert classes(matched(once, steady, steady, by_input=True)) == {"IDENTICAL": 1, "DIVERGED": 1}


@pytest.mark.parametrize(("contradicts", "outliers"), [((1, 2, 2, 2), [0, 2]), ((1, 1, 1, 2), [0, 1])])
def test_by_input_a_self_contradicting_worker_counts_by_its_most_frequent_output(
    contradicts: tuple[int, ...], outliers: list[int]
) -> None:
    outputs = {1: Tensor(1), 2: off(2, 1.0)}
    workers = [[CheckedRecord(outputs[number], IN) for number in each] for each in (contradicts, (2,), (1,))]
    (row,) = matched(*workers, by_input=True).rows
    assert [member.worker for member in row.members if member.class_ == Class.DIVERGED] == outliers


@pytest.mark.parametrize("times", [*permutations((1, 2, 3))])
@pytest.mark.parametrize("steady", [1, 2, 3])
def test_by_input_a_self_contradicting_workers_differing_output_is_shown(times: tuple[int, ...], steady: int) -> None:
    outputs = {number: off(number, 1.0 * number) for number in (1, 2, 3)}
    reported = [number for number, count in enumerate(times, 1) for _ in range(count)]
    most = times.index(3) + 1
    shown = reported.index(most) if steady != most else next(n for n, number in enumerate(reported) if number != most)
    others = [[CheckedRecord(outputs[steady], IN)]] * 3
    (row,) = matched([CheckedRecord(outputs[number], IN) for number in reported], *others, by_input=True).rows
    assert [member.class_ for member in row.members] == [Class.DIVERGED, *(Class.IDENTICAL,) * 3]
    assert row.members[0].number == shown


def test_by_input_the_reference_is_a_steady_worker_if_there_is_one() -> None:
    one, other = CheckedRecord(Tensor(1), IN), CheckedRecord(off(2, 1.0), IN)
    (row,) = matched([one, other], [one], [one], [other], by_input=True).rows
    assert (row.members[row.against].worker, row.agree) == (1, 2)
    assert [member.class_ for member in row.members] == [2, 0, 0, 2]


@pytest.mark.parametrize("by_input", [False, True])
@pytest.mark.parametrize("places", [*permutations((1, 2, 3))])
def test_a_worker_without_a_common_context_is_shown_with_the_first_one(places: tuple[int, ...], by_input: bool) -> None:
    """The order in which the contexts appear does not matter."""
    pair, first, lone = places
    of = (first, pair, pair, first, lone)
    if by_input:
        found = matched(*([CheckedRecord(Tensor(1), IN, params=place)] for place in of), by_input=True)
    else:
        found = matched(*([CheckedRecord(Tensor(1), IN)] for _ in of), shards=of)
    (row,) = found.rows
    assert [member.worker for member in row.members] == [0, 4]
    assert (row.class_, row.against) == (Class.PARAMS if by_input else Class.SHARD, 0)
    assert sum(site.lone for site in found.sites) == 0


@given(st.lists(st.sets(st.integers(1, 5), max_size=3), min_size=2, max_size=5))
@example([{1, 2}, {3, 4}])
@example([{1}, {2, 3}, {2}, {1, 4}])
def test_by_input_each_unshared_worker_is_shown_once_next_to_the_first(
    had: list[set[int]],
) -> None:
    found = matched(
        *([CheckedRecord(Tensor(1), IN, params=each) for each in sorted(own)] for own in had), by_input=True
    )
    of = {each: [worker for worker, own in enumerate(had) if each in own] for each in range(1, 6)}
    shared = [workers for workers in of.values() if len(workers) > 1]
    alone = [workers[0] for workers in of.values() if len(workers) == 1]
    first = min((workers[0] for workers in shared), default=min(alone, default=0))
    apart = sorted(set(alone) - {first, *(worker for workers in shared for worker in workers)})
    members = [first, *apart] if apart else []
    assert [[member.worker for member in row.members] for row in found.rows] == [sorted(members)] * bool(apart)
    assert all(row.members[row.against].worker == first for row in found.rows)
    assert sum(site.lone for site in found.sites) == len(alone) - len(apart) - bool(apart and not shared)
    identical = sum(len(workers) - 1 for workers in shared)
    assert classes(found) == {
        name: count for name, count in (("IDENTICAL", identical), ("PARAMS", len(apart))) if count
    }


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=5), min_size=2, max_size=5))
@example([[1, 1, 2], [1, 3, 1], [2], [3]])
def test_by_input_reference_and_members_match_a_plain_list(reported: list[list[int]]) -> None:
    """For one content, the comparison shows each worker's most frequent output, and whether the worker had others."""
    found = matched(*([CheckedRecord(off(each, 1.0 * each), IN) for each in own] for own in reported), by_input=True)
    begins = [sum(map(len, reported[:worker])) for worker in range(len(reported))]
    most = [min(own, key=lambda each, own=own: (-own.count(each), each)) for own in reported]  # type: ignore[misc]
    steady = [len(set(own)) == 1 for own in reported]
    shown = [begin + own.index(each) for begin, own, each in zip(begins, reported, most, strict=True)]
    wanted = max(most, key=lambda each: (most.count(each), -most.index(each)))
    same = [worker for worker, each in enumerate(most) if each == wanted]
    against = next((worker for worker in same if steady[worker]), same[0])
    if unsteady := 2 * steady.count(False) > len(reported):
        against = 0
    else:
        for worker in same:
            if worker != against and not steady[worker]:
                shown[worker] = begins[worker] + next(n for n, each in enumerate(reported[worker]) if each != wanted)
    spoken = [each for own in reported for each in own]
    if not unsteady and {spoken[number] for number in shown} == {wanted}:
        assert found.rows == []
        return
    (row,) = found.rows
    assert [member.number for member in row.members] == shown
    assert (row.members[row.against].worker, row.class_ == Class.UNSTEADY) == (against, unsteady)
    if not unsteady:
        diverged = [member.class_ == Class.DIVERGED for member in row.members]
        assert diverged == [spoken[number] != wanted for number in shown]


def test_by_input_the_first_of_repeated_outputs_represents_them() -> None:
    def matched_pairs(one: list[int], other: list[int]) -> list[int]:
        records = [
            [CheckedRecord(Tensor(output), IN, step=n) for n, output in enumerate(each)] for each in (one, other)
        ]
        (row,) = matched(*records, by_input=True).rows
        return [member.number for member in row.members]

    assert matched_pairs([1, 1, 1], [2, 2, 2]) == [0, 3]
    assert matched_pairs([1, 1, 1], [1, 2, 1, 2]) == [0, 4], "the other output of the worker is shown"
    assert matched_pairs([3, 2, 1, 1], [1, 1]) == [0, 4]


def test_by_input_fingerprints_without_inputs_or_counterpart_are_counted() -> None:
    found = matched(
        [CheckedRecord(Tensor(1)), CheckedRecord(Tensor(1), (Tensor(3),))], [CheckedRecord(Tensor(1))], by_input=True
    )
    (site,) = found.sites
    assert (site.fingerprints, site.bare, site.lone, site.compared) == (3, 2, 1, 0)


def test_by_input_a_host_given_position_is_part_of_the_context() -> None:
    one = [CheckedRecord(Tensor(n), IN, position=n, flags=_reader.CHECKED_POSITION) for n in (1, 2)]
    assert classes(matched(one[:1], one[1:], by_input=True)) == {}
    assert classes(matched(one, one, by_input=True)) == {"IDENTICAL": 2}
    counted = [[replace(each, flags=0)] for each in one]
    assert classes(matched(*counted, by_input=True)) == {"DIVERGED": 1}


@pytest.mark.parametrize("by_input", [False, True])
def test_sites_are_sorted_by_execution_whatever_the_clocks(by_input: bool) -> None:
    one = [CheckedRecord(Tensor(1), (Tensor(n),), site=n, ticks=1000 + n) for n in (1, 2, 3)]
    early = [replace(each, inputs=(Tensor(50 + each.site),), step=9, ticks=10 - each.site) for each in one]
    found = matched(one, [*early, CheckedRecord(Tensor(1), (Tensor(9),), site=4, ticks=5)], by_input=by_input)
    order = sorted(found.sites, key=lambda site: site.moment)
    assert [site.site for site in order] == [NUMBERS[n] for n in (1, 2, 3, 4)]


def test_by_input_a_row_has_the_place_where_its_inputs_first_occurred() -> None:
    good = [CheckedRecord(Tensor(1), IN, site=site, ticks=ticks) for site, ticks in ((1, 1), (2, 2), (1, 9))]
    bad = [CheckedRecord(off(2, 1.0), IN, site=site, ticks=ticks) for site, ticks in ((1, 1), (2, 2))]
    assert numbers(matched(good, bad, by_input=True)) == [0, 1]


def test_a_comparison_can_be_limited_to_a_step_or_recent_fingerprints() -> None:
    records = [CheckedRecord(Tensor(1), IN, step=n, ticks=n) for n in range(6)]
    fingerprints = _reader.Fingerprints(MiB)
    for worker in (0, 1):
        add(fingerprints, worker, records)
    assert match(fingerprints, [0, 1], [0, 0], by_input=False, step=3).fingerprints == 2
    assert match(fingerprints, [0, 1], [4, 2], by_input=False).fingerprints == 6


def test_a_bounded_number_of_rows_is_returned_and_all_are_in_the_classes() -> None:
    one = [CheckedRecord(Tensor(1), IN, position=n, ticks=n) for n in range(100)]
    other = [CheckedRecord(off(2, 1.0), IN, position=n) for n in range(100)]
    found = matched(one, other, rows_max=7)
    assert (len(found.rows), classes(found)) == (7, {"DIVERGED": 100})


def test_comparable_rows_are_returned_before_others() -> None:
    one = [CheckedRecord(Tensor(1, shape=1 + n // 5), IN, position=n, ticks=n) for n in range(10)]
    other = [CheckedRecord(off(2, 1.0), IN, position=n) for n in range(10)]
    for rows_max, reported in ((5, [0, 1, 2, 3, 4]), (3, [0, 1, 2]), (7, [0, 1, 2, 3, 4, 5, 6])):
        assert numbers(matched(one, other, rows_max=rows_max)) == reported
        turned = matched(one[::-1], other[::-1], rows_max=rows_max)
        assert numbers(turned) == [9 - n for n in reported], "the numbers follow the order of execution"
    late = [replace(each, ticks=20 - each.ticks) for each in one]
    assert numbers(matched(late, other, rows_max=6)) == [9, 4, 3, 2, 1, 0]


def test_by_input_stateful_outputs_are_identical_or_not_comparable() -> None:
    def stateful(*outputs: int) -> list[CheckedRecord]:
        return [CheckedRecord(Tensor(output), IN, flags=_reader.CHECKED_STATEFUL) for output in outputs]

    assert classes(matched(stateful(1), stateful(1), by_input=True)) == {"IDENTICAL": 1}
    assert classes(matched(stateful(1), stateful(2), by_input=True)) == {"STATEFUL": 1}
    assert classes(matched(stateful(1), stateful(1, 2), by_input=True)) == {"STATEFUL": 1}
    assert classes(matched(stateful(1), stateful(1), stateful(2), by_input=True)) == {"STATEFUL": 2}
    plain = [CheckedRecord(Tensor(2), IN)]
    assert classes(matched(stateful(1), plain, by_input=True)) == {"STATEFUL": 1}, "only one worker has a state"
    assert classes(matched(stateful(1), stateful(2))) == {"WITHIN": 1}, "by run, both workers did the same work"


all_records = st.lists(
    st.builds(
        CheckedRecord,
        st.integers(1, 3).map(Tensor),
        st.sampled_from([(), (Tensor(1),), (Tensor(2),)]),
        site=st.integers(1, 2),
        step=st.integers(0, 2),
        position=st.integers(0, 1),
        params=st.sampled_from([0, 0, 0, 4]),
        flags=st.sampled_from([0, 0, 0, _reader.CHECKED_STATEFUL]),
    ),
    max_size=12,
)


@pytest.mark.ci
@given(st.lists(all_records, min_size=2, max_size=4))
def test_every_fingerprint_is_in_one_row_and_every_comparison_in_one_class(workers: list[list[CheckedRecord]]) -> None:
    for by_input in (False, True):
        found = matched(*workers, by_input=by_input)
        assert found.fingerprints == sum(map(len, workers)) == sum(site.fingerprints for site in found.sites)
        assert [worker.fingerprints for worker in found.workers] == list(map(len, workers))
        for site in found.sites:
            assert sum(site.classes) == site.compared
        for row in found.rows:
            ones = [member.class_ for member in row.members]
            assert ones[row.against] == Class.IDENTICAL
            assert any(class_ != Class.IDENTICAL for class_ in ones)


@pytest.mark.ci
@given(st.lists(all_records, min_size=2, max_size=2))
def test_by_input_equality_is_that_of_a_dictionary(workers: list[list[CheckedRecord]]) -> None:
    workers = [[replace(each, flags=0) for each in reported] for reported in workers]
    groups: dict[tuple[object, ...], dict[int, tuple[set[int], set[int]]]] = defaultdict(
        lambda: defaultdict(lambda: (set(), set()))
    )
    for number, reported in enumerate(workers):
        for each in reported:
            if each.inputs:
                groups[each.site, each.inputs][each.params][number].add(each.output.checksum)
    wanted: Counter[str] = Counter()
    for contexts in groups.values():
        both = [(one, other) for one, other in contexts.values() if one and other]
        for one, other in both:
            unsteady = (len(one) > 1) + (len(other) > 1)
            differs = "UNSTEADY" if unsteady == 2 else "DIVERGED"
            wanted["IDENTICAL" if len(one | other) == 1 else differs] += 1
        if not both and all(any(each[number] for each in contexts.values()) for number in (0, 1)):
            wanted["PARAMS"] += 1
    assert classes(matched(*workers, by_input=True)) == wanted


def test_by_input_a_worker_alone_in_its_context_gets_the_reason() -> None:
    def by(backend: int, output: int) -> list[CheckedRecord]:
        return [CheckedRecord(Tensor(output), IN, backend=backend)]

    found = matched(by(1, 1), by(1, 1), by(2, 2), [*by(2, 2), *by(1, 1)], by(3, 1), by_input=True)
    assert classes(found) == {"IDENTICAL": 3, "BACKEND": 1}
    (row,) = found.rows
    assert [(each.worker, Class(each.class_)) for each in row.members] == [(0, Class.IDENTICAL), (4, Class.BACKEND)]
    assert found.sites[0].lone == 0
    alone = matched(by(1, 1), by(1, 1), [*by(1, 1), *by(2, 1)], by_input=True)
    assert (classes(alone), alone.sites[0].lone) == ({"IDENTICAL": 2}, 1)
    other = [CheckedRecord(Tensor(1), IN, backend=1, valid=3)]
    assert classes(matched(by(1, 1), other, by_input=True)) == {"VALID": 1}


@pytest.mark.parametrize("by_input", [False, True])
def test_shards_are_compared_only_within_themselves(by_input: bool) -> None:
    def half(output: int) -> list[CheckedRecord]:
        return [CheckedRecord(off(output, output), IN, position=n) for n in range(2)]

    def classes_of(*outputs: int, shards: Sequence[int]) -> dict[str, int]:
        return classes(matched(*map(half, outputs), by_input=by_input, shards=shards))

    each = 1 if by_input else 2
    assert classes_of(1, 2, 1, 2, shards=(7, 8, 7, 8)) == {"IDENTICAL": 2 * each}
    assert classes_of(1, 2, 1, 3, shards=(7, 8, 7, 8)) == {"IDENTICAL": each, "DIVERGED": each}
    assert classes_of(1, 2, shards=(7, 8)) == {"SHARD": each}
    assert classes_of(1, 2, 1, 3, shards=(7, 8, 7, 0)) == {"IDENTICAL": each, "SHARD": 2 * each}, (
        "the worker is listed once, together with another worker"
    )
    found = matched(half(1), half(2), half(1), shards=(7, 8, 7), by_input=by_input)
    assert (found.workers[1].missing + found.workers[1].uncertain, found.sites[0].lone) == (0, 0)


@pytest.mark.parametrize(("relation", "why"), [(0, "SHARD"), (1, "DIVERGED"), (2, "SHARD"), (3, "DIVERGED")])
def test_tensors_replicated_or_moved_in_a_group_are_compared_across_shards(relation: int, why: str) -> None:
    one, other = ([CheckedRecord(off(output, output), IN, relation=relation, of=3)] for output in (1, 2))
    for by_input in (False, True):
        assert classes(matched(one, other, by_input=by_input, shards=(7, 8))) == {why: 1}


def test_the_error_is_unknown_where_a_recording_left_it_out() -> None:
    for one, other in ((0, 0), (0, 1), (1, 0)):
        sketched = [(3.0,) * 16 if fnv1a else (0.0,) * 16 for fnv1a in (one, other)]
        inputs = [(Tensor(7 + n, 1.0, sketched[n]),) for n in range(2)]
        records = [CheckedRecord(Tensor(n, 1.0, sketched[n]), inputs[n], fnv1a=(one, other)[n]) for n in range(2)]
        (row,) = matched(records[:1], records[1:], rtol=10.0).rows
        assert (Class(row.class_), row.error, row.inputs_error) == (Class.VALUES, None, None)
        assert classes(matched(records[:1], records[1:], rtol=0.0)) == {"DIVERGED": 1}, "no difference is tolerated"
        records = [replace(each, inputs=IN) for each in records]
        assert classes(matched(records[:1], records[1:])) == {"DIVERGED": 1}, "equal inputs must give equal outputs"
        records = [replace(each, flags=_reader.CHECKED_STATEFUL) for each in records]
        assert classes(matched(records[:1], records[1:])) == {"VALUES": 1}, "a state may explain the difference"
    assert classes(matched([CheckedRecord(Tensor(1), IN, fnv1a=0)], [CheckedRecord(Tensor(1), IN)])) == {"IDENTICAL": 1}


GIVEN = _reader.CHECKED_POSITION


@pytest.mark.parametrize(
    ("each", "flags", "first_step", "worn", "class_"),
    [
        (1, 0, 5, (False, False), Class.DIVERGED),
        (1, 0, 5, (True, False), Class.DIVERGED),  # a fingerprint keeps its number, even if others are evicted
        (1, GIVEN, 5, (True, False), Class.REPEATS),
        (1, GIVEN, 5, (False, True), Class.REPEATS),
        (1, GIVEN, 4, (True, True), Class.DIVERGED),  # the compared outputs are not the first outputs of the workers
        (2, GIVEN, 5, (False, False), Class.DIVERGED),
        (2, GIVEN, 5, (True, False), Class.REPEATS),
        (2, GIVEN, 4, (True, False), Class.DIVERGED),
        (2, 0, 5, (True, False), Class.REPEATS),
    ],
)
def test_repeats_are_paired_only_if_no_earlier_one_may_be_evicted(
    each: int, flags: int, first_step: int, worn: tuple[bool, bool], class_: Class
) -> None:
    fingerprints = _reader.Fingerprints(MiB)
    for worker, outputs in enumerate(((1, 2), (3, 4))):
        first = CheckedRecord(Tensor(9), IN, step=4, position=7, ticks=1, flags=flags)
        again = [CheckedRecord(off(n, 1.0 * n), IN, step=5, flags=flags, ticks=10 + n) for n in outputs[:each]]
        add(fingerprints, worker, [first, *again] if first_step == 4 else again)
    found = match(fingerprints, range(2), [0, 0], by_input=False, worn=worn)
    assert {row.class_ for row in found.rows} == {class_}
    assert len(found.rows) == (1 if class_ == Class.REPEATS else each)


@pytest.mark.parametrize("since", [0, 10, 11])
def test_a_partly_outdated_step_is_compared_only_if_all_agree(since: int) -> None:
    def classes_of(*outputs: int) -> dict[str, int]:
        fingerprints = _reader.Fingerprints(MiB)
        for worker, output in enumerate(outputs):
            old = CheckedRecord(Tensor(5), IN, step=3, position=1, ticks=10)
            add(fingerprints, worker, [old, CheckedRecord(off(output, 1.0 * output), IN, step=3, position=2, ticks=20)])
        return classes(match(fingerprints, range(2), [since, 0], by_input=False))

    cut = since > 10
    assert classes_of(1, 1)["IDENTICAL"] == (1 if cut else 2)
    assert classes_of(1, 2) == ({"REPEATS": 1} if cut else {"IDENTICAL": 1, "DIVERGED": 1})
