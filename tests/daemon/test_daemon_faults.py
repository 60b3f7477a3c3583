"""A bad segment, file or client harms no other: the numbers of all other workers stay exact.

Most tests of this file share one daemon and two healthy workers. Each test adds something bad, checks the daemon's
report, lets the workers work, and checks that all their work is counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
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
import sparse_files
from conftest import SHM, Worker, workers
from faults import ALERT, Compile, native, order, program
from forge import PAGE, U64, golden, place, put, seal
from rings import Rings, events
from running import Running, running, until
from sandbox import apart, places, within
from verbs import brickd

from brickd.base.files import holder
from brickd.daemon import segment_directory
from brickd.daemon.collector import Collector
from brickd.daemon.tick_pace import REST_NS
from brickd.datasources.shared_memory import SharedMemory
from brickd.shm import _reader
from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find
from brickd.state.daemon_state import Memory

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
    places: dict[str, str]
    start: Start
    spans: int = 0

    def newest(self) -> int:
        """Return the sequence number of the last event."""
        number: int = self.daemon.ask("/events")["newest"]
        return number

    def events(self, since: int) -> list[Document]:
        """Return the events after this sequence number."""
        reported: list[Document] = self.daemon.ask(f"/events?since={since}")["events"]
        return reported

    def goes_on(self) -> None:
        """Let the healthy workers work, and check that everything is counted."""
        for each in self.healthy:
            each.go()
            each.paused()
        self.spans += 10
        until(lambda: all(self.worker(each)["ledger"]["deferred"]["bounded"] >= self.spans for each in self.files))
        for file in self.files:
            w = self.worker(file)
            assert (w["state"], w["ledger"]["spans"]["summarized"]) == ("live", self.spans)
            assert w["ledger"]["deferred"]["started"] == w["ledger"]["deferred"]["bounded"] == self.spans
            assert w["ledger"]["deferred"]["orphaned"] == 0

    def worker(self, file: str) -> Document:
        """Wait until the daemon has found a segment, and return its entry."""
        entries: list[Document] = until(
            lambda: [each for each in self.daemon.ask("/workers")["workers"] if each["segment"] == file]
        )
        # An ended worker of another test may have had this name before.
        return min(entries, key=lambda each: each["state"] in ("died", "ended"))

    def put(self, name: str, image: bytes | Path) -> str:
        """Create a segment with these bytes or as a copy of a file; the daemon sees all of it or nothing."""
        draft = SHM / f".{self.prefix}{name}"
        if isinstance(image, Path):
            sparse_files.copy(image, draft)
        else:
            draft.write_bytes(image)
        draft.rename(SHM / f"{self.prefix}{name}")
        return f"{self.prefix}{name}"


@pytest.fixture(scope="module")
def whole_daemon() -> Iterator[Shared]:
    with apart() as prefix, workers() as start, running() as daemon:
        healthy = tuple(start(WORKING, BRICKD_SERVICE="healthy") for _ in range(2))
        for each in healthy:
            each.paused()
            each.go()
            each.paused()
        daemon.once("/workers", lambda answer: len(answer["workers"]) == 2)
        files = tuple(each["segment"] for each in daemon.ask("/workers")["workers"])
        yield Shared(daemon, healthy, files, prefix, places(), start, spans=10)


@pytest.fixture
def shared(whole_daemon: Shared) -> Iterator[Shared]:
    """Return the shared daemon; afterwards, remove the files that the test added, and check that the daemon still
    works.
    """
    with within(whole_daemon.places):
        yield whole_daemon
        for file in SHM.glob(f"*{whole_daemon.prefix}*"):
            if file.name not in whole_daemon.files:
                file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)
        whole_daemon.goes_on()


def image(**header: Any) -> bytearray:
    """Return a segment with its own uuid."""
    result = bytearray(golden())
    put(result, "header", {"uuid": os.urandom(16), **header})
    return bytearray(seal(result))


@contextlib.contextmanager
def live_worker(path: Path) -> Iterator[int]:
    """Create a file whose live worker is this process."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        yield fd
    finally:
        os.close(fd)


def opened_by(pid: int) -> set[str]:
    """Return the files in shared memory that a process has open. The test process must not open these files, because
    closing them would drop the locks that it holds on them.
    """
    names = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the process may have closed the descriptor after it was listed
            names.add(each.readlink().name)
    return names


def logged_since(shared: Shared, file: str, since: int) -> str:
    """Wait until a file is quarantined; return the reason, after checking that `status` shows the same."""
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


# ---- segments with false values


def ended(changed: bytearray) -> bytes:
    """Mark the worker of a segment as ended, so that the daemon reads the whole segment immediately."""
    struct.pack_into("<Q", changed, place(changed, "process") + forge.later("process", "ended"), 1)
    return bytes(changed)


def circle() -> bytes:
    corrupt = image()
    struct.pack_into("<Q", corrupt, place(corrupt, "path", 3), 1 << 63 | 1 << 16 | 4)
    return ended(corrupt)


def total() -> bytes:
    corrupt = image()
    put(corrupt, "summary", {"total": 2**63}, 2)
    return ended(corrupt)


CORRUPT: dict[str, tuple[Callable[[], bytes], str]] = {
    "junk": (lambda: b"\1" * 8192, "not a segment"),
    "cut": (lambda: bytes(image())[:-1], "its header says"),
    "longer": (lambda: bytes(image()) + b"\0", "its header says"),
    "crc": (lambda: golden()[:200] + b"x" + golden()[201:], "checksum"),
    "major": (lambda: seal(image(major=2)), "format 2."),
    "endian": (lambda: seal(image(endian=0x04030201)), "another byte order"),
    "layout": (lambda: seal(image(layout_crc=1)), "layout 00000001"),
    "user": (lambda: seal(image(uid=os.geteuid() + 1)), "as its creator, but user"),
    "counts": (lambda: seal(image(lanes=1024)), "its header says"),
    "circle": (circle, "path 3 is below path 4"),
    "total": (total, "2^62"),
}


@pytest.mark.ci
def test_a_corrupt_segment_is_quarantined_with_its_reason(shared: Shared) -> None:
    before = shared.newest()
    files = {kind: shared.put(kind, make()) for kind, (make, _) in CORRUPT.items()}
    for kind, (_, why) in CORRUPT.items():
        assert why in logged_since(shared, files[kind], before), kind
    shared.goes_on()
    quarantined = [each["text"] for each in shared.events(before) if each["kind"] == "quarantined"]
    assert len(quarantined) == len(CORRUPT), "each segment is reported once"


# ---- segments that change during the drain


def attached(shared: Shared, fd: int) -> None:
    """Wait until the daemon drains a file that is open in this process; opening it again here would drop its lock."""
    until(lambda: holder(fd, _reader.LOCK_CONSUMER) == shared.daemon.pid)
    shared.goes_on()


def change_head(corrupt: bytearray, fd: int, head: int) -> None:
    at = place(corrupt, "lane") + forge.field("lane", "event_head")[0]
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
    [
        (jump, "jumped"),
        *(
            pytest.param(*each, marks=pytest.mark.ci)
            for each in ((go_back, "moved back"), (truncate, "truncated"), (truncate_wholly, "truncated"))
        ),
    ],
)
def test_a_segment_that_becomes_corrupt_while_drained_is_quarantined(
    shared: Shared, change: Callable[[int], None], why: str
) -> None:
    corrupt = image()
    put(corrupt, "lane", {"event_head": 2})
    put(corrupt, "consumer", {"event": (0, U64)})
    before = shared.newest()
    file = shared.put("turns", bytes(corrupt))
    with live_worker(SHM / file) as fd:
        attached(shared, fd)
        change(fd)
        assert why in logged_since(shared, file, before)
        shared.goes_on()


@pytest.mark.ci
def test_deferred_work_with_impossible_numbers_is_counted_and_causes_no_defect(shared: Shared) -> None:
    before, amounts = shared.newest(), (0, 1, 2**48, 2**63 - 1, 2**63, U64)
    page = bytearray(forge.empty(lanes=1, paths=64, event_slots=4096, span_slots=16))
    put(page, "header", {"uuid": os.urandom(16), "service": b"absurd"})
    file = shared.put("absurd", seal(page) + bytes(forge.header_value(page, "size") - len(page)))
    with live_worker(SHM / file) as fd:
        attached(shared, fd)
        rings = Rings(fd, bytes(page))
        rings.put("process", 0, paths=2)
        rings.path(1, _reader.UNIT_DEFERRED)
        last = itertools.count(1)
        for start, id, other in itertools.product(amounts, repeat=3):
            for record, values in (
                ("defer", {"path": 1, "start": start, "id": id, "stream": other, "elements": other}),
                ("measured", {"id": id, "elapsed_ns": other}),
                ("finalize", {"ticks": start, "stream": other}),
            ):
                rings.write(0, "event", events({"sequence": next(last)} | values, record=record))
                rings.heads[0, "event"] = rings.heads.get((0, "event"), 0) + 1
        rings.move(0, "event", rings.heads[0, "event"])
        until(lambda: shared.worker(file)["ledger"]["deferred"]["started"])
        shared.goes_on()
        account = shared.worker(file)["ledger"]["deferred"]
        assert account["started"] == sum(account[term] for term in ("measured", "bounded", "pending", "orphaned"))
        rows = shared.daemon.ask("/bricks?name=absurd")["bricks"]
        assert sum(row["count"] for row in rows) == account["measured"] + account["bounded"] > 0
        for row in rows:
            assert 0 <= row["min_ns"] <= row["max_ns"] <= row["total_ns"] <= 2**64
            assert row["bounded"] or row["max_ns"] < 2**62, "no measured span is longer than the time since its start"
        assert account["unmatched"] > 0
        assert not {"defect", "quarantined"} & {each["kind"] for each in shared.events(before)}


@pytest.mark.ci
def test_a_header_that_changes_while_drained_changes_nothing(shared: Shared) -> None:
    before = shared.newest()
    file = shared.put("header", bytes(image(service=b"before")))
    with live_worker(SHM / file) as fd:
        attached(shared, fd)
        os.pwrite(fd, b"\xff" * PAGE, 0)
        shared.goes_on()
        assert (shared.worker(file)["state"], shared.worker(file)["service"]) == ("live", "before")
        assert "quarantined" not in {each["kind"] for each in shared.events(before)}


@pytest.mark.ci
def test_a_copy_of_a_segment_is_quarantined_and_counted_once(shared: Shared) -> None:
    before = shared.newest()
    for of in shared.files:
        file = shared.put(f"copy-of-{of}", SHM / of)
        assert f"is a copy of {of}: both have the same uuid" in logged_since(shared, file, before)
    shared.goes_on()
    assert len([each for each in shared.daemon.ask("/status")["workers"] if each["service"] == "healthy"]) == 2


# ---- files that are not segments


@pytest.mark.ci
def test_anything_but_a_regular_file_is_quarantined_without_blocking(shared: Shared) -> None:
    before, draft = shared.newest(), SHM / f".{shared.prefix}draft"
    draft.write_bytes(bytes(image()))
    os.symlink(shared.files[0], SHM / f"{shared.prefix}link")
    os.mkfifo(SHM / f"{shared.prefix}fifo")
    (SHM / f"{shared.prefix}folder").mkdir()
    with (SHM / f"{shared.prefix}sparse").open("wb") as sparse:
        sparse.write(golden())
        sparse.truncate(2**60)
    wanted = {
        "link": "cannot be opened",
        "fifo": "expected a regular file",
        "folder": "cannot be opened",
        "sparse": "its header says",
    }
    if os.geteuid() == 0:
        os.mknod(SHM / f"{shared.prefix}device", 0o600 | 0o020000, os.makedev(1, 5))  # the device numbers of /dev/zero
        wanted["device"] = "expected a regular file"
    for kind, why in wanted.items():
        assert why in logged_since(shared, f"{shared.prefix}{kind}", before), kind
    shared.goes_on()


def test_a_hard_link_to_a_drained_segment_changes_nothing(shared: Shared) -> None:
    first = shared.files[0]
    os.link(SHM / first, SHM / f"{shared.prefix}hard")
    shared.goes_on()
    assert shared.daemon.ask(f"/inspect?name={shared.prefix}hard")["segment"] == first
    (SHM / f"{shared.prefix}hard").unlink()
    shared.goes_on()
    with open_segment(first) as segment:
        assert segment.consumer() == shared.daemon.pid


@pytest.mark.ci
def test_a_renamed_segment_is_drained_under_its_new_name(shared: Shared) -> None:
    first, second = shared.files
    before, new = shared.newest(), f"{shared.prefix}renamed"
    (SHM / first).rename(SHM / new)
    shared.files = (new, second)
    shared.goes_on()
    assert shared.daemon.ask(f"/inspect?name={new}")["segment"] == new
    # Now another file has the name that the segment had.
    other = shared.put(first.removeprefix(shared.prefix), bytes(image(service=b"squatter")))
    with live_worker(SHM / other) as fd:
        attached(shared, fd)
        assert shared.worker(other)["service"] == "squatter"
        with open_segment(new) as segment:
            assert segment.consumer() == shared.daemon.pid
    (SHM / other).unlink()
    (SHM / new).rename(SHM / first)
    shared.files = (first, second)
    shared.goes_on()
    # In the meantime, the daemon may report deaths of workers of earlier tests.
    logged_of_us = {each["kind"] for each in shared.events(before) if each["service"] in ("healthy", None)}
    assert not {"worker_died", "worker_moved", "quarantined"} & logged_of_us


def test_names_with_escapes_and_newlines_are_shown_escaped_on_one_line(shared: Shared) -> None:
    before = shared.newest()
    name = "\x1b]0;owned\x07\nbrickd: all is well\u202e"
    file = shared.put(name, b"\1" * 8192)
    logged_since(shared, file, before)
    logged_too = shared.put("service", bytes(image(service=b"\x1b[31m\n=cmd|x")))
    with live_worker(SHM / logged_too) as fd:
        attached(shared, fd)
    reported = brickd("events", "--since", str(before)).stdout
    assert "\\x1b" in reported
    assert not {"\x1b", "\x07", "\u202e"} & set(reported)
    assert not [line for line in reported.splitlines() if line.startswith("brickd: all is well")]


# ---- actions on a worker's segment


def test_a_dead_workers_segment_is_counted_although_it_was_unlinked(shared: Shared) -> None:
    before = shared.newest()
    file = shared.put("removed", ended(image(service=b"removed")))
    with live_worker(SHM / file):
        # another worker's event may come first
        while shared.daemon.until("worker_found", before)["service"] != "removed":
            before += 1
        assert shared.worker(file)["ledger"]["spans"]["summarized"] == 12
        (SHM / file).unlink()
    while shared.daemon.until("worker_ended", before)["service"] != "removed":
        before += 1
    assert shared.worker(file)["ledger"]["spans"]["summarized"] == 12
    assert shared.worker(file)["state"] == "ended"


def test_prune_keeps_segments_that_a_daemon_drains(shared: Shared) -> None:
    file = shared.put("dead", bytes(image(service=b"dead")))
    shared.worker(file)
    with open_segment(file) as segment:
        until(lambda: segment.consumer() is not None)
    pruned = brickd("prune", "--json")
    assert (pruned.returncode, file in pruned.stdout) == (0, False)
    assert (SHM / file).exists()


def test_no_segment_is_attached_during_a_read_that_would_drop_its_lock(prefix: str) -> None:
    (SHM / f"{prefix}new").write_bytes(bytes(image()))
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=int)
    loop.tick(0)
    (old,) = loop.roster.attached.values()
    (SHM / f"{prefix}newer").write_bytes(bytes(image()))
    with loop.roster.reading:
        for now_ns in (1, 2, 3):
            rest = loop.tick(now_ns, look=now_ns == 1)
            assert list(loop.roster.attached.values()) == [old]
            assert rest.every_ns * rest.looks < REST_NS, "the daemon soon tries to open the file again"
    loop.tick(4)
    assert len(loop.roster.attached) == 2, "the segment is not forgotten"
    loop.end(5)


def test_a_drained_segment_renamed_while_it_is_opened_keeps_its_lock(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (SHM / f"{prefix}old").write_bytes(bytes(image()))
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=int)
    loop.tick(0)
    (SHM / f"{prefix}old").rename(SHM / f"{prefix}new")
    with monkeypatch.context() as before:
        # It looks as if the file had another identity before.
        before.setattr(segment_directory, "identifier_of", lambda _: (0, 0))
        loop.tick(1, look=True)
    assert len(loop.roster.attached) == 1
    held = subprocess.run(
        [sys.executable, "-P", "-c", _CONSUMER.format(f"{prefix}new")], capture_output=True, check=True
    )
    assert int(held.stdout) == os.getpid()
    loop.end(2)


_CONSUMER = "from brickd.shm.segment import open_segment; print(open_segment({!r}).consumer() or 0)"


# ---- cases that take five seconds


@pytest.mark.slow
def test_an_unpublished_file_is_removed_after_five_seconds_unless_its_process_lives(shared: Shared) -> None:
    names = [f"{shared.prefix}{name}" for name in ("born-dead", "zeros", "slow")]
    for name in names:
        (SHM / name).write_bytes(bytes(8192) if name.endswith("zeros") else b"")
    with live_worker(SHM / names[2]) as fd:
        until(lambda: not (SHM / names[0]).exists() and not (SHM / names[1]).exists())
        assert (SHM / names[2]).exists()
        os.write(fd, image(service=b"slow"))
        until(lambda: [e for e in shared.daemon.ask("/workers")["workers"] if e["service"] == "slow"])


LOCKLESS = """
    b = brick.brick("b")
    def work():
        for _ in range(10):
            with b: pass
            b.defer(stream=1)
        brick.finalize(stream=1)
    work()
    os.close(os.open("/dev/shm/" + _core._segment_name(), os.O_RDONLY))
    pause()
    first = _core._segment_name()
    work()
    more = 0
    while _core._segment_name() == first:
        with b: pass
        more += 1
    work()
    report(more)
    pause()
"""


@pytest.mark.slow
def test_a_stopped_worker_without_its_lock_is_counted_once_when_it_continues(prefix: str, worker: Start) -> None:
    with running() as daemon:
        one = worker(LOCKLESS, BRICKD_SERVICE="api")
        one.paused()
        daemon.until("worker_died")
        until(lambda: not find(prefix))
        document = daemon.ask("/status")
        assert document["ledger"]["spans"]["summarized"] == 10
        assert document["ledger"]["deferred"]["bounded"] == 10
        one.go()
        more = one.next_report()
        one.paused()
        document = daemon.once("/status?over=start", lambda answer: answer["ledger"]["deferred"]["bounded"] >= 20)
        (entry,) = document["workers"]
        assert (entry["name"], entry["state"]) == ("api/0", "live")
        # Some of ten deferred starts may be missing: those that were recorded before the worker noticed the removal.
        (deferred,) = [each for each in document["bricks"] if each["bounded"]]
        assert deferred["count"] == document["ledger"]["deferred"]["bounded"]
        assert 20 <= deferred["count"] <= 30
        assert document["ledger"]["spans"]["summarized"] == 30 + more


@pytest.mark.slow
def test_a_stopped_worker_without_its_lock_counts_once_without_a_daemon(prefix: str, worker: Start) -> None:
    one = worker(LOCKLESS, BRICKD_SERVICE="api")
    one.paused()
    with running() as daemon:
        daemon.until("worker_died")
        until(lambda: not find(prefix))
    one.go()
    more = one.next_report()
    one.paused()
    (alone,) = SharedMemory().survey().workers
    assert (alone.name, alone.reading.alive) == ("api/0", True)
    assert alone.ledger.spans["summarized"] == 30 + more
    assert alone.reading.deferred["bounded"] == 10
    with running() as daemon:
        document = daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["bounded"] >= 20)
        (entry,) = document["workers"]
        assert (entry["name"], document["ledger"]["spans"]["summarized"]) == ("api/0", 30 + more)


@pytest.mark.slow
def test_a_worker_whose_segment_is_removed_continues_in_another(prefix: str, compiled: Compile) -> None:
    with running() as daemon, native(program(compiled, "lost", *ALERT), BRICKD_SERVICE="api") as one:
        order(one, "bdddf")
        order(one, "m")
        daemon.until("worker_found")
        daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["bounded"] >= 3)
        (file,) = find(prefix)
        (SHM / file).unlink()
        (more,) = order(one, "w")
        order(one, "ddfm")
        assert "its old segment was removed" in daemon.until("worker_moved")["text"]
        document = daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["bounded"] >= 5)
        (entry,) = document["workers"]
        assert (entry["name"], entry["state"]) == ("api/0", "live")
        assert document["ledger"]["spans"]["summarized"] == 200 + more
        assert document["ledger"]["deferred"]["started"] == 5


@pytest.mark.slow
def test_ten_thousand_files_take_bounded_time_and_memory(shared: Shared) -> None:
    before = shared.newest()
    for number in range(10_000):
        (SHM / f".{shared.prefix}{number}").write_bytes(b"\1" * 16)
    for number in range(10_000):
        (SHM / f".{shared.prefix}{number}").rename(SHM / f"{shared.prefix}{number}")
    shared.goes_on()
    shared.daemon.once("/workers", lambda answer: sum(each["together"] for each in answer["workers"]) >= 10_002)
    shared.goes_on()
    shared.daemon.until("quarantined", before)
    assert shared.events(before)[0]["number"] == before + 1, "no earlier event is forgotten"
    with open(f"/proc/{shared.daemon.pid}/status") as status:
        (kib,) = [int(line.split()[1]) for line in status if line.startswith("VmRSS")]
    assert kib < 400_000
    print(f"{kib} KiB, {len(shared.events(before))} events")
