"""The daemon's memory in a file: it is restored unchanged, or refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dtypes
import pytest
from conftest import Worker, reading
from hypothesis import given
from hypothesis import strategies as st
from test_deferred import defer, finalize, measured, passes

from brickd.base.state_file import framed
from brickd.errors import CheckpointRefused
from brickd.model.deferred_overlay import laid_over, overlay
from brickd.model.retained_workers import Cursor, RetainedTotals, RetainedWorker
from brickd.model.worker_survey import survey
from brickd.query.orders import Wish
from brickd.shm import _reader
from brickd.shm.reading_sums import added
from brickd.shm.removed_workers import RemovedWorker, WorkerCounts
from brickd.shm.segment_codec import compact
from brickd.shm.segment_copy import Reading
from brickd.state import checkpoint
from brickd.state.daemon_state import OLDER_MAX, Memory

NAMES = """
    for name in NAMES:
        with brick.layer(3), brick.span(name, category="norm"), brick.span("within", elements=5):
            pass
    brick.brick("given").record(17)
    pause()
"""


@pytest.fixture
def kept(worker: Callable[..., Worker], prefix: str) -> Reading:
    """Return the reading of a worker that has ended."""
    one = worker(NAMES.replace("NAMES", "('norm', '\\\\x1b[31m模')"), BRICKD_SERVICE="api")
    one.paused()
    found = replace(reading(prefix), drained=True)  # every stored reading is marked as drained
    one.kill()
    return found


def memory(kept: Reading) -> Memory:
    work = passes(defer(100, 3, id=1) + finalize(300, 3) + defer(400, 3, id=2) + measured(9, 8))
    known = RetainedWorker("api/1", [Cursor(1, 2, 3, 4, 5), Cursor(0, 0, 0, 0, 2**64 - 1)], work, 7)
    gone = {kept.uuid: RetainedTotals("api/0", kept)}
    return Memory(
        "brickd-",
        {"ab" * 16: known},
        gone,
        {"api/TSC": RetainedTotals("api/older", kept, 3)},
        ["cd" * 16],
        {"api": Wish(spans=True)},
    )


def test_a_memory_survives_encoding_and_decoding(kept: Reading) -> None:
    before = memory(kept)
    after = checkpoint.decode(checkpoint.encode(before))
    assert (after.gone, after.older) == (before.gone, before.older)
    known, wanted = ({uuid: [*each.pieces()] for uuid, each in of.known.items()} for of in (after, before))
    assert known == wanted
    empty: dict[str, Any] = {"known": {}, "gone": {}, "older": {}}
    assert replace(after, **empty) == replace(before, **empty)
    assert after.gone[kept.uuid].reading == compact(kept)
    assert bytes(after.gone[kept.uuid].reading.summaries) == bytes(kept.summaries)
    assert after.known["ab" * 16].deferred.counts == before.known["ab" * 16].deferred.counts


@pytest.mark.ci
def test_every_changed_byte_is_detected(kept: Reading) -> None:
    content = checkpoint.encode(memory(kept))
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CheckpointRefused):
            checkpoint.decode(bytes(damaged))


@pytest.mark.ci
def test_a_checkpoint_truncated_anywhere_is_refused(kept: Reading) -> None:
    content = checkpoint.encode(memory(kept))
    for length in range(len(content)):
        with pytest.raises(CheckpointRefused):
            checkpoint.decode(content[:length])
    with pytest.raises(CheckpointRefused, match=r"\d+ bytes, expected \d+"):
        checkpoint.decode(content + b" ")


@given(st.binary(max_size=200))
def test_a_file_of_another_format_is_refused(content: bytes) -> None:
    for each in (content, b"brickd checkpoint " + content, b"brickd checkpoint 2 " + content):
        with pytest.raises(CheckpointRefused):
            checkpoint.decode(each)


def test_a_checkpoint_of_a_later_version_is_refused_with_that_version() -> None:
    with pytest.raises(CheckpointRefused, match="version 3, this brickd reads version 2"):
        checkpoint.decode(framed("checkpoint", 3, [b"{}"]))


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b"{", b'{"prefix": "x", "known": {"a": [1]}}', b"\xff"])
def test_a_checkpoint_with_a_valid_checksum_and_invalid_content_is_refused(body: bytes) -> None:
    with pytest.raises(CheckpointRefused, match="has an invalid structure"):
        checkpoint.decode(framed("checkpoint", checkpoint.VERSION, [body]))


def test_services_beyond_the_limit_are_merged_into_others(kept: Reading) -> None:
    here = Memory("brickd-")
    for number in range(OLDER_MAX + 40):
        here.add_up(RetainedTotals("x/0", kept).of_service(f"service{number}"))
    assert len(here.older) == OLDER_MAX + 1
    rest = here.older[f"/{kept.clock}"]
    assert (rest.workers, rest.reading.service) == (40, "others")
    assert sum(each.workers for each in here.older.values()) == OLDER_MAX + 40
    summarized = sum(lane["summarized"] for _, lane, _ in kept.lanes)
    assert sum(lane["summarized"] for _, lane, _ in rest.reading.lanes) == 40 * summarized


def with_paths_on_their_way(kept: Reading, more: int) -> Reading:
    """Return the reading of a worker that was adding paths when it was read."""
    summaries = bytes(kept.summaries) + bytes(more * _reader.SUMMARY_BYTES)
    return replace(kept, names=list(kept.names), paths=[*kept.paths, *more * [None]], summaries=summaries)


def test_names_and_paths_that_workers_share_are_stored_once(kept: Reading) -> None:
    another = with_paths_on_their_way(kept, 1)
    here = Memory("brickd-", gone={"a": RetainedTotals("api/0", kept), "b": RetainedTotals("api/1", another)})
    again = checkpoint.decode(checkpoint.encode(here))
    for each in (here, again):
        first, second = (gone.reading for gone in each.gone.values())
        assert first.names is second.names
        assert (first.paths, second.paths) == (kept.paths, another.paths)
    content = checkpoint.encode(again)
    assert content.count(b'["within",0]') == 1
    assert checkpoint.decode(content).gone == here.gone


def test_later_dead_workers_share_the_paths_of_a_decoded_checkpoint(kept: Reading) -> None:
    unlike_others = with_paths_on_their_way(kept, 3)
    content = checkpoint.encode(Memory("brickd-", gone={"a": RetainedTotals("api/0", unlike_others)}))
    again = checkpoint.decode(content)
    assert RetainedTotals("api/1", unlike_others).reading.paths is again.gone["a"].reading.paths


def test_changing_a_memory_does_not_change_its_copy(kept: Reading) -> None:
    here = memory(kept)
    wanted, copy = checkpoint.encode(here), here.copy()
    here.gone.clear()
    here.older.clear()
    here.wishes.clear()
    here.known.clear()
    here.bury("ef" * 16)
    assert checkpoint.encode(copy) == wanted


def test_a_reading_without_its_names_is_refused(kept: Reading) -> None:
    _, body = checkpoint.encode(memory(kept)).split(b"\n", 1)
    document = json.loads(body) | {"names": {}}
    body = json.dumps(document).encode()
    with pytest.raises(CheckpointRefused, match="has an invalid structure: KeyError"):
        checkpoint.decode(framed("checkpoint", checkpoint.VERSION, [body]))


def test_a_missing_file_is_an_empty_memory(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path / "checkpoint") is None
    assert checkpoint.load(tmp_path / "no" / "checkpoint") is None
    (tmp_path / "file").touch()
    assert checkpoint.load(tmp_path / "file" / "checkpoint") is None


def test_a_full_disk_keeps_the_previous_checkpoint_and_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint"
    checkpoint.save(path, b"the last one")
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if os.fstat(fd).st_size >= 100:
            raise OSError(28, "No space left on device")
        return write(fd, data[: 100 - os.fstat(fd).st_size])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path, b"x" * 1000)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]
    assert path.read_bytes() == b"the last one"


def test_only_the_owner_may_read_a_checkpoint(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "checkpoint", b"x")
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o600


def test_a_save_replaces_the_file_atomically_and_leaks_no_descriptor(tmp_path: Path) -> None:
    path, draft = tmp_path / "checkpoint", tmp_path / "checkpoint.new"
    draft.write_bytes(b"a draft that is longer, of a daemon that was killed")
    before = len(os.listdir("/proc/self/fd"))
    checkpoint.save(path, b"the next one")
    assert (path.read_bytes(), len(os.listdir("/proc/self/fd"))) == (b"the next one", before)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"another file")
    draft.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic link"):
        checkpoint.save(path, b"not through a link")
    assert (elsewhere.read_bytes(), path.read_bytes()) == (b"another file", b"the next one")
    assert not draft.is_symlink()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_fifo_or_directory_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "checkpoint")
    with pytest.raises(CheckpointRefused):
        checkpoint.load(tmp_path / "checkpoint")
    with pytest.raises(IsADirectoryError):
        checkpoint.load(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "checkpoint", checkpoint.encode(Memory("brickd-")))
    os.chown(tmp_path / "checkpoint", 65534, -1)
    with pytest.raises(CheckpointRefused, match=r"belongs to user .*, expected "):
        checkpoint.load(tmp_path / "checkpoint")


def test_the_first_line_has_the_version() -> None:
    assert checkpoint.encode(Memory("brickd-")).startswith(b"brickd checkpoint 2 ")


# ---- sums of readings


def bricks(of: Reading) -> dict[tuple[str, int, int], tuple[int, int, int]]:
    rows = dtypes.summaries(of.summaries)
    found: dict[tuple[str, int, int], tuple[int, int, int]] = {}
    for path, row in zip(of.paths, rows, strict=True):
        if path is not None and row["count"]:
            key = (of.name(path.name), path.layer, path.unit)
            before = found.get(key, (0, 0, 0))
            values = (int(row["count"]), int(row["total"]), int(row["elements"]))
            found[key] = tuple(map(sum, zip(before, values, strict=True)))  # type: ignore[assignment]
    return found


def test_merged_readings_have_every_count_and_time_of_both(worker: Callable[..., Worker], prefix: str) -> None:
    both = []
    for names in ("('a', 'b')", "('c', 'b', 'a')"):
        one = worker(NAMES.replace("NAMES", names), BRICKD_SERVICE="api")
        one.paused()
        both.append(next(each for each in survey().workers if each.reading.pid == one.pid).reading)
    first, second = both
    together = added(first, second)
    wanted = bricks(first)
    for key, values in bricks(second).items():
        wanted[key] = tuple(map(sum, zip(wanted.get(key, (0, 0, 0)), values, strict=True)))  # type: ignore[assignment]
    assert bricks(together) == wanted
    assert together.category(together.paths[-1].name if together.paths[-1] else 0) in ("norm", "other")
    assert sum(lane["summarized"] for _, lane, _ in together.lanes) == 5 * 2 + 2
    again = added(together, first)
    assert len(again.paths) == len(together.paths), "known paths are not added again"
    assert sum(lane["summarized"] for _, lane, _ in again.lanes) == 5 * 2 + 2 + 5


def test_readings_whose_categories_form_a_cycle_can_be_merged(kept: Reading) -> None:
    names: list[tuple[str, int] | None] = [(f"n{number}", number + 1) for number in range(5_000)]
    together = added(kept, replace(kept, names=[*names, ("last", 0)]))
    assert (len(together.names), together.category(len(kept.names))) == (5_001 + len(kept.names), "n1")


@pytest.mark.ci
def test_merged_readings_have_no_more_names_than_a_checkpoint_may_hold(kept: Reading) -> None:
    together = kept
    for worker in range(3):
        names: list[tuple[str, int] | None] = [(f"{worker}.{number}", number + 1) for number in range(30_000)]
        together = added(together, replace(kept, names=names))
    assert len(together.names) == _reader.NUMBERS_MAX
    assert all(each is None or each[1] < _reader.NUMBERS_MAX for each in together.names)
    here = Memory("brickd-", older={"api/TSC": RetainedTotals("api/older", together, 4)})
    assert checkpoint.decode(checkpoint.encode(here)).older == here.older


def test_merged_counters_of_corrupt_readings_saturate(kept: Reading) -> None:
    (number, lane, consumer), *_ = kept.lanes
    corrupt: Any = {**lane, "begun": 2**64 - 1, "rejected": tuple(2**64 - 1 for _ in lane["rejected"])}
    one = replace(kept, lanes=[(number, corrupt, consumer)], odd=2**64 - 1, deferred={"started": 2**64 - 1})
    here = Memory("brickd-", older={"api/TSC": RetainedTotals("api/older", added(one, one), 2)})
    here.known["ab" * 16] = RetainedWorker("api/0", finalizes_dropped=2**65)
    record: Any = {
        "uuid": bytes(16), "took": 0, "service": b"api", "coordinates": b"", "index": -7, "reason": 0,
        "started_ns": 1, "removed_ns": 2, "rejected": 3 * (2**64 - 1,), "no_lane": 0, "nested": 0,
        **dict.fromkeys(("begun", "span_attempts", "event_attempts", "marks", "span_dropped", "event_dropped"), 1),
    }  # fmt: skip
    here.removed.fold([RemovedWorker.of(record)])
    here.removed.add("api", False, 1, WorkerCounts(2**65))
    here.removed.add("api", True, 1, WorkerCounts(2**64 - 1))
    here.removed.add("api", True, 1, WorkerCounts(1))
    again = checkpoint.decode(checkpoint.encode(here))
    assert again.older["api/TSC"].reading.lanes[0][1]["begun"] == 2**64 - 1
    assert (again.older, again.removed) == (here.older, here.removed)
    assert again.known["ab" * 16].finalizes_dropped == again.removed.sums["api", False].counts.spans == 2**64 - 1


def test_merged_deferred_work_is_the_sum(kept: Reading) -> None:
    work = passes(defer(100, path=0, id=1) + finalize(300))
    one = laid_over(kept, overlay(work))
    assert added(one, one).deferred == {name: 2 * count for name, count in one.deferred.items() if count}


def test_a_checkpoint_is_readable_json(kept: Reading) -> None:
    first, body = checkpoint.encode(memory(kept)).split(b"\n", 1)
    assert re.fullmatch(rb"brickd checkpoint 2 \d+ [0-9a-f]{8}", first)
    assert body.startswith(b'{"prefix":"brickd-","known":')
