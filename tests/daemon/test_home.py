"""The runtime directory: the daemon that holds it keeps it, and no other daemon destroys its content."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brickd.base.paths import runtime
from brickd.errors import DaemonRefused
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory
from brickd.state.runtime_dir import Home

_TAKE = """
import os
from brickd.errors import DaemonRefused
from brickd.state.runtime_dir import Home
from brickd.base.paths import runtime
for _ in range(3):
    try:
        Home(runtime(), group={group})
    except DaemonRefused as error:
        print(len(os.listdir("/proc/self/fd")), error)
"""


@pytest.mark.parametrize("home", ["/", "/nowhere"])
def test_without_a_home_the_state_is_in_the_runtime_directory(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    for name in ("BRICKD_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home)
    assert runtime().state == runtime().directory / "state"


def test_with_a_home_the_state_is_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BRICKD_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert runtime().state == tmp_path / ".local" / "state" / "brickd"


def refused(*before: str, group: int | None = None) -> list[str]:
    """Let another process try to take the directory three times; return what it prints."""
    command = [*before, sys.executable, "-P", "-c", _TAKE.format(group=group)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("prefix")
def test_a_group_may_enter_the_runtime_directory_but_not_list_it() -> None:
    with Home(runtime(), group=os.getegid()):
        found = runtime().directory.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o710, os.getegid())


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_runtime_directory_writable_by_others_is_refused(mode: int) -> None:
    runtime().directory.chmod(mode)
    assert ["expected a directory that only user" in reported for reported in refused()] == [True] * 3


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_a_group_without_the_user_is_refused_by_name_and_leaks_no_descriptor(
    nobody: list[str],
) -> None:
    os.chown(runtime().directory, 65534, 65534)
    reported = refused(*nobody, group=0)
    assert len(reported) == 3
    assert len(set(reported)) == 1, "a failed attempt leaves no descriptor open"
    assert (
        "cannot be given to group root (Operation not permitted): set BRICKD_GROUP to a group of which" in reported[0]
    )


@pytest.mark.ci
def test_a_removed_runtime_directory_is_taken_again(prefix: str) -> None:
    with Home(runtime()) as home:
        before = descriptors()
        assert not home.restore(prefix)
        shutil.rmtree(runtime().directory)
        assert home.restore(prefix)
        assert not home.restore(prefix)
        assert descriptors() == before
        assert all(f"a daemon is already running in {runtime().directory}" in reported for reported in refused())


@pytest.mark.ci
@pytest.mark.parametrize("why", [errno.EIO, errno.ENOENT])
def test_a_temporarily_invisible_runtime_directory_stays_locked(
    prefix: str, why: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Path.stat

    def stat(self: Path, **how: Any) -> os.stat_result:
        if self == runtime().lock:
            raise OSError(why, os.strerror(why))
        return seen(self, **how)

    with Home(runtime()) as home:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "stat", stat)
            if why == errno.ENOENT:
                assert home.restore(prefix)
            else:
                with pytest.raises(DaemonRefused, match="cannot be read: Input/output error"):
                    home.restore(prefix)
        assert not home.restore(prefix)
        assert len(refused()) == 3


def test_the_checkpoint_of_another_prefix_in_a_recreated_directory_is_not_overwritten(prefix: str) -> None:
    foreign = checkpoint.encode(Memory("another-"))
    with Home(runtime()) as home:
        before = descriptors()
        shutil.rmtree(runtime().directory)
        runtime().directory.mkdir(0o700)
        runtime().checkpoint.write_bytes(foreign)
        for _ in range(2):
            with pytest.raises(
                DaemonRefused, match=rf"describes the segments another-\*, but this daemon drains {prefix}\*"
            ):
                home.restore(prefix)
        assert (runtime().checkpoint.read_bytes(), descriptors()) == (foreign, before)
        runtime().checkpoint.unlink()
        assert home.restore(prefix)
