"""Which workers are named just below and just above each limit of each rule, without noise.

The distance of each worker is given, not computed from times, so that a limit can be met exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from slots import BEGAN_NS, SECOND

from brickd.analysis.timing.findings import About, StragglerVerdict
from brickd.analysis.timing.stragglers import judge
from brickd.analysis.timing.worker_series import Life, SlotLook, SlotSide
from brickd.base.timestamps import Moment
from brickd.model.worker_totals import Slot

# If the other four workers have the distances AROUND, a fifth worker with the distance SCORES_5 has a score of exactly
# 5. With SCORES_HALF, it has 2.5.
AROUND = (0.0, 0.0, -0.003, 0.003)
SCORES_5, SCORES_HALF = 0.036364229536180195, 0.018182114768090098
GEMM = About("api", "api/0", "gemm")


@dataclass(frozen=True)
class Side:
    """One worker in one brick: its work in each slot, and its distance from the others."""

    apart: float | Sequence[float] = 0.0
    calls: int | Sequence[int] = 100
    mean_ns: float = 1e7
    elements: int = 0

    def work_in(self, slot: int) -> SlotSide:
        """Return the worker's values in a slot."""
        apart = self.apart if isinstance(self.apart, float) else self.apart[slot]
        calls = self.calls if isinstance(self.calls, int) else self.calls[slot]
        return SlotSide(apart, calls, calls * self.mean_ns, self.elements)


EQUAL = Side()


def judged(
    bricks: Mapping[str, Sequence[Side | None]],
    *,
    waits: Sequence[str] = (),
    named: Sequence[About] = (),
    slots: int = 6,
    length_ns: int = 10 * SECOND,
) -> StragglerVerdict:
    """Judge slots with this work. The bricks in `waits` are collectives, and the workers in `named` were named
    before.
    """
    lives = {f"api/{number}": Life("api", f"uuid {number}") for number in range(max(map(len, bricks.values())))}
    categories = {("api", name): "collective" if name in waits else "FFN" for name in bricks}
    looks = []
    for slot in range(slots):
        sides = {
            ("api", name): {
                f"api/{number}": side.work_in(slot) for number, side in enumerate(workers) if side is not None
            }
            for name, workers in bricks.items()
        }
        began, ended = (Moment(ns, BEGAN_NS + ns) for ns in (slot * length_ns, (slot + 1) * length_ns))
        looks.append(SlotLook(Slot(began, ended, {}, categories), lives, sides, {}))
    return judge(looks, {about: Moment(0, 0) for about in named})


def below(value: float) -> float:
    return math.nextafter(value, 0)


def above(value: float) -> float:
    return math.nextafter(value, math.inf)


def first(apart: float | Sequence[float], others: Sequence[float] = (0.0,) * 4, **more: Any) -> list[Side]:
    """Return workers; the first one has this distance."""
    return [replace(EQUAL, apart=apart, **more), *(replace(EQUAL, apart=other) for other in others)]


def found(judged: StragglerVerdict) -> list[About]:
    return [finding.about for finding in judged.findings]


def reasons(judged: StragglerVerdict) -> list[tuple[str, str]]:
    return [(passed.finding.about.brick, passed.reason) for passed in judged.passed]


# ---- distance, certainty, steadiness


@pytest.mark.parametrize(("named", "least"), [((), 0.01), ((GEMM,), 0.005)])
def test_one_percent_names_a_worker_and_half_keeps_it_named(named: Sequence[About], least: float) -> None:
    assert found(judged({"gemm": first(least)}, named=named)) == [GEMM]
    less = judged({"gemm": first(below(least))}, named=named)
    assert (less.findings, less.passed) == ((), ())


@pytest.mark.parametrize(("named", "least", "score"), [((), SCORES_5, 5.0), ((GEMM,), SCORES_HALF, 2.5)])
def test_a_score_of_five_names_a_worker_and_half_keeps_it_named(
    named: Sequence[About], least: float, score: float
) -> None:
    enough = judged({"gemm": first(least, AROUND)}, named=named)
    assert found(enough) == [GEMM]
    assert enough.findings[0].row.score == score
    less = judged({"gemm": first(below(least), AROUND)}, named=named)
    assert (less.findings, less.passed) == ((), ())


def test_four_slow_slots_of_six_keep_a_worker_named_but_name_none() -> None:
    """In two slots, the worker's distance above the median is less than half of its mean distance over all slots."""
    unsteady = {"gemm": first([1.0, 0.427, 1.0, 1.0, 0.427, 1.0])}
    assert found(judged(unsteady)) == []
    assert reasons(judged(unsteady)) == [("gemm", "it is slow in only some of the slots")]
    assert found(judged(unsteady, named=[GEMM])) == [GEMM]
    # In one slot, the distance is slightly more than half of the mean. This slot counts like the others.
    assert found(judged({"gemm": first([1.0, 0.427, 1.0, 1.0, 0.43, 1.0])})) == [GEMM]


@pytest.mark.parametrize(("named", "median_ns"), [((), 1e6), ((GEMM,), 0.5e6)])
def test_a_thousandth_of_the_time_names_a_worker_and_half_keeps_it_named(
    named: Sequence[About], median_ns: float
) -> None:
    """The worker makes ten calls in ten seconds. Each call takes twice as long as the median."""

    def costs(mean_ns: float) -> StragglerVerdict:
        twice, equal = Side(math.log(2), 10, mean_ns), Side(0.0, 10, mean_ns)
        return judged({"gemm": [twice, *[equal] * 4]}, named=named)

    assert found(costs(median_ns)) == [GEMM]
    assert costs(median_ns).findings[0].cost_ns_per_s == median_ns
    assert found(costs(below(median_ns))) == []
    assert reasons(costs(below(median_ns)))[0][1].startswith("the difference costs only ")


# ---- elements


def test_more_elements_explain_a_slow_worker_if_they_explain_half_of_it() -> None:
    """On a logarithmic scale, a factor of 4 in elements explains half of a factor of 16 in time."""

    def takes(apart: float) -> StragglerVerdict:
        return judged({"gemm": [Side(apart, elements=400), *[Side(elements=100)] * 4]})

    assert reasons(takes(2 * math.log(4))) == [("gemm", "its calls have 300 % more elements")]
    assert found(takes(2 * math.log(4))) == []
    assert found(takes(above(2 * math.log(4)))) == [GEMM]


@pytest.mark.parametrize(("its", "usual"), [(100, 0), (0, 100), (0, 0)])
def test_unknown_elements_explain_nothing(its: int, usual: int) -> None:
    assert found(judged({"gemm": [Side(0.5, elements=its), *[Side(elements=usual)] * 4]})) == [GEMM]


def test_calls_of_at_most_one_element_have_elements_too() -> None:
    for its, usual in ((200, 100), (100, 50)):
        assert reasons(judged({"gemm": [Side(0.5, elements=its), *[Side(elements=usual)] * 4]})) == [
            ("gemm", "its calls have 100 % more elements")
        ]


# ---- slots that count


def test_a_slot_counts_from_half_of_the_usual_calls_on() -> None:
    def began(calls: int) -> int:
        seen = judged({"gemm": first(0.1, calls=[calls, *[100] * 5])})
        assert seen.findings[0].row.calls == 500 + calls
        return seen.findings[0].since.now_ns // (10 * SECOND)

    assert (began(50), began(49)) == (0, 1)


def test_the_row_of_a_worker_has_all_its_calls() -> None:
    row = judged({"gemm": first(0.1, elements=250)}).findings[0].row
    assert (row.calls, row.mean_ns, row.elements_per_call) == (600, 1e7, 2.5)


def test_three_workers_may_lack_samples_and_two_lack_workers() -> None:
    (three,), (two,) = (judged({"gemm": [EQUAL] * workers}, slots=3).coverage for workers in (3, 2))
    assert ((three.few_samples, three.few_workers), (two.few_samples, two.few_workers)) == ((1, 0), (0, 1))


# ---- confidence

SURE = {"slots": 6, "workers": 5, "calls": 500, "apart": 0.015}


@pytest.mark.parametrize(
    ("less", "confidence"),
    [
        ({}, "high"),
        ({"slots": 5}, "medium"),
        ({"slots": 4}, "low"),
        ({"workers": 4}, "medium"),
        ({"workers": 3}, "low"),
        ({"calls": 499}, "medium"),
        ({"calls": 100}, "medium"),
        ({"calls": 99}, "low"),
        ({"apart": below(0.015)}, "medium"),
    ],
)
def test_confidence_is_high_with_all_evidence_and_low_with_scarce(less: dict[str, float], confidence: str) -> None:
    """`calls` is the number of calls of the worker that has the fewest calls. A distance of 0.015 gives a score of 10,
    twice the threshold.
    """
    case = SURE | less
    slots, workers, calls = int(case["slots"]), int(case["workers"]), int(case["calls"])
    fewest = Side(calls=[calls // slots + (slot < calls % slots) for slot in range(slots)])
    sides = [Side(case["apart"], 200), fewest, *[Side(calls=200)] * (workers - 2)]
    assert [finding.confidence for finding in judged({"gemm": sides}, slots=slots).findings] == [confidence]


# ---- collectives


def test_a_worker_slow_in_a_brick_is_not_also_late() -> None:
    seen = judged({"gemm": first(0.1), "all_reduce": first(0.9)}, waits=["all_reduce"])
    assert (found(seen), seen.passed) == ([GEMM], ())
    assert seen.findings[0].corroborated_by == ("all_reduce",)


def test_a_worker_late_in_several_collectives_is_named_in_the_costliest() -> None:
    for costs in ((0.2, 0.3, 0.1), (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)):
        names = ("all_gather", "all_reduce", "broadcast")
        seen = judged({name: first(cost) for name, cost in zip(names, costs, strict=True)}, waits=names)
        assert found(seen) == [About("api", "api/0", names[costs.index(0.3)])]
    alike = judged({"all_gather": first(0.2), "all_reduce": first(0.2)}, waits=["all_gather", "all_reduce"])
    assert [about.brick for about in found(alike)] == ["all_gather"]


@pytest.mark.parametrize(
    ("wait", "awaited"),
    [
        (first(SCORES_HALF, AROUND), True),
        (first(below(SCORES_HALF), AROUND), False),  # the others wait, but perhaps by chance
        (first(0.0), False),  # no worker waits
        (first(-0.9), False),  # the first worker waits for the others
        # in the first two slots, this worker waits; later, the others wait, but by less
        (first([-0.9, -0.9, 0.1, 0.1, 0.1, 0.1]), False),
        ([None, *[EQUAL] * 4], False),  # the first worker does not take part
        ([Side(0.9), EQUAL], False),  # with only two workers, nothing shows which one is late
    ],
)
def test_a_wait_corroborates_a_finding_from_half_of_the_score_on(wait: Sequence[Side | None], awaited: bool) -> None:
    seen = judged({"gemm": first(0.1), "all_reduce": wait}, waits=["all_reduce"])
    assert [finding.corroborated_by for finding in seen.findings] == [("all_reduce",) if awaited else ()]


def test_work_explains_a_wait_if_it_explains_half_of_it() -> None:
    """The others wait for this worker half of the time. This worker spends more time on its work than they do; the
    difference is a quarter of the time.
    """

    def works(mean_ns: float) -> StragglerVerdict:
        more = [Side(0.0, mean_ns=mean_ns), *[Side(mean_ns=2.5e7)] * 4]
        return judged({"gemm": more, "all_reduce": first(0.5)}, waits=["all_reduce"])

    half = works(5e7)
    assert found(half) == []
    assert reasons(half) == [
        ("all_reduce", "it spends 250 ms/s more than the others in gemm, but may do more work there")
    ]
    assert [finding.outside for finding in works(4.99e7).findings] == [True]


def test_more_work_in_several_bricks_adds_up_and_the_largest_is_named() -> None:
    def works(*means: float) -> StragglerVerdict:
        bricks = {name: [Side(mean_ns=mean), *[Side(mean_ns=1e7)] * 4] for name, mean in zip("abc", means, strict=True)}
        return judged({**bricks, "all_reduce": first(0.4)}, waits=["all_reduce"])

    assert "100 ms/s more than the others in b," in works(1.5e7, 2e7, 1.9e7).passed[0].reason
    assert "100 ms/s more than the others in c," in works(1.5e7, 2e7, 2e7).passed[0].reason
    # Where the worker spends less time than the others, this is subtracted from its extra time in other bricks.
    assert found(works(0.0, 2e7, 2e7)) == [About("api", "api/0", "all_reduce")]


def test_work_is_compared_with_the_median_of_all_others_including_idle_ones() -> None:
    """Three of the other four workers do not do this work, so the median is 0. All of this worker's work (a quarter of
    the time) therefore counts as work that the others do not have.
    """
    seen = judged(
        {"gemm": [Side(mean_ns=2.5e7), Side(mean_ns=2.5e7), None, None, None], "all_reduce": first(0.5)},
        waits=["all_reduce"],
    )
    assert "250 ms/s more than the others in gemm" in seen.passed[0].reason


# ---- the number of slots


def test_six_slots_are_judged_and_four_suffice() -> None:
    # Of ten slots, the first four, in which the worker was slow, are forgotten.
    assert found(judged({"gemm": first([1.0] * 4 + [0.0] * 6)}, slots=10)) == []
    assert judged({"gemm": first(0.1)}, slots=7).slots == 6
    assert [len(judged({"gemm": first(0.1)}, slots=slots).findings) for slots in (3, 4, 5)] == [0, 1, 1]


def test_a_judgement_before_the_first_look_has_no_time() -> None:
    assert judged({"gemm": [EQUAL]}, slots=0).ended == Moment(0, 0)
