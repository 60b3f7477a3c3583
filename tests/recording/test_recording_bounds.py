"""The limits of a recording: the size of its files, the amount of waiting data, the memory that a reader needs."""

from __future__ import annotations

import fcntl
import stat
import threading
from pathlib import Path

import pytest
from checked_record import CheckedRecord, Tensor
from made_up_workers import MadeUp
from tapes import BLOCK, END_BYTES, FIRST, read, tape
from test_recording_files import Machine
from test_recording_turns import SMALL, Many, Written

from brickd.errors import BrickdError
from brickd.model.event_log import Event
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker
from brickd.query.orders import StartRecording
from brickd.recording.body_codec import read_tables
from brickd.recording.chunks import RingRecords
from brickd.recording.damage import DAMAGES_MAX, End
from brickd.recording.file_index import RecordedEvents
from brickd.recording.newest_slots import Tails
from brickd.recording.rotation import Put, Volumes
from brickd.recording.session import Recorder, Recordings
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.records import SLOT_BYTES

LIMIT = 1 << 16
SNAPSHOT = _reader.CHUNK_SNAPSHOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.brick"


def locked(path: Path) -> bool:
    """Return whether any process holds the lock of the file."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


# ---- the files of a recording


def test_a_file_is_private_and_locked_while_it_is_written(path: Path) -> None:
    volumes = Volumes(path, LIMIT, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert locked(path)
    volumes.leave()
    assert not locked(path)


def test_no_recording_begins_after_the_end_of_the_daemon(path: Path) -> None:
    recordings = Recordings(Machine())
    recordings.close()
    with pytest.raises(BrickdError, match="the daemon is stopping"):
        recordings.begin(StartRecording(), path)
    assert not path.exists()


def test_an_existing_file_is_never_overwritten(path: Path) -> None:
    path.write_bytes(b"mine")
    with pytest.raises(BrickdError, match=r"run\.brick: cannot be written: File exists"):
        Volumes(path, LIMIT, 2)
    assert path.read_bytes() == b"mine"
    other = path.with_name("other.brick")
    volumes = Volumes(other, LIMIT, 2)
    taken = path.with_name("other.1.brick")
    taken.touch()
    assert not volumes.next()
    assert (len(volumes.kept), volumes.trouble) == (1, f"{taken}: File exists")
    taken.unlink()
    assert volumes.next()
    assert [(each.number, each.path) for each in volumes.kept] == [(0, other), (1, taken)]
    assert volumes.trouble == ""
    volumes.leave()


def test_a_file_that_cannot_be_started_is_removed(path: Path) -> None:
    with pytest.raises(BrickdError, match="cannot be written: File too large"):
        Volumes(path, FIRST + END_BYTES - 1, 2)
    assert not path.exists()


def test_an_eighth_of_a_file_is_reserved_from_records(path: Path) -> None:
    volumes = Volumes(path, LIMIT, 2)
    while volumes.file.left_bytes > LIMIT // 8:
        assert not volumes.low
        much = volumes.file.left_bytes > LIMIT // 4
        assert volumes.put(SNAPSHOT, 0, bytes(1024 if much else 0)) is Put.DONE
    assert (volumes.file.left_bytes, volumes.low) == (LIMIT // 8, False)
    volumes.put(SNAPSHOT, 0, b"")
    assert volumes.low
    volumes.leave()


def test_the_configured_number_of_files_is_kept_and_earlier_ones_are_counted(path: Path) -> None:
    volumes = Volumes(path, LIMIT, 2)
    seen = []
    for _ in range(3):
        assert volumes.next()
        volumes.close_last_but_one(b"{}")
        seen.append((volumes.removed, sorted(each.name for each in path.parent.iterdir())))
    assert seen == [
        (0, ["run.1.brick", "run.brick"]),
        (1, ["run.1.brick", "run.2.brick"]),
        (2, ["run.2.brick", "run.3.brick"]),
    ]
    # When a new file begins, the file before it is closed immediately; the newest file stays open.
    ended = [(file, read(file.read_bytes()).end.ended, locked(file)) for file in sorted(path.parent.iterdir())]
    assert [each[1:] for each in ended] == [(True, False), (False, True)]
    volumes.end(b"{}")
    assert not locked(volumes.kept[-1].path)
    assert volumes.size == sum(file.stat().st_size for file in path.parent.iterdir())


def test_an_old_file_is_followed_by_another_once_it_has_a_snapshot(path: Path) -> None:
    def turned(length: int) -> list[bool]:
        machine = Many()
        machine.length = length
        made = Written(path.with_name(f"{length}.brick"), machine, max_age=3600)
        young = made.round()
        made.volumes._made_at -= 3600
        return [young, made.round()]

    assert turned(0) == [False, True]
    assert turned(SMALL) == [False, False], "no file has room for a snapshot"


# ---- pending data


def test_four_snapshots_wait_for_a_disk_and_a_fifth_is_counted(path: Path) -> None:
    machine, written = Machine(), threading.Event()
    machine.log_event = lambda *_, **__: written.wait()  # type: ignore[assignment,method-assign]
    recorder = Recorder(StartRecording(), path, machine)
    for number in range(5):
        recorder.take(Snapshot.of(machine.survey(), number, number))
    recorder.end("asked")
    written.set()
    recorder.join()
    # The six snapshots include one at the beginning and one at the end.
    assert (recorder.document()["snapshots"], recorder.document()["not_recorded"]) == (6, {"snapshots": 1})


def test_names_are_repeated_with_every_sixth_snapshot(path: Path) -> None:
    made = MadeUp()
    made.begin("gemm")
    made.end()
    reading = made.reading()
    machine = Many()
    machine.survey = lambda: Survey([Worker("api/0", reading, ledger_of(reading))], [])  # type: ignore[method-assign]
    written = Written(path, machine, max_size=1 << 20)
    for _ in range(12):
        written.writer.look()
    written.writer.end("asked")
    kinds = (_reader.CHUNK_TABLES, SNAPSHOT)
    (file,) = written.files()
    stand = "".join("ts"[kinds.index(kind)] for kind, *_ in file if kind in kinds)
    assert stand == "tssssss" + "tssssss" + "ts"
    assert all(read_tables(body)[1] for kind, _, _, body in file if kind == kinds[0])


# ---- memory of a reader


def ring(first: int, records: int, inside: int = 0, lane: int = 0) -> RingRecords:
    """Return records of four slots each."""
    slots = b"".join(CheckedRecord(Tensor(number)).slots() for number in range(records))
    return RingRecords(1, lane, True, inside, first, slots[inside * SLOT_BYTES :])


@pytest.mark.ci
def test_the_newest_slots_and_a_quarter_more_are_kept() -> None:
    tails = Tails([0], 1)  # even the smallest limit keeps at least 1,024 slots
    tails.take(ring(100, 320))
    assert held(tails) == (100, 1280)
    tails.take(ring(1380, 1))
    assert held(tails) == (100 + 260, 1024)
    more = Tails([0], 2048)
    more.take(ring(0, 640))
    assert held(more) == (0, 2560)


def held(tails: Tails) -> tuple[int, int]:
    first, slots = tails.ring(0, events=True)
    return first, len(slots) // SLOT_BYTES


def test_after_a_gap_slots_are_kept_from_the_next_beginning_of_a_record() -> None:
    tails = Tails([0], 1)
    tails.take(ring(100, 2))
    tails.take(ring(108, 1))
    assert held(tails) == (100, 12)
    tails.take(ring(114, 3, inside=2))
    assert held(tails) == (116, 8)
    tails.take(RingRecords(1, 0, True, 9, 200, bytes(3 * SLOT_BYTES)))  # this chunk has only slots of an earlier record
    assert held(tails) == (203, 0)
    first = Tails([0], 1)
    first.take(ring(0, 3, inside=2))
    assert held(first) == (2, 10 - 2)
    tails.take(ring(203, 1, lane=7))
    assert held(tails) == (203, 0)
    assert tails.ring(7, events=True) == tails.ring(0, events=False) == (0, b"")


def test_a_hundred_damages_are_listed_and_further_ones_counted() -> None:
    end = End()
    for number in range(DAMAGES_MAX + 2):
        end.damage(number, number + 1, "why")
    assert (len(end.damages), end.damages_more) == (100, 2)
    for kind in (*range(17), 3, 17, 16):
        end.skip(kind)
    assert (len(end.skipped), end.skipped[3], end.skipped_more) == (16, 2, 3)
    assert "damaged in 2 more places" in end.words()
    assert "3 chunks ignored: this brickd does not know the other kinds either" in end.words()


@pytest.mark.parametrize(
    ("numbers", "since", "events", "missed"),
    [
        (range(5, 12), 0, [9, 10, 11], 4),
        (range(5, 12), 4, [9, 10, 11], 4),
        (range(5, 12), 5, [9, 10, 11], 3),
        (range(5, 12), 8, [9, 10, 11], 0),
        (range(5, 12), 9, [10, 11], 0),
        (range(5, 12), 11, [], 0),
        (range(5, 12), 12, [], 0),
        (range(11, 4, -1), 0, [9, 10, 11], 4),
        ((5, 7), 0, [5, 7], 1),
        ((), 3, [], 0),
    ],
)
def test_the_newest_events_are_shown_and_earlier_ones_count_as_missed(
    numbers: range, since: int, events: list[int], missed: int
) -> None:
    kept = RecordedEvents(3)
    for number in numbers:
        kept.add(Event(number, 0, "tried", "", None, None, None))
    page = kept.since(since)
    assert ([each.number for each in page.events], page.missed) == (events, missed)
    assert page.newest == max(numbers, default=0)


# ---- where a file ends


def test_a_file_that_ends_after_a_chunk_may_be_in_progress_else_truncated() -> None:
    whole = tape([(SNAPSHOT, 1, b"one"), (SNAPSHOT, 2, b"two")])
    behind = len(whole) - END_BYTES
    for more, reported in (
        (0, "has no end: its writer still runs or was killed"),
        (1, "was cut at byte"),
        (BLOCK - 1, "was cut at byte"),
    ):
        seen = read(whole[: behind + more])
        assert [body for *_, body in seen.written] == [b"one", b"two"]
        assert seen.end.why.startswith(reported)
        assert ("within the head of a chunk" in seen.end.why) is (more > 0)
        assert not seen.end.damages
    torn = read(whole[:behind] + b"x" * BLOCK)
    assert [(each.start, each.end) for each in torn.end.damages] == [(behind, behind + BLOCK)]
    assert torn.end.why.startswith("has no end")
