"""A daemon that has no permission to start or to list, or that loses its directory, reports this and continues."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import SHM
from faults import Start, needs_namespaces
from running import refused, running, until
from serving import following
from test_daemon_faults import WORKING, ended, image, live_worker, opened_by

from brickd.base.paths import runtime
from brickd.cli import brickd as group
from brickd.shm.segment import open_segment


def test_a_runtime_directory_that_is_a_file_is_refused(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "set BRICKD_RUNTIME_DIR" in refused(BRICKD_RUNTIME_DIR=str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b""


def test_a_path_too_long_for_a_socket_is_refused_with_its_length(prefix: str, tmp_path: Path) -> None:
    assert "in a socket's path" in refused(BRICKD_SOCKET=str(tmp_path / ("x" * 100)))


@pytest.mark.ci
def test_a_file_at_the_path_of_the_socket_is_kept(prefix: str) -> None:
    runtime().socket.write_text("mine")
    assert "exists but is not a socket" in refused()
    assert runtime().socket.read_text() == "mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--bogus"),
        ("up", "now"),
        ("up", "-d", "-o", "xml"),
        ("down", "--force"),
        ("down", "now"),
        ("set", "api", "--spans", "maybe"),
        ("events", "--since", "-1"),
        ("events", "--since", "yesterday"),
        ("events", "api"),
    ],
)
def test_unknown_options_and_values_are_refused(arguments: tuple[str, ...]) -> None:
    refusal = CliRunner().invoke(group, arguments)
    assert refusal.exit_code == 2, refusal.output


@pytest.mark.slow
def test_a_low_descriptor_limit_drains_some_workers_and_reports_the_others(prefix: str) -> None:
    files = [f"{prefix}{number}" for number in range(30)]
    for file in files:
        (SHM / file).write_bytes(ended(image()))
    with contextlib.ExitStack() as alive:
        locks = [alive.enter_context(contextlib.ExitStack()) for _ in files]
        for lock, file in zip(locks, files, strict=True):
            lock.enter_context(live_worker(SHM / file))
        with running(("prlimit", "--nofile=64", "--")) as daemon:
            assert "the limit of 16 workers is reached" in daemon.until("quarantined")["text"]
            assert len(daemon.ask("/status")["workers"]) == 30, "all segments can be read"
            drained = opened_by(daemon.pid)
            assert len(drained & set(files)) == 16
            for lock, file in zip(locks, files, strict=True):
                if file in drained:
                    lock.close()  # the worker has ended
            until(lambda: set(files) - drained <= opened_by(daemon.pid))
            assert "defect" not in {each["kind"] for each in daemon.ask("/events")["events"]}


def consumer(file: str) -> int | None:
    with open_segment(file) as segment:
        return segment.consumer()


@pytest.mark.ci
def test_without_inotify_files_are_listed_and_one_event_is_sent(prefix: str, worker: Start) -> None:
    nothing = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
    command = ("unshare", "-U", "-r", "sh", "-c", nothing, "sh")
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("needs user namespaces")
    one = worker(WORKING)
    one.paused()
    one.go()
    one.paused()
    with running(command) as daemon:
        assert "the daemon lists it every 5 s" in daemon.until("blind")["text"]
        one.go()
        daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["bounded"] >= 20)


@pytest.mark.slow
def test_a_removed_runtime_directory_is_recreated_with_lock_checkpoint_and_socket(prefix: str, worker: Start) -> None:
    one = worker(WORKING)
    one.paused()
    one.go()
    one.paused()
    with running() as daemon, following(runtime().socket, "/v1/events/stream") as events:
        daemon.until("worker_found")
        shutil.rmtree(runtime().directory)
        one.go()
        one.paused()
        assert next(event for _, event in events if event.get("kind") == "restored")
        assert f"a daemon is already running in {runtime().directory}: process {daemon.pid}" in refused()
        until(lambda: runtime().checkpoint.exists() and runtime().socket.exists())
        assert stat.S_IMODE(runtime().socket.stat().st_mode) == 0o600
        daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["bounded"] >= 20)
        kinds = {event["kind"] for event in daemon.ask("/events")["events"]}
        assert not {"defect", "checkpoint_failed"} & kinds


@pytest.mark.slow
def test_a_file_at_the_path_of_a_removed_socket_is_kept(prefix: str, worker: Start) -> None:
    with running() as daemon, following(runtime().socket, "/v1/events/stream") as events:
        daemon.until("daemon_started")
        runtime().socket.unlink()
        runtime().socket.write_text("mine")
        runtime().lock.unlink()
        one = worker(WORKING)  # the daemon must save the data of this worker
        one.paused()
        one.go()
        assert next(event for _, event in events if event.get("kind") == "restored"), "the daemon has its lock again"
        assert runtime().socket.read_text() == "mine"
    assert runtime().socket.read_text() == "mine"
    runtime().socket.unlink()


@pytest.fixture
def other_users_daemon(nobody: list[str], prefix: str) -> list[str]:
    """Return the first words of a command that starts a daemon as another user."""
    os.chown(runtime().directory, 65534, 65534)
    return nobody


@pytest.mark.ci
@needs_namespaces
def test_a_directory_that_cannot_be_listed_is_reported(other_users_daemon: list[str]) -> None:
    hidden = 'mount -t tmpfs -o mode=0733 none /dev/shm && exec "$@"'
    with running(["unshare", "-m", "sh", "-c", hidden, "sh", *other_users_daemon]) as daemon:
        assert "/dev/shm: cannot be listed: Permission denied" in daemon.until("blind")["text"]
        assert "defect" not in {each["kind"] for each in daemon.ask("/events")["events"]}
