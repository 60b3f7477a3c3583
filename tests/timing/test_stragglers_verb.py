"""Slow workers on screens and in JSON, and the events that the daemon logs when a worker becomes slow or normal
again."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from faults import Start
from made_up_workers import HOSTILE, MadeUp
from serving import Daemon
from slots import BRICKS, Fleet, Made, slow, with_
from verbs import brickd, document, sheet, started

from brickd.analysis.timing.monitor import Lookout
from brickd.analysis.timing.stragglers import judge
from brickd.base.units import SECOND
from brickd.model.event_log import Event, Log
from brickd.model.survey_snapshot import EVERY_NS, Snapshot
from brickd.model.workers import Survey, Usage, Worker
from brickd.shm.ledger import ledger_of

GEMM = BRICKS["moe_gemm"]
HALF = slow(2, 50)


def fleet(percent: float = 11.0, name: str = "moe_gemm", made: Made = GEMM) -> Fleet:
    """Return three workers; the last one is slow in one brick."""
    return Fleet(workers=3, bricks=with_(name, replace(made, factor=slow(2, percent))), noise=0.0001)


@pytest.fixture
def three(worker: Start, daemon: Daemon) -> Daemon:
    """Start a daemon with three workers."""
    for number in range(3):
        started(worker, BRICKD_SERVICE="api", BRICKD_WORKER=str(number))
    return daemon


@pytest.mark.ci
def test_the_findings_come_first_and_then_the_workers_side_by_side(three: Daemon) -> None:
    three.judged = judge(fleet().looks(6, seed=1))
    ended = brickd("stragglers", TZ="UTC")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.splitlines() == [
        "! api/2 slow since 22:13: moe_gemm +11 %, costs 33.0 ms/s",
        "",
        "moe_gemm of api: costs 33.0 ms/s, 3.3 % of the time, low confidence",
        "WORKER  MEAN (self)  VERSUS MEDIAN  CALLS  ELEMENTS EACH  SCORE",
        *ended.stdout.splitlines()[4:],
    ]
    rows = [line.split() for line in ended.stdout.splitlines()[4:]]
    assert rows[0][:7] == ["api/2", "13.3", "ms", "+11", "%", "1,500", "0"]
    assert len(rows) == 3


@pytest.mark.ci
def test_status_begins_with_the_straggler_and_a_check_fails(three: Daemon) -> None:
    three.judged = judge(fleet().looks(6, seed=1))
    screen = brickd("status", TZ="UTC").stdout.splitlines()
    assert screen[0].endswith("1 PROBLEM")
    assert (
        screen[1].replace("fbe36a63 ", "")
        == "! api/2 slow since 22:13: moe_gemm +11 %, costs 33.0 ms/s  brickd stragglers api"
    )
    assert "workers" not in document("status")["stragglers"][0]
    checked = brickd("status", "--check")
    assert (checked.returncode, checked.stdout) == (
        1, "unhealthy: api/2 slow, expected none (brickd stragglers)\n",
    )  # fmt: skip
    assert brickd("status", "--check", "--ignore", "straggler").returncode == 0
    assert document("status", "api/0")["stragglers"] == []


@pytest.mark.ci
def test_a_straggler_is_not_folded_into_the_healthy_workers(worker: Start, daemon: Daemon) -> None:
    for number in range(6):
        started(worker, BRICKD_SERVICE="api", BRICKD_WORKER=str(number))
    assert "…6 healthy" in brickd("status").stdout
    daemon.judged = judge(Fleet(workers=6, bricks=fleet().bricks).looks(6, seed=1))
    screen = brickd("status").stdout
    assert "…5 healthy" in screen
    assert re.search(r"^api/2 +\d+  live", screen, re.MULTILINE)


def test_without_a_straggler_the_screen_names_the_compared_spans(three: Daemon) -> None:
    bricks = {**with_("rare", Made(9e6, calls=2)), "tiny": Made(1_000)}
    looks = Fleet(workers=3, bricks=bricks).looks(6, seed=1)
    three.judged = judge(looks)
    ended = brickd("stragglers")
    assert (ended.returncode, ended.stdout.splitlines()) == (
        0,
        [
            "no worker is slow: 4 bricks were compared over 1.0 min",
            "api: 3 workers, 4 bricks compared; not compared: 1 with too few calls, 1 with too little time;"
            " unknown waiting time for a processor: 3 workers",
        ],
    )


@pytest.mark.ci
def test_without_comparisons_the_screen_does_not_claim_health(three: Daemon) -> None:
    three.judged = judge(Fleet(workers=2, bricks={"gemm": GEMM}).looks(6, seed=1))
    first, second = brickd("stragglers").stdout.splitlines()
    assert first == "no worker is judged: 0 bricks were compared over 1.0 min"
    assert second == (
        "api: 2 workers, 0 bricks compared; not compared: 1 with fewer than 3 active workers;"
        " unknown waiting time for a processor: 2 workers"
    )


def test_a_conspicuous_worker_not_called_slow_is_shown_with_the_reason(three: Daemon) -> None:
    more = replace(GEMM, elements=lambda worker: 4600 if worker == 2 else 4000)
    three.judged = judge(fleet(made=more).looks(6, seed=1))
    reported = "api/2 stands out in moe_gemm but is not named as slow: its calls have 15 % more elements"
    assert brickd("stragglers").stdout.splitlines()[-1] == reported


@pytest.mark.ci
def test_on_a_narrow_screen_no_line_is_cut(three: Daemon) -> None:
    more = replace(GEMM, elements=lambda worker: 4600 if worker == 2 else 4000)
    for made in (GEMM, more):
        three.judged = judge(fleet(made=made).looks(6, seed=1))
        wide = brickd("stragglers", TZ="UTC").stdout.split()
        narrow = brickd("stragglers", COLUMNS="64", TZ="UTC").stdout
        assert narrow.split() == wide
        assert max(map(len, narrow.splitlines())) <= 64
    three.judged = judge(fleet().looks(6, seed=1))
    headline = brickd("stragglers", COLUMNS="40", TZ="UTC").stdout.partition("\n\n")[0]
    assert " ".join(headline.split()) == "! api/2 slow since 22:13: moe_gemm +11 %, costs 33.0 ms/s"
    assert max(map(len, headline.splitlines())) <= 40


@pytest.mark.ci
def test_before_enough_slots_the_screen_reports_that(three: Daemon) -> None:
    three.judged = judge(fleet().looks(2, seed=1))
    assert brickd("stragglers").stdout == "no worker is judged yet: 20.0 s were recorded, 4 slots of 10 s are needed\n"
    three.judged = judge(())
    assert brickd("stragglers").stdout == "no worker is judged yet: 0 ns were recorded, 4 slots of 10 s are needed\n"


@pytest.mark.ci
def test_an_old_judgement_has_its_age(three: Daemon) -> None:
    judged = judge(fleet().looks(6, seed=1))
    three.judged = judged.at(judged.ended.now_ns + 20 * SECOND)
    assert brickd("stragglers").stdout.startswith("! api/2 slow since ")
    three.judged = judged.at(judged.ended.now_ns + 35 * SECOND)
    first, second, *_ = brickd("stragglers").stdout.splitlines()
    assert first == "the last look at the workers was 35.0 s ago"
    assert second.startswith("! api/2 slow since ")
    three.judged = judge(()).at(35 * SECOND)
    assert brickd("stragglers").stdout.splitlines()[0] == first


@pytest.mark.ci
def test_after_a_minute_without_a_look_no_worker_is_judged(three: Daemon) -> None:
    judged = judge(fleet().looks(6, seed=1))
    three.judged = judged.at(judged.ended.now_ns + 75 * SECOND)
    ended = brickd("stragglers")
    assert (ended.returncode, ended.stdout) == (
        0, "no worker is judged now: the last look at the workers was 1.3 min ago (brickd events)\n",
    )  # fmt: skip
    answer = document("stragglers")
    assert (answer["stragglers"], answer["compared"]["current"], answer["compared"]["age_ns"]) == (
        [],
        False,
        75 * SECOND,
    )
    screen = brickd("status").stdout.splitlines()
    assert screen[0].endswith("1 PROBLEM")
    assert (
        screen[1].replace("b0521915 ", "")
        == "! no worker is judged now: the daemon compared all workers last 1.3 min ago  brickd events"
    )
    assert document("status")["stragglers"] is None
    checked = brickd("status", "--check")
    assert (checked.returncode, checked.stdout) == (
        1,
        "unhealthy: no worker is judged: the daemon compared the workers last 1.3 min ago, expected a comparison"
        " every 10 s (brickd"
        " events)\n",
    )
    assert brickd("status", "--check", "--ignore", "straggler").returncode == 0


@pytest.mark.ci
def test_a_worker_late_only_in_a_collective_is_slow_outside_of_any_brick(three: Daemon) -> None:
    waits = Made(3_000_000, category="Collective")
    three.judged = judge(fleet(-50, "all_reduce", waits).looks(6, seed=1))
    lines = brickd("stragglers").stdout.splitlines()
    assert lines[0].endswith(
        "the others wait 37.5 ms/s for api/2 in all_reduce; none of its instrumented bricks explains this"
    )
    assert "LATE, OF THE TIME" in lines[3]


@pytest.mark.usefixtures("prefix")
def test_without_a_daemon_the_message_names_the_command_that_starts_one() -> None:
    ended = brickd("stragglers")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr == ("brickd: straggler detection needs a daemon (start one: brickd up -d)\n")


@pytest.mark.ci
def test_a_hostile_name_is_escaped(worker: Start, daemon: Daemon) -> None:
    for number in range(3):
        started(worker, BRICKD_SERVICE="=cmd()", BRICKD_WORKER=str(number))
    bricks = {HOSTILE: replace(GEMM, factor=HALF)}
    daemon.judged = judge(Fleet(workers=3, bricks=bricks, service="=cmd()").looks(6, seed=1))
    for verb in ("stragglers", "status"):
        assert all(line.isprintable() for line in brickd(verb).stdout.splitlines())
    assert document("stragglers", code=1)["stragglers"][0]["brick"] == HOSTILE
    (row,) = sheet("stragglers")
    assert not row["service"].startswith("=")
    assert json.loads(brickd("stragglers", "-o", "jsonl").stdout)["worker"] == "=cmd()/2"


@pytest.mark.ci
def test_findings_can_be_limited_to_selected_workers(three: Daemon, worker: Start) -> None:
    started(worker, BRICKD_SERVICE="batch")
    three.judged = judge(fleet().looks(6, seed=1))
    assert document("stragglers", "api", code=1)["stragglers"][0]["worker"] == "api/2"
    assert document("stragglers", "batch")["stragglers"] == []
    assert brickd("stragglers", "apo").returncode == 4


# ---- events


class KindsLog(Log):
    """An event log that collects the kind and the worker of each event."""

    def kinds(self) -> list[tuple[str, str | None]]:
        return [(event.kind, event.worker) for event in self.page()]

    def page(self) -> tuple[Event, ...]:
        return self.since(0).events


def snapshots(slots: int, slow_in: range, lives: Any = lambda worker, slot: True) -> list[Snapshot]:
    """Return snapshots of three workers; the calls of the last worker take 20 % longer in some slots."""
    made = [MadeUp(service="api") for _ in range(3)]
    taken = []
    for slot in range(slots + 1):
        workers = []
        for number, each in enumerate(made):
            reading = each.reading()
            born = {"clock": 1, "anchor_ticks": 0, "anchor_ns": 0}
            header: Any = {**reading.header, **born, "uuid": bytes([number + 1]) * 16}
            process: Any = {**reading.process, "took": 0, "ended": 0}
            pid = 7 if lives(number, slot) else None
            reading = replace(reading, header=header, process=process, pid=pid, now_ticks=0)
            workers.append(Worker(f"api/{number}", reading, ledger_of(reading)))
            for call in range(10):
                each.begin("gemm")
                each.spend(
                    100_000_000 + 10_000 * (call + slot + number) + 20_000_000 * (number == 2 and slot in slow_in)
                )
                each.end()
        taken.append(Snapshot.of(Survey(workers, []), slot * EVERY_NS, slot * EVERY_NS + 1_700_000_000 * SECOND))
    return taken


def test_a_straggler_is_reported_at_its_start_and_its_end() -> None:
    log = KindsLog()
    lookout = Lookout(log.add)
    named = []
    for snapshot in snapshots(16, range(0, 8)):
        lookout.take(snapshot)
        named.append(bool(lookout.judged().findings))
    assert named == [False] * 4 + [True] * named.count(True) + [False] * (13 - named.count(True))
    assert log.kinds() == [("straggler", "api/2"), ("straggler_gone", "api/2")]
    came, gone = log.page()
    assert (came.service, came.command, gone.command) == ("api", "brickd stragglers api", "brickd stragglers api")
    assert "gemm +20 %, costs 20.0 ms/s" in came.text
    assert "is no longer slow in gemm; it was slow for " in gone.text


def test_setting_the_clock_does_not_change_how_long_a_worker_was_slow() -> None:
    log = KindsLog()
    lookout = Lookout(log.add)
    for number, snapshot in enumerate(snapshots(16, range(0, 8))):
        lookout.take(snapshot._replace(at_ns=snapshot.at_ns - 86_400 * SECOND * (number >= 7)))
    assert log.kinds() == [("straggler", "api/2"), ("straggler_gone", "api/2")]
    took = re.search(r"for ([\d.]+) (s|min)$", log.page()[1].text)
    assert took is not None
    assert 60 <= float(took[1]) * {"s": 1, "min": 60}[took[2]] <= 150


def test_a_judgement_has_the_age_of_its_last_look_and_expires() -> None:
    lookout = Lookout(Log().add)
    taken = snapshots(6, range(99))
    for snapshot in taken:
        lookout.take(snapshot)
    now_ns = taken[-1].now_ns
    later = lookout.judged().at(now_ns + 59 * SECOND)
    assert (later.age_ns, later.current, len(later.findings)) == (59 * SECOND, True, 1)
    stale = lookout.judged().at(now_ns + 60 * SECOND)
    assert (stale.current, stale.findings, stale.passed) == (False, (), ())
    assert lookout.judged().current


def test_a_judgement_before_two_looks_has_an_age() -> None:
    began_ns = time.monotonic_ns()
    lookout = Lookout(Log().add)
    assert not lookout.judged().at(time.monotonic_ns() + 60 * SECOND).current
    assert lookout.judged().at(began_ns).age_ns == 0
    (first,) = snapshots(0, range(0))
    lookout.take(first)
    assert lookout.judged().at(first.now_ns + 7).age_ns == 7


def test_since_stays_while_the_worker_is_named() -> None:
    lookout = Lookout(Log().add)
    since = set()
    for snapshot in snapshots(12, range(2, 99)):
        lookout.take(snapshot)
        since |= {finding.since.at_ns for finding in lookout.judged().findings}
    assert since == {2 * EVERY_NS + 1_700_000_000 * SECOND}


def test_the_end_of_a_straggler_is_not_a_recovery() -> None:
    log = KindsLog()
    lookout = Lookout(log.add)
    for snapshot in snapshots(8, range(99), lives=lambda worker, slot: worker != 2 or slot < 7):
        lookout.take(snapshot)
    assert log.kinds() == [("straggler", "api/2")]
    assert lookout.judged().findings == ()


@pytest.mark.parametrize(
    ("ends", "gone"), [(False, [("waits_for_cpu_gone", "api/2")]), (True, [])], ids=["waiting ends", "ends"]
)
def test_waiting_for_a_processor_and_its_end_are_events(ends: bool, gone: list[tuple[str, str]]) -> None:
    log = KindsLog()
    lookout = Lookout(log.add)
    for slot, taken in enumerate(
        snapshots(16, range(0), lives=lambda worker, slot: worker != 2 or slot < 8 or not ends)
    ):
        waits = [0.02, 0.02, 0.6 if slot < 8 else 0.02]
        workers = [
            each._replace(usage=Usage(None, 0, ran=0.1, waited=waited))
            for each, waited in zip(taken.survey.workers, waits, strict=True)
        ]
        lookout.take(taken._replace(survey=Survey(workers, [])))
    assert log.kinds() == [("waits_for_cpu", "api/2"), *gone]


def test_a_worker_that_was_never_slow_is_never_reported() -> None:
    log = KindsLog()
    lookout = Lookout(log.add)
    for snapshot in snapshots(12, range(0)):
        lookout.take(snapshot)
    assert log.kinds() == []
    assert lookout.judged().slots == 6
