"""Files of recordings that are cut, damaged, half written, hostile, or belong to other users."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Start
from forge import golden, segment_of
from rings import SLOT, rings, spans
from tapes import flush, forged
from test_stragglers_verb import snapshots as made_up_snapshots
from verbs import brickd, document, started

import brickd as brickd_for_python
from brickd.analysis.timing.monitor import Lookout
from brickd.api import event_stream
from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND
from brickd.datasources.shared_memory import SharedMemory
from brickd.datasources.world import DaemonStatus
from brickd.errors import BrickdError, SegmentRefused, SegmentUnopened, WrongQuestion
from brickd.model.event_log import KEPT, Event, Log, Page
from brickd.model.survey_snapshot import EVERY_NS, Snapshot
from brickd.model.worker_origins import Origin
from brickd.model.workers import Survey, Usage, Worker
from brickd.query.orders import StartRecording
from brickd.query.queries import BricksQuery, HistoryQuery, InspectQuery
from brickd.recording import body_codec as bodies
from brickd.recording.chunks import open_recording
from brickd.recording.file_index import FileIndex
from brickd.recording.replay import opened
from brickd.recording.ring_taps import Rings
from brickd.recording.session import Recorder
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.views import bricks, history, inspect

STILL = {"BRICKD_CLOCK": "monotonic", "BRICKD_SERVICE": "api"}


class Read(Log):
    """An event log that knows which of its events have been read."""

    def __init__(self) -> None:
        super().__init__()
        self._read, self._changed = 0, threading.Condition()

    def since(self, number: int) -> Page:
        page = super().since(number)
        with self._changed:
            self._read = page.newest
            self._changed.notify_all()
        return page

    def until_read(self, number: int) -> None:
        """Wait until the event of this number has been read."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._read >= number, 60)


class Machine(SharedMemory):
    """Lets a recording read shared memory without a daemon's loop."""

    def __init__(self) -> None:
        self.events = Read()
        self.alive = threading.Event()
        self.alive.set()

    def daemon(self) -> DaemonStatus:  # type: ignore[override]
        return DaemonStatus("0.1.0", os.getpid(), time.time_ns(), 0, "brickd-test-")

    def lives(self, names: tuple[str, ...]) -> bool:
        return self.alive.is_set()

    def drain_into(self, rings: Rings, spool: _reader.Spool | None) -> None:
        rings.into(spool)

    def log_event(self, kind: str, text: str, *, command: str | None = None) -> None:
        self.events.add(kind, text, command=command)


def recorded(path: Path, snapshots: int = 1, **order: Any) -> Recorder:
    """Make a complete recording of this machine, with a snapshot every ten seconds."""
    machine = Machine()
    recorder = Recorder(StartRecording(**order), path, machine)
    now_ns, at_ns = time.monotonic_ns(), time.time_ns()
    for number in range(1, snapshots + 1):
        later = number * EVERY_NS
        recorder.take(Snapshot.of(machine.survey(), now_ns + later, at_ns + later))
        # Wait until this snapshot is written, because the recorder drops snapshots if more than a few wait.
        machine.events.until_read(machine.events.add("looked", f"for the {number}. time").number)
    recorder.end("asked")
    recorder.join()
    return recorder


def test_a_recording_that_ends_at_once_sends_its_begin_and_end(tmp_path: Path) -> None:
    async def over() -> Recorder:
        return recorded(tmp_path / "run.brick")

    async def received() -> list[bytes]:
        return [event.split(b"\n")[0] async for event in event_stream.recording(event_stream.Reader(), over)]

    assert asyncio.run(received()) == [b"event: begun", b"event: done"]


@pytest.fixture
def file(worker: Start, tmp_path: Path) -> Path:
    """Make a recording of one idle worker."""
    started(worker, **STILL)
    path = tmp_path / "run.brick"
    recorded(path)
    return path


def chunks(path: Path) -> list[tuple[int, int, int, bytes]]:
    """Return the kind, the offset, the time and the body of each chunk."""
    with open_recording(str(path)) as form:
        return [(each.kind, each.offset, each.at_ns, each.body) for each in form]


@contextmanager
def written(path: Path) -> Iterator[_reader.Recording]:
    """Write a file of a recording, chunk by chunk."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        yield _reader.Recording(fd, 1 << 26, id=bytes(16), made_ns=1)
    finally:
        os.close(fd)


@pytest.mark.ci
def test_a_truncated_recording_opens_up_to_the_truncation(file: Path) -> None:
    whole, found = file.read_bytes(), chunks(file)
    before = found[-1][1]  # the last chunk has the reason why the recording ended
    for cut in (before, before + 70, len(whole) - 64, len(whole) - 1):
        file.write_bytes(whole[:cut])
        reported = brickd("status", "--over", "start", str(file), "--json")
        assert reported.returncode == 0
        assert json.loads(reported.stdout)["workers"][0]["ledger"]["spans"]["summarized"] == 200
        assert any(f"{file}: {why}" in reported.stderr for why in ("was cut", "has no end"))
        (one,) = json.loads(reported.stdout)["recording"]["files"]
        assert one["problem"]


def test_a_recording_without_a_complete_snapshot_names_the_truncation(file: Path) -> None:
    first = next(offset for kind, offset, _, _ in chunks(file) if kind == _reader.CHUNK_SNAPSHOT)
    os.truncate(file, first + 100)
    reported = brickd("status", str(file))
    assert reported.returncode == 2
    refused = reported.stderr.splitlines()[-1]
    assert refused.startswith(f"brickd: {file}: has no complete snapshot: was cut at byte {first + 100}")
    assert refused.endswith("(wait if it is still written, or record again)")


@pytest.mark.ci
def test_damage_affects_only_its_chunk_and_is_reported_with_its_place(file: Path) -> None:
    whole = file.read_bytes()
    for kind, offset, _, body in chunks(file):
        damaged = bytearray(whole)
        damaged[offset + 64 + len(body) // 2] ^= 1
        file.write_bytes(damaged)
        reported = brickd("workers", str(file))
        assert f"damaged from byte {offset} to " in reported.stderr, kind
        assert (reported.returncode, "api/0" in reported.stdout) == (0, True)


def test_an_inconsistent_snapshot_is_damaged_and_the_previous_one_is_shown(file: Path, tmp_path: Path) -> None:
    found = chunks(file)
    last = max(number for number, each in enumerate(found) if each[0] == _reader.CHUNK_SNAPSHOT)
    other = tmp_path / "other.brick"
    with written(other) as recording:
        for number, (kind, _, at_ns, body) in enumerate(found):
            recording.append(kind, at_ns, body.replace(b'"clock":3', b'"clock":9') if number == last else body)
        recording.close()
    with opened([str(other)]) as world:
        assert [worker.name for worker in world.survey().workers] == ["api/0"]
        (damage,) = world.document()["files"][0]["damages"]
        assert "expected a clock" in damage["why"]
        assert world.document()["shown"] != document("status", str(file))["recording"]["shown"]


def test_a_recording_of_a_newer_minor_is_read_and_unknown_chunks_counted(file: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.brick"
    with written(newer) as recording:
        for kind, _, at_ns, body in chunks(file):
            recording.append(99, at_ns, b"of a later brickd")
            recording.append(kind, at_ns, body)
        recording.close()
    reported = brickd("status", str(newer), "--json")
    assert json.loads(reported.stdout)["recording"]["files"][0]["unknown_chunks"] == len(chunks(file))
    assert "ignored: this brickd does not know the kind 99" in reported.stderr


def test_a_file_that_is_not_a_recording_is_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    (tmp_path / "text.brick").write_text("no recording at all\n" * 20)
    (tmp_path / "empty.brick").write_bytes(b"")
    (tmp_path / "directory.brick").mkdir()
    later = bytearray(file.read_bytes())
    for title in (0, 64):
        struct.pack_into("<H", later, title + 8, 9)
    (tmp_path / "later.brick").write_bytes(later)
    for name in ("text", "empty", "directory", "later", "missing"):
        path = tmp_path / f"{name}.brick"
        reported = brickd("status", str(path))
        assert (reported.returncode, reported.stdout, reported.stderr.count("\n")) == (2, "", 1)
        assert reported.stderr.startswith(f"brickd: {path}: "), reported.stderr


@pytest.mark.ci
def test_files_of_a_set_are_one_recording_in_any_order(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    recorder = recorded(tmp_path / "run.brick", snapshots=120, max_size=1 << 16, files=3)
    answer = recorder.document()
    kept = [each["path"] for each in answer["files"]]
    assert (len(kept), sorted(os.listdir(tmp_path))) == (3, sorted(map(os.path.basename, kept)))
    assert answer["removed_files"] > 0
    assert answer["not_recorded"] == {}
    assert all(os.path.getsize(path) <= 1 << 16 for path in kept)
    for path in kept:  # each file can be read alone
        assert document("workers", path)["workers"][0]["name"] == "api/0"
    for given in (kept[:1], kept[:2], kept[::-1], kept[::2]):
        goes_on = "the recording continues in the next file" in brickd("status", *given).stderr
        assert goes_on == (kept[-1] not in given), "the next file is not mentioned if it was given"
    together = document("events", *reversed(kept))
    (alone,) = document("status", kept[-1])["recording"]["files"]
    assert [each["path"] for each in together["recording"]["files"]] == kept
    assert together["recording"]["files"][-1] == alone
    assert "1 file is missing between the given files" in brickd("status", kept[0], kept[2]).stderr
    assert "is the same file of its recording" in brickd("status", kept[0], kept[0]).stderr
    recorded(tmp_path / "other.brick")
    mixed = brickd("status", kept[0], str(tmp_path / "other.brick"))
    assert (mixed.returncode, "belongs to another recording than" in mixed.stderr) == (2, True)


def retold(chunk: bytes, old: str, new: str) -> bytes:
    """Return a body in which a name is replaced."""
    return chunk.replace(f'"{old}"'.encode(), f'"{new}"'.encode())


@pytest.mark.ci
def test_a_snapshot_is_read_with_the_names_valid_at_its_place(file: Path, tmp_path: Path) -> None:
    bodies_of = {kind: body for kind, _, _, body in chunks(file)}
    snapshot, table = bodies_of[_reader.CHUNK_SNAPSHOT], bodies_of[_reader.CHUNK_TABLES]
    assert b'"afresh":true' in table
    path = tmp_path / "other.brick"
    with written(path) as recording:
        for number in range(20):  # more generations of tables than a reader keeps in memory, with the same numbers
            recording.append(_reader.CHUNK_TABLES, number, retold(table, "norm", f"norm{number}"))
            recording.append(_reader.CHUNK_SNAPSHOT, number, snapshot)
            recording.append(_reader.CHUNK_SNAPSHOT, number, snapshot)
        recording.close()

    def seen(snapshots: Iterable[Snapshot]) -> list[tuple[int, bool]]:
        return [
            (each.at_ns, any(name and name[0] == f"norm{each.at_ns}" for name in worker.reading.names))
            for each in snapshots
            for worker in each.survey.workers
        ]

    with opened([str(path)]) as world, open_recording(str(path)) as form:
        backwards = [world.survey()]
        snapshots = (each.snapshot for each in FileIndex(form).snapshots())
        assert seen(snapshots) == [(number, True) for number in range(20) for _ in range(2)]
        earlier = world
        for _ in range(7):
            earlier = earlier.before()
            backwards.append(earlier.survey())
        names = [{name[0] for name in each.workers[0].reading.names if name} for each in backwards]
        assert [f"norm{19 - number // 2}" in each for number, each in enumerate(names)] == [True] * 8
        with pytest.raises(BrickdError, match=r"has 1 snapshot, expected 2 .*: record for longer$"):
            earlier.before()
        assert world.document()["files"][0]["damages"] == []


def test_tables_without_a_restart_mark_extend_earlier_ones(file: Path, tmp_path: Path) -> None:
    bodies_of = {kind: body for kind, _, _, body in chunks(file)}
    table = json.loads(bodies_of[_reader.CHUNK_TABLES])
    path = tmp_path / "other.brick"
    for first, second, names in (
        ({}, {}, ["api/0"]),  # a file of an older version does not have `afresh`
        ({}, {"afresh": False}, ["api/0"]),
        ({"afresh": True}, {}, ["api/0"]),
        ({}, {"afresh": True}, []),
    ):
        path.unlink(missing_ok=True)
        with written(path) as recording:
            for part in (
                {"names": table["names"], "paths": {}} | first,
                {"names": {}, "paths": table["paths"]} | second,
            ):
                recording.append(_reader.CHUNK_TABLES, 1, json.dumps(part).encode())
            recording.append(_reader.CHUNK_SNAPSHOT, 2, bodies_of[_reader.CHUNK_SNAPSHOT])
            recording.close()
        with opened([str(path)]) as world, open_recording(str(path)) as form:
            snapshots = [each.snapshot for each in FileIndex(form).snapshots()]
            assert [each.name for one in snapshots for each in one.survey.workers] == names
            assert bool(world.document()["files"][0]["damages"]) == (not names)


def test_names_are_written_completely_or_as_additions(worker: Start) -> None:
    started(worker, **STILL)
    one = Snapshot.of(SharedMemory().survey(), 1, 1)
    started(worker, "with brick.span('another'): pause()", **STILL)
    other = Snapshot.of(SharedMemory().survey(), 2, 2)
    known = set[int]()
    reported = [bodies.tables(each, known) for each in (one, one, other)]
    assert reported[1] is None
    assert [bodies.read_tables(each)[1] for each in reported if each is not None] == [True, False]
    known.clear()
    again = bodies.tables(other, known)
    assert again is not None
    assert bodies.read_tables(again)[1]


def everything() -> tuple[Snapshot, DaemonStatus, bodies.RecordingCounts]:
    """Return a snapshot in which every field is set and every number is different."""
    with segment_of(golden("1.7")) as segment:
        reading = replace(segment.read(), flags=2, asked_rate=7, left_out=0b101, drained=True)
    origins = (Origin("a" * 32, 11, 12, 13), Origin("b" * 32, 14, 15, 16))
    workers = [
        Worker("api/0", reading, ledger_of(reading), 3, Usage(12.5, 17), origins),
        Worker("api/1", reading, ledger_of(reading), 1, Usage(None, 18)),
        Worker("api/2", reading, ledger_of(reading)),
    ]
    refused = [SegmentRefused("one", "is none"), SegmentUnopened("other", "cannot be opened")]
    survey = Survey(workers, refused, words=("a note", "another"), clocks={0: (19, 20), 1: (21, 22)})
    status = DaemonStatus("0.1.0", 23, 24, 25, "prefix-", "no room", 26, "counts", "a full disk")
    return Snapshot.of(survey, 27, 28), status, bodies.RecordingCounts(29, 30, 31, {"spans": 32, "events": 33})


def written_and_read(without: Callable[[dict[str, Any]], None] = lambda _: None) -> tuple[bodies.Shown, Snapshot]:
    snapshot, status, counts = everything()
    body = bodies.tables(snapshot, set())
    assert body is not None
    found = json.loads(bodies.snapshot(snapshot, status, counts))
    without(found)
    return bodies.read_snapshot(json.dumps(found).encode(), 28, bodies.read_tables(body)[0]), snapshot


def test_every_field_of_a_snapshot_survives_writing_and_reading() -> None:
    shown, written = written_and_read()
    _, status, counts = everything()
    assert (shown.daemon, shown.counts) == (status, counts)
    read, of = shown.snapshot, written
    assert (read.now_ns, read.at_ns) == (of.now_ns, of.at_ns)
    assert (read.survey.words, dict(read.survey.clocks)) == (of.survey.words, dict(of.survey.clocks))
    assert [(type(error), error.path, error.reason) for error in read.survey.refused] == [
        (type(error), error.path, error.reason) for error in of.survey.refused
    ]
    for one, other in zip(read.survey.workers, of.survey.workers, strict=True):
        assert (one.name, one.together, one.usage, one.added) == (other.name, other.together, other.usage, other.added)
        for each in fields(one.reading):
            there, here = getattr(one.reading, each.name), getattr(other.reading, each.name)
            assert bytes(there) == bytes(here) if each.name in ("summaries", "latency") else there == here, each.name


def test_fields_missing_in_an_older_recording_have_empty_values() -> None:
    def older(found: dict[str, Any]) -> None:
        del found["clocks"]
        for worker in found["workers"]:
            for name in ("asked_rate", "left_out", "added"):
                del worker[name]
        for name in ("snapshots", "events", "records"):
            del found["counts"][name]

    shown, _ = written_and_read(older)
    assert shown.snapshot.survey.clocks == {}
    assert shown.counts == bodies.RecordingCounts(0, 0, 0, {"spans": 32, "events": 33})
    for each in shown.snapshot.survey.workers:
        assert (each.reading.asked_rate, each.reading.left_out, each.added) == (0, 0, ())


@pytest.mark.parametrize(
    ("member", "most"), [("asked_rate", _reader.RATE_ALL), ("together", 2**64 - 1), ("flags", 2**64 - 1)]
)
def test_numbers_of_a_worker_outside_of_their_limits_are_refused(member: str, most: int) -> None:
    least = 1 if member == "together" else 0

    def read(value: int) -> bodies.Shown:
        return written_and_read(lambda found: found["workers"][1].update({member: value}))[0]

    for value in (least, most):
        worker = read(value).snapshot.survey.workers[1]
        assert (worker.together if member == "together" else getattr(worker.reading, member)) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match="a whole number"):
            read(value)


def event_body(number: int) -> bytes:
    return bodies.event(Event(number, 10**9, "looked", f"for the {number}. time"))


def test_an_event_keeps_its_problem_and_may_come_from_a_recording_of_another_version() -> None:
    about = Event(7, 10**9, "worker_died", "api/0 died", "api", "api/0", None, "09d33a43")
    assert bodies.read_event(bodies.event(about)) == about
    without = about._replace(problem=None)
    assert len(json.loads(bodies.event(without))) == 7, "an earlier version expects 7 members"
    assert bodies.read_event(bodies.event(without)) == without
    members = json.loads(bodies.event(about))
    assert bodies.read_event(json.dumps([*members, {"a later": "member"}]).encode()) == about
    for broken in (members[:6], [*members[:7], 8], [*members[:7], 8, None]):
        with pytest.raises(ValueError, match=r"expected"):
            bodies.read_event(json.dumps(broken).encode())


@pytest.mark.ci
def test_the_newest_events_of_a_recording_are_kept_and_others_missed_as_live(tmp_path: Path) -> None:
    live = Log(99)
    numbers = list(range(100, 100 + 5 * KEPT // 2))
    paths = [tmp_path / "run.brick", tmp_path / "run.1.brick"]
    for part, path in enumerate(paths):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        recording = _reader.Recording(fd, 1 << 20, id=bytes(16), made_ns=1, number=part)
        for number in numbers[part::2]:  # the files may be given in any order
            recording.append(_reader.CHUNK_EVENTS, 1, event_body(number))
        recording.close()
        os.close(fd)
    for _ in numbers:
        live.add("looked", "")
    with opened(list(map(str, paths))) as world:
        for since in (99, 100, numbers[-KEPT] - 1, numbers[-KEPT], numbers[-2], numbers[-1], 2**63):
            page, expected = world.events.since(since), live.since(since)
            assert [each.number for each in page.events] == [each.number for each in expected.events]
            assert (page.missed, page.newest) == (expected.missed, expected.newest)
        # Events that were logged before the recording do not count as missing.
        assert world.events.since(0).missed == len(numbers) - KEPT


def test_events_that_were_not_recorded_count_as_missed(tmp_path: Path) -> None:
    with written(tmp_path / "run.brick") as recording:
        for number in (5, 6, 9, 9):
            recording.append(_reader.CHUNK_EVENTS, 1, event_body(number))
    with opened([str(tmp_path / "run.brick")]) as world:
        assert [world.events.since(since).missed for since in (0, 4, 5, 6, 7, 8, 9, 10)] == [2, 2, 2, 2, 1, 0, 0, 0]


@pytest.mark.ci
def test_the_memory_of_a_reader_does_not_grow_with_the_recording(file: Path, tmp_path: Path) -> None:
    bodies_of = {kind: body for kind, _, _, body in chunks(file)}
    table = json.loads(bodies_of[_reader.CHUNK_TABLES])
    del table["afresh"]
    held = []
    for many in (300, 900):
        path = tmp_path / f"{many}.brick"
        with written(path) as recording:
            for number in range(many):
                names = {str(int(each) + number): rows for each, rows in table["names"].items()}
                recording.append(_reader.CHUNK_TABLES, 1, json.dumps(table | {"names": names}).encode())
                recording.append(_reader.CHUNK_WORKERS, 1, json.dumps({f"{number:032x}": number}).encode())
                recording.append(_reader.CHUNK_SNAPSHOT, 1, b"{}")
        gc.collect()
        tracemalloc.start()
        with opened([str(path)]) as world:
            assert world.document()["files"][0]["snapshots"] == many
            held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert held[1] < held[0] * 1.1


def with_lanes(path: Path, lanes: int, snapshot: Snapshot, fill: Callable[[_reader.Recording], None]) -> None:
    """Make a recording of one worker with this number of lanes; `fill` adds more chunks."""
    (worker,) = snapshot.survey.workers
    _, lane, consumer = worker.reading.lanes[0]
    reading = replace(worker.reading, lanes=[(number, lane, consumer) for number in range(lanes)])
    shown = snapshot._replace(survey=snapshot.survey._replace(workers=[worker._replace(reading=reading)]))
    with written(path) as recording:
        fill(recording)
        # In this file, the tables come after the records. This happens if there was no room for the tables earlier.
        recording.append(_reader.CHUNK_WORKERS, 1, json.dumps({"00": 1, reading.uuid: 7}).encode())
        tables = bodies.tables(shown, set())
        assert tables is not None
        recording.append(_reader.CHUNK_TABLES, 1, tables)
        recording.append(_reader.CHUNK_SNAPSHOT, 1, bodies.snapshot(shown, None, bodies.RecordingCounts()))
        recording.close()


@pytest.mark.ci
def test_the_rings_of_a_worker_are_read_in_two_passes_whatever_their_number(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    lanes, each, many = 8, 5000, 3
    passes: list[int] = []

    def fill(recording: _reader.Recording) -> None:
        with rings(lanes=lanes, span_slots=1 << 13) as r:
            mine, other, spool = r.drain(), r.drain(), _reader.Spool()
            mine.record_into(spool, 7)
            other.record_into(spool, 1)
            for number in range(many):
                made = np.repeat(spans({}), each)
                made["sequence"] = np.arange(1, each + 1) + number * each
                for lane in range(lanes):
                    r.add(lane, "span", made)
                assert _reader.drain([mine, other])[2] == []
                flush(recording, spool)
                r.publish(mine)

    def reads(path: str, at: int, of: int) -> None:
        if not passes or at < passes[-1]:
            passes.append(at)
        passes[-1] = at

    path = tmp_path / "run.brick"
    with_lanes(path, lanes, Snapshot.of(SharedMemory().survey(), 1, 1), fill)
    with opened([str(path)], reads) as world:
        world.survey()
        before = len(passes)
        answer = inspect.answer(world, InspectQuery("api/0", records=3))
        assert len(passes) - before <= 2
        assert [[span["sequence"] for span in lane["spans"]] for lane in answer.document["lanes"]] == [
            [many * each - 2, many * each - 1, many * each]
        ] * lanes
        (file,) = world.document()["files"]
        assert file["records"] == 2 * lanes * each * many
    with opened([str(path)]) as world, world.segment(answer.document["segment"]) as inside:
        for newest in (10, each, 2 * each):
            first, slots = inside.ring(0, events=False, newest=newest)
            assert first + len(slots) // SLOT == many * each
            assert newest <= len(slots) // SLOT <= 1.25 * max(newest, 1024)


def test_a_watcher_that_stopped_is_not_woken(tmp_path: Path) -> None:
    recorder, woken = Recorder(StartRecording(), tmp_path / "run.brick", Machine()), threading.Event()
    with suppress(RuntimeError), recorder.watched(woken.set):
        raise RuntimeError
    recorder.end("asked")
    recorder.join()
    assert not woken.is_set()


def spools() -> int:
    """Return the number of spools in this process. Each spool has one event descriptor, and these are counted."""
    links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
    return links.count("anon_inode:[eventfd]")


@pytest.mark.parametrize("redact", [False, True])
def test_an_ended_recording_leaves_neither_spool_nor_key(tmp_path: Path, redact: bool) -> None:
    before = spools()
    recorder = Recorder(StartRecording(redact=redact), tmp_path / "run.brick", Machine())
    assert spools() == before + 1
    recorder.end("asked")
    recorder.join()
    assert spools() == before
    recorder.take(Snapshot.of(Machine().survey(), 1, 1))
    recorder.end("left")
    assert (recorder.document()["why"], recorder.document()["snapshots"]) == ("asked", 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_recording_ended_by_a_defect_leaves_no_spool(tmp_path: Path) -> None:
    class Broken(Machine):
        def lives(self, names: tuple[str, ...]) -> bool:
            raise RuntimeError("a defect")

    before = spools()
    recorder = Recorder(StartRecording(until_exit=True), tmp_path / "run.brick", Broken())
    recorder.join()
    assert (spools(), recorder.document()["why"]) == (before, None)


@pytest.mark.ci
def test_a_recording_can_be_read_while_it_is_written(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    machine, path = Machine(), tmp_path / "run.brick"
    recorder = Recorder(StartRecording(), path, machine)
    try:
        reported = brickd("status", "--over", "start", str(path))
        assert "200 spans" in reported.stdout
        assert "has no end: its writer still runs or was killed, or" in reported.stderr
    finally:
        recorder.end("asked")
        recorder.join()
    assert "not ended" not in brickd("status", str(path)).stderr


@pytest.mark.ci
def test_windows_of_a_recording_match_the_daemons(worker: Start, tmp_path: Path) -> None:
    process = started(
        worker, "norm = brick.brick('norm')\npause()\nfor _ in range(60):\n    with norm: pass\npause()", **STILL
    )
    machine, path = Machine(), tmp_path / "run.brick"
    recorder = Recorder(StartRecording(), path, machine)
    process.go()
    process.paused()
    recorder.end("asked")
    recorder.join()
    (norm,) = document("bricks", "--over", "10s", str(path))["bricks"]
    assert norm["count"] == 60
    assert document("status", str(path))["over"] == "60s"
    assert document("stragglers", str(path), "api")["compared"]["slots"] == 1


@pytest.mark.parametrize(
    ("snapshots", "slots", "seconds"), [(1, 6, None), (2, 6, 10), (7, 6, 60), (7, 7, 60), (20, 7, 60), (20, 2, 20)]
)
def test_a_recording_has_windows_of_up_to_a_minute_like_a_daemon(
    tmp_path: Path, snapshots: int, slots: int, seconds: int | None
) -> None:
    path = tmp_path / "run.brick"
    surveys = [Snapshot(at * EVERY_NS, at * EVERY_NS, Survey([], [])) for at in range(1, snapshots + 1)]
    whole = [(_reader.CHUNK_SNAPSHOT, 1, bodies.snapshot(each, None, bodies.RecordingCounts())) for each in surveys]
    path.write_bytes(forged(whole))
    with opened([str(path)]) as world:
        window = world.window(world.survey(), [], slots * EVERY_NS)
        assert (window and window.length_ns) == (seconds and seconds * SECOND)
        assert world.stragglers().slots == min(snapshots - 1, 6)


def test_a_view_counts_the_period_that_a_query_names(tmp_path: Path) -> None:
    path = tmp_path / "run.brick"
    surveys = [Snapshot(at * EVERY_NS, at * EVERY_NS, Survey([], [])) for at in range(1, 8)]
    path.write_bytes(forged([(_reader.CHUNK_SNAPSHOT, 1, bodies.snapshot(each, None, bodies.RecordingCounts()))
                             for each in surveys]))  # fmt: skip
    periods = {}
    with opened([str(path)]) as world:
        for over in (10.0, 30.0, 60.0, "start"):
            document = bricks.answer(world, BricksQuery(over=over)).document
            periods[document["over"]] = document["over_ns"]
        other = [bricks.answer(world, BricksQuery(over=over)) for over in (10.0, 10.9, 14.0)]
    assert periods == {"10s": 10 * SECOND, "30s": 30 * SECOND, "60s": 60 * SECOND, "start": None}
    assert [each.document["over_ns"] for each in other] == [10 * SECOND] * 3
    why = "a window begins at the nearest snapshot, and a snapshot is taken every 10 s"
    assert [each.words for each in other] == [(), (), (f"over 14s counts the last 10.0 s: {why}",)]


def test_a_view_counts_any_period_of_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.brick"
    at = [1_700_000_000 * SECOND + n * EVERY_NS for n in range(13)]
    surveys = [Snapshot(n * EVERY_NS, at_ns, Survey([], [])) for n, at_ns in enumerate(at, 1)]
    path.write_bytes(forged([(_reader.CHUNK_SNAPSHOT, each.at_ns, bodies.snapshot(each, None, bodies.RecordingCounts()))
                             for each in surveys]))  # fmt: skip

    def seconds(ns: int) -> float:
        return ns / SECOND

    queries = {
        "90s": (BricksQuery(over=90.0), at[3], at[12]),
        "from": (BricksQuery(since=seconds(at[2])), at[2], at[12]),
        "to": (BricksQuery(since=seconds(at[2]), until=seconds(at[5])), at[2], at[5]),
        "at": (BricksQuery(at=seconds(at[4]) + 3), at[4], at[5]),
        "before": (BricksQuery(at=seconds(at[6]), over=20.0), at[4], at[6]),
    }
    with opened([str(path)]) as world:
        for query, began_ns, ended_ns in queries.values():
            found = bricks.answer(world, query)
            document = found.document
            expected = (rfc3339(began_ns), rfc3339(ended_ns), ended_ns - began_ns)
            assert (document["from"], document["to"], document["over_ns"]) == expected
            assert found.words == ()
        short = bricks.answer(world, BricksQuery(over=3600.0))
        assert short.document["over_ns"] == 12 * EVERY_NS
        assert short.words[0].endswith(" (2.0 min) is kept")
        for query in (BricksQuery(at=1.0), BricksQuery(since=1.0, until=2.0)):
            with pytest.raises(BrickdError, match="nothing is kept of 1970-01-01"):
                bricks.answer(world, query)
        with pytest.raises(BrickdError, match="nothing is kept of 1h before 1970-01-01"):
            history.answer(world, HistoryQuery(at=7200.0))


@pytest.mark.parametrize(
    ("query", "every_s", "began", "ended"),
    [
        (HistoryQuery(), 300, [0, 10], [10, 12]),
        (HistoryQuery(over=60.0), 10, [6, 7, 8, 9, 10, 11], [7, 8, 9, 10, 11, 12]),
        (HistoryQuery(every=30.0, since=1_700_000_010.0, until=1_700_000_060.0), 30, [1, 4], [4, 6]),
        (HistoryQuery(at=1_700_000_040.0, over=20.0), 10, [2, 3], [3, 4]),
        (HistoryQuery(over=3600.0 * 48), 7200, [0], [12]),
        (HistoryQuery(over=300.0), 10, [*range(12)], [*range(1, 13)]),
        (HistoryQuery(over=301.0), 30, [0, 1, 4, 7, 10], [1, 4, 7, 10, 12]),
        (HistoryQuery(since=1.0), 7200, [0], [12]),
    ],
)
def test_a_history_has_a_row_for_each_piece_of_the_period(
    query: HistoryQuery, every_s: int, began: list[int], ended: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "run.brick"
    at = [1_700_000_000 * SECOND + n * EVERY_NS for n in range(13)]
    surveys = [Snapshot(n * EVERY_NS, at_ns, Survey([], [])) for n, at_ns in enumerate(at, 1)]
    path.write_bytes(forged([(_reader.CHUNK_SNAPSHOT, each.at_ns, bodies.snapshot(each, None, bodies.RecordingCounts()))
                             for each in surveys]))  # fmt: skip
    with opened([str(path)]) as world:
        found = history.answer(world, query)
    document = found.document
    assert document["every_ns"] == every_s * SECOND
    assert [each["from"] for each in document["slots"]] == [rfc3339(at[n]) for n in began]
    assert [each["to"] for each in document["slots"]] == [rfc3339(at[n]) for n in ended]
    assert (
        document["over_ns"] == sum(each["over_ns"] for each in document["slots"]) == (ended[-1] - began[0]) * EVERY_NS
    )
    assert len(found.words) == (query.since == 1.0 or (query.since is None and query.over not in (20.0, 60.0)))
    nothing = {"workers": 0, "count": 0, "count_per_second": None, "self_ns": 0, "p50_ns": None, "p99_ns": None}
    assert nothing.items() <= document["slots"][0].items()


def test_python_has_the_rows_of_a_history_and_periods_in_the_forms_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "run.brick"
    surveys = [Snapshot(n * EVERY_NS, n * EVERY_NS, Survey([], [])) for n in range(1, 8)]
    path.write_bytes(forged([(_reader.CHUNK_SNAPSHOT, each.at_ns, bodies.snapshot(each, None, bodies.RecordingCounts()))
                             for each in surveys]))  # fmt: skip
    profile = brickd_for_python.open(path)
    table = profile.history(every="20s", over="40s")
    assert set(table.columns) == table[0].keys()
    assert table.column("from") == [rfc3339(n * EVERY_NS) for n in (3, 4, 6)]
    assert [*profile.history(every=20, at=70, over=40)] == [*table]
    assert [*profile.history(every=20, since="@30", until="1970-01-01T00:01:10Z")] == [*table]
    for found in (profile.bricks(at="@70", over="40s"), profile.tree(since=30.0, until=70.0)):
        assert (found.document["from"], found.document["to"]) == (rfc3339(3 * EVERY_NS), rfc3339(7 * EVERY_NS))
    with pytest.raises(WrongQuestion, match="expected a time before 'to'"):
        profile.history(since=5, until="@5")


@pytest.mark.ci
def test_a_recording_names_the_straggler_that_the_daemon_named(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    like = SharedMemory().survey().workers[0].reading

    def whole(of: Worker) -> Worker:
        header: Any = {**like.header, **of.reading.header, "service": like.header["service"], "coordinates": bytes(64)}
        process: Any = {**like.process, **of.reading.process}
        return of._replace(reading=replace(of.reading, header=header, process=process))

    path, known, lookout = tmp_path / "run.brick", set[int](), Lookout(Log().add)
    with written(path) as recording:
        for each in made_up_snapshots(6, range(6)):
            snapshot = each._replace(survey=each.survey._replace(workers=list(map(whole, each.survey.workers))))
            lookout.take(snapshot)
            if (tables := bodies.tables(snapshot, known)) is not None:
                recording.append(_reader.CHUNK_TABLES, each.at_ns, tables)
            recording.append(
                _reader.CHUNK_SNAPSHOT, each.at_ns, bodies.snapshot(snapshot, None, bodies.RecordingCounts())
            )
        recording.close()
    answer = document("stragglers", str(path), code=1)
    assert answer["stragglers"] == [finding.document() for finding in lookout.judged().findings]
    assert {finding["worker"] for finding in answer["stragglers"]} == {"api/2"}


@pytest.mark.ci
def test_a_hang_is_found_in_a_recording(worker: Start, tmp_path: Path) -> None:
    for number in range(3):
        opens = "with brick.span('all_reduce'): pause()" if number else "with brick.span('gemm'): pause()"
        started(worker, opens, BRICKD_WORKER=str(number), **STILL)
    recorded(tmp_path / "run.brick")
    answer = document("hang", "--longer", "0", str(tmp_path / "run.brick"), code=1)
    assert [odd["worker"] for odd in answer["services"][0]["odd"]] == ["api/0"]
