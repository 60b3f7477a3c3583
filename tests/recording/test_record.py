"""`brickd record`: from the ring of a worker, through the file, to the screen of a verb that reads the file."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import SHM
from faults import Start, needs_namespaces
from forked_processes import Process
from running import IGNORING, going, ignored, running, until
from verbs import brickd, document, started

from brickd.base.paths import runtime
from brickd.base.units import NO_WORKERS, NONE_RECORDED

READ = (("status", "--over", "start"), ("workers",), ("bricks",), ("tree",))
# With this clock, a tick is 1 ns, so the figures of an idle worker do not change with time.
STILL = {"BRICKD_CLOCK": "monotonic", "BRICKD_SERVICE": "api"}
# These keys have values that change with time even for an idle worker, or that need two readings.
TIMED = {"source", "recording", "daemon", "drained", "age_ns", "cpu_percent", "rss_bytes"}
TIMED |= {"stragglers", "waiting", "judged_age_ns", "alarms", "diverged", "numerics", "evidence"}


def still(value: Any) -> Any:
    """Return a document without values that depend on the time or on the reader."""
    if isinstance(value, dict):
        return {key: still(each) for key, each in value.items() if key not in TIMED}
    return [still(each) for each in value] if isinstance(value, list) else value


def record(*arguments: str, code: int = 0) -> dict[str, Any]:
    """Run `brickd record` to its end; return its report."""
    result = brickd("record", "--json", *arguments)
    assert result.returncode == code, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def has_a_socket(pid: int) -> bool:
    """Whether a process has an open socket."""
    links = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(os.readlink(each))
    return any(link.startswith("socket:") for link in links)


@contextmanager
def recording(*arguments: str, under: Sequence[str] = ()) -> Iterator[Process]:
    """Start a `brickd record`, and return its process when it has begun to record."""
    with going("record", "--json", *arguments, under=under) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            assert first.startswith(b"brickd: recording "), first + process.stderr.read()
            yield process
        finally:
            process.kill()


@pytest.mark.ci
def test_a_recording_without_a_daemon_shows_what_the_machine_shows(worker: Start, tmp_path: Path) -> None:
    for number in range(2):
        started(worker, BRICKD_WORKER=str(number), **STILL)
    file = str(tmp_path / "run.brick")
    reported = record("-o", file, "--duration", "0.05")
    assert (reported["why"], reported["workers"], reported["snapshots"], reported["not_recorded"]) == ("over", 2, 2, {})
    assert [(each["path"], each["bytes"]) for each in reported["files"]] == [(file, os.path.getsize(file))]
    for verb in READ:
        live, recorded = document(*verb), document(*verb, file)
        assert recorded["source"] == "recording"
        assert still(recorded) == still(live), verb
        assert still(document(*verb, file, "api/1")) == still(document(*verb, "api/1"))
    assert recorded["recording"]["files"][0]["problem"] is None
    assert "state at" in brickd("status", file).stderr
    assert brickd("status", file, "api/7").returncode == 4


def test_a_recording_without_workers_is_unhealthy_and_is_not_this_machine(prefix: str, tmp_path: Path) -> None:
    file = str(tmp_path / "empty.brick")
    assert record("-o", file, "--duration", "0.05")["workers"] == 0
    ended = brickd("status", "--check", file)
    assert (ended.returncode, ended.stdout.split(" (")[0]) == (1, "unhealthy: no worker, expected at least one")
    for verb in ("status", "bricks", "tree", "workers", "hang", "weights", "inspect", "diff"):
        shown = brickd(verb, file)
        lines = [line.removeprefix("brickd: ") for line in (shown.stdout + shown.stderr).splitlines()]
        assert (lines.count(NONE_RECORDED), lines.count(NO_WORKERS)) == (1, 0), verb


@pytest.mark.ci
def test_a_recording_by_the_daemon_is_moved_to_the_requested_path(worker: Start, tmp_path: Path) -> None:
    with running() as daemon:
        started(worker, BRICKD_WORKER="0", **STILL)
        started(worker, BRICKD_WORKER="1", **STILL)
        daemon.until("worker_found")
        file = str(tmp_path / "run.brick")
        reported = record("-o", file, "--duration", "0.05", "--workers", "api/1")
        assert [each["path"] for each in reported["files"]] == [file]
        assert list(runtime().recordings.iterdir()) == []
        assert [each["name"] for each in document("workers", file)["workers"]] == ["api/1"]
        for verb in READ:
            assert still(document(*verb, file)) == still(document(*verb, "api/1")), verb
        kinds = {event["kind"] for event in document("events", file)["events"]}
        assert "recording_began" in kinds
        (one,) = document("status", file)["recording"]["files"]
        assert (one["ended"], one["problem"], one["damages"]) == ("over", None, [])
        # `brickd record` refuses an unknown worker, and overwrites no existing file.
        assert brickd("record", "--workers", "api/7").returncode == 4
        again = brickd("record", "-o", file)
        assert (again.returncode, again.stderr) == (
            2,
            f"brickd: {file}: already exists: remove it, or use another -o FILE\n",
        )


def test_an_empty_name_of_a_file_is_refused() -> None:
    refused = brickd("record", "-o", "", "--duration", "0.01")
    assert (refused.returncode, refused.stderr) == (
        2,
        "brickd: --output is empty, expected the name of a file (see brickd record --help)\n",
    )


@pytest.mark.parametrize(("given", "taken"), [("run.brick", "run.1.brick"), ("run", "run.12.brick"), ("a+b", "a+b")])
def test_nothing_is_recorded_if_a_file_of_the_set_exists(tmp_path: Path, given: str, taken: str) -> None:
    for other in ("run.0.brick", "run.1x.brick", "other.1.brick", "aab"):
        (tmp_path / other).touch()
    (tmp_path / taken).write_text("foreign")
    refused = brickd("record", "-o", str(tmp_path / given), "--duration", "0.01")
    assert (refused.returncode, refused.stderr) == (
        2,
        f"brickd: {tmp_path / taken}: already exists: remove it, or use another -o FILE\n",
    )
    assert (tmp_path / taken).read_text() == "foreign"
    assert not runtime().recordings.exists()


@pytest.mark.ci
def test_a_recording_copied_to_another_file_system_stays_private(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    with running(), TemporaryDirectory(dir=SHM) as other:
        if os.stat(other).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("needs two file systems")
        file = Path(other, "run.brick")
        reported = record("-o", str(file), "--duration", "0.05")
        assert [each["path"] for each in reported["files"]] == [str(file)]
        assert list(runtime().recordings.iterdir()) == []
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.ci
def test_ctrl_c_ends_a_recording_and_keeps_it(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    with running():
        file = tmp_path / "run.brick"
        with recording("-o", str(file)) as process:
            second = brickd("record", "-o", str(tmp_path / "other.brick"))
            assert (second.returncode, second.stderr.count("end it first (Ctrl-C in its brickd record)")) == (2, 1)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate()
        assert process.returncode == 0
        assert json.loads(out)["why"] == "asked"
        assert document("status", str(file))["recording"]["files"][0]["ended"] == "asked"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_answer_ends_the_recording_and_keeps_it(
    prefix: str, tmp_path: Path, number: signal.Signals
) -> None:
    with running() as daemon:
        with daemon.stopped():
            process = going("record", "--json", "--duration", "60", "-o", str(tmp_path / "run.brick"), under=("env",))
            until(lambda: has_a_socket(process.pid))
            process.send_signal(number)
        with process:
            assert json.loads(process.communicate()[0])["why"] == "asked"
        assert daemon.ask("/record")["recordings"] == []


def test_ctrl_c_ends_a_recording_without_a_daemon_and_keeps_it(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    file = tmp_path / "run.brick"
    with recording("-o", str(file)) as process:
        assert "process" in brickd("up").stderr  # a daemon cannot start while `brickd record` drains the segments
        process.send_signal(signal.SIGINT)
        assert json.loads(process.communicate()[0])["why"] == "asked"
    assert document("status", str(file))["workers"][0]["name"] == "api/0"


@pytest.mark.ci
def test_a_signal_ignored_at_the_start_of_a_recording_stays_ignored(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    with recording("-o", str(tmp_path / "run.brick"), under=IGNORING) as process:
        assert {signal.SIGINT, signal.SIGHUP} <= ignored(process.pid)
        process.terminate()
        assert json.loads(process.communicate()[0])["why"] == "asked"


@pytest.mark.ci
def test_a_recording_whose_client_is_gone_ends_and_restores_the_settings(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    with running() as daemon:
        daemon.until("worker_found")

        def spans() -> str:
            answer: str = document("workers")["workers"][0]["set"]["spans"]
            return answer

        with recording("--spans", "-o", str(tmp_path / "run.brick")) as process:
            daemon.until("recording_began")
            process.kill()
            ended = daemon.until("recording_ended")
        assert "its client has gone" in ended["text"]
        assert spans() == "off"
        (left,) = runtime().recordings.iterdir()
        recorded = document("status", str(left))["recording"]
        assert ended["command"] == f"brickd record --fetch {recorded['id']}"
        (one,) = recorded["files"]
        assert (one["ended"], one["problem"]) == ("left", None)
        assert document("workers", str(left))["workers"][0]["set"]["spans"] == "on"


@pytest.mark.ci
def test_a_killed_recording_without_a_daemon_restores_the_settings(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)

    def spans() -> str:
        answer: str = document("workers")["workers"][0]["set"]["spans"]
        return answer

    with recording("--spans", "-o", str(tmp_path / "run.brick")) as process:
        assert spans() == "on"
        assert brickd("status", "--check").returncode == 0, "a recording drains the rings"
        (guardian,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        held = {os.readlink(each) for each in Path(f"/proc/{guardian}/fd").iterdir()}
        assert held == {os.devnull, "anon_inode:[pidfd]"}, "no other process keeps the output of `brickd record` open"
        gone = os.pidfd_open(int(guardian))
        process.kill()
        select.select([gone], [], [])
        os.close(gone)
    assert spans() == "off"
    with running() as daemon:  # a daemon can start, because no other process drains the segments now
        assert daemon.ask("/workers")["workers"][0]["state"] == "live"


@pytest.mark.ci
def test_unread_spans_are_reported_if_the_guardian_was_killed_too(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    with recording("--spans", "-o", str(tmp_path / "run.brick")) as process:
        (guardian,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(guardian), signal.SIGKILL)
        process.kill()
        process.wait()
    checked = brickd("status", "--check")
    assert (checked.returncode, "spans are on in 1 worker" in checked.stdout) == (1, True)
    (problem,) = document("status")["problems"]
    assert (problem["command"], problem["text"].startswith("1 worker records single spans")) == ("brickd up -d", True)
    found = {each["name"]: each for each in document("doctor", code=0)["findings"]}["spans-unread"]
    assert (found["state"], found["seen"], found["fix"]) == ("advice", "set in api/0", "brickd up -d")
    with running():
        answer = document("status")
        assert [(each["set"]["spans"], each["drained"]) for each in answer["workers"]] == [("off", True)]
        assert brickd("status", "--check").returncode == 0


@pytest.mark.ci
def test_a_recording_until_exit_ends_with_the_last_selected_worker(worker: Start, tmp_path: Path) -> None:
    first = started(worker, BRICKD_WORKER="0", **STILL)
    second = started(worker, BRICKD_WORKER="1", **STILL)
    started(worker, BRICKD_WORKER="0", BRICKD_CLOCK="monotonic", BRICKD_SERVICE="other")
    file = str(tmp_path / "run.brick")
    with recording("--until-exit", "--workers", "api", "-o", file) as process:
        for each in (first, second):
            each.go()
            assert each.end() == 0
        reported = json.loads(process.communicate()[0])
    assert reported["why"] == "exited"
    states = {each["name"]: each["state"] for each in document("workers", file)["workers"]}
    assert states == {"api/0": "ended", "api/1": "ended"}
    assert [brick["count"] for brick in document("bricks", file)["bricks"]] == [200, 200]
    unselected = brickd("record", "--until-exit", "--workers", "api", "-o", str(tmp_path / "none.brick"))
    assert unselected.returncode == 4
    assert not (tmp_path / "none.brick").exists()


def test_a_daemon_that_ends_keeps_its_recording(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    with running() as daemon:
        file = tmp_path / "run.brick"
        with recording("-o", str(file)) as process:
            daemon.end()
            out, words = process.communicate()
            answer = json.loads(out)
        assert words.endswith(b"brickd: the recording ended early, because the daemon ended\n")
        assert (process.returncode, answer["why"]) == (0, "daemon_ended")
        assert document("status", str(file))["workers"][0]["ledger"]["spans"]["summarized"] == 200


@pytest.mark.ci
def test_a_killed_daemon_leaves_its_recording_up_to_that_point(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    with running() as daemon:
        with recording("-o", str(tmp_path / "run.brick")) as process:
            daemon.kill()
            _, reported = process.communicate()
        (left,) = runtime().recordings.iterdir()
        assert process.returncode == 3
        assert os.fsencode(left) in reported
        assert document("status", str(left))["workers"][0]["ledger"]["spans"]["summarized"] == 200
        assert "has no end" in brickd("status", str(left)).stderr


@pytest.mark.ci
def test_after_a_killed_daemon_the_next_one_continues_its_own_records(worker: Start, tmp_path: Path) -> None:
    process = started(worker, TURNS + "with a: pass\npause()", **STILL)
    with running() as daemon:
        daemon.until("worker_found")
        with recording("--spans", "-o", str(tmp_path / "run.brick")):
            daemon.until("recording_began")
            process.go()
            process.paused()
            (left,) = runtime().recordings.iterdir()
            until(lambda: document("status", str(left))["recording"]["files"][0]["records"] == 40)
            daemon.kill()
    (file,) = document("status", str(left))["recording"]["files"]
    assert (file["records"], file["ended"], file["damages"]) == (40, None, [])
    assert "has no end" in file["problem"]
    (lane,) = document("inspect", "-n", "100", str(left), "api/0")["lanes"]
    assert [span["elements"] for span in lane["spans"]] == list(range(40))
    with running() as successor:
        process.go()
        process.paused()
        record("-o", str(tmp_path / "next.brick"), "--duration", "0.05")
        for of in ((), (str(tmp_path / "next.brick"),)):
            assert document("bricks", "--over", "start", *of)["bricks"][0]["count"] == 42
        successor.end()


@pytest.mark.parametrize(("option", "other"), [("--watch", "status"), ("--follow", "events")])
def test_options_for_changes_contradict_a_recording(option: str, other: str) -> None:
    result = brickd(other, option, "run.brick") if option == "--follow" else brickd(other, option, "1", "run.brick")
    assert result.returncode == 2
    assert f"{option} contradicts recording run.brick: give one of them" in result.stderr


TURNS = """
a = brick.brick("a")
with a: pass
pause()
for number in range(40):
    with a(elements=number): pass
pause()
"""


def test_each_span_of_the_selected_workers_and_no_other_is_recorded(worker: Start, tmp_path: Path) -> None:
    chosen = started(worker, TURNS, BRICKD_WORKER="0", **STILL)
    other = started(worker, TURNS, BRICKD_WORKER="1", **STILL)
    file = str(tmp_path / "run.brick")
    with recording("--spans", "--until-exit", "--workers", "api/0", "-o", file) as process:
        for each in (chosen, other):
            each.go()
            each.paused()
            each.go()
            assert each.end() == 0
        reported = json.loads(process.communicate()[0])
    assert (reported["records"], reported["not_recorded"]) == (40, {})
    (lane,) = document("inspect", "-n", "100", file, "api/0")["lanes"]
    assert [span["elements"] for span in lane["spans"]] == list(range(40))
    assert {span["brick"] for span in lane["spans"]} == {"a"}
    assert document("status", file)["recording"]["files"][0]["records"] == 40


def test_records_in_the_rings_at_the_end_are_recorded(worker: Start, tmp_path: Path) -> None:
    process = started(worker, TURNS, **STILL)
    file = str(tmp_path / "run.brick")
    with recording("--spans", "-o", file) as recorded:
        process.go()
        process.paused()
        recorded.send_signal(signal.SIGINT)
        assert json.loads(recorded.communicate()[0])["why"] == "asked"
    (lane,) = document("inspect", "-n", "100", file, "api/0")["lanes"]
    assert [span["elements"] for span in lane["spans"]] == list(range(40))


APART = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'


def apart(disk: Path, options: str = "mode=700") -> list[str]:
    """Return the first words of a command line. The command then runs in a mount namespace, and has its own disk."""
    disk.mkdir()
    return ["unshare", "-m", "sh", "-c", APART, "sh", options, str(disk)]


@pytest.mark.slow
@needs_namespaces
def test_a_recording_in_another_mount_namespace_can_be_fetched(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    disk, file = tmp_path / "disk", tmp_path / "run.brick"
    with running(apart(disk), BRICKD_STATE_DIR=str(disk)) as daemon:
        daemon.until("worker_found")
        assert [each["path"] for each in record("-o", str(file), "--duration", "0.05")["files"]] == [str(file)]
        assert list(disk.iterdir()) == []
        assert daemon.ask("/record")["recordings"] == []
    assert document("status", str(file))["recording"]["files"][0]["ended"] == "over"


@pytest.mark.slow
@needs_namespaces
def test_a_full_disk_affects_only_the_recording_and_is_reported(worker: Start, tmp_path: Path) -> None:
    process = started(worker, TURNS.replace("40", "2000"), **STILL)
    disk, file = tmp_path / "disk", tmp_path / "run.brick"
    with running(apart(disk, "size=64k,mode=700"), BRICKD_STATE_DIR=str(disk)) as daemon:
        daemon.until("worker_found")
        with recording("-o", str(file), "--spans") as recorder:
            process.go()
            process.paused()
            daemon.until("recording_failed")
            problems = [each["text"] for each in document("status")["problems"]]
            assert [text for text in problems if "the recording cannot be written" in text]
            recorder.send_signal(signal.SIGINT)
            out, _ = recorder.communicate()
        answer = json.loads(out)
        assert answer["not_recorded"]["records"] > 0
        assert [each["path"] for each in answer["files"]] == [str(file)]
        assert document("bricks", "--over", "start")["bricks"][0]["count"] == 2001
