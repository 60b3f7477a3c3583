"""A status about a past time of a daemon: its workers and problems, and what is said if they are not known."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from faults import Start
from past_daemon import Past, past_daemon
from verbs import SPANS, started

from brickd.base.units import SECOND
from brickd.query.orders import Setting
from brickd.query.queries import StatusQuery
from brickd.screens.health import Bounds, conditions, healthy, inactive
from brickd.screens.screen import Screen
from brickd.screens.status import render
from brickd.views import status


@pytest.fixture
def past(prefix: str) -> Iterator[Past]:
    with past_daemon() as found:
        yield found


def off(past: Past, recording: Literal["on", "off"]) -> None:
    past.daemon.orders.set(Setting(service="api", recording=recording))


def test_a_problem_is_shown_at_a_time_between_its_beginning_and_its_end(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    past.look(0)
    past.look(10)
    off(past, "off")
    past.look(20)
    past.look(30)
    off(past, "on")
    past.look(40)
    past.look(50)
    assert [past.kinds(at_s) for at_s in (5, 19.9, 20.1, 39.9, 40.1)] == [[], [], ["off"], ["off"], []]
    assert status.answer(past.daemon, StatusQuery()).document["problems"] == []
    (problem,) = past.at(25).document["problems"]
    assert (problem["service"], problem["workers"], problem["silenced_until"]) == ("api", ["api/0"], None)
    assert problem["text"] == "recording is off in 1 worker of api"
    assert past.at(25, names=("api",)).document["problems"] == [problem]


def test_a_problem_of_now_is_not_shown_at_a_time_before_it_began(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    for at_s in (0, 10):
        past.look(at_s)
    off(past, "off")
    past.look(20)
    now = status.answer(past.daemon, StatusQuery()).document
    assert ([each["kind"] for each in now["problems"]], now["at"]) == (["off"], None)
    assert past.kinds(15) == []


def test_a_silenced_problem_is_silenced_at_the_time_of_its_silence(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    past.look(0)
    off(past, "off")
    past.look(10)
    (id_,) = [each["id"] for each in past.at(15).document["problems"]]
    past.daemon._memory.problems = past.daemon.problem_book().silenced(id_, past.daemon.at_ns() + SECOND * 1000)
    past.look(20)
    before, after = past.at(15).document, past.at(25).document
    assert [len(each["problems"]) for each in (before, after)] == [1, 0]
    assert [len(each["silenced"]) for each in (before, after)] == [0, 1]


def test_a_worker_that_died_is_live_at_an_earlier_time(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    other = started(worker, SPANS, BRICKD_SERVICE="other")
    past.look(0)
    past.look(10)
    other.kill()
    past.look(20)
    past.look(30)
    live, died = [("api/0", "live"), ("other/0", "live")], [("api/0", "live"), ("other/0", "died")]
    assert [past.states(at_s) for at_s in (5, 15, 25)] == [live, live, died]
    assert (past.kinds(15), past.kinds(25)) == ([], ["died"])
    died_event = next(each for each in past.daemon.events.since(0).events if each.kind == "worker_died")
    assert died_event.problem == past.at(25).document["problems"][0]["id"]
    of_api = past.at(25, names=("api",)).document
    assert ([each["name"] for each in of_api["workers"]], of_api["problems"]) == (["api/0"], [])


def test_the_entry_of_a_past_worker_has_what_was_kept_and_nothing_of_now(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    past.look(0)
    past.look(10)
    (then,) = past.at(5).document["workers"]
    (now,) = status.answer(past.daemon, StatusQuery()).document["workers"]
    assert list(then) == list(now)
    same = {
        "name", "service", "index", "coordinates", "uuid", "segment", "pid", "state", "together", "configured",
        "started", "clock",
    }  # fmt: skip
    assert {key: value for key, value in then.items() if key in same} == {key: now[key] for key in same}
    assert {value for key, value in then.items() if key not in same} == {None}


def test_nothing_of_now_is_shown_as_if_it_were_of_a_past_time(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    past.look(0)
    past.look(10)
    answer = past.at(5)
    document, now = answer.document, status.answer(past.daemon, StatusQuery()).document
    assert list(document) == list(now)
    at = datetime.fromtimestamp((past.began_ns + 5 * SECOND) / SECOND, UTC)
    assert abs((datetime.fromisoformat(document["at"]) - at).total_seconds()) < 0.01
    unknown = {key for key, value in document.items() if value is None and now[key] is not None}
    assert unknown == {
        "ledger", "removed", "stragglers", "waiting", "judged_age_ns", "alarms", "diverged", "numerics", "evidence",
        "over",
    }  # fmt: skip
    assert answer.words[0].startswith("workers and problems are those of ")
    assert answer.words[0].endswith("; their counts and comparisons of that time are not kept")


def test_a_time_that_the_daemon_did_not_see_is_said_to_be_unknown(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    past.look(-10)
    off(past, "off")
    for at_s in (0, 10, 200, 210):  # the machine slept in between
        past.look(at_s)
    answer = past.at(100)
    document = answer.document
    assert (document["workers"], document["problems"], document["silenced"]) == (None, None, None)
    assert " are not known: the daemon did not run at that time, or had no room to keep them" in answer.words[0]
    assert render(document, Screen(None, colour=False))[0] == "problems not known"
    (condition,) = conditions(document, None, Bounds())
    assert (condition.healthy, condition.command) == (False, "brickd events")
    assert condition.seen == f"the workers and problems of {document['at']} are not known"
    assert past.kinds(5) == past.kinds(205) == ["off"]


def test_a_past_time_survives_a_restart_of_the_daemon(worker: Start, past: Past) -> None:
    from brickd.state.checkpoint import decode, encode

    started(worker, SPANS, BRICKD_SERVICE="api")
    past.look(0)
    off(past, "off")
    past.look(10)
    memory = past.daemon._memory
    content = encode(memory)
    assert decode(content).history == memory.history
    assert len(memory.history.periods) == 1


def test_a_check_of_a_past_time_follows_the_problems_of_that_time(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    past.look(0)
    past.look(10)
    started(worker, SPANS, BRICKD_SERVICE="api").kill()
    off(past, "off")
    past.look(20)
    past.look(30)

    def check(at_s: float, **bounds: Any) -> list[str]:
        found = conditions(past.at(at_s).document, None, Bounds(**bounds))
        assert healthy(found) == all(each.command is None for each in found)
        return [each.name for each in found if not each.healthy]

    assert (check(5), check(25)) == ([], ["problems", "dead"])
    assert check(5, require=("weights",)) == ["require weights"]
    problem, dead, workers = conditions(past.at(25).document, None, Bounds())
    assert problem.seen.endswith(f" recording is off in 1 worker of api at {past.at(25).document['at']}")
    assert (problem.command, dead.seen, workers.seen) == ("brickd set --recording on api", "1 died", "2 workers")
    assert check(25, ignore=("dead",)) == check(25, max_dead=1) == ["problems"]
    assert inactive(past.at(25).document) == []


def test_a_worker_that_died_long_before_a_past_time_is_still_unhealthy(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api").kill()
    past.daemon.orders.set_thresholds(Setting(threshold=("active_for=5s",)))
    for at_s in (0, 10, 20):
        past.look(at_s)
    document = past.at(15).document
    assert (document["problems"], past.kinds(5)) == ([], ["died"])
    assert [each.name for each in inactive(document)] == ["dead"]
    assert render(document, Screen(None, colour=False))[0].endswith("  no active problem")
    assert [each.name for each in conditions(document, None, Bounds()) if not each.healthy] == ["dead"]


def test_a_check_of_a_past_time_accepts_what_was_silenced_then(worker: Start, past: Past) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api").kill()
    past.look(0)
    (id_,) = past.daemon.problem_book().entries
    past.daemon._memory.problems = past.daemon.problem_book().silenced(id_, past.daemon.at_ns() + SECOND * 1000)
    past.look(10)
    past.look(20)
    healths = [healthy(conditions(past.at(at_s).document, None, Bounds())) for at_s in (5, 15)]
    assert healths == [False, True]


def test_a_check_of_a_past_time_without_workers_is_unhealthy(past: Past) -> None:
    past.look(0)
    past.look(10)
    document = past.at(5).document
    assert (document["workers"], document["problems"]) == ([], [])
    assert [each.name for each in conditions(document, None, Bounds()) if not each.healthy] == ["workers"]
    assert healthy(conditions(document, None, Bounds(allow_empty=True)))
    assert healthy(conditions(document, None, Bounds(ignore=("workers",))))


def test_the_screen_of_a_past_time_has_its_problems_first(worker: Start, past: Past) -> None:
    for _ in range(7):
        started(worker, SPANS, BRICKD_SERVICE="api")
    past.look(0)
    off(past, "off")
    past.look(10)
    past.look(20)
    lines = render(past.at(15).document, Screen(None, colour=False))
    assert lines[0] == "api  7 live  daemon  1 PROBLEM"
    assert lines[1].endswith("recording is off in 7 workers of api  brickd set --recording on api")
    assert lines[-2:] == ["…2 with a problem", lines[-1]]
    assert lines[-1].startswith("no spans from ")


def test_a_killed_daemon_loses_at_most_a_minute_of_the_past(past: Past) -> None:
    def is_saved_next(at_s: float) -> bool:
        past.look(at_s)
        return past.daemon._collector._unsaved.urgent

    assert [is_saved_next(at_s) for at_s in (0, 10, 59, 60, 119, 120)] == [True, False, False, True, False, True]
    assert is_saved_next(90), "the clock was set back"
