"""The verbs that need a daemon, and what they do without one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import SHM, reading
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from serving import Daemon, still
from verbs import LOSING, brickd, document, started

from brickd.analysis.timing.alarms import KINDS
from brickd.base.paths import runtime
from brickd.base.units import plural
from brickd.model.worker_survey import survey
from brickd.query.orders import Setting
from brickd.screens.health import NAMES, Bounds, conditions, healthy
from brickd.views.fetch_answer import Missing
from brickd.views.problems import Seen, problems

# ---- events


@pytest.mark.ci
def test_each_event_is_shown_with_its_next_command(daemon: Daemon) -> None:
    assert brickd("events").stdout == "nothing has happened yet\n"
    first = daemon.events.add("worker_found", "api/0 was found", service="api", worker="api/0")
    daemon.events.add("worker_died", "api/0 died \x1b[2J", worker="api/0", command="brickd inspect api/0")
    screen = brickd("events", COLUMNS="70").stdout.splitlines()
    assert screen[0] == f"{first.document()['time']}  worker_found  api/0 was found"
    assert screen[1].endswith("api/0 died \\x1b[2J")
    assert screen[2:] == ["  brickd inspect api/0"]
    assert all(len(line) <= 70 and line.isprintable() for line in screen)
    one, other = brickd("events").stdout.splitlines()
    assert other.endswith("  worker_died  api/0 died \\x1b[2J  brickd inspect api/0")
    assert brickd("events", COLUMNS=str(len(other))).stdout.splitlines() == [one, other]
    split = [one, other.removesuffix("  brickd inspect api/0"), "  brickd inspect api/0"]
    assert brickd("events", COLUMNS=str(len(other) - 1)).stdout.splitlines() == split
    narrow = brickd("events", COLUMNS="40").stdout.splitlines()
    assert " ".join(line.strip() for line in narrow).split() == f"{one} {other}".split()
    assert max(map(len, narrow)) <= 40
    answer = document("events", "--since", "1")
    assert [event["number"] for event in answer["events"]] == [2]
    assert [event["number"] for event in document("events", "--since", "5m")["events"]] == [1, 2]


def test_events_outside_of_the_asked_time_are_counted(daemon: Daemon) -> None:
    assert document("events", "--since", "1ms")["newest_time"] is None
    assert brickd("events", "--since", "1ms").stdout == "nothing has happened yet\n"
    daemon.events.add("worker_found", "api/0 was found")
    newest = daemon.events.add("worker_died", "api/0 died").document()["time"]
    for since, words in (("1ms", "in the last 1ms"), ("2", "after 2")):
        assert document("events", "--since", since)["newest_time"] == newest
        assert brickd("events", "--since", since).stdout == (
            f"no event {words}: the newest is number 2 of {newest} (brickd events)\n"
        )
    rows = [json.loads(line) for line in brickd("events", "-o", "jsonl").stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["worker_found", "worker_died"]


def test_forgotten_events_are_reported(daemon: Daemon) -> None:
    for number in range(1_003):
        daemon.events.add("tried", str(number))
    assert brickd("events").stderr == "brickd: 3 earlier events are no longer stored\n"


@contextmanager
def running(*arguments: str, terminal: bool = False) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """Start a verb on a pipe or on a terminal of 10 lines and 60 columns; return the verb and its output."""
    test_end, verb_end = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(verb_end, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
    unwanted = ("NO_COLOR", "COLUMNS", "PYTHONUNBUFFERED")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    command = [sys.executable, "-P", "-m", "brickd", *arguments]
    with (
        subprocess.Popen(command, stdout=verb_end, stderr=subprocess.PIPE, text=True, env=environment) as process,
        os.fdopen(test_end, "rb", buffering=0) as printed,
    ):
        os.close(verb_end)
        try:
            yield process, printed
        finally:
            process.kill()


@pytest.mark.ci
def test_events_can_be_followed_until_the_daemon_ends(daemon: Daemon) -> None:
    daemon.events.add("old", "before")
    with running("events", "--follow", "--json") as (process, printed):
        lines = iter(printed.readline, b"")
        assert json.loads(next(lines))["kind"] == "old"
        daemon.events.add("new", "while it is followed")
        assert json.loads(next(lines))["kind"] == "new"
        daemon.end()
        assert process.stderr is not None
        assert process.stderr.read() == "brickd: the daemon has ended (start one: brickd up)\n"
        assert process.wait() == 3


@pytest.mark.ci
def test_following_events_ends_at_an_interrupt(daemon: Daemon) -> None:
    daemon.events.add("old", "before")
    with running("events", "--follow") as (process, printed):
        assert printed.readline().endswith(b"old  before\n")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


# ---- set


@pytest.mark.ci
def test_set_changes_the_recording_of_a_services_workers(worker: Start, daemon: Daemon) -> None:
    started(worker, BRICKD_SERVICE="api")
    assert brickd("set", "api", "--spans", "on", "--recording", "off").stdout == (
        "api: spans on, recording off, fingerprints default, sites all in 1 worker\n"
    )
    assert flags() == 3
    assert document("set", "api", "--recording", "on")["recording"] == "on"
    assert flags() == 2
    assert document("set", "api")["spans"] == "on"
    assert flags() == 2


def flags() -> int:
    return reading(os.environ["BRICKD_SHM_PREFIX"]).flags


@pytest.mark.ci
def test_settings_are_shown_by_every_reader_for_living_workers_only(worker: Start, daemon: Daemon) -> None:
    for service in ("api", "api", "-batch", "calm"):
        started(worker, BRICKD_SERVICE=service)
    ended = started(worker, BRICKD_SERVICE="ended")
    for service in ("api", "ended"):
        daemon.orders.set(Setting(service, spans="on", recording="off"))
    ended.kill()
    daemon.orders.set(Setting("-batch", spans="on"))
    answer = document("workers")
    daemon.end()
    alone = document("workers")
    (unread,) = (each for each in alone["problems"] if "that no process reads" in each["text"])
    alone["problems"].remove(unread)
    assert still(alone) == still(answer)
    off, spans, usual = (
        {"spans": spans, "recording": rec, "fingerprints": "default", "filtered": False}
        for spans, rec in (("on", "off"), ("on", "on"), ("off", "on"))
    )
    assert {each["name"]: each["set"] for each in answer["workers"]} == {
        "-batch/0": spans, "api/0": off, "api/1": off, "calm/0": usual, "ended/0": None,
    }  # fmt: skip
    assert [answer["problems"][0][key] for key in ("kind", "service", "workers", "text", "command")] == [
        "off", "api", ["api/0", "api/1"], "recording is off in 2 workers of api", "brickd set --recording on api",
    ]  # fmt: skip
    for verb in ("status", "workers"):
        screen = brickd(verb, COLUMNS="80").stdout
        id_ = answer["problems"][0]["id"]
        assert f"! {id_} recording is off in 2 workers of api  brickd set --recording on api\n" in screen
        states = re.findall(r"^\S+/\d +[\d-]+ +(\w+(?:, \w+)?)", screen, re.MULTILINE)
        assert states == ["live, spans", "live, off", "live, off", "live", "died"]
    assert "control flags 0x3: spans on, recording off\n" in brickd("inspect", "api/1").stdout
    assert problems(Seen(survey().workers[3:4])) == [], "the worker without settings has no problem"


def test_the_command_that_turns_recording_on_again_can_be_pasted(worker: Start, daemon: Daemon) -> None:
    started(worker, BRICKD_SERVICE="-x; touch y")
    daemon.orders.set(Setting("-x; touch y", recording="off"))
    (problem,) = document("status")["problems"]
    assert brickd(*shlex.split(problem["command"])[1:]).returncode == 0
    assert flags() == 0


@pytest.mark.usefixtures("daemon")
def test_an_invalid_setting_is_refused() -> None:
    for arguments, code, reported in (
        (("nobody", "--spans", "on"), 4, "no service nobody"),
        (("nobody",), 4, "no service nobody"),
        (("api", "--spans", "perhaps"), 2, "'perhaps' is not one of 'on', 'off'"),
        (("--spans", "on"), 2, "no service is given, expected the name of a service"),
        (("api", "--threshold", "stuck_min=1m"), 2, "threshold is given with service api, expected no service"),
    ):
        ended = brickd("set", *arguments)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert reported in ended.stderr


@pytest.mark.usefixtures("prefix")
def test_verbs_that_need_a_daemon_exit_3_without_one() -> None:
    for arguments in (("events",), ("events", "--follow"), ("set", "api", "--spans", "on")):
        ended = brickd(*arguments)
        assert (ended.returncode, ended.stdout) == (3, "")
        assert ended.stderr == f"brickd: no daemon answers at {runtime().socket} (start one: brickd up)\n"


# ---- status --watch


@pytest.mark.parametrize("option", ["--at", "--to"])
def test_a_past_time_is_not_watched(option: str) -> None:
    begin = ("--from", "2026-01-02T02:00Z") if option == "--to" else ()
    ended = brickd("status", "--watch", *begin, option, "2026-01-02T03:00Z")
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"brickd: --watch contradicts {option} 2026-01-02T03:00:00")
    assert ended.stderr.endswith("a past time does not change (omit --watch) (see brickd status --help)\n")
    assert "contradicts" not in brickd("status", *begin, option, "2026-01-02T03:00Z").stderr


@pytest.mark.ci
def test_a_watched_status_as_json_is_one_document_per_line(worker: Start, daemon: Daemon) -> None:
    started(worker, BRICKD_SERVICE="api")
    with running("status", "--watch=0.1", "--json") as (process, printed):
        lines = iter(printed.readline, b"")
        first, second = json.loads(next(lines)), json.loads(next(lines))
        assert (first["source"], second["workers"][0]["name"]) == ("daemon", "api/0")
        daemon.end()
        assert any(json.loads(line)["source"] == "shared memory" for line in lines)
        printed.close()
        assert process.wait() == 0, "the reader closed its end of the pipe"


@pytest.mark.ci
def test_a_watched_status_on_a_pipe_prints_screen_after_screen(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    with running("status", "api", "--watch", "0.1") as (process, printed):
        lines = iter(printed.readline, b"")
        screens = [list(iter(lambda: next(lines), b"\n")) for _ in range(2)]
        assert [screen[0][:11] for screen in screens] == 2 * [b"api  1 live"]
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


@pytest.mark.ci
def test_a_watched_status_on_a_terminal_redraws_in_place(worker: Start, daemon: Daemon, prefix: str) -> None:
    program = "for number in range(20):\n    with brick.span(f'brick {number}'): pass\npause()"
    started(worker, program, BRICKD_SERVICE="api")
    with running("status", "--watch=0.1", terminal=True) as (process, printed):
        seen = b""
        while seen.count(b"\x1b[H") < 3:
            seen += printed.read(4096)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    clear, *frames = seen.split(b"\x1b[H")
    assert clear == b"\x1b[2J"
    for frame in frames[:2]:
        assert frame.endswith(b"\x1b[J")
        assert all(line.endswith(b"\x1b[K") for line in frame.split(b"\r\n")[:-1])
        lines = re.sub(rb"\x1b\[[\d;]*[mKJ]", b"", frame).split(b"\r\n")[:-1]
        assert len(lines) == 9, "the screen has one line less than the terminal, so nothing scrolls"
        assert max(len(line.decode()) for line in lines) <= 60
        assert lines[0].startswith(b"api  1 live")


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_notes_of_a_watched_status_are_printed_once() -> None:
    runtime().checkpoint.write_bytes(b"no checkpoint")
    with running("status", "--watch=0.1", "--json") as (process, printed):
        for _ in range(3):
            printed.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read().count(str(runtime().checkpoint)) == 1


@pytest.mark.usefixtures("prefix")
def test_a_status_that_cannot_be_watched_is_refused() -> None:
    for arguments, reported in (
        (("--watch", "-o", "csv"), "--output is csv, expected table or json with --watch"),
        (("--watch", "0"), "0 is not a duration of 100ms to 1h"),
        (("--watch", "--check"), "give one of them"),
        (("--max-dead", "1"), "--max-dead needs --check: add it"),
    ):
        ended = brickd("status", *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert reported in ended.stderr


# ---- status --check


def checked(*arguments: str) -> tuple[int, str]:
    ended = brickd("status", "--check", *arguments)
    assert ended.stdout.count("\n") == 1
    return ended.returncode, ended.stdout.removesuffix("\n")


def test_check_prints_one_line_if_all_is_well(worker: Start, daemon: Daemon) -> None:
    started(worker)
    assert checked() == (
        0, f"healthy: 0 lost, 0 died, 0 quarantined, daemon {os.getpid()}, checkpoint written, no numbers compared,"
        " no weights compared, no worker compared, stuck not checked, memory not checked,"
        " slower not checked, nan not checked, 0 removed, 1 worker",
    )  # fmt: skip
    daemon.end()
    assert checked() == (
        0,
        "healthy: 0 lost, 0 died, 0 quarantined, no daemon, no checkpoint, no numbers compared,"
        " no weights compared, no worker compared, stuck not checked, memory not checked,"
        " slower not checked, nan not checked, 0 removed, 1 worker",
    )


@pytest.mark.ci
def test_check_prints_each_failed_condition_with_the_expected_value(worker: Start, daemon: Daemon, prefix: str) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    started(worker, BRICKD_SERVICE="batch").kill()
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    daemon.checkpoint_problem = "No space left on device"
    answer = document("status", "--check", code=1)
    assert [(each["name"], each["healthy"]) for each in answer["conditions"]] == [
        ("lost", False), ("dead", False), ("quarantined", False), ("daemon", True), ("checkpoint", False),
        ("diverged", True), ("weights", True), ("straggler", True), ("stuck", True), ("memory", True), ("slower", True),
        ("nan", True), ("removed", True), ("workers", True),
    ]  # fmt: skip
    lost = int(answer["conditions"][0]["seen"].split()[0])
    started(worker, BRICKD_SERVICE="batch").kill()
    assert checked("--max-dead", "1") == (
        1,
        f"unhealthy: {lost} lost ({plural(lost, 'span')}), expected none (brickd workers);"
        " 2 died, expected at most 1 (brickd prune);"
        " 1 quarantined, expected none (brickd workers);"
        " no checkpoint: No space left on device, expected a written checkpoint (brickd doctor)",
    )
    tolerant = ("--max-lost", str(lost), "--max-dead", "2", "--ignore", "quarantined", "--ignore", "checkpoint")
    assert checked(*tolerant)[0] == 0
    assert checked("batch", "--max-dead", "2", "--ignore", "checkpoint")[0] == 0, "only the named services count"


@pytest.mark.usefixtures("prefix")
def test_check_misses_a_stopped_daemon_and_one_that_is_required() -> None:
    assert checked("--allow-empty")[0] == 0
    unhealthy = "unhealthy: no daemon, expected a daemon that answers (brickd up -d)"
    assert checked("--allow-empty", "--need-daemon") == (1, unhealthy)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(runtime().socket))
    gone = f"the daemon at {runtime().socket} has ended"
    assert checked("--allow-empty") == (1, f"unhealthy: {gone}, expected a daemon that answers (brickd up -d)")
    assert checked("--allow-empty", "--ignore", "daemon")[0] == 0


WORKERS = st.lists(
    st.fixed_dictionaries(
        {
            "lost": st.integers(0, 5),
            "together": st.integers(1, 3),
            "state": st.sampled_from(["live", "died", "ended", "quarantined"]),
            "set": st.none() | st.fixed_dictionaries({"spans": st.sampled_from(["on", "off"])}),
            "drained": st.booleans(),
        }
    ),
    max_size=4,
)
FACTS = st.none() | st.fixed_dictionaries(
    {
        "pid": st.just(7),
        "checkpoint_problem": st.none() | st.just("full"),
        "loop_still_ns": st.just(0) | st.just(11_000_000_000),
    }
)

NO_STRAGGLERS = {
    **{"diverged": None, "weights": None, "stragglers": None, "waiting": None, "judged_age_ns": None, "alarms": None},
    "removed": {"unasked_spans": 0},
    "ledger": {"lost": {"spans": 0, "details": 0, "events": 0}},
}
SITE = {"kernel": "down", "service": "api", "command": "brickd diff api/0 api/1"}
DIVERGED = st.none() | st.lists(st.just(SITE), max_size=3)
WEIGHTS = st.none() | st.lists(st.just({"workers": ["api/0", "api/1"], "command": "brickd weights api"}), max_size=3)
ALARMS = st.none() | st.lists(
    st.sampled_from(KINDS).map(lambda kind: {"kind": kind, "workers": ["api/0"], "command": "brickd hang api"}),
    max_size=3,
)
SLOW = st.none() | st.lists(st.fixed_dictionaries({"worker": st.sampled_from(["api/0", "api/1"])}), max_size=3)


@pytest.mark.parametrize(("still_ns", "is_healthy"), [(2_000_000_000, True), (11_000_000_000, False)])
def test_check_fails_for_a_daemon_whose_loop_is_stuck(still_ns: int, is_healthy: bool) -> None:
    facts = {"pid": 7, "checkpoint_problem": None, "loop_still_ns": still_ns}
    judged = conditions({"workers": [], "daemon": facts, **NO_STRAGGLERS}, None, Bounds())[3]
    assert (judged.healthy, "read nothing for 11.0 s" in judged.seen) == (is_healthy, not is_healthy)


def test_each_problem_in_a_combined_message_counts() -> None:
    dead = {"lost": 0, "together": 3, "state": "died", "set": None}
    reported = {"workers": [dead], "daemon": None, **NO_STRAGGLERS}
    assert conditions(reported, None, Bounds())[1].seen == "3 died"


def test_an_alarm_fails_its_own_condition() -> None:
    alarm = {"kind": "stuck", "workers": ["api/0", "api/1"], "command": "brickd hang api"}
    answer: dict[str, Any] = {"workers": [], "daemon": None, **NO_STRAGGLERS, "alarms": [alarm]}
    (judged,) = [each for each in conditions(answer, None, Bounds(allow_empty=True)) if not each.healthy]
    assert (judged.name, judged.seen, judged.command) == ("stuck", "api/0 and 1 more stuck", "brickd hang api")
    (well,) = [
        each for each in conditions({**answer, "alarms": []}, None, Bounds(allow_empty=True)) if each.name == "stuck"
    ]
    assert (well.healthy, well.seen) == (True, "no worker stuck")


@pytest.mark.parametrize(("ended", "command"), [(True, "brickd up -d"), (False, "brickd doctor")])
def test_up_starts_a_daemon_only_after_the_last_one_has_ended(ended: bool, command: str) -> None:
    answer: dict[str, Any] = {"workers": [], "daemon": None, **NO_STRAGGLERS}
    assert conditions(answer, Missing("it does not answer", ended), Bounds())[3].command == command


@pytest.mark.ci
@given(
    WORKERS, FACTS, SLOW, DIVERGED, WEIGHTS, ALARMS, st.integers(0, 2),
    st.none() | st.builds(Missing, st.just("it is gone"), st.booleans()),
    st.builds(Bounds, st.integers(0, 9), st.integers(0, 4), st.booleans(), st.lists(st.sampled_from(NAMES)).map(tuple)),
)  # fmt: skip
def test_more_tolerance_never_fails_more_conditions(
    workers: list[dict[str, Any]],
    facts: dict[str, Any] | None,
    slow: list[dict[str, str]] | None,
    diverged: list[dict[str, str]] | None,
    weights: list[dict[str, Any]] | None,
    alarms: list[dict[str, Any]] | None,
    removed: int,
    missing: Missing | None,
    bounds: Bounds,
) -> None:
    age_ns = None if slow is None else 0
    found: dict[str, Any] = {"diverged": diverged, "weights": weights, "stragglers": slow, "waiting": []}
    found |= {"judged_age_ns": age_ns, "alarms": alarms}
    lost = {"spans": sum(worker["lost"] for worker in workers), "details": 0, "events": 0}
    answer = {
        "workers": workers,
        "daemon": facts,
        "removed": {"unasked_spans": removed},
        "ledger": {"lost": lost},
        **found,
    }
    judged = conditions(answer, missing, bounds)
    assert [each.name for each in judged] == list(NAMES)
    assert all(each.healthy for each in judged if each.name in bounds.ignore)
    assert all((each.command is None) == each.healthy for each in judged)
    more = Bounds(bounds.max_lost + 1, bounds.max_dead + 1, False, bounds.ignore)
    assert healthy(conditions(answer, missing, more)) >= healthy(judged)
    assert healthy(conditions(answer, missing, Bounds(ignore=NAMES)))
