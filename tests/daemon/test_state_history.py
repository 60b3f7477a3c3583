"""The history of workers and problems: which times are known, and that it survives as it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_up_workers import MadeUp
from test_problem_book import DIED, LOST, ODD, OFF, T
from test_windows import worker as made_worker

from brickd.analysis.problem import Problem
from brickd.analysis.problem_book import Entry
from brickd.analysis.state_history import GAP_NS, PERIODS_MAX, PastState, StateHistory
from brickd.base.json_values import parsed, plain
from brickd.base.units import SECOND
from brickd.model.survey_snapshot import EVERY_NS
from brickd.model.timeline import KEPT_NS
from brickd.model.workers import Worker

EVERY_S = EVERY_NS // SECOND


def worker(number: int = 1, *, alive: bool = True, started_s: int = 0, **header: Any) -> Worker:
    made = made_worker(MadeUp(service="api"), number, alive=alive)
    of: Any = {**made.reading.header, "started_ns": T + started_s * SECOND, "pid": 7, **header}
    return made._replace(name=f"api/{number}", reading=replace(made.reading, header=of))


def entry(problem: Problem = OFF, since_s: int = 0, **of: Any) -> Entry:
    return Entry(problem, T + since_s * SECOND, T + since_s * SECOND, **of)


def looked(
    of: StateHistory,
    at_s: float,
    *shown: Entry,
    workers: tuple[Worker, ...] = (),
    continues: bool = True,
) -> StateHistory:
    return of.updated(workers, shown, T + round(at_s * SECOND), continues=continues)


def at(of: StateHistory, at_s: float) -> PastState | None:
    return of.at(T + round(at_s * SECOND))


def ids(of: StateHistory, at_s: float) -> list[str] | None:
    state = at(of, at_s)
    return None if state is None else [each.problem.id for each in state.problems]


def states(of: StateHistory, at_s: float) -> list[str] | None:
    state = at(of, at_s)
    return None if state is None else [each.state for each in state.workers]


def test_a_problem_is_there_from_its_beginning_to_its_end_only() -> None:
    of = looked(looked(looked(StateHistory(), 0), 10, entry(since_s=4)), 20)
    assert [ids(of, at_s) for at_s in (0, 3.9, 4, 10, 19.9, 20)] == [[], [], [OFF.id], [OFF.id], [OFF.id], []]


def test_a_problem_has_the_workers_that_it_had_at_the_time() -> None:
    more = DIED._replace(workers=("api/3", "api/4"), text="api/3 and 1 more died")
    of = looked(looked(StateHistory(), 0, entry(DIED)), 10, entry(more))
    assert [state.problems[0].problem.text for at_s in (5, 15) if (state := at(of, at_s))] == [DIED.text, more.text]


def test_a_silenced_problem_is_silenced_for_the_time_of_its_silence_only() -> None:
    silent = entry(silenced_until_ns=T + 900 * SECOND)
    of = looked(looked(looked(StateHistory(), 0, entry()), 10, silent), 20, entry())
    for at_s, silenced in ((5, 0), (15, 1), (25, 0)):
        assert (state := at(of, at_s)) is not None
        assert (len(state.problems), len(state.silenced)) == (1 - silenced, silenced)


def test_problems_come_in_the_order_of_their_kinds() -> None:
    of = looked(StateHistory(), 0, entry(LOST), entry(DIED), entry(ODD), entry(OFF))
    assert ids(of, 0) == [ODD.id, OFF.id, DIED.id, LOST.id]


def test_a_worker_is_live_from_its_start_and_died_at_the_look_that_finds_it_dead() -> None:
    of = looked(StateHistory(), 0)
    of = looked(of, 10, workers=(worker(started_s=6),))
    of = looked(of, 20, workers=(worker(started_s=6, alive=False),))
    of = looked(of, 30)
    assert [states(of, at_s) for at_s in (5, 6, 19, 20, 30)] == [[], ["live"], ["live"], ["ended"], []]


def test_a_new_worker_did_not_live_at_the_look_before_whatever_it_reports() -> None:
    of = looked(looked(StateHistory(), 0), 10, workers=(worker(started_s=-50),))
    assert [states(of, at_s) for at_s in (0, 10)] == [["live"], ["live"]]
    of = looked(looked(looked(StateHistory(), 0), 10), 20, workers=(worker(started_s=-50),))
    assert [states(of, at_s) for at_s in (0, 9, 10, 20)] == [[], [], ["live"], ["live"]]


def test_numbers_of_a_hostile_worker_never_make_the_checkpoint_invalid() -> None:
    for pid, started_ns in ((-5, 0), (2**40, 2**64), (0, -1)):
        of = looked(StateHistory(), 0, workers=(worker(alive=False, pid=pid, started_ns=started_ns),))
        assert StateHistory.of(parsed(plain(of.plain()))) == of
        assert (state := at(of, 0)) is not None
        assert (len(state.workers), state.workers[0].started_ns >= 0) == (1, True)


@pytest.mark.parametrize(("pause_s", "known"), [(3 * EVERY_S, True), (3 * EVERY_S + 0.1, False)])
def test_a_time_without_looks_is_unknown(pause_s: float, known: bool) -> None:
    of = looked(looked(StateHistory(), 0, entry()), pause_s, entry())
    assert (at(of, pause_s / 2) is not None) == known
    assert ids(of, 0) == ids(of, pause_s) == [OFF.id]


def test_the_time_between_two_daemons_is_unknown_however_short_it_was() -> None:
    of = looked(looked(StateHistory(), 0, continues=False), 2, continues=False)
    assert [at(of, at_s) is not None for at_s in (-0.1, 0, 0.1, 1.9, 2)] == [False, True, False, False, True]


def test_the_time_after_the_last_look_is_known_until_the_next_look_is_late() -> None:
    of = looked(StateHistory(), 0)
    assert [of.at(T + ns) is not None for ns in (-1, 0, GAP_NS, GAP_NS + 1)] == [False, True, True, False]
    assert StateHistory().at(T) is None


def test_a_look_of_another_thread_may_be_a_little_older() -> None:
    of = looked(looked(looked(StateHistory(), 0), 10, entry(since_s=9)), 9.5)
    assert [ids(of, at_s) for at_s in (5, 9, 10)] == [[], [OFF.id], [OFF.id]]


def test_a_time_that_happened_twice_is_unknown() -> None:
    of = looked(looked(StateHistory(), 1000, entry(since_s=999)), 0)
    of = looked(of, 10)
    assert (at(of, 0), at(of, 10), at(of, 999.9)) == (None, None, None)
    for at_s in range(20, 1030, 10):
        of = looked(of, at_s)
    assert (at(of, 990), ids(of, 1010)) == (None, [])


def test_periods_are_bounded_and_a_forgotten_one_is_unknown() -> None:
    of = StateHistory()
    for number in range(PERIODS_MAX + 1):
        of = looked(of, number, continues=False)
    assert (len(of.periods), at(of, 0), ids(of, 1)) == (PERIODS_MAX, None, [])
    later = looked(of, PERIODS_MAX + KEPT_NS // SECOND + 1)
    assert len(later.periods) == 1


def test_a_history_is_read_as_it_was_written() -> None:
    of = looked(StateHistory(), 0, entry(LOST), workers=(worker(), worker(2, alive=False)._replace(together=3)))
    of = looked(of, 10, entry(silenced_until_ns=T), workers=(worker(),))
    assert StateHistory.of(parsed(plain(of.plain()))) == of
    document = of.plain()
    invalid: tuple[dict[str, Any], ...] = (
        {**document, "periods": [[1]]},
        {**document, "periods": [[0, 0]] * (PERIODS_MAX + 1)},
        {**document, "workers": [0, [[0, None, ["api/0", "api", "ab", "asleep", 1, None, 0]]]]},
        {**document, "workers": [-1, []]},
        {**document, "problems": [0, [[0, None, [0] * 15]]]},
        {"periods": []},
    )
    for broken in invalid:
        with pytest.raises((ValueError, KeyError)):
            StateHistory.of(broken)
