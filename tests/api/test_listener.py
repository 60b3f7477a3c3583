"""The file of the socket: it never has a wider mode than intended, never replaces a file, and is removed at the end."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from serving import connected

from brickd.api.listener import Listener
from brickd.errors import BrickdError


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize(("group", "modes"), [(None, {0o600}), (os.getegid(), {0o600, 0o660})])
def test_the_socket_never_has_a_wider_mode_than_configured(tmp_path: Path, group: int | None, modes: set[int]) -> None:
    path, seen, found = tmp_path / "socket", set[int](), list[socket.socket]()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        for file in tmp_path.iterdir():
            seen.add(stat.S_IMODE(file.stat().st_mode))
        if not found and path.exists():
            found.append(connected(path))  # a client that finds the file can connect

    sys.setprofile(look)
    try:
        listener = Listener(path, group=group)
    finally:
        sys.setprofile(None)
    with listener, found[0]:
        assert seen == modes
        assert stat.S_IMODE(path.stat().st_mode) == max(modes)
        assert os.listdir(tmp_path) == ["socket"]
    assert os.listdir(tmp_path) == []


def stale(path: Path) -> None:
    """Create a socket as a killed daemon leaves it behind."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(path))


def test_only_the_holder_of_the_lock_replaces_a_dead_daemons_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    stale(path)
    with pytest.raises(BrickdError, match="the socket of another daemon exists"):
        Listener(path)
    stale(tmp_path / "socket.new")
    with Listener(path, replace=True):
        connected(path).close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_file_that_is_not_a_socket_is_kept(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "socket"
    make: dict[str, Callable[[], None]] = {
        "file": path.touch,
        "folder": path.mkdir,
        "link": lambda: path.symlink_to("elsewhere"),
    }
    make[kind]()
    with pytest.raises(BrickdError, match="exists but is not a socket"):
        Listener(path, replace=True)
    assert os.listdir(tmp_path) == ["socket"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_replaced_the_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    first = Listener(path)
    with Listener(path, replace=True):
        first.close()
        connected(path).close()


def test_a_socket_is_missing_if_nothing_exists_at_its_path(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Listener(path) as listener:
        assert not listener.missing()
        path.unlink()
        assert listener.missing()
        path.symlink_to("nowhere")
        assert not listener.missing()
    assert path.is_symlink()


def test_a_path_that_is_too_long_is_refused_with_the_fix(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 100)
    with pytest.raises(
        BrickdError, match=r"bytes, expected at most 103 in a socket's path \(set BRICKD_SOCKET to a shorter one\)"
    ):
        Listener(path)


def test_a_failed_socket_leaves_no_file(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may give a file to any group")
    with pytest.raises(PermissionError):
        Listener(tmp_path / "socket", group=0)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("folder", "group", "error"), [("absent", None, FileNotFoundError), (".", 2**40, OverflowError)]
)
def test_a_failed_socket_leaves_no_file_and_no_descriptor(
    tmp_path: Path, folder: str, group: int | None, error: type[Exception]
) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(error) as caught:  # keeps the exception, so that the descriptors of the listener are not freed
        Listener(tmp_path / folder / "socket", group=group)
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(tmp_path) == []
    del caught
