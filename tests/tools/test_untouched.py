"""A run of the tests uses its own directories and prefixes, and fails if it changes those of the user."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import ROOT, SHM
from faults import Start
from sandbox import within
from test_removed_machine import RemovedMachine
from untouched import Places, Untouched, users_places

from brickd.base.paths import runtime
from brickd.demo import processes
from brickd.shm import _reader
from brickd.shm.segment_files import find
from brickd.shm.segment_files import prefix as configured

Look = Callable[[], list[str]]
UUID = 32 * "a"


def watched() -> list[Places]:
    """Watch the directories of this test as if they were those of the user."""
    return users_places()[:1]


def test_no_prefix_of_the_tests_begins_with_the_default_one(prefix: str) -> None:
    assert not prefix.startswith(_reader.PREFIX)
    assert not RemovedMachine().prefix.startswith(_reader.PREFIX)


def test_the_prefix_of_the_demo_does_not_begin_with_the_default_one() -> None:
    with within({}), processes.place():
        assert not configured().startswith(_reader.PREFIX)


def test_every_change_in_the_users_directories_is_reported() -> None:
    run, state = runtime().directory, runtime().state
    (run / "checkpoint").write_bytes(b"one")
    state.mkdir()
    (state / "key").write_bytes(b"secret")
    check = Untouched(watched())
    assert check.look() == []
    (run / "checkpoint").write_bytes(b"two")
    (run / "weights").write_bytes(b"new")
    (state / "key").unlink()
    reported = check.look()
    assert f"{run}/checkpoint: changed" in reported
    assert f"{run}/weights: created" in reported
    assert f"{state}/key: removed" in reported
    assert {line.partition(": ")[2] for line in reported if line.startswith((f"{run}: ", f"{state}: "))} == {"changed"}


def test_a_replaced_file_of_the_same_size_is_reported() -> None:
    checkpoint = runtime().checkpoint
    checkpoint.write_bytes(b"one")
    before = checkpoint.stat()
    check = Untouched(watched())
    (runtime().directory / "draft").write_bytes(b"two")
    (runtime().directory / "draft").rename(checkpoint)
    os.utime(checkpoint, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert f"{checkpoint}: changed" in check.look()


def test_a_new_directory_is_reported() -> None:
    state = runtime().state
    check = Untouched(watched())
    (state / "sources").mkdir(parents=True)
    assert {f"{state}: created", f"{state}/sources: created"} <= set(check.look())


@pytest.mark.parametrize("name", [UUID, "removed-0"])
def test_a_dead_workers_segment_with_the_users_prefix_is_reported(prefix: str, name: str) -> None:
    check = Untouched(watched())
    (SHM / f"{prefix}{name}").write_bytes(b"left")
    (SHM / f"{prefix}longer-{name}").write_bytes(b"of another prefix")
    assert check.look() == [f"/dev/shm/{prefix}{name}: created"]


def test_segments_of_living_or_older_workers_belong_to_the_user(worker: Start, prefix: str) -> None:
    before = worker("brick.init(); pause()")
    before.paused()
    check = Untouched(watched())
    late = worker("brick.init(); pause()")
    late.paused()
    assert len(find(prefix)) == 2
    assert check.look() == []
    before.kill()
    assert check.look() == []
    late.kill()
    (reported,) = check.look()
    assert reported.endswith(": created")


def test_changes_next_to_a_running_daemon_are_its_own() -> None:
    runtime().checkpoint.write_bytes(b"one")
    early = Untouched(watched())
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(runtime().lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        check = Untouched(watched())
        runtime().checkpoint.write_bytes(b"two")
        assert check.look() == []
        assert f"{runtime().checkpoint}: changed" in early.look(), "a daemon of the tests may have changed the file"
        daemon.kill()
    assert f"{runtime().checkpoint}: changed" in check.look()


# ---- a whole run

# A test that does what no test may do: it writes to the user's directories.
BAD = """
import os
from pathlib import Path

import pytest

USERS = [Path(each) for each in os.environ["USERS"].split()]

@pytest.mark.parametrize("path", USERS, ids=str)
def test_bad(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("theirs")
"""
FAILS = """
import os, signal, subprocess, sys
from pathlib import Path

def test_it(prefix, worker):
    Path(f"/dev/shm/{prefix}left").touch()
    text = "import os; os.write(1, b'.'); os.read(0, 1)"
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.read(1)
    forked = worker("pause()")
    forked.paused()
    Path(os.environ["TOLD"]).write_text(f"{prefix} {process.pid} {forked.pid}")
    assert os.environ["HANGS"]
    os.kill(os.getpid(), signal.SIGALRM)  # as when its time is over
    forked.process.stdout.read(1)
"""
CLEAN = """
import os

import pytest

SHARED = []

@pytest.fixture(scope="module")
def shared():
    SHARED.append({name: value for name, value in os.environ.items() if name.startswith("BRICKD")})

def test_clean(shared):
    from brickd.shm import segment_files
    from brickd.base.paths import runtime

    own = {name: value for name, value in os.environ.items() if name.startswith("BRICKD")}
    names = {"BRICKD_SHM_PREFIX", "BRICKD_RUNTIME_DIR", "BRICKD_STATE_DIR"}
    for found in (own, *SHARED):
        assert found.keys() == names
        assert not any("users" in value for value in found.values())
    assert own["BRICKD_RUNTIME_DIR"] != SHARED[0]["BRICKD_RUNTIME_DIR"]
    for name in names:
        del os.environ[name]
    assert "users" not in str(runtime())
"""


def run(folder: Path, text: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with the fixtures and the hooks of this suite."""
    (folder / "test_it.py").write_text(text)
    path = os.pathsep.join(map(str, (ROOT / "tests", ROOT / "tests" / "support", ROOT / "scripts")))
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [*command, "-c", "/dev/null", f"--rootdir={folder}", folder / "test_it.py"],
        capture_output=True, text=True, check=False, cwd=folder, env=os.environ | {"PYTHONPATH": path} | environment,
    )  # fmt: skip


@pytest.fixture
def users(tmp_path: Path, prefix: str) -> dict[str, str]:
    """Return the environment of a user who has set all variables."""
    return {
        "BRICKD_RUNTIME_DIR": f"{tmp_path}/users/run",
        "BRICKD_STATE_DIR": f"{tmp_path}/users/state",
        "BRICKD_SOCKET": f"{tmp_path}/users/socket",
        "BRICKD_KEY_FILE": f"{tmp_path}/users/key",
        "BRICKD_SHM_PREFIX": f"{prefix}users-",
        "BRICKD_SERVICE": "users",
        "BRICKD": "0",
        "XDG_RUNTIME_DIR": f"{tmp_path}/users/session",
        "XDG_STATE_HOME": f"{tmp_path}/users/kept",
    }


@pytest.mark.ci
def test_a_run_starts_clean_whatever_the_environment(tmp_path: Path, users: dict[str, str]) -> None:
    ended = run(tmp_path, CLEAN, **users)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.ci
@pytest.mark.parametrize("options", [(), pytest.param(("--processes", "2"), marks=pytest.mark.slow)], ids=str)
def test_a_run_that_touches_the_users_files_fails_and_names_them(
    tmp_path: Path, users: dict[str, str], options: tuple[str, ...]
) -> None:
    bad = [
        f"{users['BRICKD_RUNTIME_DIR']}/checkpoint",
        f"{users['BRICKD_STATE_DIR']}/recordings/1.brick",
        users["BRICKD_SOCKET"],
        users["BRICKD_KEY_FILE"],
        f"/dev/shm/{users['BRICKD_SHM_PREFIX']}{UUID}",
        f"{users['XDG_STATE_HOME']}/brickd/key",
    ]
    with within(users):
        del os.environ["BRICKD_RUNTIME_DIR"]
        default = runtime().checkpoint
    if default.is_relative_to(tmp_path):  # and if it is not the directory of a service on this machine
        bad.append(str(default))
    ended = run(tmp_path, BAD, *options, **users, USERS=" ".join(bad))
    assert ended.returncode == 1, ended.stdout
    assert f"{len(bad)} passed" in ended.stdout
    for path in bad:
        assert f"{path}: created" in ended.stdout


@pytest.mark.ci
@pytest.mark.parametrize("hangs", ["", "1"], ids=["fails", "hangs"])
def test_a_test_that_fails_or_hangs_leaves_no_process_and_no_segment(tmp_path: Path, hangs: str) -> None:
    reported = tmp_path / "reported"
    ended = run(tmp_path, FAILS, "-o", "timeout=60", TOLD=str(reported), HANGS=hangs)
    assert ended.returncode == 1, ended.stdout
    assert ("Timeout" in ended.stdout) == bool(hangs)
    prefix, *pids = reported.read_text().split()
    assert not [*SHM.glob(f"{prefix}*")]
    assert len(pids) == 2
    for pid in pids:
        with suppress(FileNotFoundError):  # a process that has ended may still exist until its new parent reaps it
            assert Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
