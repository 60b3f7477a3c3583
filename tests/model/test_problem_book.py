"""The life of a problem, on a clock that the test sets: when it begins, is active and ends, and what a silence
covers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.analysis.problem import WORKERS_MAX, Problem, merged
from brickd.analysis.problem_book import (
    AWAY_NS,
    ENTRIES_MAX,
    GONE,
    INCOMPARABLE,
    KEPT_NS,
    WORKERS_ENDED,
    Book,
    Change,
)
from brickd.base.json_values import parsed, plain
from brickd.base.thresholds import Thresholds
from brickd.base.units import SECOND

T = 1_700_000_000 * SECOND
ACTIVE_NS = Book().active_ns
OFF = Problem("off", "api", ("api/0",), "recording is off in 1 worker of api", "brickd set --recording on api")
LOST = Problem("lost", "api", ("api/0",), "api/0: raise BRICKD_EVENTS: 9 events dropped", "brickd inspect", "events", 9)
ODD = Problem("weights", "api", ("api/2",), "weights: api/2 differs", "brickd weights api")
DIED = Problem("died", "api", ("api/3",), "api/3 died", "brickd prune", mark=1)
LIVING = frozenset({"api/0", "api/1", "api/2"})


def lived(*looks: tuple[int, list[Problem]], living: frozenset[str] = LIVING, **how: Any) -> tuple[Book, list[Change]]:
    """Make these checks, whose times are relative to T.

    Return the book of problems, and the changes of the last check.
    """
    book, changes = Book(), list[Change]()
    for after_ns, found in looks:
        book, changes = book.updated(found, living, T + after_ns, **how)
    return book, changes


def states(changes: list[Change]) -> list[tuple[str, str]]:
    return [(each.state, each.why) for each in changes]


# ---- ids and merging


def test_an_id_depends_only_on_kind_service_and_subject() -> None:
    assert OFF._replace(workers=("x",), text="y", command="z", mark=7).id == OFF.id
    others = [
        OFF._replace(kind="lost"),
        OFF._replace(service="b"),
        OFF._replace(service=None),
        OFF._replace(subject="x"),
    ]
    assert len({each.id for each in (OFF, *others, OFF._replace(service=""))}) == 6


def test_problems_of_one_kind_and_service_are_merged_under_the_worst_worker() -> None:
    alike = [LOST._replace(workers=(f"api/{n}",), text=f"api/{n}: raise BRICKD_EVENTS", mark=10 - n) for n in range(6)]
    (one,) = merged(alike)
    assert one.text == "api/0: raise BRICKD_EVENTS (and 5 more workers: api/1, api/2, api/3 and 2 more)"
    assert (one.workers, one.mark, one.id) == (tuple(f"api/{n}" for n in range(6)), 45, LOST.id)
    assert len(merged([*alike, LOST._replace(service="b"), LOST._replace(subject="lanes")])) == 3


def test_a_merged_problem_has_the_first_and_the_last_time() -> None:
    one, other = LOST._replace(first_ns=5, last_ns=6), LOST._replace(workers=("api/1",), first_ns=3, last_ns=9)
    (both,) = merged([one, other])
    assert (both.first_ns, both.last_ns, both.mark) == (3, 9, 18)
    (both,) = merged([one, other._replace(mark=None, first_ns=None)])
    assert (both.first_ns, both.last_ns, both.mark) == (None, 9, None)


def test_counters_whose_sum_exceeds_64_bits_are_kept_in_the_book() -> None:
    most = 2**64 - 1
    (one,) = merged([LOST._replace(mark=most), LOST._replace(workers=("api/1",), mark=most)])
    assert one.mark == most
    book, _ = lived((0, [one]))
    assert Book.of(parsed(plain(book.rows()))).entries == book.entries


def test_the_names_in_a_problem_are_bounded() -> None:
    many = [LOST._replace(workers=(f"api/{n}",)) for n in range(200)]
    assert [len(each.workers) for each in merged(many)] == [WORKERS_MAX]
    assert [len(each.workers) for each in merged([LOST._replace(workers=("w",) * 200)])] == [WORKERS_MAX]


# ---- start and end


def test_a_condition_is_seen_at_each_look_and_begins_once() -> None:
    book, changes = lived((0, [OFF]))
    assert states(changes) == [("began", "")]
    for n in range(1, 200):
        book, changes = book.updated([OFF], LIVING, T + n * 10 * SECOND)
        assert changes == []
    (entry,) = book.entries.values()
    assert (entry.since_ns, entry.seen_ns, entry.ended_ns) == (T, T + 1990 * SECOND, None)


def test_a_condition_that_is_absent_for_less_than_two_minutes_has_not_ended() -> None:
    book, changes = lived((0, [OFF]), (AWAY_NS - 1, []))
    assert changes == []
    assert states(book.updated([], LIVING, T + AWAY_NS)[1]) == [("recovered", GONE)]
    again, changes = book.updated([OFF], LIVING, T + AWAY_NS)
    assert (changes, again.entries[OFF.id].since_ns) == ([], T)


def test_a_problem_seen_before_the_clock_went_back_ends_normally() -> None:
    back = -86_400 * SECOND
    book, changes = lived((0, [OFF]), (back, []), (back + AWAY_NS - 1, []))
    assert changes == []
    assert states(book.updated([], LIVING, T + back + AWAY_NS)[1]) == [("recovered", GONE)]


def test_a_problem_that_returns_after_its_end_begins_again() -> None:
    book, changes = lived((0, [OFF]), (AWAY_NS, []), (AWAY_NS + 7, [OFF]))
    assert states(changes) == [("began", "")]
    assert book.entries[OFF.id].since_ns == T + AWAY_NS + 7


@pytest.mark.parametrize("problem", [DIED, LOST])
def test_a_counter_that_restarts_after_its_problem_ended_is_a_new_problem(problem: Problem) -> None:
    gone_ns = ACTIVE_NS + 2 * SECOND
    _, changes = lived((0, [problem]), (ACTIVE_NS + SECOND, [problem]), (gone_ns, []), (gone_ns + SECOND, [problem]))
    assert states(changes) == [("began", "")]


def test_a_loss_is_seen_when_its_counter_grows_and_ends_ten_minutes_later() -> None:
    grown = LOST._replace(mark=10)
    book, changes = lived((0, [LOST]), (60 * SECOND, [grown]), (60 * SECOND + ACTIVE_NS, [grown]))
    assert (changes, book.entries[LOST.id].seen_ns) == ([], T + 60 * SECOND)
    over, changes = book.updated([grown], LIVING, T + 61 * SECOND + ACTIVE_NS)
    assert states(changes) == [("recovered", "its cause was not seen again for 10.0 min")]
    assert over.updated([grown], LIVING, T + 70 * SECOND + ACTIVE_NS)[1] == []
    assert states(over.updated([LOST._replace(mark=11)], LIVING, T + 70 * SECOND + ACTIVE_NS)[1]) == [("began", "")]


def test_a_problem_is_active_for_the_time_of_its_book() -> None:
    assert Thresholds().ns("active_for") == ACTIVE_NS
    book = lived((0, [LOST]))[0]._replace(active_ns=5 * SECOND)
    later, changes = book.updated([LOST], LIVING, T + 5 * SECOND)
    assert (changes, later.active_ns) == ([], 5 * SECOND)
    assert states(later.updated([LOST], LIVING, T + 5 * SECOND + 1)[1]) == [
        ("recovered", "its cause was not seen again for 5.0 s")
    ]


def test_a_falling_counter_is_not_a_new_loss_but_its_next_growth_is() -> None:
    book, _ = lived((0, [LOST]), (SECOND, [LOST._replace(mark=4)]))
    assert book.entries[LOST.id].seen_ns == T
    book, _ = book.updated([LOST._replace(mark=5)], LIVING, T + 2 * SECOND)
    assert book.entries[LOST.id].seen_ns == T + 2 * SECOND


def test_a_cause_older_than_ten_minutes_at_the_first_look_sends_no_event() -> None:
    old = LOST._replace(last_ns=T - ACTIVE_NS - 1)
    book, changes = lived((0, [old]))
    assert (changes, book.entries[LOST.id].ended_ns) == ([], T - ACTIVE_NS - 1)
    assert book.updated([old], LIVING, T + SECOND)[1] == []
    recent, changes = lived((0, [LOST._replace(first_ns=T - 9 * SECOND, last_ns=T - SECOND)]))
    entry = recent.entries[LOST.id]
    assert (states(changes), entry.since_ns, entry.seen_ns) == ([("began", "")], T - 9 * SECOND, T - SECOND)


def test_a_behaviour_problem_ends_without_recovery_with_its_last_worker() -> None:
    both = ODD._replace(workers=("api/1", "api/2"))
    book, _ = lived((0, [both]))
    assert book.updated([both], {"api/0", "api/2"}, T + 1)[1] == []
    over, changes = book.updated([both], {"api/0"}, T + 1)
    assert states(changes) == [("ended", WORKERS_ENDED)]
    assert over.updated([both], {"api/0"}, T + 2)[1] == []


def test_losses_of_a_dead_worker_stay_a_problem_for_ten_minutes() -> None:
    book, changes = lived((0, [DIED, LOST]), (ACTIVE_NS, [DIED, LOST]), living=frozenset())
    assert (changes, len(book.entries)) == ([], 2)
    assert [each.state for each in book.updated([DIED, LOST], (), T + ACTIVE_NS + 1)[1]] == ["recovered"] * 2


def test_weights_recover_only_when_equal_to_a_replica() -> None:
    book, _ = lived((0, [ODD]))
    assert states(book.updated([], LIVING, T + AWAY_NS)[1]) == [("ended", INCOMPARABLE)]
    assert states(book.updated([], LIVING, T + AWAY_NS, equal={"api/1", "api/2"})[1]) == [("recovered", GONE)]


def test_a_clock_that_goes_back_ends_no_problem() -> None:
    book, _ = lived((0, [LOST]))
    book, changes = book.updated([LOST], LIVING, T - 86_400 * SECOND)
    assert (changes, book.entries[LOST.id].seen_ns) == ([], T - 86_400 * SECOND)


# ---- sent alarms


def test_a_begin_is_sent_once_and_its_end_only_after_it() -> None:
    book, changes = lived((0, [OFF, LOST]), sends=True)
    assert [each.send for each in changes] == [True, True]
    book, changes = book.updated([OFF, LOST._replace(mark=10)], LIVING, T + 1, sends=True)
    assert changes == []
    _, changes = book.updated([LOST], LIVING, T + AWAY_NS + 1, sends=True)
    assert [(each.state, each.send) for each in changes] == [("recovered", True)]
    _, changes = lived((0, [OFF]), (AWAY_NS, []))
    assert [(each.state, each.send) for each in changes] == [("recovered", False)]


def test_a_problem_that_began_without_a_target_is_sent_later() -> None:
    book, _ = lived((0, [OFF]))
    book, (change,) = book.updated([OFF], LIVING, T + 1, sends=True)
    assert (change.state, change.send, change.news) == ("began", True, False)
    assert book.updated([OFF], LIVING, T + 2, sends=True)[1] == []


# ---- silences


def test_a_silenced_problem_is_sent_when_its_silence_ends() -> None:
    book, _ = lived((0, [OFF]))
    book = book.silenced(OFF.id, T + 100)
    book, changes = book.updated([OFF], LIVING, T + 99, sends=True)
    assert changes == []
    book, changes = book.updated([OFF], LIVING, T + 100, sends=True)
    assert [(each.state, each.why, each.send) for each in changes] == [
        ("unsilenced", "the silence has expired", False), ("began", "", True),
    ]  # fmt: skip
    assert book.entries[OFF.id].silenced_until_ns is None


def test_the_end_of_a_silenced_problem_is_not_sent() -> None:
    book, _ = lived((0, [OFF]), sends=True)
    book = book.silenced(OFF.id, T + 2 * AWAY_NS)
    _, changes = book.updated([], LIVING, T + AWAY_NS, sends=True)
    assert [(each.state, each.send) for each in changes] == [("recovered", False)]


def test_a_silence_covers_the_workers_of_its_time_and_ends_for_another() -> None:
    book, _ = lived((0, [ODD]))
    book = book.silenced(ODD.id, T + KEPT_NS)
    both = ODD._replace(workers=("api/2", "api/1"))
    assert book.updated([ODD], LIVING, T + 1)[1] == []
    book, changes = book.updated([both], LIVING, T + 1)
    assert states(changes) == [("unsilenced", "api/1 now has the same problem")]
    assert not book.entries[ODD.id].silenced(T + 1)
    lost = lived((0, [LOST]))[0].silenced(LOST.id, T + KEPT_NS)
    assert lost.updated([LOST._replace(workers=("api/1",), mark=10)], LIVING, T + 1)[1] == []


def test_a_silence_can_be_lifted_and_an_unknown_id_is_refused() -> None:
    book, _ = lived((0, [OFF]))
    silenced = book.silenced(OFF.id, T + 100)
    assert silenced.entries[OFF.id].silenced(T + 99)
    assert silenced.silenced(OFF.id, None) == book
    with pytest.raises(KeyError):
        book.silenced("00000000", T)


# ---- limits and storage


def test_an_ended_problem_leaves_the_book_after_an_hour() -> None:
    book, _ = lived((0, [OFF, ODD, LOST]), (AWAY_NS, [LOST]))
    book = book.silenced(ODD.id, T + 10 * KEPT_NS)
    assert len(book.updated([LOST], LIVING, T + AWAY_NS + KEPT_NS)[0].entries) == 3
    later, _ = book.updated([LOST], LIVING, T + AWAY_NS + KEPT_NS + 1)
    assert set(later.entries) == {LOST.id, ODD.id}


@pytest.mark.ci
def test_the_book_is_bounded_and_drops_the_first_ended_problem() -> None:
    many = [OFF._replace(subject=str(n)) for n in range(ENTRIES_MAX + 5)]
    book, changes = lived((0, many))
    assert (len(book.entries), book.unkept, len(changes)) == (ENTRIES_MAX, 5, ENTRIES_MAX)
    book, _ = book.updated(many[2:ENTRIES_MAX], LIVING, T + AWAY_NS)
    book, _ = book.updated([*many[2:ENTRIES_MAX], LOST], LIVING, T + AWAY_NS + 1)
    assert (len(book.entries), book.unkept, LOST.id in book.entries) == (ENTRIES_MAX, 0, True)


PROBLEMS = st.builds(
    Problem,
    st.sampled_from(["off", "lost", "weights", "died"]),
    st.none() | st.sampled_from(["api", "b"]),
    st.lists(st.sampled_from(["api/0", "api/1", "x"]), max_size=3).map(tuple),
    st.text(max_size=9),
    st.just("brickd events"),
    st.sampled_from(["", "events"]),
    st.none() | st.integers(0, 9),
    first_ns=st.none(),
    last_ns=st.none(),
)
LOOKS = st.lists(st.tuples(st.integers(0, 2 * ACTIVE_NS), st.lists(PROBLEMS, max_size=5)), max_size=6)


@pytest.mark.ci
@given(LOOKS, st.booleans())
def test_a_book_survives_encoding_and_every_begin_has_at_most_one_end(
    looks: list[tuple[int, list[Problem]]], sends: bool
) -> None:
    book, now_ns, sent = Book(), T, dict[str, int]()
    for after_ns, found in looks:
        now_ns += after_ns
        book, changes = book.updated(merged(found), LIVING, now_ns, sends=sends)
        for change in changes:
            if change.send:
                id_ = change.entry.problem.id
                sent[id_] = sent.get(id_, 0) + (1 if change.state == "began" else -1)
                assert sent[id_] in (0, 1)
    assert Book.of(parsed(plain(book.rows()))) == book._replace(unkept=0)
    assert (sends, sum(sent.values())) == (sends, sum(each.notified for each in book.entries.values()))


@pytest.mark.parametrize("at", range(15))
def test_a_saved_book_with_an_invalid_value_is_refused(at: int) -> None:
    (row,) = parsed(plain(lived((0, [LOST._replace(first_ns=1, last_ns=2)]))[0].rows()))
    assert Book.of([row]).entries
    wrongs: tuple[Any, ...] = ({}, -1)
    for wrong in wrongs:
        changed = [*row]
        changed[at] = wrong
        with pytest.raises(ValueError, match="expected"):
            Book.of([changed])
