"""Records of removed workers in a daemon's checkpoint: each counts once, even if the daemon is killed at any moment."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from typing import Any

import pytest
from faults import Start
from machines import Machine, machine
from removals import RECORD, file_of, record_of, records, takes_along
from verbs import brickd, document, started

from brickd.base.paths import runtime
from brickd.daemon.collector import STILL_NS
from brickd.datasources.shared_memory import SharedMemory
from brickd.model import retained_workers
from brickd.model.background import Background
from brickd.model.worker_survey import survey
from brickd.shm import _reader, removed_file, removed_workers
from brickd.shm.removed_workers import Removals, RemovedWorker, WorkerCounts
from brickd.shm.segment_files import find
from brickd.state import checkpoint
from brickd.state.checkpoint import decode, encode
from brickd.state.daemon_state import Memory

ONE, TWO, THREE = (bytes([n]) * 16 for n in (1, 2, 3))


def append(prefix: str, uuid: bytes, spans: int, **process: int) -> None:
    assert _reader.append_removed(prefix, record_of(uuid, spans, **process))


def counted(daemon: Machine) -> tuple[int, int]:
    """Return the spans that the daemon shows, and the spans that it counts as removed."""
    found = daemon.survey()
    shown = sum(each.ledger.spans["begun"] for each in found.workers)
    return shown, sum(each.counts.spans for each in found.removed)


def without_a_daemon(prefix: str, kept: bytes) -> tuple[int, int]:
    """Return the same two counts for a reader that reads the checkpoint itself, without a daemon."""
    found = survey(prefix, decode(kept).background() if kept else Background())
    shown = sum(each.ledger.spans["begun"] for each in found.workers)
    return shown, sum(each.counts.spans for each in found.removed)


def test_a_daemon_folds_records_into_its_checkpoint_and_empties_the_file(prefix: str) -> None:
    append(prefix, ONE, 5)
    append(prefix, TWO, 7)
    append(prefix, ONE, 5)
    assert without_a_daemon(prefix, b"") == (0, 12)
    with machine(prefix) as daemon:
        assert counted(daemon) == (0, 12)
        assert records(prefix) == []
        assert without_a_daemon(prefix, daemon.kept) == (0, 12)
        append(prefix, THREE, 9)
        assert counted(daemon) == (0, 21), "the counts are complete even before the next listing"
        daemon.tick()
        assert (counted(daemon), records(prefix)) == ((0, 21), [])
        kept = daemon.kept
    with machine(prefix, decode(kept)) as successor:
        assert counted(successor) == (0, 21)
        append(prefix, ONE, 5)  # this record arrives late
        assert counted(successor) == (0, 21)
        successor.tick()
        assert (counted(successor), records(prefix)) == ((0, 21), [])


def test_folded_records_are_reported_once(prefix: str) -> None:
    append(prefix, ONE, 5)
    append(prefix, TWO, 7)
    reported: list[tuple[str, str]] = []
    with machine(prefix, log_event=lambda kind, text, **_: reported.append((kind, text))) as daemon:
        daemon.tick()
        append(prefix, ONE, 5)
        daemon.tick()
    assert reported == [
        ("workers_removed", "12 spans of 2 removed workers are counted as removed, because no daemon kept their totals")
    ]


def test_a_reader_restarts_when_a_daemon_folds_records_after_it_read_the_checkpoint(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(prefix, ONE, 5)
    runtime().directory.mkdir(exist_ok=True)
    scandir = os.scandir

    def meanwhile(path: str) -> object:
        monkeypatch.setattr(os, "scandir", scandir)
        with machine(prefix, keep=lambda kept: checkpoint.save(runtime().checkpoint, kept)):
            assert records(prefix) == []
        return scandir(path)

    monkeypatch.setattr(os, "scandir", meanwhile)
    assert [each.counts.spans for each in SharedMemory().survey().removed] == [5]


def test_a_checkpoint_that_cannot_be_written_keeps_the_records(prefix: str) -> None:
    append(prefix, ONE, 5)

    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    with machine(prefix, keep=full) as daemon:
        assert (counted(daemon), len(records(prefix))) == ((0, 5), 1)


def test_a_file_with_newer_records_is_not_emptied(prefix: str) -> None:
    append(prefix, ONE, 5)
    before = removed_file.look(prefix).content
    append(prefix, TWO, 7)
    assert not removed_file.truncate(prefix, before)
    assert len(records(prefix)) == 2
    assert removed_file.truncate(prefix, removed_file.look(prefix).content)
    assert records(prefix) == []
    assert not removed_file.truncate(f"{prefix}none-", b"")


@pytest.mark.parametrize("kind", [fcntl.F_RDLCK, fcntl.F_WRLCK])
def test_a_file_that_a_worker_still_appends_to_is_emptied_later(prefix: str, kind: int) -> None:
    append(prefix, ONE, 5)
    with machine(prefix) as daemon:
        append(prefix, TWO, 7)
        with file_of(prefix).open("r+b") as opened:
            fcntl.fcntl(opened.fileno(), fcntl.F_OFD_SETLK, struct.pack("@hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
            daemon.tick()
            assert (counted(daemon), len(records(prefix))) == ((0, 12), 1)
        daemon.tick()
        assert (counted(daemon), records(prefix)) == ((0, 12), [])


def test_a_file_is_not_emptied_while_a_reader_surveys(prefix: str) -> None:
    with machine(prefix) as daemon:
        append(prefix, ONE, 5)
        with daemon.loop.roster.reading:
            daemon.loop.keep(daemon.now_ns)
            assert len(records(prefix)) == 1
        daemon.tick()
        assert records(prefix) == []


@pytest.mark.parametrize("content", [b"x", b"x" * RECORD, b"\0" * (RECORD + 1)])
def test_invalid_records_are_removed_with_the_folded_ones(prefix: str, content: bytes) -> None:
    append(prefix, ONE, 5)
    with file_of(prefix).open("ab") as opened:
        opened.write(content)
    with machine(prefix) as daemon:
        assert (counted(daemon), file_of(prefix).stat().st_size) == ((0, 5), 0)


@pytest.mark.ci
def test_a_full_file_takes_records_again_after_a_daemons_look(worker: Start, prefix: str) -> None:
    append(prefix, ONE, 5)
    file_of(prefix).write_bytes(file_of(prefix).read_bytes() * _reader.REMOVED_MAX)
    assert not _reader.append_removed(prefix, record_of(TWO, 7))
    with machine(prefix) as daemon:
        append(prefix, TWO, 7)
        assert counted(daemon) == (0, 12)


# ---- workers with totals in the checkpoint


def buried(worker: Start, prefix: str, daemon: Machine, spans: int) -> bytes:
    """Start and kill a worker whose totals the daemon has; return its uuid."""
    process = worker(f'for _ in range({spans}):\n    with brick.span("b"): pass\npause()')
    process.paused()
    daemon.tick()
    (file,) = find(prefix)
    process.kill()
    daemon.now_ns += STILL_NS
    daemon.tick()
    assert find(prefix) == []
    return bytes.fromhex(file.removeprefix(prefix))


@pytest.mark.ci
def test_a_record_adds_only_counts_missing_from_the_retained_totals(
    worker: Start, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained_workers, "GONE_MAX", 1)
    with machine(prefix) as daemon:
        one = buried(worker, prefix, daemon, 10)
        append(prefix, one, 10)
        assert counted(daemon) == (10, 0)
        daemon.tick()
        assert (counted(daemon), records(prefix)) == ((10, 0), [])
        append(prefix, one, 13)
        daemon.tick()
        assert counted(daemon) == (10, 3)
        two = buried(worker, prefix, daemon, 100)
        assert [each.workers for each in daemon.loop.memory.older.values()] == [1]
        assert counted(daemon) == (110, 3)
        append(prefix, one, 13)
        append(prefix, two, 100)
        assert counted(daemon) == (110, 3), "the worker is in a merged entry, and is not counted again"
        daemon.tick()
        assert without_a_daemon(prefix, daemon.kept) == counted(daemon) == (110, 3)


def test_forgotten_totals_count_as_removed_and_are_no_problem(worker: Start, prefix: str) -> None:
    with machine(prefix) as daemon:
        one = buried(worker, prefix, daemon, 10)
        append(prefix, one, 13)
        daemon.tick()
        with daemon.loop.roster.lock:
            daemon.loop.roster.forget([one.hex()])
        assert counted(daemon) == (0, 13)
        append(prefix, one, 13)
        daemon.tick()
        assert without_a_daemon(prefix, daemon.kept) == counted(daemon) == (0, 13)
        assert sum(each.counts.spans for each in daemon.survey().removed if each.asked) == 10


def test_a_worker_found_to_continue_in_another_segment_is_not_removed(worker: Start, prefix: str) -> None:
    with machine(prefix) as daemon:
        append(prefix, ONE, 7)
        daemon.tick()
        assert counted(daemon) == (0, 7)
        process = started(worker)
        (file,) = find(prefix)
        takes_along(file, ONE)
        daemon.tick()
        assert counted(daemon) == (200, 0)
        append(prefix, ONE, 7)
        daemon.tick()
        assert (counted(daemon), records(prefix)) == ((200, 0), [])
        process.kill()
        daemon.now_ns += STILL_NS
        daemon.tick()
        append(prefix, ONE, 7)
        daemon.tick()
        assert without_a_daemon(prefix, daemon.kept) == counted(daemon) == (200, 0)


def test_a_record_of_a_lost_segment_adds_nothing_after_its_successor_is_merged(
    worker: Start, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine(prefix) as daemon:
        process = started(worker)
        (file,) = find(prefix)
        takes_along(file, ONE)
        daemon.tick()
        process.kill()
        daemon.now_ns += STILL_NS
        daemon.tick()
        append(prefix, ONE, 7)
        daemon.tick()
        assert counted(daemon) == (200, 0)
        monkeypatch.setattr(retained_workers, "GONE_MAX", 0)
        buried(worker, prefix, daemon, 10)
        assert [each.workers for each in daemon.loop.memory.older.values()] == [2]
        assert without_a_daemon(prefix, daemon.kept) == counted(daemon) == (210, 0)


# ---- limits


COUNTS = WorkerCounts(spans=3, details=1, events=2, marks=4, lost=5)


def of(number: int, service: str = "api", *, asked: bool = False, counts: WorkerCounts = COUNTS) -> RemovedWorker:
    reason = _reader.REMOVED_PRUNED if asked else _reader.REMOVED_ROOM
    return RemovedWorker(f"{number:032x}", "", service, number, "tp1", reason, 10, 20, asked, 1, counts)


def spans(of: Removals) -> int:
    return sum(each.counts.spans for each in (*of.alone.values(), *of.sums.values()))


def test_the_oldest_records_over_the_limit_are_merged_by_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_workers, "ALONE_MAX", 2)
    removals = Removals()
    removals.fold([of(1), of(2, "batch"), of(3, asked=True), of(4), of(5), of(6)])
    assert removals.limit({of(2).uuid}) == [of(n).uuid for n in (1, 3, 4)]
    assert list(removals.alone) == [of(n).uuid for n in (2, 5, 6)], "the total of the second worker is shown elsewhere"
    assert {key: (each.workers, each.counts) for key, each in removals.sums.items()} == {
        ("api", False): (2, COUNTS.and_(COUNTS)),
        ("api", True): (1, COUNTS),
    }
    assert spans(removals) == 18
    removals.take_note()
    assert all(each.asked for each in (*removals.alone.values(), *removals.sums.values()))
    assert [(key, each.workers) for key, each in removals.sums.items()] == [(("api", True), 3)]
    assert spans(removals) == 18


def test_a_merged_record_that_is_written_again_later_counts_once(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_workers, "ALONE_MAX", 1)
    with machine(prefix) as daemon:
        for uuid, spans in ((ONE, 5), (TWO, 7), (THREE, 9)):
            append(prefix, uuid, spans)
            daemon.tick()
        assert list(daemon.loop.memory.removed.alone) == [THREE.hex()]
        append(prefix, ONE, 5)
        assert counted(daemon) == (0, 21)
        daemon.tick()
        assert without_a_daemon(prefix, daemon.kept) == counted(daemon) == (0, 21)
        assert list(daemon.loop.memory.removed.alone) == [THREE.hex()], "the worker gets no entry of its own again"


@pytest.mark.parametrize("order", ["lost first", "heir first", "lost again"])
def test_a_worker_that_continued_elsewhere_counts_once_after_merging(
    prefix: str, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(removed_workers, "ALONE_MAX", 1)
    lost, heir = (ONE, 5, 0), (TWO, 7, int.from_bytes(ONE[:8], "little"))
    orders = {"lost first": (lost, heir), "heir first": (heir, lost), "lost again": (lost, heir)}
    with machine(prefix) as daemon:
        for uuid, spans, took in (*orders[order], (THREE, 9, 0)):
            append(prefix, uuid, spans, took=took)
            daemon.tick()
        assert [each.counts.spans for each in daemon.loop.memory.removed.sums.values()] == [7]
        if order == "lost again":
            append(prefix, ONE, 5)
        assert counted(daemon) == (0, 16)
        daemon.tick()
        assert without_a_daemon(prefix, daemon.kept) == counted(daemon) == (0, 16)


def test_a_shown_worker_is_not_merged(worker: Start, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_workers, "ALONE_MAX", 1)
    started(worker)
    (file,) = find(prefix)
    with machine(prefix) as daemon:
        append(prefix, bytes.fromhex(file.removeprefix(prefix)), 200)
        daemon.tick()
        append(prefix, ONE, 5)
        daemon.tick()
        assert counted(daemon) == (200, 5)


def test_services_beyond_the_limit_are_merged_into_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_workers, "SERVICES_MAX", 2)
    removals = Removals()
    for service in ("a", "b", "c", "d", "a"):
        removals.add(service, False, 1, COUNTS)
    assert {service: each.workers for (service, _), each in removals.sums.items()} == {"a": 2, "b": 1, "others": 2}


def test_a_merged_record_shows_its_number_of_workers(prefix: str) -> None:
    memory = Memory(prefix)
    memory.removed.fold([of(1)])
    memory.removed.add("api", False, 3, COUNTS)
    runtime().directory.mkdir(exist_ok=True)
    checkpoint.save(runtime().checkpoint, encode(memory))
    first, second = document("workers")["removed"]
    assert (first["uuid"], first["together"], first["reason"]) == (of(1).uuid, 1, "room")
    assert second == {
        **dict.fromkeys(("uuid", "index", "coordinates", "reason", "started", "removed")),
        **{"service": "api", "together": 3, **COUNTS._asdict()},
    }
    assert document("status")["removed"] == {"workers": 4, "spans": 6, "unasked_workers": 4, "unasked_spans": 6}
    assert "6 spans of 4 removed workers are missing in all totals" in brickd("status").stdout


# ---- in a checkpoint


def test_removals_survive_encoding_and_decoding() -> None:
    removals = Removals()
    removals.fold([of(1), of(2, asked=True)])
    removals.add("api", False, 2, COUNTS)
    removals.add("api", True, 4, COUNTS)
    memory = Memory("brickd-", removed=removals)
    assert decode(encode(memory)).removed == removals
    older = json.loads(encode(memory).partition(b"\n")[2])
    del older["removed"]
    assert Memory.of(older).removed == Removals(), "an earlier version of brickd stored no removed workers"


WRONG: dict[str, Any] = {
    "no list": 7,
    "one list": [[]],
    "a worker without counts": [[["00", "", "api", 1, "", 1, 2, 3, False, 1]], []],
    "a number for a service": [[["00", "", 7, 1, "", 1, 2, 3, False, 1, [0, 0, 0, 0, 0]]], []],
    "a fraction": [[["00", "", "api", 1, "", 1, 2, 3, False, 1, [0.5, 0, 0, 0, 0]]], []],
    "negative count": [[], [["", "", "api", -1, "", 0, 0, 0, False, 3, [-1, 0, 0, 0, 0]]]],
    "a count that is a truth": [[], [["", "", "api", -1, "", 0, 0, 0, False, 3, [True, 0, 0, 0, 0]]]],
    "too few counts": [[], [["", "", "api", -1, "", 0, 0, 0, False, 3, [1, 0, 0, 0]]]],
    "too many counts": [[], [["", "", "api", -1, "", 0, 0, 0, False, 3, [1, 0, 0, 0, 0, 0]]]],
    "a number for a truth": [[], [["", "", "api", -1, "", 0, 0, 0, 0, 3, [1, 0, 0, 0, 0]]]],
}


@pytest.mark.parametrize("what", WRONG)
def test_invalid_removals_are_refused(what: str) -> None:
    whole = json.loads(encode(Memory("brickd-")).partition(b"\n")[2])
    with pytest.raises((ValueError, TypeError)):
        Memory.of({**whole, "removed": WRONG[what]})


# ---- acknowledgement by a person


@pytest.mark.parametrize("asked", ["with a daemon", "without a daemon"])
def test_prune_ends_the_problem_and_keeps_the_count(prefix: str, asked: str) -> None:
    append(prefix, ONE, 5)
    append(prefix, TWO, 7)
    if asked == "without a daemon":
        assert document("status", "--check", "--allow-empty", code=1)["conditions"][-2]["seen"] == "12 removed"
        assert (
            "would no longer report 2 removed workers as a problem; their spans stay counted"
            in brickd("prune", "--dry-run").stdout
        )
        assert len(records(prefix)) == 2
        done = brickd("prune")
        assert (
            done.stdout == "brickd status no longer reports 2 removed workers as a problem; their spans stay counted\n"
        )
        assert records(prefix) == []
    else:
        with machine(prefix) as daemon:
            daemon.loop.memory.removed.take_note()
            daemon.loop.change()
            daemon.tick()
            runtime().directory.mkdir(exist_ok=True)
            checkpoint.save(runtime().checkpoint, daemon.kept)
    status = document("status")
    assert (status["ledger"]["spans"]["removed"], status["problems"]) == (12, [])
    assert document("status", "--check", "--allow-empty")["healthy"]
    append(prefix, THREE, 9)
    assert document("status", "--check", "--allow-empty", code=1)["conditions"][-2]["seen"] == "9 removed"


def test_prune_keeps_the_checkpoint_of_another_prefix(prefix: str) -> None:
    append(prefix, ONE, 5)
    runtime().directory.mkdir(exist_ok=True)
    checkpoint.save(runtime().checkpoint, encode(Memory("other-")))
    done = brickd("prune")
    assert (done.returncode, "describes the segments other-*" in done.stderr) == (0, True)
    left = checkpoint.load(runtime().checkpoint)
    assert left is not None
    assert (left.prefix, len(records(prefix))) == ("other-", 1)
