"""How much one row differs from the others: the formula of the score, and the limits of each rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple

import pytest

from brickd.analysis.timing.stats import NOWHERE, Field, Standing, median

Row = Sequence[float | None]

SIX = [0.0] * 6


def standing(row: Row, *others: Row) -> Standing:
    """Return the result for the first row, compared with these other rows. If there are none, it is compared with four
    rows of zeros.
    """
    alike = [[0.0] * len(row)] * 4
    return Field({"it": row, **{f"other {n}": other for n, other in enumerate(others or alike)}}).standing("it")


# ---- the score


def test_among_equals_without_noise_the_error_is_the_floor() -> None:
    assert standing([0.3] * 6).score == pytest.approx(0.3 / 0.0015)


@pytest.mark.parametrize(("others", "usual"), [((-0.1, 0.0, 0.1), 0.1), ((-0.1, 0.0, 0.0, 0.1), 0.1)])
def test_the_spread_of_few_others_counts_more(others: Sequence[float], usual: float) -> None:
    """The spread is the median distance from the middle, converted to sigma and multiplied by 1 + 3 / number of
    rows."""
    seen = standing([0.5] * 6, *([other] * 6 for other in others))
    middle = 0.05 if len(others) == 3 else 0.0
    sizes = sorted(abs(each - middle) for each in (0.5, *others))
    usual = median(sizes)
    spread = 1.4826 * (1 + 3 / (1 + len(others))) * usual
    assert seen.excess == pytest.approx(0.5 - middle)
    assert seen.score == pytest.approx(seen.excess / math.hypot(spread, 0.0015))


def test_common_noise_is_the_median_step_between_neighbouring_slots() -> None:
    unsteady = [0.01, -0.01] * 3
    sigma = 1.4826 * 0.02 / math.sqrt(2)
    seen = standing([0.5] * 6, *[unsteady] * 4)
    assert seen.score == pytest.approx(0.5 / math.hypot(sigma * math.sqrt(1.2 / 6), 0.0015))


def test_slow_changes_are_hardly_noise() -> None:
    """From slot to slot, the values of the other rows either rise or jump up and down, by the same amount."""
    rising = [-0.05, -0.03, -0.01, 0.01, 0.03, 0.05]
    jumping = [0.01, -0.01] * 3
    scores = [standing([0.5] * 6, *[other] * 4).score for other in (rising, jumping)]
    assert scores[0] == pytest.approx(scores[1])


def test_a_rows_own_noise_counts_if_larger_than_the_common_one() -> None:
    """Six values have three degrees of freedom, so the limit is that of Student's t distribution."""
    seen = standing([1.1, 0.9] * 3)
    own = math.sqrt(6 * 0.1**2 / 3)
    assert seen.excess == pytest.approx(1)
    assert seen.score == pytest.approx(1 / math.hypot(own * math.sqrt(1.2 / 6), 0.0015))


def test_more_slots_increase_the_score() -> None:
    def score(slots: int) -> float:
        return standing([0.5] * slots, *[([0.01, -0.01] * 4)[:slots]] * 4).score

    assert score(8) > score(6) > score(4)


def test_the_extreme_slots_do_not_affect_the_distance() -> None:
    assert standing([1.0, 9.0, 1.0, 1.0, -9.0, 1.0]).excess == 1
    assert standing([1.0, 9.0, 9.0, 1.0, 1.0, 1.0]).excess == 3


@pytest.mark.parametrize(
    "row",
    [
        [0.0, 0.0, 1.0, 1.0, 1.0, 1.0],
        [1.0, 0.25, 1.0, 1.0, 0.25, 1.0],
        [1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
        [0.5, 1.5, 0.5, 1.5, 1.0, 1.0],
        [-1.0, -1.0, -1.0, -1.0, 0.5, 0.5],
    ],
)
@pytest.mark.parametrize("common", [2.0, -2.0, 64.0])
def test_changes_common_to_all_rows_have_no_effect(row: list[float], common: float) -> None:
    others = [[0.25, -0.25] * 3, [0.0] * 6, [0.125] * 6, [-0.125] * 6]
    moved = [[each + common for each in values] for values in (row, *others)]
    seen = standing(row, *others)
    assert astuple(standing(*moved)) == pytest.approx(astuple(seen))


# ---- compared rows


def test_three_rows_are_compared_and_two_are_not() -> None:
    rows = {"a": [0.0] * 6, "b": [0.0] * 6, "c": [1.0] * 6}
    assert Field(rows).excess == {"a": 0.0, "b": 0.0, "c": 1.0}
    assert Field({name: rows[name] for name in "ac"}).excess == {}


def test_a_row_of_four_values_is_compared_and_one_of_three_is_not() -> None:
    rows: dict[str, Row] = {
        "a": SIX,
        "b": SIX,
        "c": SIX,
        "d": [None, 1, None, 1, 1, 1],
        "e": [None, 1, None, None, 1, 1],
    }
    assert Field(rows).excess == {"a": 0, "b": 0, "c": 0, "d": 1}
    # The row `e` does not count, because it has only three values. With it, there would be enough rows.
    assert Field({name: rows[name] for name in "abe"}).excess == {}


# ---- steadiness


@pytest.mark.parametrize(
    ("row", "steady"),
    [
        ([1.0, 1.25, 2.0, 2.0, 2.75, 3.0], True),  # one slot is half as far as the mean of all slots
        ([1.0, 2.0, 2.0, 3.0, 1.0, 3.0], False),  # two slots are
        ([2.0, -7.0, 2.0, 2.0, 2.0, 2.0], True),
        ([2.0, -7.0, 2.0, 2.0, -7.0, 2.0], False),
    ],
)
def test_a_steady_row_exceeds_half_its_distance_in_all_slots_but_one(row: list[float], *, steady: bool) -> None:
    assert standing(row).steady is steady


# ---- recent changes


@pytest.mark.parametrize(
    ("row", "slots", "first"),
    [
        ([0.0, 0.0, 1.0, 1.0, 1.0, 1.0], 4, 2),
        ([0.5, 0.5, 1.0, 1.0, 1.0, 1.0], 4, 2),  # slots that are only half as far as now do not count
        ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], 6, 3),  # three slots are too few
        ([0.0, 0.0, 1.0, None, 1.0, 1.0], 5, 2),  # one of the four slots has no value
        ([0.0, 0.0, 1.0, None, 1.0, 1.0, 1.0], 4, 2),
        ([0.0, None, 1.0, 1.0, 1.0, 1.0], 4, 2),
        ([None, None, 1.0, 1.0, 1.0, 1.0], 4, 2),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 6, 0),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 0.0], 6, 5),  # the last slot decides, because no other slot is left
    ],
)
def test_a_changed_row_is_judged_by_the_slots_since_the_change(row: Row, slots: int, first: int) -> None:
    seen = standing(row)
    assert (seen.slots, seen.first) == (slots, first)


def test_too_few_values_have_no_standing() -> None:
    assert (NOWHERE.score, NOWHERE.excess, NOWHERE.slots, NOWHERE.steady) == (0, 0, 0, False)


# ---- the median


@pytest.mark.parametrize(
    ("values", "middle"), [([7], 7), ([5, 1], 3), ([9, 1, 2], 2), ([8, 1, 2, 4], 3), ([9, 1, 2, 4, 3], 3)]
)
def test_the_median_of_an_even_number_is_between_the_middle_two(values: list[float], middle: float) -> None:
    assert median(values) == middle
