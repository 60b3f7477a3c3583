"""Numeric classes are learned while workers run: they cause no alarm, and real faults are found."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest
from checked_record import CheckedRecord, Tensor
from hypothesis import given
from hypothesis import strategies as st
from summation_orders import BIT, FAR, OTHER, OTHER_BIT, THIRD, USUAL, records_of
from test_watch import HERE, Service, again

from brickd.analysis.numerics import online_codec
from brickd.analysis.numerics.comparison import EvidenceClass, Party, compare
from brickd.analysis.numerics.coverage import SiteState, state_of
from brickd.analysis.numerics.match import Class
from brickd.analysis.numerics.numeric_classes import TURNS_MAX, JudgeTurns, are_two, classes_of, with_two
from brickd.analysis.numerics.online_state import WORKERS_MAX, Apart, Compared, ServiceSite


def look_after(service: Service, *workers: Mapping[int, int], site: int = 1) -> Compared:
    """Let each worker send one record for each input. Then compare the records."""
    for worker, what in zip(service.workers, workers, strict=False):
        worker.receive(b"".join(each.slots() for each in records_of(what, site=site)))
    return service.look()


def of(content: int, *what: int) -> list[dict[int, int]]:
    return [{content: each} for each in what]


def known(compared: Compared, place: ServiceSite = HERE) -> list[list[str]]:
    return classes_of(compared.apart.get(place, ()), [f"u{n}" for n in range(9)])


def test_rounding_differences_raise_no_alarm_before_and_after_classes_are_known() -> None:
    service = Service(3)
    for content in range(5):
        compared = look_after(service, *of(content, USUAL, USUAL, OTHER))
        assert (compared.findings, compared.doubts, service.logged) == ({}, {}, [])
        learned = content >= 2
        assert known(compared) == ([["u0", "u1"], ["u2"]] if learned else [])
        state = state_of(compared, HERE, compared.sites[HERE], (), ())
        assert state is (SiteState.COMPARED if learned else SiteState.UNJUDGED)
    assert compared.unlooked == 1, "the second input came before the classes were known"


def test_a_mostly_equal_site_is_reported_when_known() -> None:
    service = Service(2)
    for content in range(2):
        look_after(service, *of(content, USUAL, USUAL))
    assert list(look_after(service, *of(2, USUAL, OTHER)).findings) == [HERE]
    assert service.kinds == ["diverged"]
    service = Service(2)
    for content, what in enumerate((OTHER, USUAL, USUAL)):
        assert service.logged == []
        compared = look_after(service, *of(content, USUAL, what))
    assert (list(compared.findings), compared.unlooked) == ([HERE], 0)
    assert known(compared) == []


def test_differences_that_are_not_rounding_are_reported_at_once() -> None:
    service = Service(2)
    assert list(look_after(service, *of(0, USUAL, FAR)).findings) == [HERE]
    service = Service(2)
    for content in range(2):
        look_after(service, *of(content, USUAL, USUAL))
    assert list(look_after(service, *of(2, USUAL, BIT)).findings) == [HERE]


def test_one_element_that_is_always_wrong_is_reported() -> None:
    service = Service(2)
    for content in range(0, 128, 16):  # inputs in which the flipped bit changes the same element of the sketch
        assert service.logged == []
        found = look_after(service, *of(content, USUAL, BIT)).findings
    assert list(found) == [HERE]


@pytest.mark.parametrize(("what", "outlier"), [(BIT, "u1"), (FAR, "u1"), (OTHER_BIT, "u3")])
def test_a_fault_in_either_class_is_named_at_once(what: int, outlier: str) -> None:
    service = Service(6)
    usual = (USUAL, USUAL, OTHER, OTHER, USUAL, OTHER)
    for content in range(3):
        look_after(service, *of(content, *usual))
    number = int(outlier[1])
    compared = look_after(service, *of(7, *(what if n == number else each for n, each in enumerate(usual))))
    assert (compared.findings[HERE].outliers, compared.findings[HERE].cases) == ({outlier: 1}, 1)
    assert service.logged[0][1].startswith(f"api/{number} differs from the others")
    assert known(compared) == [["u0", "u1", "u4"], ["u2", "u3", "u5"]]


def test_another_class_does_not_decide_between_two() -> None:
    service = Service(3)
    for content in range(3):
        look_after(service, *of(content, USUAL, USUAL, OTHER))
    found = look_after(service, *of(5, USUAL, BIT, OTHER)).findings[HERE]
    assert (found.outliers, found.named) == ({}, ["u0", "u1"])
    assert look_after(service, *of(6, USUAL, FAR, OTHER)).findings[HERE].outliers == {"u1": 1}


def test_a_new_worker_with_equal_outputs_joins_their_class() -> None:
    service = Service(3)
    for content in range(3):
        look_after(service, *of(content, USUAL, USUAL, OTHER))
    service.workers.append(service.worker("u3"))
    assert known(look_after(service, *of(5, USUAL, USUAL, OTHER, OTHER))) == [["u0", "u1"], ["u2", "u3"]]
    service.workers[2:3] = []
    assert look_after(service, *of(6, USUAL, USUAL, OTHER)).findings == {}, "no other worker is of this class"
    assert service.logged == []


def test_a_finding_between_two_classes_is_withdrawn_once_they_are_known() -> None:
    service = Service(2)
    place = ServiceSite("api", "k2", 3)
    for content, what in enumerate((USUAL, USUAL, OTHER)):
        compared = look_after(service, *of(content, USUAL, what), site=2)
    assert list(compared.findings) == [place]
    heir = Service(2, again(compared))
    for content in range(3, 6):
        compared = look_after(heir, *of(content, USUAL, OTHER), site=2)
    assert (compared.findings, heir.kinds) == ({}, ["diverged_withdrawn"])
    assert known(compared, place) == [["u0"], ["u1"]]


def test_learning_classes_keeps_findings_with_other_causes() -> None:
    service = Service(2)
    look_after(service, *of(0, USUAL, FAR))
    for content in range(1, 20):
        compared = look_after(service, *of(content, USUAL, OTHER))
    assert known(compared) == [["u0"], ["u1"]]
    assert (list(compared.findings), service.kinds) == ([HERE], ["diverged"])


def test_learned_classes_survive_a_daemon_and_leave_with_their_workers() -> None:
    service = Service(3)
    for content in range(3):
        compared = look_after(service, *of(content, USUAL, USUAL, OTHER))
    heir = Service(3, again(compared))
    compared = look_after(heir, *of(9, USUAL, USUAL, OTHER))
    assert (compared.findings, compared.unlooked, known(compared)) == ({}, 1, [["u0", "u1"], ["u2"]])
    assert list(look_after(heir, *of(10, USUAL, USUAL, FAR)).findings) == [HERE]
    heir.watch.forget({"u2"}, lambda _: False)
    assert known(heir.look()) == []


def test_an_older_document_has_no_classes() -> None:
    document = json.loads("".join(online_codec.encode(Compared())))
    del document["apart"], document["uuids"]
    assert online_codec.decode(document) == Compared()


@pytest.mark.ci
@pytest.mark.parametrize("what", [BIT, FAR])
def test_many_rounding_differences_do_not_hide_a_real_one(what: int) -> None:
    service = Service(5)
    usual = (USUAL, USUAL, USUAL, OTHER, OTHER)
    look_after(service, *(dict.fromkeys(range(3), each) for each in usual))
    many = [dict.fromkeys(range(3, 300), each) for each in usual]
    many[1][150] = what
    compared = look_after(service, *many)
    assert compared.findings[HERE].outliers == {"u1": 1}
    assert compared.unlooked == 0


def test_a_flipped_bit_judged_too_early_is_judged_again() -> None:
    service = Service(4)
    usual = (USUAL, USUAL, OTHER, OTHER)
    look_after(service, *({0: each, 1: each} for each in usual[:3]), {0: OTHER, 1: OTHER_BIT})
    assert service.logged == []
    for content in range(2, 6):
        compared = look_after(service, *of(content, *usual))
    assert compared.findings[HERE].named == ["u2", "u3"]


def test_a_look_answers_a_bounded_number_of_questions_and_starves_no_site() -> None:
    sites = range(1, 4 * TURNS_MAX + 1)
    service = Service(2)
    for content in range(3):
        for site in sites:
            for worker, what in zip(service.workers, (USUAL, OTHER), strict=True):
                worker.receive(records_of({content: what}, site=site)[0].slots())
    asked = []
    for turn in range(4):
        asked.append(len(service.look().apart))
        for site in sites:
            service.workers[0].receive(records_of({turn % 3: USUAL}, site=site)[0].slots())
    assert asked == [TURNS_MAX * (turn + 1) for turn in range(4)]
    assert (service.look().findings, service.logged) == ({}, [])


def test_the_longest_waiting_site_is_judged_first() -> None:
    turns, places = JudgeTurns(), {number: ServiceSite("api", f"k{number}", 0) for number in range(3 * TURNS_MAX)}
    asked = []
    for _ in range(6):
        for number in dict.fromkeys((*turns.begin(), *places)):
            if turns.take(places[number]):
                asked.append(number)
            turns.wait(places[number], number, once=False)
    assert asked == [*places, *places]


def test_a_possible_flipped_bit_waits_separately_from_class_differences() -> None:
    turns = JudgeTurns()
    for number, once in enumerate((False, False, True, True)):
        turns.wait(HERE, number, once=once)
    assert turns.begin() == [0, 2]


def test_a_site_of_many_past_workers_knows_the_living_ones() -> None:
    apart = with_two((), {"a"}, {"b"}, "ab")
    for life in range(10 * WORKERS_MAX):
        apart = with_two(apart, {"a"}, {f"life{life}"}, {"a", f"life{life}"})
        assert are_two(apart, {"a"}, {f"life{life}"})
        assert sum(len(one) + len(two) for one, two in apart) <= 4 * WORKERS_MAX


@pytest.mark.parametrize("dead", ["one0", "other0"])
def test_over_the_limit_class_pairs_without_a_living_worker_are_dropped(dead: str) -> None:
    apart: Apart = ()
    everyone = {f"{side}{n}" for side in ("one", "other") for n in range(17)}
    for n in range(17):
        apart = with_two(apart, {f"one{n}"}, {f"other{n}"}, everyone - {dead})
    assert [one | other for one, other in apart] == [{f"one{n}", f"other{n}"} for n in range(1, 17)]


@pytest.mark.ci
@given(
    st.lists(st.sampled_from((USUAL, OTHER, THIRD)), min_size=2, max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=30),
    st.data(),
)
def test_healthy_workers_of_several_classes_raise_no_alarm(
    orders: list[int], contents: list[int], data: st.DataObject
) -> None:
    service = Service(len(orders))
    for content in contents:
        for worker, order in zip(service.workers, orders, strict=True):
            if data.draw(st.booleans()):
                worker.receive(records_of({content: order})[0].slots())
        if data.draw(st.booleans()):
            service.look()
    compared = service.look()
    assert (compared.findings, compared.doubts, service.logged) == ({}, {}, [])
    for one, uuid in zip(orders, ("u0", "u1", "u2", "u3", "u4"), strict=False):
        for other, another in zip(orders, ("u0", "u1", "u2", "u3", "u4"), strict=False):
            assert one != other or not are_two(compared.apart.get(HERE, ()), {uuid}, {another})


@pytest.mark.ci
@given(st.lists(st.sampled_from((USUAL, OTHER, THIRD)), min_size=2, max_size=6), st.integers(0, 5), st.integers(0, 8))
def test_a_look_and_a_comparison_of_the_same_data_name_the_same_worker(
    orders: list[int], wrong: int, content: int
) -> None:
    service = Service(len(orders))
    orders_seen = [dict.fromkeys(range(9), order) for order in orders]
    orders_seen[wrong % len(orders)][content] = FAR
    for _ in range(1 + len(orders)):  # gives each queued place its turn
        compared = look_after(service, *orders_seen)
    about = service.numerics.about({each.uuid for each in service.workers})
    parties = [Party(each.uuid, about.producers[each.uuid].number) for each in service.workers]
    first = compare(about, parties, EvidenceClass.INPUT).first
    assert first is not None
    apart = first.members(Class.DIVERGED)
    named = {parties[each].name for each in apart if len(first.agree) > len(apart)}
    assert set(compared.findings[HERE].outliers) == named


def ordered(content: int, order: int) -> CheckedRecord:
    """Return the record of a call on this input; its output was added up in one of many orders."""
    sketch = 0.2e-8 * order * (1 + (np.arange(16) * (content + 1)) % 3)
    return CheckedRecord(Tensor(10_000 + 100 * content + order, 1.0, tuple(sketch)), (Tensor(1000 + content),))


@pytest.mark.ci
@given(st.lists(st.integers(0, 19), min_size=2, max_size=12), st.integers(1, 6))
def test_more_classes_than_can_be_compared_raise_no_alarm(orders: list[int], contents: int) -> None:
    service = Service(len(orders))
    for content in range(contents):
        for worker, order in zip(service.workers, orders, strict=True):
            worker.receive(ordered(content, order).slots())
        compared = service.look()
    assert (compared.findings, compared.doubts, service.logged) == ({}, {}, [])


@pytest.mark.parametrize("wrong", range(8))
def test_a_distant_worker_among_many_classes_is_named_in_any_order(wrong: int) -> None:
    service = Service(8)
    for content in range(3):
        for number, worker in enumerate(service.workers):
            worker.receive(ordered(content, number).slots())
        service.look()
    for number, worker in enumerate(service.workers):
        worker.receive((records_of({7: FAR})[0] if number == wrong else ordered(7, number)).slots())
    assert set(service.look().findings[HERE].outliers) == {f"u{wrong}"}


def test_a_flipped_bit_next_to_another_class_only_is_undecidable() -> None:
    """An output with a flipped bit may also be the result of another order of addition."""
    service = Service(2)
    for content in range(3):
        look_after(service, *of(content, USUAL, OTHER))
    assert look_after(service, *of(5, USUAL, OTHER_BIT)).findings == {}
    assert list(look_after(service, *of(6, USUAL, FAR)).findings) == [HERE]
