"""System calls that the reader's module makes: it waits for events about files, and writes many pieces at once."""

from __future__ import annotations

import errno
import os
import resource
import select
import struct
from pathlib import Path

import pytest

from brickd.shm import _reader

IN_CREATE, IN_MOVED_TO, IN_DELETE, IN_IGNORED = 0x100, 0x80, 0x200, 0x8000
_EVENT = struct.Struct("iIII")


def calls_of(fd: int) -> list[tuple[int, str]]:
    """Return the events that can be read now, as (kind, name)."""
    found = []
    while select.select([fd], [], [], 0)[0]:
        data = os.read(fd, 4096)
        while data:
            _, mask, _, length = _EVENT.unpack_from(data)
            found.append((mask, data[_EVENT.size :][:length].rstrip(b"\0").decode()))
            data = data[_EVENT.size + length :]
    return found


def test_created_and_removed_files_are_reported_and_changes_are_not(tmp_path: Path) -> None:
    fd = _reader.watch(str(tmp_path))
    try:
        (tmp_path / "one").write_text("1")
        (tmp_path / "one").rename(tmp_path / "two")
        (tmp_path / "two").unlink()
        assert calls_of(fd) == [(IN_CREATE, "one"), (IN_MOVED_TO, "two"), (IN_DELETE, "two")]
        with pytest.raises(BlockingIOError):
            os.read(fd, 4096)
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize(("name", "error"), [("absent", FileNotFoundError), ("file", NotADirectoryError)])
def test_an_unwatchable_directory_is_named_in_the_error(tmp_path: Path, name: str, error: type[OSError]) -> None:
    (tmp_path / "file").touch()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(error, match=name):
        _reader.watch(str(tmp_path / name))
    assert set(os.listdir("/proc/self/fd")) == before


def test_writes_are_made_in_order(tmp_path: Path) -> None:
    with open(tmp_path / "one", "w+b") as one, open(tmp_path / "two", "w+b") as two:
        writes = [(one.fileno(), 2, b"abc"), (two.fileno(), 0, b"xy"), (one.fileno(), 3, b"B"), (two.fileno(), 1, b"")]
        assert _reader.write_all(writes) == {}
        assert (one.read(), two.read()) == (b"\0\0aBc", b"xy")
    assert _reader.write_all([]) == {}


def test_a_failed_file_is_reported_and_the_others_are_written(tmp_path: Path) -> None:
    with open(tmp_path / "one", "w+b") as one, open(tmp_path / "one", "rb") as closed:
        writes = [
            (closed.fileno(), 0, b"b"),
            (one.fileno(), 0, b"a"),
            (closed.fileno(), 0, b"b"),
            (one.fileno(), 1, b"c"),
        ]
        assert _reader.write_all(writes) == {closed.fileno(): errno.EBADF}
        assert one.read() == b"ac"


def test_after_a_failed_write_its_file_is_not_written_again(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open(tmp_path / "one", "w+b") as one:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
        try:
            assert _reader.write_all([(one.fileno(), 8, b"a"), (one.fileno(), 0, b"b")]) == {one.fileno(): errno.EFBIG}
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert one.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_an_error() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        assert _reader.write_all([(full.fileno(), 0, b"a")]) == {full.fileno(): errno.ENOSPC}


@pytest.mark.parametrize("writes", [[[1, 0, b""]], [(1, 0)], [("1", 0, b"")], [(1, 0, "text")], 5])
def test_invalid_writes_are_refused_before_any_is_made(tmp_path: Path, writes: object) -> None:
    with open(tmp_path / "one", "w+b") as one:
        first = [(one.fileno(), 0, b"a")]
        with pytest.raises(TypeError):
            _reader.write_all(first + writes if isinstance(writes, list) else writes)  # type: ignore[arg-type]
        assert one.read() == b""
