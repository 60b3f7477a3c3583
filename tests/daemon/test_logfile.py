"""The log of a background daemon has a limited size, and a failure to write it causes no error in the daemon."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brickd.cli.logfile import LogFile, opened

MOST = 1000


@contextmanager
def written(path: Path) -> Iterator[tuple[io.TextIOWrapper, int]]:
    """Return a stream that writes into the log, and the descriptor of the stream."""
    fd = opened(path, MOST)
    try:
        yield io.TextIOWrapper(LogFile(path, (fd,), MOST), write_through=True), fd
    finally:
        os.close(fd)


def test_the_log_and_its_predecessor_are_bounded_and_hold_the_newest_lines(tmp_path: Path) -> None:
    log, before = tmp_path / "log", tmp_path / "log.1"
    with written(log) as (stderr, fd):
        for number in range(300):
            print(f"line {number}", file=stderr)
            assert max(path.stat().st_size for path in tmp_path.iterdir()) <= MOST
        assert os.path.samestat(os.fstat(fd), log.stat())
    assert sorted(tmp_path.iterdir()) == [log, before]
    lines = (before.read_text() + log.read_text()).splitlines()
    assert lines == [f"line {number}" for number in range(300 - len(lines), 300)]
    assert len(lines) > MOST / len("line 300\n")


def test_a_moved_or_removed_log_is_recreated_when_full(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with written(log) as (stderr, _):
        stderr.write("x" * MOST)
        log.rename(tmp_path / "elsewhere")
        stderr.write("here")
    assert log.read_text() == "here"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "log"]


def test_a_log_that_cannot_be_recreated_stays_bounded(tmp_path: Path) -> None:
    directory = tmp_path / "runtime"
    directory.mkdir()
    with written(directory / "log") as (stderr, fd):
        shutil.rmtree(directory)
        for _ in range(300):
            print("a line", file=stderr)
            assert os.fstat(fd).st_size <= MOST


def test_a_full_disk_affects_only_the_log(tmp_path: Path) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        print("lost", file=io.TextIOWrapper(LogFile(tmp_path / "log", (full.fileno(),)), write_through=True))
