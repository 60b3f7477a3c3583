"""The compared rows are in the order of execution. This order never depends on a comparison of the times of different
workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from checked_record import CheckedRecord, Tensor, add
from comparable_workers import EMBED, MLP, NORM, SCORES, SECOND, chain, compared, off
from hypothesis import given
from hypothesis import strategies as st

from brickd.analysis.numerics.match import Matched, match
from brickd.shm import _reader

GOOD = chain()
Place = tuple[int, int]  # the number of a step and of a site


def later(records: Sequence[CheckedRecord], ticks: int) -> list[CheckedRecord]:
    """Return the records with the times that another clock would have shown."""
    return [replace(each, ticks=each.ticks + ticks) for each in records]


def matched(workers: Sequence[Sequence[CheckedRecord]], *, by_input: bool = False) -> Matched:
    fingerprints = _reader.Fingerprints(64 << 20)
    for worker, reported in enumerate(workers):
        add(fingerprints, worker, reported)
    return match(fingerprints, range(len(workers)), [0] * len(workers), by_input=by_input)


def rows(workers: Sequence[Sequence[CheckedRecord]], *, by_input: bool = False) -> list[Place]:
    """Return the step and the site of each row, in the order of the rows."""
    everything = [each for reported in workers for each in reported]
    found = [everything[row.members[0].number] for row in matched(workers, by_input=by_input).rows]
    return [(each.step, each.site) for each in found]


def executed(places: Sequence[Place], worker: int) -> list[CheckedRecord]:
    """Return the records of a worker that ran these places in this order. Its outputs differ from those of all other
    workers.
    """
    return [
        CheckedRecord(off(10 * n + worker, 1.0 + worker), (Tensor(100 * step + site),), step=step, site=site, ticks=n)
        for n, (step, site) in enumerate(places, start=1)
    ]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("starts", list(permutations((0, 1_000, 2_000))))
def test_a_site_missing_in_the_first_worker_leads_where_it_differs_first(
    order: tuple[int, ...], starts: tuple[int, ...]
) -> None:
    lacks = [each for each in GOOD if each.site != NORM]
    sides = [
        later(reported, start * SECOND) for reported, start in zip((lacks, chain(NORM), GOOD), starts, strict=True)
    ]
    reported = compared(*(sides[n] for n in order), by="run")
    assert [(reported["first"][key]) for key in ("kernel", "step")] == ["norm", f"{1:016x}"]
    assert reported["first"]["before"] == {"identical": 2, "within": 0, "not_comparable": 0}
    assert [site["kernel"] for site in reported["sites"]] == ["embed", "norm", "scores", "mlp"]


places = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), unique=True, min_size=1, max_size=20)
has = st.lists(st.booleans(), min_size=20, max_size=20)


@given(places, st.lists(has, min_size=2, max_size=5))
def test_an_order_that_contradicts_no_worker_is_used(execution: list[Place], chosen: list[list[bool]]) -> None:
    each_has = [[place for place, one in zip(execution, present, strict=False) if one] for present in chosen]
    workers = [executed(mine, number) for number, mine in enumerate(each_has)]
    for by_input in (False, True):
        order = rows(workers, by_input=by_input)
        assert len(order) == len({place for place in execution if sum(place in mine for mine in each_has) > 1})
        for mine in each_has:
            own = [mine.index(place) for place in order if place in mine]
            assert own == sorted(own)


@given(st.lists(places, min_size=2, max_size=4))
def test_of_contradicting_orders_the_first_workers_wins(executions: list[list[Place]]) -> None:
    for by_input in (False, True):
        order = rows([executed(mine, number) for number, mine in enumerate(executions)], by_input=by_input)
        own = [executions[0].index(place) for place in order if place in executions[0]]
        assert own == sorted(own)


all_records = st.lists(
    st.builds(
        lambda site, given_, output, step: CheckedRecord(
            off(100 * site + output, 0.5 * output), (off(given_, 0.5 * given_),), site=site, step=step
        ),
        st.integers(1, 4),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from([1, 1, 1, 2]),
        st.integers(1, 2),
    ),
    max_size=12,
)


@given(st.integers(1, 5), st.permutations(range(1, 6)), st.permutations(range(1, 6)))
def test_contradicting_workers_place_no_site_earlier_than_a_consistent_one(
    steps: int, one: list[int], other: list[int]
) -> None:
    """Two workers have some sites in opposite orders, and a third worker does not have these sites."""
    first = [(step, 9) for step in range(1, steps + 1)]
    both = [
        [place for step in range(1, steps + 1) for place in ((step, 9), *((step, n) for n in mine))]
        for mine in (one, other)
    ]
    order = rows([executed(places, number) for number, places in enumerate((first, *both))])
    assert [step for step, _ in order] == sorted(step for step, _ in order)
    assert [site for _, site in order][::6] == [9] * steps


@given(
    st.lists(all_records, min_size=2, max_size=4),
    st.lists(st.integers(0, 100), min_size=4, max_size=4),
    st.booleans(),
)
def test_the_time_of_recording_changes_nothing(
    workers: list[list[CheckedRecord]], starts: list[int], by_input: bool
) -> None:
    ran = [[replace(each, ticks=n) for n, each in enumerate(reported)] for reported in workers]
    moved = [later(reported, start) for reported, start in zip(ran, starts, strict=False)]
    assert summary(matched(ran, by_input=by_input)) == summary(matched(moved, by_input=by_input))


def summary(found: Matched) -> Any:
    """Return everything except the times."""
    return [[row.class_, row.before, row.members] for row in found.rows], found.sites, found.workers, found.steps


@pytest.mark.parametrize("starts", [(0, 100), (100, 0)])
def test_a_faster_clock_is_not_a_sign_of_other_work(starts: tuple[int, int]) -> None:
    first, second = (later(executed([(1, site)], 0), start) for site, start in zip((EMBED, NORM), starts, strict=True))
    both = executed([(1, EMBED), (1, NORM)], 1)
    both[0] = replace(both[0], inputs=(off(5, 0.5),))
    for order in permutations((first, second, both)):
        assert matched(order).steps.other == 1


def test_of_unrelated_stages_the_earlier_step_leads() -> None:
    stages = (EMBED, NORM), (SCORES, MLP)
    sides = [[each for each in chain() if each.site in of] for of in stages]
    wrong = (NORM, 2), (MLP, 1)
    bad = [
        [replace(each, output=off(9, 0.5)) if (each.site, each.step) in wrong else each for each in side]
        for side in sides
    ]
    reported = compared(*(later(side, 50 * n * SECOND) for n, side in enumerate((*sides, *bad))), by="run")
    assert (reported["first"]["kernel"], reported["first"]["step"]) == ("mlp", f"{1:016x}")
    assert reported["first"]["before"]["identical"] == 3
