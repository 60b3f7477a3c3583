"""What held at a past time: when values begin and end, what is forgotten, and that forgotten times are unknown."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from brickd.base.units import SECOND
from brickd.model.survey_snapshot import EVERY_NS
from brickd.model.timeline import KEPT_NS, PAST_MAX, PRESENT_MAX, Fact, Timeline

T = 1_700_000_000 * SECOND
NOTHING: Timeline[str] = Timeline()


def checked(of: Timeline[str], at_ns: int, values: Mapping[str, str], since_ns: int = 0) -> Timeline[str]:
    """Check at a time after T; each value holds since `since_ns` after T, or since the check."""
    facts = [Fact(key, value, T + since_ns if since_ns else 0) for key, value in values.items()]
    return of.updated(facts, T + at_ns, operator.eq)


@given(st.lists(st.tuples(st.integers(1, 5), st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")))))
def test_what_held_between_two_checks_is_what_the_first_one_found(checks: list[tuple[int, dict[str, str]]]) -> None:
    of, at_ns, found = NOTHING, 0, [(0, dict[str, str]())]
    for rest_ns, values in checks:
        at_ns += rest_ns
        of = checked(of, at_ns, values)
        found.append((at_ns, values))
    for (began_ns, values), (ended_ns, _) in pairwise([*found, (at_ns + 3, {})]):
        for now_ns in range(began_ns, ended_ns):
            assert sorted(of.at(T + now_ns) or ()) == sorted(values.values())


def test_a_value_may_be_found_after_it_began() -> None:
    of = checked(checked(NOTHING, 10, {}), 20, {"a": "x"}, since_ns=14)
    assert [of.at(T + ns) for ns in (13, 14, 20)] == [[], ["x"], ["x"]]


def test_a_value_that_was_away_did_not_hold_meanwhile() -> None:
    of = checked(checked(checked(NOTHING, 10, {"a": "x"}, since_ns=5), 20, {}), 30, {"a": "x"}, since_ns=5)
    assert [of.at(T + ns) for ns in (5, 19, 20, 29, 30)] == [["x"], ["x"], [], [], ["x"]]


def test_a_value_that_changes_begins_with_the_check_that_finds_it() -> None:
    of = checked(checked(NOTHING, 10, {"a": "x"}), 20, {"a": "y"}, since_ns=12)
    assert [of.at(T + ns) for ns in (10, 19, 20)] == [["x"], ["x"], ["y"]]


def test_a_value_that_is_alike_is_replaced_and_continues() -> None:
    of = checked(NOTHING, 10, {"a": "x"}).updated([Fact("a", "X", 0)], T + 20, lambda *_: True)
    assert (of.at(T + 10), of.past) == (["X"], ())


def test_a_value_of_the_future_begins_now() -> None:
    assert checked(NOTHING, 10, {"a": "x"}, since_ns=11).at(T + 10) == ["x"]


def test_the_ended_values_are_bounded_and_a_forgotten_time_is_unknown() -> None:
    of = NOTHING
    for number in range(PAST_MAX + 3):
        of = checked(of, number + 1, {"a": str(number)})
    assert len(of.past) == PAST_MAX
    assert (of.at(T + 2), of.at(T + 3)) == (None, ["2"])
    assert of.at(T) is None, "nothing held then, but this is no longer known"


def test_an_old_value_is_forgotten_and_its_time_is_unknown() -> None:
    ended = checked(checked(NOTHING, 1, {"a": "x"}), 2, {})
    kept = checked(ended, 2 + KEPT_NS, {})
    assert kept.at(T + 1) == ["x"]
    gone = checked(kept, 3 + KEPT_NS, {})
    assert (gone.past, gone.at(T + 1), gone.at(T + 2)) == ((), None, [])


def test_a_time_with_more_values_than_there_is_room_for_is_unknown() -> None:
    many = {f"k{number}": "x" for number in range(PRESENT_MAX)}
    fits = checked(NOTHING, 1, many)
    assert len(fits.at(T + 1) or ()) == PRESENT_MAX
    full = checked(fits, 2, {**many, "another": "y"})
    assert len(full.present) == PRESENT_MAX
    assert full.at(T + 2) is None
    assert full.at(T + 1 + EVERY_NS) is None
    again = checked(full, EVERY_NS, many)
    assert again.at(T + 2 + EVERY_NS) is not None
