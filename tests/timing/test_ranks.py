"""The rank test of two groups: compared with a count of all pairs, and with random draws from one distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.analysis.timing.stats import Ranks, ranks

CELLS = st.integers(1, 8).flatmap(
    lambda cells: st.tuples(*[st.lists(st.integers(0, 12), min_size=cells, max_size=cells)] * 2)
)


def by_pairs(first: list[int], second: list[int]) -> Ranks:
    """Compute as in a textbook: compare each value of one group with each value of the other."""
    one, other = (np.repeat(np.arange(len(each)), each) for each in (first, second))
    both = np.concatenate([one, other])
    _, ties = np.unique(both, return_counts=True)
    if not len(one) or not len(other) or len(ties) < 2:
        return Ranks(0, 1.0)
    greater, less = (other[:, None] > one).sum(), (other[:, None] < one).sum()
    u = greater + 0.5 * (len(one) * len(other) - greater - less)
    n = len(both)
    variance = len(one) * len(other) / 12 * (n + 1 - (ties**3 - ties).sum() / (n * (n - 1)))
    correction = (ties[1:] + ties[:-1]).max() / 4  # the correction for continuity, which is 1/2 without ties
    z = max(abs(u - len(one) * len(other) / 2) - correction, 0) / math.sqrt(variance)
    return Ranks(int(greater - less), math.erfc(z / math.sqrt(2)))


@given(CELLS)
def test_ranks_of_cells_match_those_from_all_pairs(groups: tuple[list[int], list[int]]) -> None:
    wanted = by_pairs(*groups)
    found = ranks(*groups)
    assert found.ahead == wanted.ahead
    assert found.p_value == pytest.approx(wanted.p_value, rel=1e-9)


def test_values_without_ties_have_the_tabulated_p_value() -> None:
    """For groups of 8 and 7 values with U = 6, z = (28 - 6 - 1/2) / sqrt(74.67)."""
    order = "aaaabaaabbabbbb"
    assert order.count("a") == 8
    found = ranks([int(each == "a") for each in order], [int(each == "b") for each in order])
    assert found.ahead == 56 - 2 * 6
    assert found.p_value == pytest.approx(0.01284, abs=5e-6)


@given(CELLS)
def test_swapping_the_groups_changes_only_the_sign(groups: tuple[list[int], list[int]]) -> None:
    one, other = groups
    there, back = ranks(one, other), ranks(other, one)
    assert (there.ahead, there.p_value) == (-back.ahead, back.p_value)


@given(CELLS)
def test_empty_cells_change_nothing(groups: tuple[list[int], list[int]]) -> None:
    wide = ([n for each in group for n in (0, each, 0)] for group in groups)
    assert ranks(*wide) == ranks(*groups)


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([0, 0], [0, 0]), ([5, 9], [0, 0]), ([0, 7], [0, 9]), ([3, 4, 5], [6, 8, 10])]
)
def test_empty_or_equal_groups_have_no_difference(first: list[int], second: list[int]) -> None:
    assert ranks(first, second) == (0, 1.0)


def test_the_largest_countable_groups_are_compared() -> None:
    most = 2**64 - 1
    assert ranks([most, 0] * 64, [0, most] * 64).p_value == 0
    assert ranks([most] * 128, [most] * 128) == (0, 1.0)
    assert ranks([most, 1], [most, 0]).p_value > 0.1


@pytest.mark.parametrize("counts", [(10, 10), (10, 2000), (200, 300)])
@pytest.mark.parametrize("chances", [[1], [9, 1], [90, 10, 1], [1, 1], [1] * 5, [1] * 50, [0.5**n for n in range(12)]])
def test_equal_distributions_differ_no_more_often_than_the_level(counts: tuple[int, int], chances: list[float]) -> None:
    random, draws = np.random.default_rng(20), 2000
    groups = [random.multinomial(count, np.array(chances) / sum(chances), draws).tolist() for count in counts]
    p_values = np.array([ranks(one, other).p_value for one, other in zip(*groups, strict=True)])
    for level in (0.05, 0.01):
        assert (p_values < level).sum() <= level * draws + 3 * math.sqrt(level * draws)
