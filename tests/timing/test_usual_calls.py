"""The mean of the usual calls: what a few long calls do to it, and how far it is from the exact mean."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.model.usual_calls import usual_mean

# The buckets of the format: a duration is in bucket b if its fourth power has b + 21 bits.
BUCKETS = 128


def histogram(durations: Sequence[int]) -> list[int]:
    buckets = [0] * BUCKETS
    for duration in durations:
        buckets[min(max((duration**4).bit_length() - 21, 0), BUCKETS - 1)] += 1
    return buckets


def usual(durations: Sequence[int]) -> float:
    return usual_mean(histogram(durations), float(sum(durations)))


def quiet(seed: int, calls: int = 200, mean: float = 200_000, width: float = 0.05) -> list[int]:
    chance = random.Random(seed)
    return [round(mean * math.exp(chance.gauss(0, width))) for _ in range(calls)]


@given(st.integers(0, 999), st.floats(0.001, 0.15))
def test_without_rare_calls_the_usual_mean_is_the_mean(seed: int, width: float) -> None:
    durations = quiet(seed, width=width)
    assert usual(durations) == pytest.approx(sum(durations) / len(durations), rel=1e-12)


@given(st.integers(0, 999), st.integers(1, 10), st.floats(3, 1_000))
def test_preempted_calls_change_the_usual_mean_by_less_than_half_a_bucket(seed: int, rare: int, longer: float) -> None:
    durations = quiet(seed)
    chance = random.Random(seed)
    lost = [round(each * longer * chance.uniform(1, 2)) for each in durations[:rare]]
    kept = durations[rare:]
    assert usual(lost + kept) == pytest.approx(sum(kept) / len(kept), rel=0.095)


def test_rare_short_calls_are_subtracted_to_a_percent() -> None:
    durations = quiet(7)
    mean = sum(durations) / len(durations)
    for longer in (3, 5, 8):
        lost = [longer * each for each in durations[:4]]
        assert usual(lost + durations[4:]) == pytest.approx(mean, rel=0.01), longer


@pytest.mark.parametrize("percent", [20, 100])
def test_a_slow_operator_is_slow_by_its_usual_calls_despite_rare_ones(percent: int) -> None:
    chance = random.Random(percent)
    for longer in (10, 100, 1_000):
        fast, slow = quiet(1), quiet(2, mean=200_000 * (1 + percent / 100))
        busy = [each * (longer if chance.random() < 0.04 else 1) for each in fast]
        slow = [each * (longer if chance.random() < 0.04 else 1) for each in slow]
        assert usual(slow) / usual(busy) == pytest.approx(1 + percent / 100, rel=0.1), longer


@given(st.lists(st.integers(0, 2**60), max_size=60))
def test_the_usual_mean_is_between_the_shortest_and_the_longest_call(durations: list[int]) -> None:
    found = usual(durations)
    if not durations:
        assert found == 0
        return
    # The error is larger in the first bucket, which begins at 0, and in the last bucket, which has no upper end.
    assert found <= max(*durations, 38) * 2**0.25
    assert found >= min(durations) / 2**0.25 - 38 or max(durations) >= 2**36


def test_calls_above_twice_the_median_are_rare() -> None:
    assert usual([1_000] * 9 + [1_900]) == pytest.approx(1_090)
    assert usual([1_000] * 9 + [2_600]) == pytest.approx(1_000, rel=0.02)
    assert usual([1_000] * 5 + [9_000] * 5) == pytest.approx(1_000, rel=0.1)
    assert usual([1_000] * 4 + [9_000] * 5) == pytest.approx(49_000 / 9)


def test_a_rare_call_in_the_unbounded_last_bucket_is_ignored() -> None:
    rare = [2**62]
    assert usual([1_000] * 9 + rare) == pytest.approx(1_000, rel=0.095)
