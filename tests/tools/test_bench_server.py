"""The statistics of `scripts/bench server`: intervals have their stated coverage."""

from __future__ import annotations

import math
import random

import pytest
from benchmarks.server import Turn, interval, late_interval, p99
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.ci  # these tests check a script, not brickd


@pytest.mark.parametrize(("count", "t"), [(4, 3.182), (24, 2.069), (100, 1.984)])
def test_an_interval_has_the_width_of_the_t_distribution(count: int, t: float) -> None:
    logs = [(-1) ** n * 0.1 for n in range(count)]
    deviation = math.sqrt(sum(each**2 for each in logs) / (count - 1))
    low, high = interval(logs)
    assert math.log(high) == pytest.approx(t * deviation / math.sqrt(count), rel=0.01)
    assert low * high == pytest.approx(1)


def test_most_intervals_of_equal_ratios_contain_one_and_few_others_do() -> None:
    chance = random.Random(7)

    def held(ratio: float) -> int:
        drawn = ([math.log(ratio) + chance.gauss(0, 0.02) for _ in range(24)] for _ in range(400))
        return sum(low <= 1 <= high for low, high in map(interval, drawn))

    assert 365 <= held(1.0) <= 395
    assert held(1.03) == 0


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=300))
def test_at_most_one_of_a_hundred_exceeds_the_p99(seconds: list[float]) -> None:
    found = p99([Turn(1.0, seconds)])
    assert found in seconds
    assert sum(each > found for each in seconds) <= len(seconds) / 100


def test_a_slow_server_is_detected() -> None:
    chance = random.Random(3)
    plain, late = (
        [Turn(1.0, [chance.uniform(1, 2) * factor for _ in range(60)]) for _ in range(24)] for factor in (1.0, 1.2)
    )
    low, high = late_interval(late, plain, chance)
    assert 1.1 < low < 1.2 < high < 1.3
