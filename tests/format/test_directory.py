"""Unpublished files are checked often at first and seldom later, and are removed if no process holds their lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import SHM

from brickd.base.units import SECOND
from brickd.daemon.collector import LOOK_NS, STILL_NS, Collector
from brickd.daemon.segment_directory import Directory
from brickd.daemon.tick_pace import SLOWEST_NS
from brickd.errors import SegmentRefused, SegmentUnpublished
from brickd.state.daemon_state import Memory

OTHER_USER = 1234
# Holds the worker's lock of a file until its stdin is closed.
LIVES = (
    "import fcntl, sys; f = open({!r}, 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); print(flush=True); sys.stdin.read()"
)


class Looks:
    """A directory in which all files are unpublished; notes the time of each attempt to open a file."""

    def __init__(self, prefix: str) -> None:
        self.logged: list[str] = []
        self.opened: list[tuple[str, int]] = []
        self.directory = Directory(prefix, lambda kind, text, **_: self.logged.append(f"{kind}: {text}"), STILL_NS)

    def at(self, now_ns: int) -> None:
        def attach(file: str) -> None:
            self.opened.append((file, now_ns))
            raise SegmentUnpublished(file, "not published")

        assert self.directory.look(now_ns, {}, attach)


@contextmanager
def lock_holder(file: Path) -> Iterator[None]:
    """Create an unpublished file; another process holds the lock of its worker."""
    file.write_bytes(bytes(64))
    with subprocess.Popen(
        [sys.executable, "-c", LIVES.format(str(file))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield


def test_a_file_that_stays_unpublished_is_checked_less_often(prefix: str) -> None:
    looks = Looks(prefix)
    with lock_holder(SHM / f"{prefix}0"):
        for second in range(5):
            looks.at(second * SECOND)
            assert looks.directory.waits, "the file is not published yet"
        looks.at(5 * SECOND)
        assert not looks.directory.waits
        looks.opened.clear()
        (SHM / f"{prefix}1").write_bytes(bytes(64))
        for second in (6, 7, 8, 9):
            looks.at(second * SECOND)
            assert looks.directory.waits, "the other file is not published yet"
        looks.at(10 * SECOND)
    assert [now_ns for file, now_ns in looks.opened if file == f"{prefix}0"] == [10 * SECOND]
    # The worker of this file has ended.
    looks.at(15 * SECOND)
    assert not list(SHM.glob(f"{prefix}*"))
    assert (looks.logged, looks.directory.quarantined) == ([], {})


def test_a_file_removed_after_it_was_listed_is_not_reported(prefix: str) -> None:
    reported: list[str] = []
    directory = Directory(prefix, lambda kind, text, **_: reported.append(f"{kind}: {text}"), STILL_NS)
    file = SHM / f"{prefix}0"
    file.write_bytes(b"a segment")

    def attach(name: str) -> None:
        file.unlink()
        raise SegmentRefused(name, "is gone")

    assert directory.look(0, {}, attach)
    assert (reported, directory.quarantined) == ([], {})


def test_the_loop_rests_while_a_file_stays_unpublished(prefix: str) -> None:
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=int)
    try:
        with lock_holder(SHM / f"{prefix}0"):
            rests = [loop.tick(now_ns) for now_ns in (0, 1, STILL_NS)]
        due_ns = [rest.every_ns * rest.looks for rest in rests]
        assert due_ns[:2] == [SLOWEST_NS, SLOWEST_NS]
        assert due_ns[2] > SLOWEST_NS
    finally:
        loop.end(STILL_NS + LOOK_NS)


def test_a_new_file_of_the_same_name_gets_its_own_time(prefix: str) -> None:
    looks, file = Looks(prefix), SHM / f"{prefix}0"
    file.write_bytes(bytes(64))
    looks.at(0)
    (SHM / f".{prefix}draft").write_bytes(bytes(64))
    (SHM / f".{prefix}draft").rename(file)
    looks.at(STILL_NS)
    assert looks.directory.waits
    looks.at(2 * STILL_NS)
    assert not file.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_the_owner_of_a_file_is_looked_up_once(prefix: str) -> None:
    looks, file = Looks(prefix), SHM / f"{prefix}0"
    file.touch(0o600)
    os.chown(file, OTHER_USER, -1)
    looks.at(0)
    assert list(looks.directory.others.values()) == [OTHER_USER]
    os.chown(file, 0, -1)
    looks.at(SECOND)
    assert list(looks.directory.others.values()) == [OTHER_USER], "the owner of a known inode is not read again"
    assert looks.opened == []
    (SHM / f".{prefix}draft").touch(0o600)
    (SHM / f".{prefix}draft").rename(file)
    looks.at(2 * SECOND)
    assert (looks.directory.others, len(looks.opened)) == ({}, 1), "another file has the name now"


def test_the_next_listing_waits_fifty_times_the_last_duration(prefix: str) -> None:
    took_ns = SECOND // 100
    times = iter(range(0, 100 * SECOND, took_ns))  # the clock advances by took_ns at each reading
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=lambda: next(times))
    loop.tick(0)
    (SHM / f"{prefix}0").write_bytes(b"no segment")
    again_ns = (1 + 50) * took_ns  # the wait is counted from the end of the listing
    for now_ns in (1, took_ns, again_ns - 1):
        loop.tick(now_ns, look=now_ns == 1)
        assert not loop.directory.quarantined
    loop.tick(again_ns)
    assert list(loop.directory.quarantined) == [f"{prefix}0"], "the file is not forgotten"
    loop.end(again_ns + 1)
