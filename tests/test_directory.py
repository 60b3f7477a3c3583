"""Files that nobody publishes: looked at often for a while, then seldom, and removed where nobody lives in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import SHM

from brickd.collector import LOOK_NS, SECOND, SLOWEST_NS, STILL_NS, Collector
from brickd.directory import Directory
from brickd.errors import SegmentUnpublished
from brickd.memory import Memory

NOBODY = 1234
# Holds the lock of a worker in a file, and ends with its stdin.
LIVES = (
    "import fcntl, sys; f = open({!r}, 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); print(flush=True); sys.stdin.read()"
)


class Looks:
    """A directory whose files are all unpublished, and each time that one of them is opened."""

    def __init__(self, prefix: str) -> None:
        self.told: list[str] = []
        self.opened: list[tuple[str, int]] = []
        self.directory = Directory(prefix, lambda kind, text, **_: self.told.append(f"{kind}: {text}"), STILL_NS)

    def at(self, now_ns: int) -> None:
        def attach(file: str) -> None:
            self.opened.append((file, now_ns))
            raise SegmentUnpublished(file, "not published")

        assert self.directory.look(now_ns, {}, attach)


@contextmanager
def lived_in(file: Path) -> Iterator[None]:
    """An unpublished file in which another process lives."""
    file.write_bytes(bytes(64))
    with subprocess.Popen(
        [sys.executable, "-c", LIVES.format(str(file))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield


def test_a_file_that_stays_unpublished_is_looked_at_as_often_as_the_others(prefix: str) -> None:
    looks = Looks(prefix)
    with lived_in(SHM / f"{prefix}0"):
        for second in range(5):
            looks.at(second * SECOND)
            assert looks.directory.waits, "it is being made"
        looks.at(5 * SECOND)
        assert not looks.directory.waits
        looks.opened.clear()
        (SHM / f"{prefix}1").write_bytes(bytes(64))
        for second in (6, 7, 8, 9):
            looks.at(second * SECOND)
            assert looks.directory.waits, "the other one is being made"
        looks.at(10 * SECOND)
    assert [now_ns for file, now_ns in looks.opened if file == f"{prefix}0"] == [10 * SECOND]
    # Its worker has died.
    looks.at(15 * SECOND)
    assert not list(SHM.glob(f"{prefix}*"))
    assert (looks.told, looks.directory.quarantined) == ([], {})


def test_the_loop_rests_beside_a_file_that_stays_unpublished(prefix: str) -> None:
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None)
    try:
        with lived_in(SHM / f"{prefix}0"):
            rests = [loop.tick(now_ns) for now_ns in (0, 1, STILL_NS)]
        due_ns = [rest.every_ns * rest.looks for rest in rests]
        assert due_ns[:2] == [SLOWEST_NS, SLOWEST_NS]
        assert due_ns[2] > SLOWEST_NS
    finally:
        loop.end(STILL_NS + LOOK_NS)


def test_another_file_of_the_same_name_has_its_own_time(prefix: str) -> None:
    looks, file = Looks(prefix), SHM / f"{prefix}0"
    file.write_bytes(bytes(64))
    looks.at(0)
    (SHM / f".{prefix}draft").write_bytes(bytes(64))
    (SHM / f".{prefix}draft").rename(file)
    looks.at(STILL_NS)
    assert looks.directory.waits
    looks.at(2 * STILL_NS)
    assert not file.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_another_user_has_to_remove_is_opened_no_more_and_told_once(prefix: str) -> None:
    looks, file = Looks(prefix), SHM / f"{prefix}0"
    file.write_bytes(bytes(64))
    file.chmod(0o666)
    os.seteuid(NOBODY)
    try:
        for second in (0, 5, 10, 15):
            looks.at(second * SECOND)
    finally:
        os.seteuid(0)
    reason = "its worker died before it had published it; only user 0 may remove it"
    assert looks.told == [f"quarantined: {file.name}: {reason}"]
    assert [now_ns for _, now_ns in looks.opened] == [0, STILL_NS]
    assert looks.directory.refused()[file.name].reason == reason
    assert not looks.directory.waits
