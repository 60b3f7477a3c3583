"""The writer of a recording: what each file contains, how the writer goes on to the next file, and what happens after
failures.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made_up_weights import several
from made_up_workers import MadeUp
from rings import SLOT
from source_pieces import all_pieces, fnv1a
from test_recording_files import Machine, chunks
from test_recording_rings import numbered
from test_recording_spool import work, workers

from brickd.analysis.weights.store import Weights
from brickd.errors import BrickdError
from brickd.model.kernel_sources.store import Sources
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker
from brickd.query.orders import StartRecording
from brickd.recording import body_codec
from brickd.recording.chunks import records
from brickd.recording.library import Shelf
from brickd.recording.replay import opened
from brickd.recording.ring_taps import Rings, read_numbers
from brickd.recording.rotation import Put, Volumes
from brickd.recording.session import Recorder
from brickd.recording.writer import Writer
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of

SMALL = 1 << 16


class Many(Machine):
    """A machine whose snapshots have a given length."""

    length = 0

    def survey(self) -> Survey:
        return Survey([], [], words=("x" * self.length,))


class Written:
    """A writer without a thread."""

    def __init__(
        self, path: Path, machine: Many, spool_bytes: int = 1 << 20, *, one_file: bool = False, **order: Any
    ) -> None:
        whole = StartRecording(**{"max_size": SMALL, "files": 1000} | order)
        self.machine, self.spool = machine, _reader.Spool(spool_bytes)
        self.rings = Rings(whole.names, spans=True)
        self.rings.into(self.spool)
        self.volumes = Volumes(path, whole.max_size, whole.files)
        self.writer = Writer(whole, machine, self.rings, self.spool, self.volumes, one_file=one_file)

    def round(self) -> bool:
        """Do one round of the writing thread; return whether it continued in another file."""
        self.writer.records()
        self.writer.events()
        return self.writer.turn()

    def files(self) -> list[list[tuple[int, int, int, bytes]]]:
        return [chunks(each.path) for each in self.volumes.kept]


def named(file: list[tuple[int, int, int, bytes]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind, _, _, body in file:
        if kind == _reader.CHUNK_WORKERS:
            new = read_numbers(body)
            assert not found.keys() & new.keys()
            found |= new
        elif kind == _reader.CHUNK_RECORDS:
            assert records(body).worker in found.values()
    return found


def test_each_file_has_the_names_of_its_workers_once_before_their_records(tmp_path: Path) -> None:
    made = Written(tmp_path / "run.brick", Many())
    with workers(3) as three:
        for number, (_, drain) in enumerate(three):
            made.rings.take(f"{number:032x}", drain)
            made.rings.take(f"{number:032x}", drain)
        for number in (0, 2, 2, 0):
            work(*three[number], 0, 100)
            assert not made.round()
        made.machine.length = SMALL // 2
        for _ in range(2):  # the second snapshot has no room after the first
            made.writer.look()
        assert made.round()
        for number in (1, 0):
            work(*three[number], 0, 100)
            assert not made.round()
        made.writer.end("asked")
    first, second = made.files()
    assert named(first) == {f"{0:032x}": 1, f"{2:032x}": 3}
    assert named(second) == {f"{0:032x}": 1, f"{1:032x}": 2}


def test_slots_that_do_not_fit_one_file_are_in_the_next_without_loss(tmp_path: Path) -> None:
    made = Written(tmp_path / "run.brick", Many())
    with workers(1, slots=1 << 13) as ((r, drain),):
        made.rings.take("a", drain)
        work(r, drain, 0, 8000)
        made.writer.end("asked")
    files = made.files()
    assert len(files) == 10
    assert all(each.path.stat().st_size <= SMALL for each in made.volumes.kept)
    stood = [records(body) for file in files for kind, _, _, body in file if kind == _reader.CHUNK_RECORDS]
    assert b"".join(each.slots for each in stood) == numbered(8000).tobytes()
    assert (made.writer.counted().records, made.writer.counted().not_recorded) == (8000, {})
    for file in files:  # each file can be read alone, and has the reason why it ended
        assert {_reader.CHUNK_BEGINNING, _reader.CHUNK_SNAPSHOT, _reader.CHUNK_ENDING} <= {kind for kind, *_ in file}


def test_slots_that_do_not_fit_the_only_file_are_counted(tmp_path: Path) -> None:
    made = Written(tmp_path / "run.brick", Many(), one_file=True)
    with workers(1, slots=1 << 13) as ((r, drain),):
        made.rings.take("a", drain)
        assert not made.writer.full
        work(r, drain, 0, 8000)
        assert not made.round()
        assert made.writer.full
        made.writer.end("full")
    assert len(made.files()) == 1
    counted = made.writer.counted()
    assert counted.records > 0
    assert counted.records + counted.not_recorded["records"] == 8000


def test_an_automatic_recording_ends_when_its_only_file_is_full(tmp_path: Path) -> None:
    machine = Many()
    recorder = Recorder(StartRecording(max_size=SMALL), tmp_path / "run.brick", machine, automatic=True)
    now_ns, at_ns = time.monotonic_ns(), time.time_ns()
    for number in range(2):
        survey = Survey([], [], words=("x" * (SMALL // 2),))
        recorder.take(Snapshot.of(survey, now_ns + number, at_ns + number))
    recorder.join()
    document = recorder.document()
    assert (document["why"], len(document["files"]), len(list(tmp_path.iterdir()))) == ("full", 1, 1)


def test_a_last_snapshot_that_does_not_fit_starts_the_next_file(tmp_path: Path) -> None:
    machine = Many()
    machine.length = SMALL // 3
    made = Written(tmp_path / "run.brick", machine)
    made.writer.look()
    made.writer.last_look()
    made.writer.end("asked")
    assert [[kind for kind, *_ in file].count(_reader.CHUNK_SNAPSHOT) for file in made.files()] == [2, 1]


def test_a_snapshot_without_a_free_descriptor_counts_as_not_recorded(tmp_path: Path) -> None:
    class Exhausted(Many):
        def survey(self) -> Survey:
            raise OSError(errno.EMFILE, "Too many open files")

    made = Written(tmp_path / "run.brick", Exhausted())
    assert made.writer.counted().not_recorded == {"snapshots": 1}
    made.writer.look()
    assert (made.writer.counted().snapshots, made.writer.counted().not_recorded) == (0, {"snapshots": 2})


def test_a_snapshot_too_large_for_any_file_is_reported_and_starts_no_file(tmp_path: Path) -> None:
    machine = Many()
    made = Written(tmp_path / "run.brick", machine)
    machine.length = SMALL - 500  # after the beginning of a file, there is no room for this snapshot
    for count in range(1, 4):
        made.writer.look()
        made.round()
        assert made.writer.counted().not_recorded == {"snapshots": count + 1}
        assert len(made.volumes.kept) == 2
        assert "expected at most 65,536, the limit of a file: allow more with --max-size, or" in made.volumes.trouble
    machine.length = 2 * SMALL
    made.writer.look()
    assert not made.round()
    machine.length = 100
    made.writer.look()
    made.writer.look()
    assert made.volumes.trouble == ""
    made.writer.end("asked")


@pytest.mark.ci
def test_a_snapshot_larger_than_a_chunk_is_reported(tmp_path: Path) -> None:
    machine = Many()
    made = Written(tmp_path / "run.brick", machine, max_size=1 << 30)
    machine.length = _reader.CHUNK_BYTES_MAX
    made.writer.look()
    assert made.volumes.trouble.startswith("a snapshot has a part of 67,10")
    assert made.volumes.trouble.endswith("expected at most 67,108,864: record fewer workers (--workers)")
    assert not made.round()
    made.writer.end("asked")


def test_records_that_fit_no_file_are_counted_and_start_no_file(tmp_path: Path) -> None:
    machine = Many()
    machine.length = SMALL - SMALL // 8
    made = Written(tmp_path / "run.brick", machine)
    with workers(1) as ((r, drain),):
        made.rings.take("a", drain)
        work(r, drain, 0, 100)
        for _ in range(3):
            machine.log_event("note", "something")
            assert not made.round()
        assert (
            "a snapshot leaves no room for records in 65,536 bytes: allow more with --max-size" in made.volumes.trouble
        )
        made.writer.end("asked")
    assert made.writer.counted().not_recorded == {"records": 100}
    assert len(made.files()) == 1


def test_records_arriving_faster_than_they_are_written_are_reported(tmp_path: Path) -> None:
    made = Written(tmp_path / "run.brick", Many(), spool_bytes=100 * SLOT)
    with workers(1) as ((r, drain),):
        made.rings.take("a", drain)
        work(r, drain, 0, 100)
        made.round()
        assert made.volumes.trouble == "records come faster than they can be written"
        for _ in range(2):
            made.writer.look()
        made.round()
        assert made.volumes.trouble == ""
        made.writer.end("asked")
    assert made.writer.counted().not_recorded == {"records": 100}


def test_a_writer_stuck_at_its_disk_is_reported_by_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = threading.Event(), threading.Event()

    class Slow(Many):
        def survey(self) -> Survey:
            if threading.current_thread().name == "brickd-recording":
                asked.set()
                answer.wait()
            return super().survey()

    monkeypatch.setattr("brickd.recording.session._STILL_NS", 0)
    recorder = Recorder(StartRecording(), tmp_path / "run.brick", Slow())
    recorder.end("asked")
    asked.wait()
    assert recorder.trouble == "the disk has not answered for 0 s"
    answer.set()
    recorder.join()
    assert recorder.trouble is None


def test_a_truncated_file_is_followed_by_another_with_the_waiting_slots(tmp_path: Path) -> None:
    made = Written(tmp_path / "run.brick", Many())
    with workers(1) as ((r, drain),):
        made.rings.take("a", drain)
        os.truncate(made.volumes.kept[0].path, 1000)
        work(r, drain, 0, 100)
        made.writer.records()
        assert made.volumes.trouble == "another process truncated the file while it was written"
        assert made.round()
        made.writer.end("asked")
    assert named(made.files()[1]) == {"a": 1}
    assert made.writer.counted().not_recorded == {}


def test_trouble_ends_when_large_chunks_fit_again_and_not_with_a_small_one(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path / "run.brick", SMALL, 1)
    try:
        for _ in range(2):  # a failure may happen more than once
            volumes.fail("the disk is full")
            volumes.look()
            assert volumes.put(_reader.CHUNK_EVENTS, 1, b"") is Put.DONE
            assert volumes.trouble == "the disk is full"
            volumes.look()
            assert volumes.trouble == ""
    finally:
        volumes.end(b"")


def test_a_recording_whose_thread_cannot_start_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    into: list[object] = []

    class Watched(Machine):
        def drain_into(self, rings: Rings, spool: _reader.Spool | None) -> None:
            into.append(spool)
            rings.into(spool)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(BrickdError, match=r"nothing can be recorded: can't start new thread \(raise ulimit -u"):
        Recorder(StartRecording(spans=True), tmp_path / "run.brick", Watched())
    assert into[-1] is None
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_recording_ended_by_a_defect_can_be_fetched(tmp_path: Path) -> None:
    class Broken(Machine):
        def lives(self, names: tuple[str, ...]) -> bool:
            raise RuntimeError("a defect")

    recorder = Recorder(StartRecording(until_exit=True), tmp_path / "run.brick", Broken())
    recorder.join()
    assert recorder.document()["why"] is None
    (shelved,) = Shelf(tmp_path).all()
    assert (shelved.recording, shelved.written) == (recorder.id, False)


def test_an_unnamed_worker_is_refused_once_per_snapshot(
    tmp_path: Path,
) -> None:
    made = Written(tmp_path / "run.brick", Many())
    with workers(1) as ((r, drain),):
        made.rings.take("a", drain)
        work(r, drain, 0, 100)
        os.truncate(made.volumes.kept[0].path, 1000)
        # at first, one chunk is refused (of workers); then three are (also a snapshot, and another chunk of workers)
        for refused in (1, 3):
            for _ in range(5):
                assert not made.writer.records()
            assert made.volumes.file.refused_chunks == refused
            made.writer.look()
        made.writer.end("asked")
    assert made.writer.counted().not_recorded == {"snapshots": 2}


class Weighing(Many):
    """A machine with two workers that have a given number of tensors."""

    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.holders = several("api/0", "api/1")
        for name in ("api/0", "api/1"):
            for layer in range(tensors):
                self.holders.add_weight(name, 100 + layer, "w", layer)

    def survey(self) -> Survey:
        return Survey(self.holders.workers, [])

    def weights(self, of: Sequence[Worker]) -> Weights:
        return self.holders.numerics.weights.about(worker.reading.uuid for worker in of)


def test_every_file_has_the_weights_of_the_recorded_workers_only(tmp_path: Path) -> None:
    machine = Weighing(3)
    machine.holders.add_weight("api/1", 7, "w", 0)
    made = Written(tmp_path / "run.brick", machine, names=("api/0",))
    made.writer.weigh()
    with workers(1, slots=1 << 13) as ((r, drain),):
        made.rings.take("a", drain)
        work(r, drain, 0, 2000)
        made.writer.end("asked")
    for file in made.files():
        (weights,) = (body_codec.read_weights(body) for kind, _, _, body in file if kind == _reader.CHUNK_WEIGHTS)
        assert list(weights) == [machine.holders.workers[0].reading.uuid]
        assert len(weights.contents) == 3
    assert len(made.files()) > 1


@pytest.mark.ci
def test_weights_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    made = Written(tmp_path / "run.brick", Weighing(400))
    made.writer.weigh()
    made.writer.end("asked")
    assert made.writer.counted().not_recorded == {"tensors": 800}
    with opened([str(made.volumes.kept[0].path)]) as world:
        assert "not recorded, because there was no room: 800 tensors" in world.words()


class Launching(Many):
    """A machine with a worker whose kernels have these sources."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        super().__init__()
        self.known, made = Sources(), MadeUp("api")
        for number, text in enumerate(texts):
            self.known.take("a", all_pieces(text))
            made.launch(f"kernel {number}", f"smem=0B @{fnv1a(text):016x}")
        reading = made.reading()
        self.worker = Worker("api/0", reading, ledger_of(reading))

    def survey(self) -> Survey:
        return Survey([self.worker], [])

    def sources(self, of: Sequence[Worker]) -> Sources:
        return self.known


@pytest.mark.parametrize("more", [0, 1])
def test_sources_fill_at_most_a_quarter_of_a_file_and_others_are_counted(tmp_path: Path, more: int) -> None:
    def body(machine: Launching) -> int:
        found = map(machine.known.read, machine.known.heads())
        return sum(len(part) for source in found if source is not None for part in source.encoded())

    texts = [b"a" * 6000, b"b" * 10_000]
    texts[1] += b"b" * (SMALL // 4 - body(Launching(texts)) + more)
    made = Written(tmp_path / "run.brick", Launching(texts))
    made.writer.end("asked")
    (file,) = made.files()
    assert sum(kind == _reader.CHUNK_SOURCE for kind, *_ in file) == 2 - more
    assert made.writer.counted().not_recorded == ({"sources": 1} if more else {})


def test_failing_and_resuming_are_each_reported_once(tmp_path: Path) -> None:
    machine = Many()
    recorder = Recorder(StartRecording(max_size=SMALL), tmp_path / "run.brick", machine)
    now_ns, at_ns = time.monotonic_ns(), time.time_ns()
    for number, length in enumerate((2 * SMALL, 2 * SMALL, 0, 0, 0, 2 * SMALL, 0)):
        recorder.take(Snapshot.of(Survey([], [], words=("x" * length,)), now_ns + number, at_ns + number))
        machine.events.until_read(machine.events.add("looked", "").number)
        if number == 1:
            assert recorder.trouble is not None
    recorder.end("asked")
    recorder.join()
    reported = [each.kind for each in machine.events.since(0).events if each.kind != "looked"]
    assert reported == [
        "recording_began", "recording_failed", "recording_resumed", "recording_failed", "recording_ended",
    ]  # fmt: skip
    assert recorder.document()["not_recorded"] == {"snapshots": 3}


def test_a_recording_with_a_duration_ends_exactly_then(tmp_path: Path) -> None:
    machine = Machine()
    recorder = Recorder(StartRecording(duration=0.01), tmp_path / "short.brick", machine)
    recorder.join()
    answer = recorder.document()
    assert (answer["why"], answer["elapsed_ns"] >= 10_000_000) == ("over", True)
    recorder = Recorder(StartRecording(duration=3600), tmp_path / "long.brick", machine)
    for _ in range(2):  # the writing thread ends a round between the two snapshots
        recorder.take(Snapshot.of(Survey([], []), time.monotonic_ns(), time.time_ns()))
        machine.events.until_read(machine.events.add("looked", "").number)
    assert not recorder.over.is_set()
    recorder.end("asked")
    recorder.join()
    assert recorder.document()["why"] == "asked"
