"""Reading checksums from recordings: each one is complete and is read once, in order. Missing checksums are counted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dtypes
import numpy as np
import pytest
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from rings import SLOT, events, rings
from tapes import FIRST, begin, content, flush, forged, form, memory
from test_recorded_sites import SITES, checked

from brickd.recording.checksum_records import Checked, Lost
from brickd.recording.chunks import open_recording
from brickd.recording.chunks import records as records_of
from brickd.recording.file_index import FileIndex
from brickd.recording.newest_slots import Tails
from brickd.recording.replay import opened
from brickd.shm import _reader, records

MINE, OTHER = "11" * 16, "22" * 16
WORKERS = json.dumps({MINE: 7, OTHER: 8}).encode()
Lane = dict[int, list[bytes]]


def made(sequence: int, inputs: int = 0, **values: int) -> bytes:
    """Return the slots of a checksum; the slots after the first look like records."""
    head = np.zeros(1, dtypes.dtype("checked"))
    usual = {"sequence": sequence, "slots": 4 + 2 * inputs, "inputs": inputs, "kind": _reader.KIND_CHECKED}
    for name, value in (usual | values).items():
        head[name] = value
    looks = events({"sequence": sequence + 1000, "kind": 6, "slots": 4}).tobytes()
    return head.tobytes() + looks * (int(head["slots"][0]) - 1)


def defer(sequence: int) -> bytes:
    return events({"sequence": sequence, "id": sequence}).tobytes()


def strange(sequence: int, slots: int) -> bytes:
    return events({"sequence": sequence, "kind": 99, "slots": slots}).tobytes() + b"\7" * SLOT * (slots - 1)


@contextmanager
def read(files: Sequence[bytes]) -> Iterator[list[FileIndex]]:
    """Return open files of one recording with these contents."""
    with ExitStack() as stack:
        fds = [stack.enter_context(memory(each)) for each in files]
        yield [FileIndex(stack.enter_context(form(fd))) for fd in fds]


def taken(files: Sequence[bytes], *uuids: str) -> tuple[dict[str, bytes], dict[str, Lost]]:
    """Return the checksums of these workers in the files, and the number of missing checksums."""
    with read(files) as contents:
        found = Checked(contents, set(uuids or (MINE,)))
        whole: dict[str, bytes] = {}
        for uuid, slots in found:
            whole[uuid] = whole.get(uuid, b"") + slots
        return whole, found.lost


def sequences(slots: bytes) -> list[int]:
    found, others = records.events(slots)
    assert not others
    return [each["sequence"] for each in found]


@dataclass
class Tape:
    """Writes the files of a recording one after another, each with at most `limit` bytes."""

    files: list[bytes]
    limit: int

    def write(self, spool: _reader.Spool) -> None:
        """Write everything in the spool."""
        while True:
            with memory() as fd:
                recording = begin(fd, self.limit, number=len(self.files))
                recording.append(_reader.CHUNK_WORKERS, 1, WORKERS)
                try:
                    flush(recording, spool)
                except OSError:
                    recording.close()
                    self.files.append(content(fd))
                    continue
                recording.close()
                self.files.append(content(fd))
                return


KINDS = st.sampled_from([*((n, "checked") for n in (0, 0, 0, 1, 8)), (1, "defer"), (1, "strange"), (30, "strange")])
PASSES = st.lists(st.tuples(st.integers(0, 1), st.lists(KINDS, max_size=12)), min_size=1, max_size=6)


def filled(passes: list[tuple[int, list[tuple[int, str]]]], limit: int) -> tuple[list[bytes], Lane]:
    """Return files into which rings were drained, and the checksums that were in each lane."""
    tape, stood, numbers = Tape([], limit), Lane(), [0, 0]
    with rings(lanes=2, event_slots=512) as r:
        drain, spool = r.drain(), _reader.Spool()
        drain.record_into(spool, 7)
        for lane, kinds in passes:
            slots = b""
            for size, kind in kinds:
                numbers[lane] += 1
                number = numbers[lane]
                if kind == "checked":
                    one = made(number, size, position=lane)  # the position makes the checksums of each lane different
                    stood.setdefault(lane, []).append(one)
                else:
                    one = defer(number) if kind == "defer" else strange(number, size)
                slots += one
            r.add(lane, "event", slots)
            _reader.drain([drain])
            r.publish(drain)
        tape.write(spool)
    return tape.files, stood


@pytest.mark.ci
@given(PASSES, st.sampled_from([640, 704, 768, 1280, 1 << 16]))
def test_each_checksum_is_read_complete_and_once_across_chunks_and_files(
    passes: list[tuple[int, list[tuple[int, str]]]], limit: int
) -> None:
    files, stood = filled(passes, limit)
    whole, lost = taken(files)
    assert sorted(whole.get(MINE, b"")) == sorted(b"".join(b"".join(each) for each in stood.values()))
    rest = whole.get(MINE, b"")
    while rest:  # the checksums of each lane are complete and in order
        for lane in stood.values():
            if lane and rest.startswith(lane[0]):
                rest = rest[len(lane.pop(0)) :]
                break
        else:
            raise AssertionError("a checksum that stood nowhere, or in another order")
    assert all(each == Lost() for each in lost.values())


@pytest.mark.ci
@given(PASSES, st.sampled_from([640, 704, 768]), st.data())
def test_truncated_or_missing_files_give_only_complete_checksums(
    passes: list[tuple[int, list[tuple[int, str]]]], limit: int, data: st.DataObject
) -> None:
    files, stood = filled(passes, limit)
    number = data.draw(st.integers(0, len(files) - 1))
    cut = data.draw(st.none() | st.integers(FIRST, len(files[number])))
    files[number : number + 1] = [] if cut is None else [files[number][:cut]]
    whole, lost = taken(files)
    every = {one for lane in stood.values() for one in lane}
    rest, given_ = whole.get(MINE, b""), 0
    while rest:
        slots = int.from_bytes(rest[12:14], "little")
        assert rest[: slots * SLOT] in every
        rest, given_ = rest[slots * SLOT :], given_ + 1
    assert given_ <= sum(map(len, stood.values()))
    assert sum(each.cut for each in lost.values()) <= 2
    assert all(each.rejected == 0 for each in lost.values())


def piece(slots: bytes, first: int, inside: int = 0, worker: int = 7, lane: int = 0, ring: int = 1) -> bytes:
    """Return the body of a chunk of records."""
    return np.array([worker, lane, ring, inside], "<u4").tobytes() + first.to_bytes(8, "little") + bytes(40) + slots


def tape(*bodies: bytes) -> bytes:
    return forged([(_reader.CHUNK_WORKERS, 1, WORKERS), *((_reader.CHUNK_RECORDS, 1, body) for body in bodies)])


ONE, TWO, THREE = made(1), made(2, 1), made(3)


@pytest.mark.parametrize(
    ("bodies", "given_", "lost"),
    [
        ([piece(ONE + TWO, 0), piece(THREE, 10)], [1, 2, 3], Lost()),
        ([piece(ONE + TWO[: 2 * SLOT], 0), piece(TWO[2 * SLOT :] + THREE, 6, 4)], [1, 2, 3], Lost()),
        ([piece(ONE + TWO[:SLOT], 0), piece(TWO[SLOT : 3 * SLOT], 5, 5), piece(TWO[3 * SLOT :] + THREE, 7, 3)],
         [1, 2, 3], Lost()),
        # The first chunk is missing. The second one begins with the rest of a record, which must not be taken for a
        # record.
        ([piece(TWO[2 * SLOT :] + THREE, 6, 4)], [3], Lost()),
        # A chunk in the middle is missing.
        ([piece(ONE + TWO[:SLOT], 0), piece(TWO[3 * SLOT :] + THREE, 7, 3)], [1, 3], Lost(cut=1, missing=1)),
        ([piece(ONE + TWO[:SLOT], 0), piece(THREE, 10)], [1, 3], Lost(cut=1, missing=1)),
        ([piece(ONE, 0), piece(THREE, 10)], [1, 3], Lost(missing=1)),
        # The file ends within a checksum.
        ([piece(ONE + TWO[: 5 * SLOT], 0)], [1], Lost(cut=1)),
        # A chunk does not say where its first record begins, or contradicts the previous chunk.
        ([piece(ONE + TWO[:SLOT], 0), piece(TWO[SLOT:] + THREE, 5, 2), piece(made(4), 13)], [1, 4],
         Lost(cut=1, missing=2)),
        # Lanes and rings are not mixed.
        ([piece(ONE + TWO[:SLOT], 0), piece(made(9), 0, lane=1), piece(TWO, 0, ring=0),
          piece(TWO[SLOT:] + THREE, 5, 5)], [1, 9, 2, 3], Lost()),
        # One record is repeated.
        ([piece(ONE, 0), piece(ONE, 0), piece(TWO, 4)], [1, 2], Lost(rejected=1)),
        # Some checksum records are invalid.
        ([piece(made(1, inputs=9, slots=22) + made(2, slots=6) + made(3, relation=4) + made(4, ticks=2**63) + made(5),
                0)], [5], Lost(rejected=4)),
        ([piece(ONE + bytes(SLOT) + THREE, 0)], [1], Lost(rejected=1)),
        ([piece(ONE[:-1], 0)], [], Lost(cut=1)),
        ([piece(b"", 0)], [], Lost()),
        ([piece(ONE, 0, 4), piece(TWO, 4, 2**32 - 1), piece(THREE, 2**64 - 1)], [3], Lost()),
        ([piece(ONE, 0, lane=1024), piece(ONE, 0, lane=2**32 - 1)], [], None),
        ([b"none of records"], [], None),
    ],
)  # fmt: skip
def test_missing_checksums_are_counted_and_incomplete_ones_not_returned(
    bodies: list[bytes], given_: list[int], lost: Lost | None
) -> None:
    whole, found = taken([tape(*bodies)])
    assert sequences(whole.get(MINE, b"")) == given_
    assert found == ({} if lost is None else {MINE: lost})


@pytest.mark.parametrize(
    ("bodies", "until"),
    [
        ([piece(made(1, ticks=5) + made(2, ticks=6), 0)], 0),
        # The missing checksums are before the first checksum, or between the first and the last.
        ([piece(made(1, ticks=5), 0), piece(made(3, ticks=30) + made(4, ticks=40), 10)], 30),
        ([piece(made(1, ticks=5) + made(3, ticks=30) + made(4, ticks=40), 0)], 40),
        ([piece(made(1, ticks=5), 0), piece(defer(4), 10), piece(made(5, ticks=30) + made(6, ticks=40), 11)], 30),
        ([piece(made(1, ticks=5), 0), piece(made(3, ticks=30), 10), piece(made(9, ticks=7), 20, lane=1)], 30),
        # If checksums are missing in two lanes, the later time is reported, no matter which lane is read first.
        ([piece(made(1, ticks=5), 0), piece(made(3, ticks=30), 10), piece(made(1), 0, lane=1),
          piece(made(3, ticks=7), 10, lane=1)], 30),
        ([piece(made(1, ticks=5), 0), piece(made(3, ticks=7), 10), piece(made(1), 0, lane=1),
          piece(made(3, ticks=30), 10, lane=1)], 30),
        # No checksum comes after the missing checksums.
        ([piece(made(1, ticks=5) + TWO[:SLOT], 0)], None),
        ([piece(made(1, ticks=5), 0), piece(defer(4), 10)], None),
    ],
)  # fmt: skip
def test_the_position_after_a_loss_is_known_if_any_record_follows(bodies: list[bytes], until: int | None) -> None:
    _, found = taken([tape(*bodies)])
    assert found[MINE].until == until


def test_a_checksum_in_two_files_is_complete_if_both_are_given_in_order() -> None:
    one, two = tape(piece(ONE + TWO[:SLOT], 0)), tape(piece(TWO[SLOT:] + THREE, 5, 5))
    assert sequences(taken([one, two])[0][MINE]) == [1, 2, 3]
    assert taken([one]) == ({MINE: ONE}, {MINE: Lost(cut=1)})
    assert taken([two]) == ({MINE: THREE}, {MINE: Lost()})


def test_reading_again_counts_the_losses_again() -> None:
    with read([tape(piece(ONE + TWO[:SLOT], 0), piece(THREE, 10))]) as contents:
        found = Checked(contents, {MINE})
        for _ in range(2):
            assert list(found) == [(MINE, ONE), (MINE, THREE)]
            assert found.lost == {MINE: Lost(cut=1, missing=1)}


def test_several_workers_are_read_in_one_pass() -> None:
    content_ = tape(piece(ONE + TWO[:SLOT], 0), piece(ONE, 0, worker=8), piece(ONE, 0, worker=9),
                    piece(TWO[SLOT:], 5, 5))  # fmt: skip
    passes: list[int] = []

    def reads(path: str, at: int, of: int) -> None:
        passes.append(at)

    with memory(content_) as fd, form(fd, reads) as opened_:
        contents = FileIndex(opened_)
        before = len(passes)
        found = Checked([contents], {MINE, OTHER, "nobody"})
        assert list(found) == [(MINE, ONE), (OTHER, ONE), (MINE, TWO)]
        assert found.lost == {MINE: Lost(), OTHER: Lost()}
        assert len(passes) - before <= 2
        assert list(found) == [(MINE, ONE), (OTHER, ONE), (MINE, TWO)], "the records can be read repeatedly"


@pytest.mark.ci
def test_recorded_checksums_match_their_worker(worker: Start, tmp_path: Path) -> None:
    file, _ = checked(worker, tmp_path)
    with opened([file]) as world, open_recording(file) as opened_:
        (there,) = world.survey().workers
        found = Checked([FileIndex(opened_)], {there.reading.uuid})
        # The number of chunks depends on how often the recorder drained the ring.
        events_, _ = records.events(b"".join(slots for _, slots in found))
        places = [there.reading.sites[each["site"]] for each in events_]
        assert [(there.reading.name(site.name), site.layer) for site in places if site] == [
            (name, -1 if layer is None else layer) for name, layer, off in SITES if not off
        ]
        assert found.lost == {there.reading.uuid: Lost()}


@pytest.mark.parametrize("newest", [1, pytest.param(1000, marks=pytest.mark.ci)])
def test_the_newest_checksums_are_shown_whatever_chunk_they_begin_in(newest: int) -> None:
    generator = random.Random(newest)
    slots = b"".join(made(n, generator.choice([0, 1, 8])) for n in range(1, 3000))
    tails, at, count = Tails([0], newest), 0, len(slots) // SLOT
    while at < count:
        size = min(generator.randint(1, 700), count - at)
        behind = _reader.walk(slots, 0, at)
        assert behind is not None
        tails.take(records_of(piece(slots[at * SLOT : (at + size) * SLOT], at, behind - at)))
        at += size
    first, held = tails.ring(0, events=True)
    assert first + len(held) // SLOT == count
    shown = sequences(held)
    assert shown[-1] == 2999
    assert shown == list(range(shown[0], 3000))
    assert len(held) // SLOT > max(newest, 1024) - 20, "only the rest of a record may be missing"
