"""One slot of time: which bricks count, which workers are comparable, and the distances of workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from slots import LENGTH_NS

from brickd.analysis.timing.worker_series import Host, Life, SlotLook, SlotSide, Stretch, look
from brickd.base.timestamps import Moment
from brickd.model.worker_totals import Share, Slot


def looked(
    sides: Mapping[str, Sequence[tuple[int, float]]], category: str = "FFN", length_ns: int = LENGTH_NS
) -> SlotLook:
    """Return a slot with these numbers of calls and these times."""
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
    """The distance does not depend on the number of calls."""
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
    """The others wait 0.2 s in each call, and the last worker waits 0.1 s. The last worker makes one call a second in
    the first case, and two calls a second in the second case.
    """
    assert apart([(10, 2e9), (10, 2e9), (10, 1e9)], "collective") == pytest.approx([0, 0, 0.1])
    assert apart([(20, 4e9), (10, 2e9), (20, 2e9)], "collective") == pytest.approx([0, 0, 0.2])


def test_in_an_empty_slot_no_worker_is_late() -> None:
    calls = [(10, 2.0), (10, 2.0), (10, 1.0)]
    assert apart(calls, "collective", 0) == [None] * 3
    assert apart(calls, "collective", 1) == pytest.approx([0, 0, 1])


def test_usual_calls_count_as_often_as_there_are_calls() -> None:
    """The mean of the usual calls is used for all calls, so a few long calls have no effect."""
    assert SlotSide(None, 3, 100.0, 0, usual_ns=2.0).usual_sum_ns == 6
    assert SlotSide(None, 3, 100.0, 0).usual_sum_ns == 100


def processor(calls: Sequence[tuple[int, float]], ran: Sequence[float]) -> list[float]:
    """Return, for each worker, the processor time that it needs for its work, relative to the median. There is one
    brick, with these calls and times.
    """
    shares = tuple(Share(f"api/{number}", count, ns, 0) for number, (count, ns) in enumerate(calls))
    slot = Slot(Moment(0, 0), Moment(LENGTH_NS, LENGTH_NS), {("api", "gemm"): shares}, {})
    found = look(slot, {}, {f"api/{number}": Host(1, part, 0.0) for number, part in enumerate(ran)}).processor
    return [*found.values()]


def test_processor_times_are_compared_in_services_of_three_workers_or_more() -> None:
    calls = [(10, 1e9)] * 3
    assert processor(calls, [0.1, 0.1, 0.2]) == pytest.approx([0, 0, math.log(2)])
    assert processor(calls[:2], [0.1, 0.2]) == []
    assert processor(calls, [0.08] * 3) == [0, 0, 0]
    assert processor(calls, [0.08, 0.08, 0.0799]) == [], "one worker ran for too little of its recorded time"


@pytest.mark.parametrize("calls", [[(10, 0.0)] * 3, [(1, 1e308), (1, 1e308), (10, 1e308), (10, 1e308), (1, 1e308)]])
def test_processor_times_without_a_finite_amount_of_work_are_not_compared(calls: list[tuple[int, float]]) -> None:
    assert processor(calls, [1e300] * len(calls)) == []


def test_processor_times_of_a_stretch_are_those_since_the_worker_began() -> None:
    seen = looked({"gemm": [(10, 1e9)] * 3})
    lives = [{"api/0": Life("api", uuid)} for uuid in ("before", "now", "now")]
    stretch = Stretch([replace(seen, lives=each, processor={"api/0": 0.5}) for each in lives])
    assert stretch.processor("api/0") == [None, 0.5, 0.5]
