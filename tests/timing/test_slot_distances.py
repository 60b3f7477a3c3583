"""One compared slot: which bricks count, which workers are comparable, and their distances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from slots import LENGTH_NS

from brickd.analysis.timing.worker_series import SlotLook, look
from brickd.base.timestamps import Moment
from brickd.model.worker_totals import Share, Slot


def looked(
    sides: Mapping[str, Sequence[tuple[int, float]]], category: str = "FFN", length_ns: int = LENGTH_NS
) -> SlotLook:
    """A slot with these numbers of calls and times."""
    bricks = {
        ("api", name): tuple(Share(f"api/{number}", calls, ns, 0) for number, (calls, ns) in enumerate(workers))
        for name, workers in sides.items()
    }
    return look(Slot(Moment(0, 0), Moment(length_ns, length_ns), bricks, dict.fromkeys(bricks, category)), {})


def apart(
    workers: Sequence[tuple[int, float]], category: str = "FFN", length_ns: int = LENGTH_NS
) -> list[float | None]:
    seen = looked({"gemm": workers}, category, length_ns).bricks["api", "gemm"]
    return [seen[f"api/{number}"].apart for number in range(len(workers))]


def test_a_brick_is_compared_from_a_thousandth_of_a_workers_time_on() -> None:
    seen = looked({"enough": [(9, 1e7), (9, 0.0)], "small": [(9, 9_999_999.0)] * 9})
    assert set(seen.bricks) == {("api", "enough")}
    assert seen.left == {("api", "small"): "small"}


def test_the_distance_is_the_logarithm_of_the_mean_over_the_median() -> None:
    """For any number of calls."""
    assert apart([(10, 1e9), (20, 2e9), (5, 1e9)]) == pytest.approx([0, 0, math.log(2)])


@pytest.mark.parametrize("category", ["FFN", "collective"])
def test_a_comparison_needs_five_calls_each_of_three_workers(category: str) -> None:
    def known(*calls: int) -> list[bool]:
        return [each is not None for each in apart([(count, 1e9) for count in calls], category)]

    assert known(5, 5, 5, 4) == [True, True, True, False]
    assert known(5, 5, 4, 4) == [False] * 4


def test_calls_without_duration_are_not_compared_but_shorter_than_a_nanosecond_are() -> None:
    calls = 10**8
    assert apart([(calls, 0.5e8), (calls, 0.5e8), (calls, 1e8), (calls, 0.0)]) == [
        0,
        0,
        pytest.approx(math.log(2)),
        None,
    ]
    assert apart([(9, 1e9), (9, 1e9), (9, 0.0)]) == [None] * 3


def test_in_a_collective_the_distance_is_the_missing_share_of_waiting() -> None:
    """The others wait 0.2 s in each call, this one 0.1 s; it calls once a second."""
    assert apart([(10, 2e9), (10, 2e9), (10, 1e9)], "collective") == pytest.approx([0, 0, 0.1])
    assert apart([(20, 4e9), (10, 2e9), (20, 2e9)], "collective") == pytest.approx([0, 0, 0.2])


def test_in_an_empty_slot_no_worker_is_late() -> None:
    calls = [(10, 2.0), (10, 2.0), (10, 1.0)]
    assert apart(calls, "collective", 0) == [None] * 3
    assert apart(calls, "collective", 1) == pytest.approx([0, 0, 1])
