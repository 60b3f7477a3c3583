"""The file of the last day: what it keeps after damage and a killed daemon, and which slots answer for a time."""

from __future__ import annotations

import os
import resource
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_workers import MadeUp
from test_day_slots import whole
from test_windows import counts, snapshot, work, worker

from brickd.base.units import SECOND
from brickd.daemon.day_keeper import DayKeeper
from brickd.model.day_slots import as_workers
from brickd.model.survey_snapshot import Snapshot
from brickd.state import day_file
from brickd.state.day_file import CELL_BYTES, CELLS, CONTENT_BYTES, DayFile

LATER = 1_700_000_000 * SECOND  # of a snapshot, to its time since 1970


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "day"


def fill(file: DayFile, tier: int, count: int, length_ns: int = 10 * SECOND) -> None:
    for n in range(count):
        file.append(tier, n * length_ns, (n + 1) * length_ns, b"%d" % n)


# ---- the file


@pytest.mark.ci
def test_each_tier_keeps_its_newest_slots_and_the_file_never_grows_beyond_its_cells(path: Path) -> None:
    file = DayFile(path)
    for tier, cells in enumerate(CELLS):
        fill(file, tier, cells + 3)
        assert [file.content(place) for place in file.places[tier]] == [b"%d" % n for n in range(3, cells + 3)]
    file.append(0, 0, 0, b"x" * CONTENT_BYTES)
    assert path.stat().st_size <= sum(CELLS) * CELL_BYTES < 64 << 20
    assert path.stat().st_mode & 0o777 == 0o600
    places = file.places
    file.close()
    again = DayFile(path)
    assert again.places == places
    again.close()


def test_a_slot_that_does_not_fit_is_refused(path: Path) -> None:
    file = DayFile(path)
    with pytest.raises(ValueError, match=f"has {CONTENT_BYTES + 1} bytes, expected at most {CONTENT_BYTES}"):
        file.append(0, 0, 1, b"x" * (CONTENT_BYTES + 1))
    assert file.places == ([], [])
    file.close()


def test_a_replaced_slot_is_gone(path: Path) -> None:
    file = DayFile(path)
    fill(file, 0, 1)
    (first,) = file.places[0]
    fill(file, 0, CELLS[0])
    assert file.content(first) is None
    file.close()


@pytest.mark.ci
@settings(max_examples=200)
@given(at=st.integers(0, 80), bits=st.integers(1, 255))
def test_a_damaged_slot_is_never_read(at: int, bits: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("day") / "day"
    file = DayFile(path)
    fill(file, 0, 2)
    kept = file.places[0]
    file.close()
    with path.open("r+b") as raw:
        raw.seek(CELL_BYTES + at)  # the first slot has the sequence 1
        (byte,) = raw.read(1) or b"\0"
        raw.seek(CELL_BYTES + at)
        raw.write(bytes([byte ^ bits]))
    again = DayFile(path)
    contents = {place: again.content(place) for place in again.places[0]}
    assert contents.get(kept[1]) in (b"1", None)
    within = at < day_file._HEAD.size + 4 + 1
    assert contents.get(kept[0]) == (None if within else b"0")
    again.close()


@pytest.mark.parametrize(
    ("changed", "is_slot"),
    [
        ({}, True),
        ({"magic": b"brickdax"}, False),
        ({"version": 1}, False),
        ({"tier": 1}, False),
        ({"sequence": 0}, False),
        ({"sequence": 2}, False),
        ({"sequence": 1 + CELLS[0]}, True),
        ({"sequence": 1 + CELLS[0] * (1 << 55)}, False),
        ({"began_ns": 11}, False),
        ({"began_ns": 10}, True),
        ({"began_ns": -1}, False),
        ({"length": CONTENT_BYTES + 1}, False),
    ],
)
def test_only_a_valid_head_in_its_own_cell_is_a_slot(changed: dict[str, Any], is_slot: bool, path: Path) -> None:
    """The checksum is correct, as if another program had written the file."""
    valid: dict[str, Any] = {"magic": b"brickday", "version": 2, "tier": 0, "length": 1, "sequence": 1}
    head = day_file._HEAD.pack(*(valid | {"began_ns": 0, "ended_ns": 10} | changed).values())
    DayFile(path).close()
    with path.open("r+b") as raw:
        raw.seek(CELL_BYTES)
        raw.write(head + day_file._CRC.pack(zlib.crc32(b"x", zlib.crc32(head))) + b"x")
    file = DayFile(path)
    assert [file.content(place) for place in file.places[0]] == ([b"x"] if is_slot else [])
    assert file.places[1] == []
    file.close()


@pytest.mark.parametrize("size", [*range(40, 46), 60])
def test_a_truncated_file_has_no_slot(size: int, path: Path) -> None:
    file = DayFile(path)
    fill(file, 0, 1)
    file.close()
    os.truncate(path, CELL_BYTES + size)
    again = DayFile(path)
    assert [again.content(place) for place in again.places[0]] == [b"0" if size >= 45 else None]
    again.close()


def test_an_empty_or_foreign_file_has_no_slots(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"brickday" * 100_000)
    file = DayFile(path)
    assert file.places == ([], [])
    fill(file, 0, 1)
    assert file.content(file.places[0][0]) == b"0"
    file.close()


def test_a_slot_that_is_written_in_part_is_an_error_and_is_not_kept(path: Path) -> None:
    file = DayFile(path)
    fill(file, 0, 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * CELL_BYTES + 10, hard))  # Python ignores the signal
    try:
        with pytest.raises(OSError, match="wrote 10 of 45 bytes"):
            fill(file, 0, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(file.places[0]) == 3
    fill(file, 0, 1)
    assert file.content(file.places[0][-1]) == b"0"
    file.close()


def test_a_second_process_does_not_write_the_file(path: Path) -> None:
    file = DayFile(path)
    child = os.fork()
    if child == 0:
        try:
            DayFile(path)
        except BlockingIOError as error:
            os._exit(7 if str(error) == "another process writes it" else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    file.close()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_only_a_regular_file_is_opened(make: object, path: Path) -> None:
    path.parent.mkdir()
    make(path)  # type: ignore[operator]
    with pytest.raises(OSError):  # noqa: PT011
        DayFile(path)


# ---- its slots, from snapshots


class Keeper:
    """A keeper of the last day that gets a snapshot of one worker every ten seconds."""

    def __init__(self, path: Path) -> None:
        self.path, self.events = path, list[tuple[str, str]]()
        self.made, self.now_s, self.step_s = MadeUp(), 0, 0
        self.keeper = self.begun()

    def begun(self) -> DayKeeper:
        return DayKeeper(self.path, lambda kind, text, **_: self.events.append((kind, text)))

    def snapshot(self) -> Snapshot:
        taken = snapshot(whole(worker(self.made, 1)), now_ns=self.now_s * SECOND)
        return taken._replace(at_ns=taken.at_ns + self.step_s * SECOND)

    def run(self, snapshots: int, every_s: int = 10) -> None:
        """Record one span before each snapshot."""
        for _ in range(snapshots):
            work(self.made, "a", 5)
            self.now_s += every_s
            self.keeper.take(self.snapshot())

    def spans(self, began_s: float, ended_s: float) -> int:
        found = self.keeper.between(LATER + round(began_s * SECOND), LATER + round(ended_s * SECOND))
        return 0 if found is None else counts(as_workers(found)).get("a", (0, 0, 0))[0]

    @property
    def file(self) -> DayFile:
        assert self.keeper._file is not None
        return self.keeper._file


@pytest.fixture
def keeper(path: Path) -> Iterator[Keeper]:
    made = Keeper(path)
    yield made
    made.keeper.end()


@pytest.mark.ci
def test_each_snapshot_ends_a_slot_and_every_five_minutes_a_long_one(keeper: Keeper) -> None:
    keeper.run(1 + 2 * 30 + 5)
    short, long = keeper.file.places
    assert [len(short), len(long)] == [65, 2]
    assert {place.ended_ns - place.began_ns for place in long} == {300 * SECOND}
    assert keeper.spans(0, 10_000) == 65
    assert keeper.spans(10, 110) == 10
    assert keeper.events == []


@pytest.mark.ci
def test_a_time_is_answered_once_by_long_slots_and_then_by_short_ones(keeper: Keeper) -> None:
    keeper.run(1 + 30 * 30 + 20)  # the oldest short slot is within a long one
    short, long = keeper.file.places
    assert [len(short), len(long)] == [360, 30]
    assert keeper.spans(0, 10_000) == 920
    oldest_s = (short[0].began_ns - LATER) // SECOND
    for begin_s in (10, oldest_s - 310, oldest_s, oldest_s + 10):
        assert abs(keeper.spans(begin_s, 9_210) - (9_210 - begin_s) // 10) <= 15


@pytest.mark.ci
def test_no_time_is_left_out_where_short_and_long_slots_meet(keeper: Keeper) -> None:
    keeper.run(1 + 30 * 30)
    for _ in range(31):  # the oldest short slot moves through a long one
        keeper.run(1)
        assert keeper.spans(0, 20_000) == keeper.now_s // 10 - 1


def test_a_period_with_a_gap_says_how_much_of_it_is_kept(keeper: Keeper) -> None:
    keeper.run(1 + 3)
    keeper.file.close()
    keeper.keeper = keeper.begun()
    keeper.now_s += 600
    keeper.run(1 + 3)
    found = keeper.keeper.between(LATER, LATER + 10_000 * SECOND)
    assert found is not None
    assert (found.ended_ns - found.began_ns, found.covered_ns) == (670 * SECOND, 60 * SECOND)


def test_a_slot_counts_if_its_middle_is_in_the_time(keeper: Keeper) -> None:
    keeper.run(1 + 3)
    for began_s, ended_s, expected in ((14, 24, (10, 20)), (16, 26, (20, 30)), (15, 25, (10, 20))):
        found = keeper.keeper.between(LATER + began_s * SECOND, LATER + ended_s * SECOND)
        assert found is not None
        assert ((found.began_ns - LATER) // SECOND, (found.ended_ns - LATER) // SECOND) == expected


def test_a_time_of_day_is_answered_by_the_slot_that_contains_it(keeper: Keeper) -> None:
    keeper.run(1 + 3)
    assert [keeper.spans(at, at) for at in (5, 10, 19.9, 20, 39.9, 49.9, 50)] == [0, 1, 1, 1, 1, 1, 0]
    for at_s in (15, 25):
        found = keeper.keeper.between(LATER + at_s * SECOND, LATER + at_s * SECOND)
        assert found is not None
        assert (found.began_ns - LATER, found.ended_ns - LATER) == ((at_s - 5) * SECOND, (at_s + 5) * SECOND)


@pytest.mark.ci
def test_a_time_shorter_than_a_slot_is_answered_by_the_slot_around_its_middle(keeper: Keeper) -> None:
    keeper.run(1 + 13 * 30)
    assert keeper.spans(3_001, 3_003) == 1
    assert keeper.spans(20, 22) == 30, "this time is only in a long slot"
    assert keeper.spans(20, 320) == 31
    assert keeper.spans(0, 2) == 0


def test_a_time_after_the_last_slot_is_answered_only_while_the_next_slot_is_not_finished(keeper: Keeper) -> None:
    keeper.run(1 + 30)
    for tier in (0, 1):
        assert [len(keeper.file.around(tier, LATER + at * SECOND)) for at in (309, 310, 319, 320)] == [1, 1, 1, 0]


@pytest.mark.ci
def test_after_a_killed_daemon_the_next_one_continues_the_long_slot(keeper: Keeper) -> None:
    keeper.run(1 + 20)
    keeper.file.close()  # as if it was killed: nothing else is saved
    keeper.keeper = keeper.begun()
    assert keeper.spans(0, 1_000) == 20
    keeper.run(1 + 9)  # the first one only begins a slot
    assert len(keeper.file.places[1]) == 1, "20 slots, a gap of one, and 9 more are five minutes"
    assert keeper.spans(0, 1_000) == 29
    (long,) = keeper.keeper._contents(keeper.file.places[1], work=True)
    assert [work.spans for work in long.workers.values()] == [29]
    keeper.run(3)
    keeper.file.close()
    keeper.keeper = keeper.begun()
    keeper.run(1 + 26)
    lengths = [place.ended_ns - place.began_ns for place in keeper.file.places[1]]
    assert lengths == [300 * SECOND] * 2, "only slots that are in no long one are continued"


def test_a_pause_or_a_step_of_the_clock_ends_the_long_slot(keeper: Keeper) -> None:
    keeper.run(1 + 3)
    keeper.run(1, every_s=900)
    keeper.run(1)
    (first, second) = keeper.file.places[1]
    assert [(place.ended_ns - place.began_ns) // SECOND for place in (first, second)] == [30, 900]
    assert keeper.spans(0, 10_000) == 5


def test_a_clock_that_is_set_back_ends_the_long_slot_and_loses_and_repeats_nothing(keeper: Keeper) -> None:
    keeper.run(1 + 3)
    keeper.step_s = -3600
    keeper.run(3)
    (long,) = keeper.file.places[1]
    assert (long.ended_ns - long.began_ns) == 30 * SECOND
    assert keeper.spans(-10_000, 10_000) == 6
    assert keeper.spans(-3_550, -3_530) == 2
    found = keeper.keeper.between(LATER - 10_000 * SECOND, LATER + 10_000 * SECOND)
    assert found is not None
    assert (found.covered_ns, found.ended_ns - found.began_ns) == (60 * SECOND, 3_590 * SECOND)


def test_a_clock_that_is_set_forward_makes_no_slot_longer_than_it_was(keeper: Keeper) -> None:
    keeper.run(1 + 3)
    keeper.step_s = 7200
    keeper.run(3)
    found = keeper.keeper.between(LATER, LATER + 10_000 * SECOND)
    assert found is not None
    assert (found.covered_ns, found.longest_ns, found.ended_ns - found.began_ns) == (
        60 * SECOND, 10 * SECOND, 7_260 * SECOND,
    )  # fmt: skip


def test_a_long_slot_ends_at_the_snapshot_that_is_nearest_to_five_minutes(keeper: Keeper) -> None:
    keeper.run(1 + 8, every_s=33)
    assert keeper.file.places[1] == []
    keeper.run(1, every_s=33)
    assert [place.ended_ns - place.began_ns for place in keeper.file.places[1]] == [297 * SECOND]


def test_a_time_that_short_slots_reach_is_not_answered_by_a_long_one(keeper: Keeper) -> None:
    keeper.run(1 + 30)
    assert keeper.spans(10, 170) == 16


def test_a_long_slot_and_the_short_ones_in_it_count_once(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(day_file, "CELLS", (45, 8))
    keeper = Keeper(path)
    keeper.run(1 + 60)
    assert (keeper.file.places[0][0].began_ns - LATER) // SECOND == 160
    assert keeper.spans(0, 10_000) == 60
    assert keeper.spans(310, 10_000) == 30
    assert keeper.spans(20, 22) == 30, "this time is only in a long slot"
    keeper.keeper.end()


def test_a_slot_that_cannot_be_saved_is_reported_once(keeper: Keeper) -> None:
    keeper.run(2)
    fd = keeper.file._fd
    kept = os.dup(fd)
    os.close(fd)
    keeper.run(2)
    ((kind, text),) = keeper.events
    assert (kind, text) == ("day_failed", f"{keeper.path}: Bad file descriptor: a slot of the last day is lost")
    os.dup2(kept, fd)
    keeper.run(1)
    os.close(fd)
    keeper.run(2)
    assert len(keeper.events) == 2, "a failure after a success is reported again"
    os.dup2(kept, fd)
    os.close(kept)


def test_a_long_slot_that_cannot_be_saved_is_saved_later(keeper: Keeper) -> None:
    keeper.run(30)
    fd = keeper.file._fd
    kept = os.dup(fd)
    os.close(fd)
    keeper.run(1)
    os.dup2(kept, fd)
    os.close(kept)
    keeper.run(1)
    (long,) = keeper.file.places[1]
    assert (long.began_ns - LATER, long.ended_ns - LATER) == (10 * SECOND, 310 * SECOND)


def test_a_file_that_cannot_be_opened_is_reported_and_nothing_is_known(path: Path) -> None:
    path.parent.mkdir()
    path.mkdir()
    keeper = Keeper(path)
    keeper.run(3)
    assert keeper.spans(0, 1_000) == 0
    assert [kind for kind, _ in keeper.events] == ["day_failed"]
    assert keeper.events[0][1].endswith("Is a directory: the data of the last day are not kept")


def test_a_damaged_slot_is_left_out_and_reported(keeper: Keeper) -> None:
    keeper.run(1 + 3)
    keeper.file.append(0, LATER + 40 * SECOND, LATER + 50 * SECOND, b"not a slot")
    for _ in range(3):
        assert keeper.spans(0, 100) == 3
    ((kind, text),) = keeper.events
    assert (kind, "slot 4" in text) == ("day_failed", True), "reported once"
    bad = keeper.file.append(0, LATER + 50 * SECOND, LATER + 60 * SECOND, b"not a slot")
    assert [*keeper.keeper._contents([bad, bad], work=False)] == []
    assert len(keeper.events) == 2, "reported once, also to two who read it at the same time"
