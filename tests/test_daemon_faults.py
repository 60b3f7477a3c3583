"""What is wrong with one segment, one file, one client costs a daemon that alone: the others' numbers stay exact.

Most of it happens to one daemon and two healthy workers that all tests of this file share: each test puts something bad
beside them, sees it told, has the workers work, and sees every bit of that counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forge
import pytest
from conftest import SHM, Worker, apart, workers
from forge import PAGE, U64, golden, place, put, seal
from running import Running, running

from brickd.segment import open_segment

Start = Callable[..., Worker]
Document = dict[str, Any]

WORKING = """
    b = brick.brick("b")
    while True:
        pause()
        for _ in range(10):
            with b: pass
            b.defer(stream=1)
        brick.finalize(stream=1)
"""


@dataclass
class Shared:
    """A daemon with two healthy workers, whose numbers are known."""

    daemon: Running
    healthy: tuple[Worker, ...]
    files: tuple[str, ...]
    prefix: str
    start: Start
    spans: int = 0

    def newest(self) -> int:
        """The number of the last event."""
        number: int = self.daemon.ask("/events")["newest"]
        return number

    def events(self, since: int) -> list[Document]:
        """What happened since."""
        told: list[Document] = self.daemon.ask(f"/events?since={since}")["events"]
        return told

    def goes_on(self) -> None:
        """The healthy ones work, and all of it is counted: the loop has done another round."""
        for each in self.healthy:
            each.go()
            each.paused()
        self.spans += 10
        while any((w := self.worker(file))["ledger"]["deferred"]["bounded"] < self.spans for file in self.files):
            pass
        for file in self.files:
            w = self.worker(file)
            assert (w["state"], w["ledger"]["spans"]["summarized"]) == ("live", self.spans)
            assert w["ledger"]["deferred"]["started"] == w["ledger"]["deferred"]["bounded"] == self.spans
            assert w["ledger"]["deferred"]["orphaned"] == 0

    def worker(self, file: str) -> Document:
        """The entry of a segment, once the daemon has found it."""
        entries: list[Document] = []
        while not entries:
            entries = [each for each in self.daemon.ask("/workers")["workers"] if each["segment"] == file]
        (entry,) = entries
        return entry

    def put(self, name: str, image: bytes) -> str:
        """A segment of these bytes; the daemon sees it whole or not at all."""
        draft = SHM / f".{self.prefix}{name}"
        draft.write_bytes(image)
        draft.rename(SHM / f"{self.prefix}{name}")
        return f"{self.prefix}{name}"


@pytest.fixture(scope="module")
def everybody() -> Iterator[Shared]:
    with apart() as prefix, workers() as start, running() as daemon:
        healthy = tuple(start(WORKING, BRICKD_SERVICE="healthy") for _ in range(2))
        for each in healthy:
            each.paused()
            each.go()
            each.paused()
        while len(daemon.ask("/workers")["workers"]) < 2:
            pass
        files = tuple(each["segment"] for each in daemon.ask("/workers")["workers"])
        yield Shared(daemon, healthy, files, prefix, start, spans=10)


@pytest.fixture
def shared(everybody: Shared) -> Iterator[Shared]:
    """The shared daemon; what a test adds to its directory is removed, and all goes on after it."""
    yield everybody
    for file in SHM.glob(f"*{everybody.prefix}*"):
        if file.name not in everybody.files:
            file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)
    everybody.goes_on()


def image(**header: Any) -> bytearray:
    """A segment of a worker of its own."""
    result = bytearray(golden())
    put(result, "header", {"uuid": os.urandom(16), **header})
    return bytearray(seal(result))


@contextlib.contextmanager
def lived_in(path: Path) -> Iterator[int]:
    """A file whose worker we are, as far as the kernel knows."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        yield fd
    finally:
        os.close(fd)


def told(shared: Shared, file: str, since: int) -> str:
    """Wait until a file is quarantined: the reason, which status knows as well."""
    while True:
        event = shared.daemon.until("quarantined", since)
        if event["text"].startswith(f"{file}: "):
            break
        since = event["number"]
    reason: str = event["text"].removeprefix(f"{file}: ")
    entry = shared.worker(file)
    assert (entry["state"], entry["problem"]) == ("quarantined", reason)
    assert f"{file} is quarantined: {reason}" in [each["text"] for each in shared.daemon.ask("/status")["problems"]]
    return reason


# ---- segments that lie


def ended(changed: bytearray) -> bytes:
    """As if its worker had come to its end, so that it is read as a whole at once."""
    struct.pack_into("<Q", changed, place(changed, "process") + forge.later("process", "ended"), 1)
    return bytes(changed)


def circle() -> bytes:
    lying = image()
    struct.pack_into("<Q", lying, place(lying, "path", 3), 1 << 63 | 1 << 16 | 4)
    return ended(lying)


def total() -> bytes:
    lying = image()
    put(lying, "summary", {"total": 2**63}, 2)
    return ended(lying)


LIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "junk": (lambda: b"\1" * 8192, "not a segment"),
    "cut": (lambda: bytes(image())[:-1], "its header says"),
    "longer": (lambda: bytes(image()) + b"\0", "its header says"),
    "crc": (lambda: golden()[:200] + b"x" + golden()[201:], "checksum"),
    "major": (lambda: seal(image(major=2)), "format 2."),
    "endian": (lambda: seal(image(endian=0x04030201)), "another byte order"),
    "layout": (lambda: seal(image(layout_crc=1)), "layout 00000001"),
    "user": (lambda: seal(image(uid=os.geteuid() + 1)), "made it, but user"),
    "counts": (lambda: seal(image(lanes=1024)), "its header says"),
    "circle": (circle, "path 3 stands below path 4"),
    "total": (total, "2^62"),
}


def test_a_segment_that_lies_is_quarantined_with_its_reason(shared: Shared) -> None:
    before = shared.newest()
    files = {kind: shared.put(kind, make()) for kind, (make, _) in LIES.items()}
    for kind, (_, why) in LIES.items():
        assert why in told(shared, files[kind], before), kind
    shared.goes_on()
    quarantined = [each["text"] for each in shared.events(before) if each["kind"] == "quarantined"]
    assert len(quarantined) == len(LIES), "each is told once"


# ---- segments that change while they are drained


def attached(shared: Shared, file: str) -> None:
    """Wait until it is drained."""
    shared.worker(file)
    shared.goes_on()


def change_head(lying: bytearray, fd: int, head: int) -> None:
    at = place(lying, "lane") + forge.field("lane", "event_head")[0]
    os.pwrite(fd, struct.pack("<Q", head), at)


def jump(fd: int) -> None:
    change_head(image(), fd, 2**40)


def go_back(fd: int) -> None:
    change_head(image(), fd, 0)


def truncate(fd: int) -> None:
    os.ftruncate(fd, 2 * PAGE)


def truncate_wholly(fd: int) -> None:
    os.ftruncate(fd, 0)


@pytest.mark.parametrize(
    ("change", "why"),
    [(jump, "jumped"), (go_back, "went back"), (truncate, "truncated"), (truncate_wholly, "truncated")],
)
def test_a_segment_that_begins_to_lie_while_it_is_drained_is_quarantined(
    shared: Shared, change: Callable[[int], None], why: str
) -> None:
    lying = image()
    put(lying, "lane", {"event_head": 2})
    put(lying, "consumer", {"event": (0, U64)})
    before = shared.newest()
    file = shared.put("turns", bytes(lying))
    with lived_in(SHM / file) as fd:
        attached(shared, file)
        change(fd)
        assert why in told(shared, file, before)
        shared.goes_on()


def test_a_header_that_changes_while_it_is_drained_changes_nothing(shared: Shared) -> None:
    before = shared.newest()
    file = shared.put("header", bytes(image(service=b"before")))
    with lived_in(SHM / file) as fd:
        attached(shared, file)
        os.pwrite(fd, b"\xff" * PAGE, 0)
        shared.goes_on()
        assert (shared.worker(file)["state"], shared.worker(file)["service"]) == ("live", "before")
        assert "quarantined" not in {each["kind"] for each in shared.events(before)}


def test_a_copy_of_a_segment_is_quarantined_and_counted_once(shared: Shared) -> None:
    before = shared.newest()
    for of in shared.files:
        file = shared.put(f"copy-of-{of}", (SHM / of).read_bytes())
        assert f"says that it is {of}: one of them is a copy" in told(shared, file, before)
    shared.goes_on()
    assert len([each for each in shared.daemon.ask("/status")["workers"] if each["service"] == "healthy"]) == 2


# ---- files that are no segments


def test_what_is_no_plain_file_is_quarantined_and_nobody_waits(shared: Shared) -> None:
    before, draft = shared.newest(), SHM / f".{shared.prefix}draft"
    draft.write_bytes(bytes(image()))
    os.link(draft, SHM / f"{shared.prefix}hard")
    os.symlink(shared.files[0], SHM / f"{shared.prefix}link")
    os.mkfifo(SHM / f"{shared.prefix}fifo")
    (SHM / f"{shared.prefix}folder").mkdir()
    with (SHM / f"{shared.prefix}sparse").open("wb") as sparse:
        sparse.write(golden())
        sparse.truncate(2**60)
    wanted = {
        "hard": "2 links",
        "link": "cannot be opened",
        "fifo": "not a regular file",
        "folder": "cannot be opened",
        "sparse": "its header says",
    }
    if os.geteuid() == 0:
        os.mknod(SHM / f"{shared.prefix}device", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
        wanted["device"] = "not a regular file"
    for kind, why in wanted.items():
        assert why in told(shared, f"{shared.prefix}{kind}", before), kind
    shared.goes_on()


def test_another_name_for_a_segment_that_is_drained_costs_nobody_anything(shared: Shared) -> None:
    first = shared.files[0]
    os.link(SHM / first, SHM / f"{shared.prefix}hard")
    shared.goes_on()
    assert shared.daemon.ask(f"/inspect?name={shared.prefix}hard")["segment"] == first
    (SHM / f"{shared.prefix}hard").unlink()
    shared.goes_on()
    with open_segment(first) as segment:
        assert segment.consumer() == shared.daemon.pid


def test_a_segment_that_is_renamed_is_drained_on_under_its_new_name(shared: Shared) -> None:
    first, second = shared.files
    before, new = shared.newest(), f"{shared.prefix}renamed"
    (SHM / first).rename(SHM / new)
    shared.files = (new, second)
    shared.goes_on()
    assert shared.daemon.ask(f"/inspect?name={new}")["segment"] == new
    # What has its old name by now is another one.
    other = shared.put(first.removeprefix(shared.prefix), bytes(image(service=b"squatter")))
    with lived_in(SHM / other):
        attached(shared, other)
        assert shared.worker(other)["service"] == "squatter"
        with open_segment(new) as segment:
            assert segment.consumer() == shared.daemon.pid
    (SHM / other).unlink()
    (SHM / new).rename(SHM / first)
    shared.files = (first, second)
    shared.goes_on()
    assert not {"worker_died", "worker_moved", "quarantined"} & {each["kind"] for each in shared.events(before)}


def test_names_with_escapes_and_newlines_are_told_on_one_line_and_harmless(shared: Shared) -> None:
    before = shared.newest()
    name = "\x1b]0;owned\x07\nbrickd: all is well\u202e"
    file = shared.put(name, b"\1" * 8192)
    told(shared, file, before)
    told_too = shared.put("service", bytes(image(service=b"\x1b[31m\n=cmd|x")))
    with lived_in(SHM / told_too):
        attached(shared, told_too)
    said = subprocess.run(
        [sys.executable, "-P", "-m", "brickd", "events", "--since", str(before)], capture_output=True, check=True
    ).stdout.decode()
    assert "\\x1b" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    assert not [line for line in said.splitlines() if line.startswith("brickd: all is well")]
