"""Stuck workers: which open spans are reported, and after which time. Some tests suspend real workers."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import psutil
import pytest
from faults import Start, until_stopped
from machines import Machine, machine
from made_up_workers import MadeUp
from running import until

from brickd.analysis.timing.alarms import Alarm, Alarms, Kind, of_services
from brickd.analysis.timing.stuck import Stuck
from brickd.base.thresholds import Thresholds
from brickd.daemon.process_usage import Usages
from brickd.model.event_log import Log
from brickd.model.survey_snapshot import EVERY_NS, Snapshot
from brickd.model.workers import Survey, Usage, Worker
from brickd.shm.ledger import ledger_of

SECOND = 1_000_000_000
QUICK = Thresholds().with_({"stuck_min": 30, "stuck_times": 20, "stuck_first": 600})


class Made:
    """A worker that never ran; it has completed spans of `step`, and a span that has been open since a given time."""

    def __init__(self, number: int = 0, *, category: str | None = None, calls: int = 100, ms: float = 10) -> None:
        self.name, self.number, self.usage = f"api/{number}", number, Usage(0.0, 0)
        made = MadeUp(service="api")
        made.begin("loop")
        for _ in range(calls):
            made.begin("step", category=category)
            made.spend(round(ms * 1e6))
            made.end()
        if not calls:
            made.begin("step", category=category)
            made.stack.pop()
        made.begin("load")
        self.reading = made.reading()
        self.lanes: dict[int, dict[str, int]] = {}

    def path(self, name: str) -> int:
        (number,) = (
            number
            for number, path in enumerate(self.reading.paths)
            if path is not None and self.reading.name(path.name) == name
        )
        return number

    def opens(self, name: str, began_ns: int, *, lane: int = 0, begun: int = 1) -> None:
        """Set the youngest open span of a lane, and the time at which this span began."""
        word = (began_ns >> 8) << 16 | self.path(name)
        self.lanes[lane] = {"begun": begun, "summarized": 0, "open": 1, "current": word, "thread": 7}

    def closes(self, *, lane: int = 0, begun: int = 1) -> None:
        self.lanes[lane] = {"begun": begun, "summarized": begun, "open": 0, "current": 0, "thread": 7}

    def worker(self, now_ns: int, *, alive: bool = True) -> Worker:
        lanes: Any = [(number, lane, {}) for number, lane in self.lanes.items()]
        header: Any = {**self.reading.header, "uuid": bytes([self.number]) * 16}
        reading = replace(self.reading, header=header, lanes=lanes, now_ticks=now_ns, pid=1 if alive else None)
        return Worker(self.name, reading, ledger_of(replace(reading, lanes=[])), usage=self.usage)


def looks(
    *workers: Made, until: float, since: float = 0, thresholds: Thresholds = QUICK, alive: bool = True
) -> Sequence[Alarm]:
    """Return the alarms of the last check; a daemon checks every ten seconds."""
    stuck, alarms = Stuck(), []
    for seconds in range(round(since), round(until) + 1, 10):
        now_ns = seconds * SECOND
        survey = Survey([each.worker(now_ns, alive=alive) for each in workers], [])
        alarms = stuck.look(Snapshot(now_ns, now_ns, survey), thresholds)
    return alarms


def texts(alarms: Sequence[Alarm]) -> list[str]:
    return [each.text for each in alarms]


def test_a_span_far_beyond_its_own_p99_is_stuck_after_half_a_minute() -> None:
    made = Made()
    made.opens("step", 0)
    assert looks(made, until=20) == []
    (alarm,) = looks(made, until=30)
    assert alarm.text == "api/0 is stuck in step for 30.0 s; this brick has a p99 of 10.0 ms"
    assert (alarm.kind, alarm.service, alarm.workers, alarm.command) == ("stuck", "api", ("api/0",), "brickd hang api")


def test_a_span_is_not_stuck_within_twenty_times_its_p99() -> None:
    made = Made(ms=5_000)  # the p99 is 5 s, so the limit is 100 s
    made.opens("step", 0)
    assert looks(made, until=90) == []
    assert len(looks(made, until=110)) == 1


def test_an_active_lane_is_not_stuck_and_its_time_restarts() -> None:
    made, stuck = Made(), Stuck()
    found = []
    for seconds in range(0, 80, 10):
        made.opens("step", 0, begun=1 + min(seconds // 10, 3))  # spans below it begin, until 30 s have passed
        survey = Survey([made.worker(seconds * SECOND)], [])
        found.append(texts(stuck.look(Snapshot(seconds * SECOND, 0, survey), QUICK)))
    assert [bool(each) for each in found] == [False] * 6 + [True] * 2
    assert "for 30.0 s" in found[6][0]


def test_the_time_counts_from_the_span_if_its_lane_was_quiet_for_longer() -> None:
    """The worker was idle for a minute, and began a span 20 s ago."""
    made, stuck = Made(), Stuck()
    made.closes()
    for seconds in (0, 60):
        assert stuck.look(Snapshot(seconds * SECOND, 0, Survey([made.worker(seconds * SECOND)], [])), QUICK) == []
    made.opens("step", 60 * SECOND)
    for seconds, count in ((70, 0), (90, 0), (100, 1)):
        alarms = stuck.look(Snapshot(seconds * SECOND, 0, Survey([made.worker(seconds * SECOND)], [])), QUICK)
        assert len(alarms) == count, seconds


def test_a_loop_that_waits_for_work_is_not_stuck() -> None:
    made = Made()
    made.opens("loop", 0)
    assert looks(made, until=3_600) == []


@pytest.mark.parametrize("category", ["wait", "Idle"])
def test_a_span_with_a_waiting_category_is_not_stuck(category: str) -> None:
    made = Made(category=category)
    made.opens("step", 0)
    assert looks(made, until=600) == []


def test_a_first_span_is_stuck_after_ten_minutes_without_records() -> None:
    made = Made()
    made.opens("load", 0)
    assert looks(made, until=590) == []
    assert texts(looks(made, until=600)) == ["api/0 is stuck in load for 10.0 min; this brick was never completed"]
    stuck = Stuck()
    for seconds in range(0, 1_200, 10):
        made.closes(lane=1, begun=1 + seconds // 10)  # another thread of the worker works
        survey = Survey([made.worker(seconds * SECOND)], [])
        assert stuck.look(Snapshot(seconds * SECOND, 0, survey), QUICK) == []


def test_a_first_span_is_judged_by_the_p99_of_other_workers() -> None:
    new, others = Made(0, calls=0), [Made(1, ms=5_000), Made(2, ms=10)]
    new.opens("step", 0)
    assert looks(new, *others, until=90) == []
    another = Made(3, calls=0)
    another.opens("loop", 0)  # a span of a brick that no worker has completed
    (alarm,) = looks(another, new, *others, until=110)
    assert alarm.workers == ("api/0",)
    assert "this brick has a p99 of 5.0 s" in alarm.text


def test_each_worker_is_read_once_per_place_however_many_wait_there() -> None:
    workers = [Made(number) for number in range(20)]
    for each in workers:
        each.opens("loop", 0)
    stuck, asked = Stuck(), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal asked
        asked += event == "call" and frame.f_code.co_name == "_quantile"

    for now_ns in (0, 60 * SECOND):
        snapshot = Snapshot(now_ns, 0, Survey([each.worker(now_ns) for each in workers], []))
        sys.setprofile(count)
        try:
            assert stuck.look(snapshot, QUICK) == []
        finally:
            sys.setprofile(None)
    assert asked == 2 * len(workers), "the p99 is computed once for each worker, and once for the place"


def test_workers_stuck_in_one_place_cause_one_alarm() -> None:
    workers = [Made(number) for number in range(5)]
    for each in workers[:4]:
        each.opens("step", each.number * SECOND)
    workers[4].usage = Usage(0.0, 0, stopped=True)
    step, stopped = looks(*workers, until=60)
    assert step.workers == ("api/0", "api/1", "api/2", "api/3")
    assert step.text == "api/0, api/1, api/2 and 1 more are stuck in step for 57.0 s; this brick has a p99 of 10.0 ms"
    assert stopped.text == "api/4 is stuck: its process has been stopped (SIGSTOP, or a debugger) for at least 1.0 min"
    (together,) = of_services([step, stopped])
    assert together == step._replace(workers=(*step.workers, "api/4"), text=f"{step.text}; {stopped.text}"), (
        "the problem of the service counts both places"
    )


def test_places_beyond_four_are_counted_within_their_service_and_kind() -> None:
    def alarm(kind: Kind, service: str, place: int) -> Alarm:
        return Alarm(kind, service, (f"{service}/{place}",), str(place), f"in {place}", "")

    slow = alarm("slower", "api", 7)
    api, other, left = of_services([*(alarm("stuck", "api", n) for n in range(6)), slow, alarm("stuck", "b", 0)])
    assert (api.text, len(api.workers)) == ("in 0; in 1; in 2; in 3; 2 more places", 6)
    assert (other.text, left) == ("in 0", slow)


def test_a_stopped_process_is_stuck_with_any_span_unless_it_continued_meanwhile() -> None:
    made, stuck = Made(), Stuck()
    made.usage = Usage(0.0, 0, stopped=True)
    made.closes()
    assert looks(made, until=20) == []
    assert len(looks(made, until=30)) == 1
    for seconds in range(0, 120, 10):
        made.closes(begun=1 + seconds // 20)  # the worker continues for a moment, and is stopped again
        survey = Survey([made.worker(seconds * SECOND)], [])
        assert stuck.look(Snapshot(seconds * SECOND, 0, survey), QUICK) == []


def test_a_dead_worker_is_not_stuck() -> None:
    made = Made()
    made.opens("step", 0)
    assert looks(made, until=600, alive=False) == []


def test_an_alarm_logs_its_beginning_and_end_once() -> None:
    made, log = Made(), Log()
    alarms = Alarms(log.add, lambda: QUICK, [Stuck()])
    for seconds in range(0, 100, 10):
        if seconds < 60:
            made.opens("step", 0)
        else:
            made.closes(begun=2)
        alarms.take(Snapshot(seconds * SECOND, 0, Survey([made.worker(seconds * SECOND)], [])))
        assert bool(alarms.hold()) == (30 <= seconds < 60)
    events = [(each.kind, each.service, each.worker, each.text, each.command) for each in log.since(0).events]
    assert events == [
        (
            "stuck",
            "api",
            "api/0",
            "api/0 is stuck in step for 30.0 s; this brick has a p99 of 10.0 ms",
            "brickd hang api",
        ),
        ("stuck_gone", "api", "api/0", "api/0: no longer stuck, after 30.0 s", "brickd hang api"),
    ]


def test_the_end_of_a_stuck_worker_is_not_a_recovery() -> None:
    made, log = Made(), Log()
    alarms = Alarms(log.add, lambda: QUICK, [Stuck()])
    made.opens("step", 0)
    for seconds in range(0, 60, 10):
        now_ns = seconds * SECOND
        alarms.take(Snapshot(now_ns, 0, Survey([made.worker(now_ns, alive=seconds < 50)], [])))
    assert alarms.hold() == ()
    assert [each.kind for each in log.since(0).events] == ["stuck"]


# ---- real workers

PROGRAM = """
step = brick.brick("step")
for _ in range(20):
    with step: pass
step.start()
pause()
step.stop()
pause()
"""


def alarms_of(here: Machine, usages: Usages, stuck: Stuck, number: int) -> Sequence[Alarm]:
    here.tick()
    found = here.survey()
    usages.look(found, number * EVERY_NS)
    least = QUICK.with_({"stuck_min": 1, "stuck_times": 1})
    return stuck.look(Snapshot.of(usages.laid_over(found), number * EVERY_NS, 0), least)


def test_a_real_stopped_worker_is_stuck_until_it_continues(worker: Start, prefix: str) -> None:
    process = worker(PROGRAM, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    process.paused()
    process.go()
    process.paused()
    usages, stuck = Usages(), Stuck()
    with machine(prefix) as here:
        assert alarms_of(here, usages, stuck, 0) == []
        process.process.send_signal(signal.SIGSTOP)
        until_stopped(process.pid)
        assert alarms_of(here, usages, stuck, 1) == []
        (alarm,) = alarms_of(here, usages, stuck, 2)
        assert alarm.text == "api/0 is stuck: its process has been stopped (SIGSTOP, or a debugger) for at least 10.0 s"
        process.process.send_signal(signal.SIGCONT)
        until(lambda: psutil.Process(process.pid).status() != psutil.STATUS_STOPPED)
        assert alarms_of(here, usages, stuck, 3) == []


def test_a_real_worker_waiting_in_a_span_is_stuck_in_it(worker: Start, prefix: str) -> None:
    process = worker(PROGRAM, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    process.paused()
    stuck = Stuck()
    with machine(prefix) as here:
        survey = here.survey()
        (seen,) = survey.workers
        hour = seen._replace(reading=replace(seen.reading, now_ticks=(seen.reading.now_ticks or 0) + 10**13))
        for number in range(2):
            alarms = stuck.look(Snapshot.of(survey._replace(workers=[hour]), number * 3600 * SECOND, 0), QUICK)
        (alarm,) = alarms
    assert alarm.text.startswith("api/0 is stuck in step for 1.0 h; this brick has a p99 of ")
