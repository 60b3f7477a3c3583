"""Comparison by input: a difference that another order of additions explains is `within`; every other difference
diverges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import pytest
from checked_record import CheckedRecord, Tensor, add
from hypothesis import given
from hypothesis import strategies as st
from summation_orders import BFLOAT16, BIT, FAR, FLOAT16, INT32, OTHER, OTHER_BIT, THIRD, USUAL, always, records_of
from test_match import classes

from brickd.analysis.numerics.match import Class, Matched, MatchRow, match
from brickd.shm import _reader

MiB = 1 << 20


def prints_of(*workers: Sequence[CheckedRecord]) -> _reader.Fingerprints:
    fingerprints = _reader.Fingerprints(64 * MiB)
    for number, each in enumerate(workers):
        add(fingerprints, number, each)
    return fingerprints


def matched(*workers: Sequence[CheckedRecord]) -> Matched:
    return match(prints_of(*workers), range(len(workers)), [0] * len(workers), by_input=True)


def by_content(*workers: Sequence[CheckedRecord]) -> dict[int, MatchRow]:
    """Return the unequal rows, keyed by content."""
    contents = [each.ticks for records_ in workers for each in records_]
    return {contents[row.members[0].number]: row for row in matched(*workers).rows}


def apart(*workers: Sequence[CheckedRecord]) -> dict[int, tuple[int, list[int]]]:
    """Return, for each content, the diverging workers and the worker with which they are compared."""
    return {
        content: (
            row.members[row.against].worker,
            [member.worker for member in row.members if member.class_ == Class.DIVERGED],
        )
        for content, row in by_content(*workers).items()
        if row.class_ == Class.DIVERGED
    }


# ---- two workers


@pytest.mark.parametrize(("contents", "class_"), [(1, "DIVERGED"), (2, "DIVERGED"), (3, "WITHIN"), (9, "WITHIN")])
def test_rounding_differences_at_three_contents_make_another_class(contents: int, class_: str) -> None:
    found = matched(records_of(always(USUAL, contents)), records_of(always(OTHER, contents)))
    assert classes(found) == {class_: contents}
    assert {row.contents for row in found.rows} == {contents}
    assert all(0 < row.error < 1e-6 for row in found.rows if row.error is not None)
    assert found.sites[0].error == (max(row.error or 0 for row in found.rows) if contents > 2 else 0)


@pytest.mark.ci
def test_frequent_pairs_leave_space_for_other_pairs_of_the_site() -> None:
    contents, each = 50, 21  # 82 pairs with usual outputs for each of 50 contents: more than the limit of 4,096 pairs
    found = matched(*(records_of(always(what, contents)) for what in (USUAL, OTHER, THIRD) for _ in range(each)))
    assert classes(found) == {"WITHIN": 2 * each * contents, "IDENTICAL": (each - 1) * contents}


def test_repeats_of_one_content_count_as_one() -> None:
    assert classes(matched(records_of(always(USUAL, 1)) * 9, records_of(always(OTHER, 1)) * 9)) == {"DIVERGED": 1}


def test_mostly_equal_workers_are_in_one_class_in_that_context() -> None:
    usual = records_of(always(USUAL, 9))
    mostly = always(OTHER, 9) | dict.fromkeys(range(5), USUAL)
    assert classes(matched(usual, records_of(mostly))) == {"DIVERGED": 4, "IDENTICAL": 5}
    assert classes(matched(usual, records_of(mostly | {0: OTHER}))) == {"WITHIN": 5, "IDENTICAL": 4}
    usual = records_of(always(USUAL)) + records_of(always(USUAL), params=1)
    assert classes(matched(usual, records_of(always(OTHER)) + records_of(always(USUAL), params=1))) == {
        "WITHIN": 5,
        "IDENTICAL": 5,
    }


def test_with_few_contents_per_context_all_contexts_decide() -> None:
    def of(what: int, contexts: int, first: int = 0) -> list[CheckedRecord]:
        return [records_of({n: what}, params=n)[0] for n in range(first, first + contexts)]

    assert classes(matched(of(USUAL, 9), of(OTHER, 9))) == {"WITHIN": 9}
    assert classes(matched(of(USUAL, 2), of(OTHER, 2))) == {"DIVERGED": 2}
    assert classes(matched(of(USUAL, 9), of(OTHER, 4) + of(USUAL, 5, 4))) == {"DIVERGED": 4, "IDENTICAL": 5}
    equal = records_of(always(USUAL, 3), params=99)
    assert classes(matched(of(USUAL, 9) + equal, of(OTHER, 9) + records_of(always(USUAL, 3, c1=OTHER), params=99))) == {
        "WITHIN": 9, "DIVERGED": 1, "IDENTICAL": 2
    }  # fmt: skip


@pytest.mark.ci
def test_examined_contexts_decide_for_those_beyond_the_limit() -> None:
    two = ([records_of({n: what}, params=n)[0] for n in range(5_000)] for what in (USUAL, OTHER))
    assert classes(matched(*two)) == {"WITHIN": 5_000}


@pytest.mark.parametrize("contents", [2, 5, 8, 20])
def test_a_difference_always_in_one_sketch_element_is_not_another_class(contents: int) -> None:
    """If the outputs always differ in the same element of the sketch, the cause is a flipped bit in a weight, not
    rounding.
    """

    def of(output: int, by: float) -> list[CheckedRecord]:
        sketch = (0.0, by, *(0.0,) * 14)
        return [CheckedRecord(Tensor(2 * n + output, 1.0, sketch), (Tensor(1000 + n),)) for n in range(contents)]

    found = matched(of(0, 0.0), of(1, 1e-8))
    assert classes(found) == {"DIVERGED": contents}
    assert {row.contents for row in found.rows} == {2 if contents < 8 else 0}


def test_differences_in_changing_sketch_elements_are_another_class() -> None:
    """On a long tensor, rounding changes only some elements of the sketch, and not always the same ones."""
    places = [*([0.0] * 16 for _ in range(3)), [1e-8, *[0.0] * 15], [0.0, 1e-8, *[0.0] * 14]]
    one = [CheckedRecord(Tensor(2 * n), (Tensor(1000 + n),)) for n in range(5)]
    other = [CheckedRecord(Tensor(2 * n + 1, 1.0, tuple(each)), (Tensor(1000 + n),)) for n, each in enumerate(places)]
    assert classes(matched(one, other)) == {"WITHIN": 5}
    assert classes(matched(one[:3], other[:3])) == {"DIVERGED": 3}


def test_a_single_large_difference_diverges_among_rounding_differences() -> None:
    two = records_of(always(USUAL, 9)), records_of(always(OTHER, 9, c4=FAR))
    found = matched(*two)
    assert apart(*two) == {4: (0, [1])}
    assert classes(found) == {"WITHIN": 8, "DIVERGED": 1}
    assert [row.contents for row in found.rows if row.class_ == Class.DIVERGED] == [0]


def test_with_more_large_differences_none_counts_as_rounding() -> None:
    found = matched(records_of(always(USUAL, 9)), records_of(always(OTHER, 9, c4=FAR, c5=FAR)))
    assert classes(found) == {"DIVERGED": 9}
    assert {row.contents for row in found.rows} == {0}


@pytest.mark.parametrize("damaged", range(4))
def test_a_worker_that_diverges_later_stays_in_its_earlier_class(damaged: int) -> None:
    """The class of the damaged worker cannot be decided by its own outputs alone: too many of them are wrong."""
    workers = [records_of(always(USUAL, 9)), records_of(always(OTHER, 9)), records_of(always(OTHER, 9))]
    workers.insert(damaged, records_of(always(USUAL, 9, c5=FAR, c6=FAR, c7=FAR, c8=FAR)))
    assert {content: workers_apart for content, (_, workers_apart) in apart(*workers).items()} == {
        key: [damaged] for key in range(5, 9)
    }


def test_a_large_difference_in_one_context_counts_in_others() -> None:
    usual = records_of(always(USUAL)) + records_of(always(USUAL), params=1)
    assert classes(matched(usual, records_of(always(OTHER)) + records_of(always(FAR), params=1))) == {"DIVERGED": 10}


def test_a_self_contradicting_worker_is_in_no_other_class() -> None:
    unsteady = records_of(always(OTHER)) + records_of({0: THIRD})
    assert classes(matched(records_of(always(USUAL)), unsteady)) == {"DIVERGED": 5}
    long = records_of(always(OTHER, 20)) + records_of({0: THIRD})
    assert apart(records_of(always(USUAL, 20)), long) == {0: (0, [1])}


def test_integers_are_never_rounded_and_small_tensors_need_one_element() -> None:
    def of(**values: int) -> dict[str, int]:
        return classes(matched(records_of(always(USUAL), **values), records_of(always(OTHER), **values)))

    assert of(dtype=INT32) == {"DIVERGED": 5}
    assert of(dtype=FLOAT16) == of(dtype=BFLOAT16) == of(elements=1) == of(elements=2) == {"WITHIN": 5}


def test_nan_in_one_output_only_is_not_rounding() -> None:
    assert classes(matched(records_of(always(USUAL)), records_of(always(OTHER), nan=1))) == {"DIVERGED": 5}


# ---- more than two workers


def test_a_flipped_bit_in_either_class_is_found_and_named_by_majority() -> None:
    usual, other = records_of(always(USUAL)), records_of(always(OTHER))
    assert apart(usual, usual, other, records_of(always(OTHER, c3=OTHER_BIT))) == {3: (2, [3])}
    assert apart(usual, other, usual, records_of(always(USUAL, c3=BIT))) == {3: (0, [3])}
    five = usual, usual, other, other, records_of(always(OTHER, c3=OTHER_BIT))
    assert apart(*five) == {3: (2, [4])}
    assert [row.agree for row in matched(*five).rows if row.class_ == Class.DIVERGED] == [2]


def test_another_class_does_not_decide_between_two() -> None:
    usual, other, bit = records_of(always(USUAL)), records_of(always(OTHER)), records_of(always(USUAL, c3=BIT))
    for workers in permutations((usual, other, bit)):
        (row,) = (row for row in matched(*workers).rows if row.class_ == Class.DIVERGED)
        assert row.agree == 1
        assert workers[row.members[row.against].worker] is not other
    far = records_of(always(USUAL, c3=FAR))
    (row,) = (row for row in matched(usual, other, far).rows if row.class_ == Class.DIVERGED)
    assert (row.agree, row.worst) == (2, 2)


def test_two_classes_agree_against_a_distant_worker_in_any_order() -> None:
    usual, other, far = records_of(always(USUAL, 9)), records_of(always(OTHER, 9)), records_of(always(USUAL, 9, c3=FAR))
    for workers in permutations((usual, other, far)):
        (row,) = (row for row in matched(*workers).rows if row.class_ == Class.DIVERGED)
        assert row.agree == 2
        assert [each.class_ for each in row.members].count(Class.DIVERGED) == 1
        assert workers[row.members[row.worst].worker] is far


def test_three_classes_are_distinguished() -> None:
    workers = [records_of(always(what)) for what in (USUAL, OTHER, THIRD, THIRD, OTHER, USUAL, USUAL)]
    assert classes(matched(*workers)) == {"WITHIN": 20, "IDENTICAL": 10}


def test_a_worker_with_outputs_of_another_class_belongs_to_it() -> None:
    found = matched(
        records_of(always(USUAL)), records_of(always(USUAL)), records_of(always(OTHER)), records_of({2: OTHER})
    )
    assert classes(found) == {"IDENTICAL": 5, "WITHIN": 6}


BEHAVIOUR = st.dictionaries(
    st.integers(0, 11), st.sampled_from((USUAL, OTHER, THIRD, BIT, OTHER_BIT, FAR)), max_size=12
)


ORDERS = {USUAL: 0, BIT: 0, OTHER: 1, OTHER_BIT: 1, THIRD: 2, FAR: 3}


def rounded(one: int, other: int) -> bool:
    """Return whether two outputs differ at most by rounding."""
    return one == other or FAR not in (one, other)


def contents_of(one: Mapping[int, int], other: Mapping[int, int]) -> int:
    """Return at how many contents two workers differ in the way in which two classes differ. This is a second
    implementation of the rule.
    """
    both = {n: (one[n], other[n]) for n in one.keys() & other.keys()}
    equal = sum(a == b for a, b in both.values())
    odd = sum(not rounded(a, b) for a, b in both.values())
    apart = len(both) - equal - odd
    places = set[int]()
    for n, (a, b) in both.items():
        if a != b and rounded(a, b):
            places |= {n % 16} if ORDERS[a] == ORDERS[b] and a + b != BIT + OTHER_BIT else set(range(16))
    if equal > apart or 8 * odd > apart:
        return apart if apart + equal < 3 and not odd else 0
    if len(places) > 1:
        return apart
    return min(apart, 2) if apart < 8 else 0


def of_two(one: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """Return whether the rule puts two workers into different classes."""
    return contents_of(one, other) >= 3


@given(st.tuples(BEHAVIOUR, BEHAVIOUR))
def test_two_workers_are_in_two_classes_exactly_by_the_rule(two: tuple[dict[int, int], dict[int, int]]) -> None:
    for content, row in by_content(*map(records_of, two)).items():
        near = rounded(two[0][content], two[1][content])
        assert row.class_ == (Class.WITHIN if of_two(*two) and near else Class.DIVERGED)


@pytest.mark.ci
@given(st.lists(BEHAVIOUR, min_size=2, max_size=5), st.randoms())
def test_the_order_of_contents_does_not_matter(workers: list[dict[int, int]], chance: object) -> None:
    def shuffled(of: dict[int, int]) -> list[CheckedRecord]:
        them = records_of(of)
        chance.shuffle(them)  # type: ignore[attr-defined]
        return them

    assert apart(*map(shuffled, workers)) == apart(*map(records_of, workers))


@pytest.mark.ci
@given(st.lists(BEHAVIOUR, min_size=1, max_size=4), st.sampled_from((USUAL, OTHER, THIRD)), st.integers(0, 11))
def test_a_divergence_stays_found_when_a_healthy_worker_is_added(
    others: list[dict[int, int]], order: int, content: int
) -> None:
    """An output that is far from the others stays far, even if another worker is added."""
    wrong = always(USUAL, 12) | {content: FAR}
    workers = [*others, always(USUAL, 12), wrong]
    before = apart(*map(records_of, workers))
    after = apart(*map(records_of, [*workers, always(order, 12)]))
    assert content in before
    assert content in after


@given(st.lists(BEHAVIOUR, min_size=2, max_size=4))
def test_the_classes_of_two_fingerprints_do_not_depend_on_others(workers: list[dict[int, int]]) -> None:
    first, second, *_ = workers
    alone, all_ = prints_of(*map(records_of, workers[:2])), prints_of(*map(records_of, workers))
    for n, content in enumerate(first):
        if content in second:
            other = len(first) + list(second).index(content)
            assert alone.contents(n, other) == all_.contents(n, other) == all_.contents(other, n)
            assert (alone.contents(n, other) >= 3) == (of_two(first, second) and alone.rounded(n, other) > 0)


@pytest.mark.parametrize(("error", "rounded_"), [(2.0**-23, 2), (2.0**-23 + 2.0**-40, 0)])
def test_an_error_within_rounding_is_classified_as_rounding(error: float, rounded_: int) -> None:
    """A float32 number that is not a sum is wrong by at most half a unit in the last place. Two such numbers therefore
    differ by at most one unit.
    """
    one, other = (
        CheckedRecord(Tensor(n, 1.0, (by, *(0.0,) * 15), 1), (Tensor(7, elements=1),), extents=(1, 1))
        for n, by in enumerate((0.0, error))
    )
    assert prints_of([one], [other]).rounded(0, 1) == rounded_


def test_nothing_is_known_about_absent_fingerprints() -> None:
    fingerprints = prints_of(records_of(always(USUAL)), records_of(always(OTHER)))
    assert (fingerprints.rounded(0, 5), fingerprints.contents(0, 5)) == (2, 5)
    assert (fingerprints.rounded(0, 99), fingerprints.contents(99, 0)) == (0, 0)
    assert (fingerprints.rounded(0, 6), fingerprints.contents(0, 6)) == (2, 0), "two contents show the divergence"
