"""The daemon as a process: only one runs, it saves what it reads, and the next daemon continues."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SHM, Worker
from running import refused, running, until
from verbs import brickd

from brickd.base.paths import runtime
from brickd.base.state_file import framed
from brickd.cli.logfile import MOST_BYTES
from brickd.client.other_version import installed
from brickd.daemon.daemon import Daemon
from brickd.shm.segment_files import find
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory
from brickd.state.runtime_dir import Home

Start = Callable[..., Worker]

WORK = """
    gemm = brick.brick("gemm")
    with brick.span("forward"):
        for _ in range(10):
            gemm.defer(stream=1)
        brick.finalize(stream=1)
    pause()
"""


def bricks(document: dict[str, Any]) -> dict[tuple[str, bool], int]:
    return {(each["name"], each["bounded"]): each["count"] for each in document["bricks"]}


@pytest.mark.ci
@pytest.mark.interpreter
def test_an_ended_worker_is_retained_and_its_segment_removed(worker: Start, prefix: str) -> None:
    with running() as daemon:
        one = worker(WORK, BRICKD_SERVICE="api")
        one.paused()
        found = daemon.until("worker_found")
        assert (found["worker"], found["service"]) == ("api/0", "api")
        one.go()
        assert one.end() == 0
        assert daemon.until("worker_ended")["worker"] == "api/0"
        (entry,) = daemon.ask("/status")["workers"]
        assert (entry["name"], entry["state"]) == ("api/0", "ended")
        assert bricks(daemon.ask("/status")) == {("forward", False): 1, ("gemm", True): 10}
        reported = daemon.end()
    assert find(prefix) == []
    assert "has ended" in reported


def test_deferred_work_is_computed_while_its_worker_runs(worker: Start, prefix: str) -> None:
    with running() as daemon:
        worker(WORK, BRICKD_SERVICE="api").paused()

        def bounded(answer: dict[str, Any]) -> bool:
            assert answer["ledger"]["deferred"]["orphaned"] == 0
            return bool(answer["ledger"]["deferred"]["bounded"] == 10)

        document = daemon.once("/status?over=start", bounded)
        (brick,) = [each for each in document["bricks"] if each["bounded"]]
        (forward,) = [each for each in document["bricks"] if each["name"] == "forward"]
        assert brick["count"] == 10
        assert 0 < brick["total_ns"] <= forward["total_ns"]
        assert brick["latency_to_sync_max_ns"] >= brick["max_ns"]


@pytest.mark.ci
def test_a_second_daemon_names_the_running_one(prefix: str, tmp_path: Path, worker: Start) -> None:
    worker(WORK).paused()
    with running() as first:
        assert f"process {first.pid}" in refused()
        first.until("worker_found")
        # A daemon with another runtime directory is refused, too, because it would find the same segments.
        other = refused(BRICKD_RUNTIME_DIR=str(tmp_path / "other"))
        assert f"process {first.pid} already drains the segments {prefix}*" in other
        assert first.ask("/status")["ledger"]["deferred"]["started"] == 10


@pytest.mark.slow
def test_a_daemon_restores_the_state_of_its_killed_predecessor(worker: Start, prefix: str) -> None:
    ended, lives = worker(WORK, BRICKD_SERVICE="api"), worker(WORK, BRICKD_SERVICE="api")
    ended.paused()
    lives.paused()
    with running() as daemon:
        daemon.until("worker_found")
        ended.go()
        ended.end()
        daemon.until("worker_ended")
        before = daemon.ask("/status")
        (lives_on,) = (each["segment"] for each in before["workers"] if each["state"] != "ended")
        # the other worker's segment is removed as soon as the checkpoint has the worker's totals
        until(lambda: find(prefix) == [lives_on])
        daemon.kill()
    left = brickd("status", "--json")
    with running() as daemon:
        after = daemon.ask("/status")
        assert after["ledger"] == before["ledger"]
        assert [each["name"] for each in after["workers"]] == [each["name"] for each in before["workers"]]
    assert left.returncode == 0


@pytest.mark.ci
def test_the_numbers_are_the_same_with_and_without_a_daemon(worker: Start, prefix: str) -> None:
    worker(WORK, BRICKD_SERVICE="api").paused()
    ended = worker(WORK, BRICKD_SERVICE="api")
    ended.paused()
    with running() as daemon:
        daemon.until("worker_found")
        ended.go()
        ended.end()
        daemon.until("worker_ended")
        daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["bounded"] == 20)
        asked = ("status?over=start", "workers", "bricks", "tree")
        with_daemon = {view.partition("?")[0]: daemon.ask(f"/{view}") for view in asked}
        daemon.end()
    for view, document in with_daemon.items():
        result = brickd(view, "--json")
        assert result.returncode == 0, result.stderr
        alone = result_of(result)
        assert comparable(alone) == nearly(comparable(document)), view


def result_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    return document


# Keys whose values depend on the reader or on the time.
_VARYING = {
    "drained",
    *("words", "source", "daemon", "age_ns", "since_ns", "memory_bytes", "cpu_percent", "rss_bytes", "stragglers"),
    *("waiting", "judged_age_ns", "alarms", "diverged", "numerics"),
}


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items() if key not in _VARYING}
    return [comparable(each) for each in value] if isinstance(value, list) else value


def nearly(value: Any, key: str = "") -> Any:
    """Return a copy for a comparison in which times may differ by rounding.

    Each reader measures the length of a tick itself.
    """
    if isinstance(value, dict):
        return {name: nearly(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [nearly(each, key) for each in value]
    return pytest.approx(value, rel=1e-6, abs=1) if key.endswith("_ns") and isinstance(value, int) else value


@pytest.mark.ci
def test_a_file_that_is_still_being_created_is_no_problem(worker: Start, prefix: str) -> None:
    with running() as daemon:
        empty = SHM / f"{prefix}born"
        empty.touch()
        worker(WORK, BRICKD_SERVICE="api").paused()
        daemon.until("worker_found")
        assert daemon.ask("/status")["problems"] == []


def test_a_runtime_directory_that_others_may_write_is_refused(prefix: str) -> None:
    runtime().directory.chmod(0o777)
    reported = refused()
    assert "drwxrwxrwx" in reported
    assert f"expected a directory that only user {os.geteuid()} may change" in reported


def test_an_impossible_runtime_directory_is_refused_with_the_variable_to_set(prefix: str) -> None:
    assert "set BRICKD_RUNTIME_DIR" in refused(BRICKD_RUNTIME_DIR="/proc/brickd")


@pytest.mark.ci
def test_a_damaged_checkpoint_is_moved_aside_and_reported(worker: Start, prefix: str) -> None:
    worker(WORK).paused()
    runtime().checkpoint.write_bytes(b"brickd checkpoint 1 5 00000000\n{}")
    with running() as daemon:
        assert "it has 2 bytes, expected 5" in daemon.until("break")["text"]
        daemon.until("worker_found")
        assert runtime().checkpoint.with_name("checkpoint.refused").exists()
        status = daemon.ask("/status")
        assert status["ledger"]["spans"]["summarized"] == 1
        (problem,) = status["problems"]
        assert "started without its saved state" in problem["text"]
        assert "it has 2 bytes, expected 5" in problem["text"]
    with running() as daemon:  # continues from the checkpoint of the daemon before
        assert daemon.ask("/status")["problems"] == []


def _foreign(path: Path) -> str:
    path.write_bytes(checkpoint.encode(Memory("another-")))
    return f"describes the segments another-*, but this daemon drains {os.environ['BRICKD_SHM_PREFIX']}*: "


def _later(path: Path) -> str:
    path.write_bytes(framed("checkpoint", checkpoint.VERSION + 1, [b"{}"]))
    version = checkpoint.VERSION
    return f"has version {version + 1}, this brickd reads version {version}: start the brickd that wrote it, or "


def _unreadable(path: Path) -> str:
    path.mkdir()
    return "cannot be read: Is a directory: "


@pytest.mark.parametrize(
    "make", [_foreign, *(pytest.param(each, marks=pytest.mark.ci) for each in (_later, _unreadable))]
)
def test_an_unusable_checkpoint_is_kept_and_the_message_moves_it_aside(
    make: Callable[[Path], str],
) -> None:
    path = runtime().checkpoint
    why = make(path)
    before = path.lstat()
    reported = refused()
    assert f"brickd: {path}: {why}move it aside (mv {path} {path}.aside)" in reported
    assert (path.lstat().st_ino, path.lstat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    subprocess.run(reported[reported.index("(mv") + 1 : reported.index(")")], shell=True, check=True)
    with running() as daemon:
        assert daemon.ask("/status")["problems"] == []
    assert os.path.samestat(before, path.with_name("checkpoint.aside").lstat())


def test_the_last_event_number_is_saved_when_two_threads_log_at_once(prefix: str) -> None:
    with Home(runtime()) as home:
        daemon = Daemon(home)
        others = [threading.Thread(target=daemon.log_event, args=("second", ""))]

        # This function runs when the first event already has its number but is not logged yet. It lets another thread
        # log an event.
        def between() -> None:
            while others:
                other = others.pop()
                other.start()
                other.join()

        with daemon.events.watched(between):
            daemon.log_event("first", "")
        assert [event.kind for event in daemon.events.since(0).events] == ["first", "second"]
        assert daemon._memory.newest_event == daemon.events.since(0).newest
        os.close(daemon._loop._wake)


def test_a_daemon_reports_the_version_with_which_it_started(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Home(runtime()) as home:
        daemon = Daemon(home)
        (tmp_path / "brickd-99.dist-info").mkdir()
        (tmp_path / "brickd-99.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: brickd\nVersion: 99\n")
        monkeypatch.syspath_prepend(tmp_path)
        assert installed("brickd") == "99", "the version on disk has changed by an upgrade"
        assert daemon.daemon().version not in ("99", None)
        os.close(daemon._loop._wake)


def test_an_unknown_group_is_refused(prefix: str) -> None:
    assert "'no-such-group'" in refused(BRICKD_GROUP="no-such-group")


@pytest.mark.ci
def test_up_returns_when_the_daemon_answers_and_down_when_it_has_ended(prefix: str) -> None:
    runtime().log.write_text("old\n")
    os.truncate(runtime().log, MOST_BYTES + 1)
    started = brickd("up", "-d")
    try:
        assert (started.returncode, started.stderr) == (0, "")
        assert started.stdout.startswith("the daemon runs: process")
        again = brickd("up", "-d")
        assert again.returncode == 2
        assert "a daemon is already running" in again.stderr
        assert again.stderr.count("\n") == 1
        before = runtime().log.with_name("log.1")
        assert (before.stat().st_size, runtime().log.stat().st_size < 1000) == (MOST_BYTES + 1, True)
        os.truncate(runtime().log, MOST_BYTES + 2)
    finally:
        ended = brickd("down")
    assert ended.returncode == 0
    assert "has ended" in ended.stdout
    assert (before.stat().st_size, runtime().log.read_text()) == (MOST_BYTES + 2, "brickd: the daemon has ended\n")
    assert not runtime().socket.exists()
    endless = brickd("down", "--wait", "nan")
    assert endless.returncode == 2
    assert "nan is not a duration of 0s to 1h" in endless.stderr
    alone = brickd("down")
    assert alone.returncode == 3
    assert "brickd up" in alone.stderr


@pytest.mark.slow
def test_stopping_the_daemon_restores_the_flags_of_workers(worker: Start, prefix: str) -> None:
    one = worker(WORK, BRICKD_SERVICE="api")
    one.paused()
    (file,) = find(prefix)

    def flags() -> int:
        with (SHM / file).open("rb", buffering=0) as segment:
            return int.from_bytes(os.pread(segment.fileno(), 4, 4096), "little")

    with running() as daemon:
        daemon.until("worker_found")
        daemon.ask("/set", b"service=api&spans=on")
        assert flags() == 2
        daemon.end()
        assert flags() == 0
    with running() as daemon:
        assert "drains 1 worker" in daemon.until("daemon_started")["text"]
        assert flags() == 2, "the setting is remembered"


@pytest.mark.slow
def test_settings_survive_a_killed_daemon_and_are_shown(worker: Start, prefix: str) -> None:
    worker(WORK, BRICKD_SERVICE="api").paused()
    off = "recording is off in 1 worker of api"
    with running() as daemon:
        daemon.until("worker_found")
        daemon.ask("/set", b"service=api&recording=off")
        assert [each["text"] for each in daemon.ask("/status")["problems"]] == [off]
        until(lambda: runtime().checkpoint.exists() and b'"wishes":{"api"' in runtime().checkpoint.read_bytes())
        daemon.kill()
    assert [each["text"] for each in result_of(brickd("status", "--json"))["problems"]] == [off]
    with running() as daemon:
        assert [each["text"] for each in daemon.ask("/status")["problems"]] == [off]
        assert daemon.ask("/set", b"service=api")["recording"] == "off"
        assert daemon.ask("/set", b"service=api&recording=on")["workers"] == 1
        assert daemon.ask("/status")["problems"] == []


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["with a daemon", "without a daemon"])
def test_prune_forgets_the_totals_of_dead_workers(worker: Start, prefix: str, asked: str) -> None:
    one = worker(WORK, BRICKD_SERVICE="api")
    one.paused()
    with running() as daemon:
        one.go()
        one.end()
        daemon.until("worker_ended")
        if asked == "without a daemon":
            daemon.end()
        would = brickd("prune", "--dry-run", "--json")
        assert result_of(would)["forgotten"] == 1
        done = brickd("prune", "--json")
        assert (result_of(done)["forgotten"], result_of(done)["removed"]) == (1, [])
        assert result_of(brickd("status", "--json"))["workers"] == []


def findings() -> dict[str, str]:
    return {one["name"]: one["seen"] for one in result_of(brickd("doctor", "--json"))["findings"]}


@pytest.mark.slow
def test_doctor_checks_the_daemon_and_its_checkpoint(worker: Start, prefix: str) -> None:
    assert "no daemon runs" in findings()["daemon"]
    with running() as daemon:
        worker(WORK).paused()
        daemon.until("worker_found")
        daemon.end()
    checkpoint = runtime().checkpoint
    assert findings()["checkpoint"] == str(checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    assert "is damaged" in findings()["checkpoint"]
    runtime().directory.chmod(0o770)
    assert "drwxrwx---" in findings()["daemon-directory"]


@pytest.mark.ci
def test_doctor_distinguishes_a_killed_daemon_from_none(prefix: str) -> None:
    with running() as daemon:
        assert findings()["daemon"] == f"process {daemon.pid} answers"
        daemon.kill()
    assert findings()["daemon"] == f"no process listens at {runtime().socket}: its daemon was killed"


@pytest.mark.ci
def test_inspect_shows_spans_that_the_daemon_drained(worker: Start, prefix: str) -> None:
    one = worker(
        """
        with brick.span("opens"):
            pass
        pause()
        with brick.span("request", step=7):
            for n in range(3):
                with brick.span("gemm", elements=n):
                    pass
        pause()
        """,
        BRICKD_SERVICE="api",
    )
    one.paused()
    with running() as daemon:
        daemon.until("worker_found")
        daemon.ask("/set", b"service=api&spans=on")
        one.go()
        one.paused()
        taken = daemon.once("/inspect/api/0", lambda answer: len(answer["taken"]["newest"]) >= 4)["taken"]
        assert [span["brick"] for span in taken["newest"]] == ["gemm"] * 3 + ["request"]
        (request,) = [span for span in taken["longest"] if span["brick"] == "request"]
        assert request["step"] == f"{7:016x}"
        assert taken["longest"][0] == request
        assert daemon.ask("/inspect/api/0")["consumer_pid"] == daemon.pid
        shown = brickd("inspect", "api/0")
        assert "taken from the span rings by the daemon" in shown.stdout
        one.go()
        one.end()
        daemon.until("worker_ended")
        until(lambda: not find(prefix))
        gone = brickd("inspect", "api/0")
        assert (gone.returncode, "has ended and its segment was removed" in gone.stderr) == (4, True)


@pytest.mark.slow
def test_group_members_may_enter_the_directory_and_use_the_socket(prefix: str) -> None:
    with running(BRICKD_GROUP=str(os.getegid())):
        directory, socket = runtime().directory.stat(), runtime().socket.stat()
        assert (directory.st_mode & 0o777, directory.st_gid) == (0o710, os.getegid())
        assert (socket.st_mode & 0o777, socket.st_gid) == (0o660, os.getegid())


@pytest.mark.slow
def test_event_numbers_continue_after_a_restart(prefix: str) -> None:
    with running() as daemon:
        newest = daemon.ask("/events")["newest"]
        daemon.end()
    with running() as daemon:
        assert daemon.until("daemon_started", since=newest)["number"] == newest + 1
        newest = daemon.ask("/events")["newest"]
        daemon.kill()
    with running() as daemon:
        assert daemon.until("daemon_started", since=newest)["number"] > newest
