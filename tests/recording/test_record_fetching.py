"""Recordings that the daemon stores are fetched either completely or not at all."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from conftest import SHM
from forked_processes import Process
from running import going, running, until
from serving import Daemon, ask, connected, request
from test_recording_shelf import id_of, shelf, stored_recording, written
from verbs import brickd, document

from brickd.base.paths import runtime

LONG = 16 << 30  # the size of a file, so large that its transfer does not end during the test


@pytest.fixture
def elsewhere(prefix: str) -> Iterator[Path]:
    """Return a folder on another file system, so that files of the daemon cannot be linked there."""
    with TemporaryDirectory(dir=SHM) as other:
        if os.stat(other).st_dev == runtime().directory.stat().st_dev:
            pytest.skip("needs two file systems")
        yield Path(other)


# ---- over the API


@pytest.mark.ci
def test_a_fetched_file_is_unchanged_and_stays_until_removed(daemon: Daemon) -> None:
    path = stored_recording(snapshots=400)
    assert path.stat().st_size > 1 << 18, "the file is larger than one piece of the transfer"
    (one,) = ask(runtime().socket, "/v1/record").document["recordings"]
    assert [(each["path"], each["number"], each["bytes"]) for each in one["files"]] == [
        (str(path), 0, path.stat().st_size)
    ]
    target = f"recording={one['recording']}&number=0"
    for _ in range(2):
        answer = ask(runtime().socket, f"/v1/record/file?{target}")
        assert answer.headers["content-length"] == str(path.stat().st_size)
        assert answer.body == path.read_bytes()
    assert ask(runtime().socket, "/v1/record/remove", target.encode()).status == 200
    assert not path.exists()
    assert ask(runtime().socket, "/v1/record").document["recordings"] == []


@pytest.mark.parametrize(
    "which",
    ["recording=../run&number=0", "recording=%2Fetc%2Fpasswd&number=0", "recording={id}&number=1", "recording={id}",
     "recording={id}&number=-1", "recording={id}&number=0&path=/etc/passwd", "recording=&number=0"],
)  # fmt: skip
def test_a_file_is_found_only_by_an_id_and_a_number(daemon: Daemon, which: str) -> None:
    path = stored_recording()
    target = which.format(id=id_of(path))
    for answer in (
        ask(runtime().socket, f"/v1/record/file?{target}"),
        ask(runtime().socket, "/v1/record/remove", target.encode()),
    ):
        assert answer.status == 400
        assert answer.document["error"]["kind"] in ("trouble", "wrong_question")
    assert path.exists()


def test_fetching_a_recording_in_progress_is_refused(daemon: Daemon) -> None:
    with written(shelf().place()) as volumes:
        answer = ask(runtime().socket, f"/v1/record/file?recording={volumes.id.hex()}&number=0")
        assert (answer.status, "is still being written" in answer.document["error"]["message"]) == (400, True)


def test_a_client_that_disconnects_leaves_nothing_open(daemon: Daemon) -> None:
    path = stored_recording()
    os.truncate(path, LONG)
    with connected(runtime().socket) as client:
        client.sendall(request(f"/v1/record/file?recording={id_of(path)}&number=0"))
        assert b"200 OK" in client.recv(100)
        assert str(path) in opened()
    until(lambda: str(path) not in opened())
    assert path.exists()


def opened() -> set[str]:
    """Return the files that this process has open."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return found


def test_a_truncated_transfer_is_not_taken_for_complete(daemon: Daemon) -> None:
    path = stored_recording()
    whole = path.stat().st_size
    os.truncate(path, LONG)
    with connected(runtime().socket) as client, client.makefile("rb") as file:
        client.sendall(request(f"/v1/record/file?recording={id_of(path)}&number=0"))
        while line := file.readline().strip():
            if line.startswith(b"content-length"):
                assert int(line.split()[1]) == LONG
        os.truncate(path, whole)
        came = 0
        while piece := file.read(1 << 20):
            came += len(piece)
    assert came < LONG


# ---- with the verb


@contextmanager
def fetching(path: Path, out: Path, length: int = LONG) -> Iterator[Process]:
    """Start a `record --fetch` of a file that is too long. Yield the process once it has received some data."""
    whole = path.stat().st_size
    os.truncate(path, length)
    with going("record", "--fetch", id_of(path), "-o", str(out)) as process:
        try:
            until(lambda: process.poll() is not None or any(each.stat().st_size for each in out.parent.iterdir()))
            assert process.poll() is None
            yield process
        finally:
            process.kill()
            os.truncate(path, whole)


def fetched(path: Path, out: Path) -> None:
    """Assert that the file can be fetched, and that it is unchanged."""
    before, recording = path.read_bytes(), id_of(path)
    done = brickd("record", "--fetch", recording, "-o", str(out), "--json")
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(done.stdout)["files"]
    assert file["path"] == str(out)
    assert out.read_bytes() == before
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert list(runtime().recordings.iterdir()) == []
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.ci
def test_an_unfetched_recording_can_be_fetched_later_with_or_without_a_daemon(tmp_path: Path, prefix: str) -> None:
    fetched(stored_recording(), tmp_path / "without.brick")
    (tmp_path / "without.brick").unlink()
    with running():
        fetched(stored_recording(), tmp_path / "run.brick")
        none = brickd("record", "--fetch", "0" * 32, "-o", str(tmp_path / "none.brick"))
        assert (none.returncode, "no recording 000" in none.stderr) == (2, True)
    both = brickd("record", "--fetch", "0" * 32, "--spans")
    assert (both.returncode, "contradicts --fetch, which records nothing" in both.stderr) == (2, True)


@pytest.mark.ci
def test_all_files_of_a_recording_are_fetched(elsewhere: Path) -> None:
    path = stored_recording(snapshots=300, max_size=1 << 16)
    files = len(list(runtime().recordings.iterdir()))
    assert files > 2
    with running():
        done = brickd("record", "--fetch", id_of(path), "-o", str(elsewhere / "run.brick"))
    assert (done.returncode, done.stdout.startswith("fetched ")) == (0, True)
    assert len(list(elsewhere.iterdir())) == files
    assert list(runtime().recordings.iterdir()) == []
    assert document("status", *map(str, elsewhere.iterdir()))["recording"]["files"][0]["problem"] is None


@pytest.mark.ci
def test_ctrl_c_during_a_fetch_keeps_the_file_in_its_place(elsewhere: Path) -> None:
    path = stored_recording()
    with running():
        with fetching(path, elsewhere / "run.brick") as process:
            process.send_signal(signal.SIGINT)
            words = process.communicate()[1].decode()
        assert process.returncode == 130
        assert f"interrupted: the recording stays in {path} (brickd record --fetch {id_of(path)})" in words
        assert list(elsewhere.iterdir()) == []
        fetched(path, elsewhere / "run.brick")


@pytest.mark.ci
def test_a_client_killed_during_a_fetch_loses_nothing(elsewhere: Path) -> None:
    path = stored_recording()
    with running():
        with fetching(path, elsewhere / "run.brick") as process:
            process.kill()
            process.wait()
        (draft,) = elsewhere.iterdir()
        assert draft.name.startswith(".run.brick."), "the incomplete file is not listed as a recording"
        draft.unlink()
        fetched(path, elsewhere / "run.brick")


@pytest.mark.ci
def test_a_daemon_killed_during_a_fetch_loses_nothing_and_the_next_serves_it(elsewhere: Path) -> None:
    path = stored_recording()
    with running() as daemon, fetching(path, elsewhere / "run.brick") as process:
        daemon.kill()
        words = process.communicate()[1].decode()
    assert process.returncode == 2
    assert f"ended while it answered (start one: brickd up): the recording stays in {path}" in words
    assert list(elsewhere.iterdir()) == []
    with running():
        fetched(path, elsewhere / "run.brick")


@pytest.mark.ci
def test_a_file_that_does_not_fit_on_the_disk_stays_in_its_place(elsewhere: Path) -> None:
    path = stored_recording()
    limited = ["prlimit", f"--fsize={path.stat().st_size - 1}", "env", "PYTHONFAULTHANDLER=0"]
    command = [sys.executable, "-P", "-m", "brickd", "record", "--fetch", id_of(path), "-o"]
    with running():
        done = subprocess.run(
            [*limited, *command, elsewhere / "run.brick"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, "the recording stays in" in done.stderr) == (2, True), done.stderr
        assert list(elsewhere.iterdir()) == []
        fetched(path, elsewhere / "run.brick")


@pytest.mark.ci
def test_a_file_created_during_the_fetch_is_not_overwritten(elsewhere: Path) -> None:
    path, out = stored_recording(), elsewhere / "run.brick"
    with running():
        with fetching(path, out, 128 << 20) as process:
            out.write_text("foreign")
            words = process.communicate()[1].decode()
        assert (process.returncode, f"{out}: File exists: the recording stays in" in words) == (2, True)
    assert [(each.name, each.read_text()) for each in elsewhere.iterdir()] == [("run.brick", "foreign")]
    assert path.exists()


def test_a_file_that_took_the_path_of_a_recording_is_left_alone(prefix: str, tmp_path: Path) -> None:
    path, other = stored_recording(), stored_recording()
    recording = id_of(path)
    with running() as daemon:
        (reported, _) = daemon.ask("/record")["recordings"]
        assert reported["recording"] == recording
        hidden = path.with_name("hidden.brick")
        path.rename(hidden)
        other.rename(path)
        from brickd.cli.recording_fetch import fetch

        assert fetch(recording, reported["files"], tmp_path / "run.brick")
        assert id_of(tmp_path / "run.brick") == recording
        assert id_of(path) != recording
        assert not hidden.exists()
