"""Before a worker removes a segment, it writes a record of the segment; if it cannot, the segment stays."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from typing import Any

import forge
import pytest
from conftest import SHM, reading, readings
from faults import Compile, Start, exact, native, needs_namespaces, program
from machines import machine
from removals import FULL, GREEDY, RECORD, REFUSED, dead, file_of, newcomer, records, small, sums

from brickd.shm import _reader
from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find


def scribble(file: str, record: str, names: tuple[str, ...], lane: int = 0) -> None:
    """Write a different number into each element of these counters."""
    numbers = iter(range(1_000_001, 2_000_000))
    with (SHM / file).open("r+b", buffering=0) as opened:
        at = forge.place(os.pread(opened.fileno(), forge.PAGE, 0), record, lane)
        for name in names:
            offset, _, size = forge.field(record, name)
            content = b"".join(next(numbers).to_bytes(8, "little") for _ in range(size // 8))
            os.pwrite(opened.fileno(), content, at + offset)


def same(record: _reader.Removed, wanted: dict[str, Any]) -> None:
    assert {name: value for name, value in record.items() if name in wanted} == wanted


# The worker uses two lanes; the first belongs to the main thread.
BOTH = """
import threading
brick.init(service="api", worker="7.tp3.pp12.ep345", lanes=2)
with brick.span("b"): pass
other = threading.Thread(target=lambda: [brick.span("c").__enter__(), brick.span("d").__enter__()])
other.start(); other.join()
pause()
"""


def test_a_clean_end_without_a_consumer_leaves_a_record_of_every_total(worker: Start, prefix: str) -> None:
    process = worker(BOTH)
    process.paused()
    (file,) = find(prefix)
    every = ("begun", "summarized", "open", "abandoned", "rejected", "nested", "span_attempts", "span_dropped")
    for lane in range(2):
        scribble(file, "lane", (*every, "event_attempts", "event_dropped", "marks", "marks_refused"), lane)
    scribble(file, "process", ("no_lane", "took"))
    wanted = sums(reading(prefix))
    process.go()
    assert process.end() == 0
    assert find(prefix) == []
    (record,) = records(prefix)
    same(record, wanted)
    assert record["reason"] == _reader.REMOVED_ENDED
    assert record["removed_ns"] > record["started_ns"]


def test_a_worker_without_records_leaves_nothing(worker: Start, prefix: str) -> None:
    process = worker("brick.init()\npause()")
    process.paused()
    process.go()
    assert process.end() == 0
    assert list(SHM.glob(f"{prefix}*")) == []


def test_a_clean_end_after_a_consumer_attached_keeps_the_segment(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("b"): pass\npause()')
    process.paused()
    (file,) = find(prefix)
    with open_segment(file, os.O_RDWR) as segment:
        segment.mark_attached()
    process.go()
    assert process.end() == 0
    assert (reading(prefix).ended, exact(reading(prefix))) == (True, {"begun": 1, "summarized": 1})
    assert records(prefix) == []


def test_a_clean_end_under_an_older_daemon_keeps_the_segment(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("b"): pass\npause()')
    process.paused()
    (file,) = find(prefix)
    with open_segment(file, os.O_RDWR) as segment:
        assert segment.consume()
        process.go()
        assert process.end() == 0
    assert (reading(prefix).ended, records(prefix)) == (True, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_worker_that_changed_its_user_keeps_a_segment_it_cannot_remove(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("b"): pass\nos.seteuid(65534)\npause()')
    process.paused()
    process.go()
    assert process.end() == 0
    assert reading(prefix).ended
    assert list(SHM.glob(f"{prefix}removed-*")) == []


def test_a_worker_drained_by_a_daemon_that_has_ended_keeps_its_segment(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("b"): pass\npause()')
    process.paused()
    with machine(prefix) as daemon:
        assert [each.ledger.spans["begun"] for each in daemon.survey().workers] == [1]
    process.go()
    assert process.end() == 0
    assert (reading(prefix).ended, exact(reading(prefix))) == (True, {"begun": 1, "summarized": 1})


@pytest.mark.ci
def test_workers_that_end_at_once_each_leave_a_complete_record(worker: Start, prefix: str) -> None:
    process = worker(
        """
        gate = os.pipe()
        children = []
        for n in range(1, 41):
            child = os.fork()
            if child == 0:
                os.close(gate[1])
                for _ in range(n):
                    with brick.span("b"): pass
                os.read(gate[0], 1)
                brick.shutdown()
                os._exit(0)
            children.append(child)
        os.close(gate[1])
        for child in children: os.waitpid(child, 0)
        pause()
        """
    )
    process.paused()
    assert find(prefix) == []
    assert sorted(each["begun"] for each in records(prefix)) == list(range(1, 41))


def test_a_record_has_the_frozen_layout_of_format_1() -> None:
    reported = {name: (offset, count, code) for _, name, offset, count, code in _reader.removed_layout()}
    assert reported == {
        **{"magic": (0, 1, "Q"), "format": (8, 1, "H"), "reason": (10, 1, "H"), "crc": (12, 1, "I")},
        **{"uuid": (16, 16, "B"), "service": (32, 64, "B"), "coordinates": (96, 16, "B"), "index": (112, 1, "i")},
        **{"reserved": (116, 1, "I"), "started_ns": (120, 1, "Q"), "removed_ns": (128, 1, "Q"), "took": (136, 1, "Q")},
        **{"begun": (144, 1, "Q"), "summarized": (152, 1, "Q"), "rejected": (160, 2, "Q"), "open": (176, 1, "Q")},
        **{"abandoned": (184, 1, "Q"), "nested": (192, 1, "Q"), "no_lane": (200, 1, "Q")},
        **{"span_attempts": (208, 1, "Q"), "span_dropped": (216, 1, "Q"), "event_attempts": (224, 1, "Q")},
        **{"event_dropped": (232, 1, "Q"), "marks": (240, 1, "Q"), "marks_refused": (248, 1, "Q")},
    }
    assert RECORD == 256


# ---- files that accept no record


@pytest.mark.parametrize("how", REFUSED)
def test_a_clean_end_that_cannot_write_a_record_keeps_the_segment(worker: Start, prefix: str, how: str) -> None:
    process = worker('with brick.span("b"): pass\npause()')
    process.paused()
    REFUSED[how](file_of(prefix))
    before = file_of(prefix).lstat()
    process.go()
    assert process.end() == 0
    assert (reading(prefix).ended, exact(reading(prefix))) == (True, {"begun": 1, "summarized": 1})
    after = file_of(prefix).lstat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


def test_a_file_with_space_for_one_record_takes_one(worker: Start, prefix: str) -> None:
    file_of(prefix).touch(0o600)
    os.truncate(file_of(prefix), FULL - RECORD)
    process = worker('with brick.span("b"): pass\npause()')
    process.paused()
    process.go()
    assert process.end() == 0
    assert find(prefix) == []
    *_, last = _reader.removed(file_of(prefix).read_bytes())
    assert last is not None
    assert (last["begun"], file_of(prefix).stat().st_size) == (1, FULL)


@pytest.mark.parametrize(("by", "kind", "left"), [("a daemon", fcntl.F_WRLCK, 1), ("a worker", fcntl.F_RDLCK, 0)])
def test_a_clean_end_does_not_wait_for_a_locked_file(worker: Start, prefix: str, by: str, kind: int, left: int) -> None:
    process = worker('with brick.span("b"): pass\npause()')
    process.paused()
    with file_of(prefix).open("w+b") as opened:
        file_of(prefix).chmod(0o600)
        fcntl.fcntl(opened.fileno(), fcntl.F_OFD_SETLK, struct.pack("@hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
        process.go()
        assert process.end() == 0
    assert [each.ended for each in readings(prefix)] == [True] * left
    assert len(records(prefix)) == 1 - left


@pytest.mark.ci
def test_a_child_forked_while_a_record_is_written_holds_no_lock(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "removed", *GREEDY), "7", "fork", "1") as process:
        process.paused()
        process.go()
        assert process.next_report() == "forked"
        with file_of(prefix).open("r+b") as opened:
            lock = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(opened.fileno(), fcntl.F_OFD_SETLK, lock)
        assert process.end() == 0
    assert [each["begun"] for each in records(prefix)] == [7]


def test_a_record_lost_with_its_file_keeps_the_segment(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "removed", *GREEDY), "7", "rm", "1") as process:
        process.paused()
        process.go()
        assert process.end() == 0
    assert (reading(prefix).ended, exact(reading(prefix))) == (True, {"begun": 7, "summarized": 7})
    assert not file_of(prefix).exists()


def test_a_clean_end_does_not_wait_for_a_lease_on_the_file(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("b"): pass\npause()')
    process.paused()
    # the kernel sends SIGIO to the holder of a lease when another process waits
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with file_of(prefix).open("w+b") as opened:
            file_of(prefix).chmod(0o600)
            fcntl.fcntl(opened.fileno(), fcntl.F_SETLEASE, fcntl.F_WRLCK)
            process.go()
            assert process.end() == 0
    finally:
        signal.signal(signal.SIGIO, before)
    assert (reading(prefix).ended, records(prefix)) == (True, [])


def test_a_file_size_limit_keeps_the_segment_and_kills_no_process(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        with brick.span("b"): pass
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        pause()
        """
    )
    process.paused()
    process.go()
    assert process.end() == 0
    assert (reading(prefix).ended, list(SHM.glob(f"{prefix}removed*"))) == (True, [])


def test_an_unlinked_segment_is_recorded_when_its_worker_ends(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("b"): pass\npause()')
    process.paused()
    (file,) = find(prefix)
    (SHM / file).unlink()
    process.go()
    assert process.end() == 0
    assert [each["begun"] for each in records(prefix)] == [1]


# ---- dead segments


def test_a_new_worker_records_each_dead_segment_that_it_removes(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10, 20, 30):
        for each in readings(prefix):
            scribble(each.file, "lane", ("opened", "begun"), lane=each.header["lanes"] - 1)
        wanted = [sums(each) for each in readings(prefix)]
        newcomer(compiled)
    assert find(prefix) == []
    found = {record["uuid"]: record for record in records(prefix)}
    assert len(found) == len(wanted)
    for sum_of in wanted:
        same(found[sum_of["uuid"]], sum_of)
        assert found[sum_of["uuid"]]["reason"] == _reader.REMOVED_ROOM


def test_a_living_workers_segment_is_kept_at_any_age(compiled: Compile, prefix: str) -> None:
    binary = program(compiled, "removed", *GREEDY)
    with native(binary, "7", "none", "1") as lives:
        lives.paused()
        (file,) = find(prefix)
        with dead(compiled, prefix, 10):
            os.utime(SHM / file, ns=(0, 0))
            newcomer(compiled)
        assert find(prefix) == [file]
        assert [each["begun"] for each in records(prefix)] == [10]
        lives.end()
    assert [each["begun"] for each in records(prefix)] == [10, 7]


def test_a_segment_with_a_held_lock_is_kept_with_any_pid(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "removed", *GREEDY), "7", "none", "1") as lives:
        lives.paused()
        (alive,) = find(prefix)
        with dead(compiled, prefix, 10) as (drained,), open_segment(drained, os.O_RDWR) as segment:
            assert segment.consume()
            # so the worker looks like a process in another pid namespace
            with (SHM / alive).open("r+b", buffering=0) as opened:
                page = bytearray(os.pread(opened.fileno(), forge.PAGE, 0))
                forge.put(page, "header", {"pid": segment.header["pid"]})
                os.pwrite(opened.fileno(), forge.seal(page), 0)
            newcomer(compiled)
            assert find(prefix) == sorted((alive, drained))
        newcomer(compiled)
        assert find(prefix) == [alive]


def test_dead_segments_without_a_span_leave_no_record(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 0, 1):
        newcomer(compiled)
    assert find(prefix) == []
    assert [each["begun"] for each in records(prefix)] == [1]


@pytest.mark.parametrize("how", REFUSED)
def test_dead_segments_stay_where_no_record_can_be_written(compiled: Compile, prefix: str, how: str) -> None:
    with dead(compiled, prefix, 10, 20) as files:
        REFUSED[how](file_of(prefix))
        size = file_of(prefix).lstat().st_size
        newcomer(compiled)
        assert (find(prefix), file_of(prefix).lstat().st_size) == (sorted(files), size)


@pytest.mark.parametrize("field", ["major", "layout_crc"])
def test_a_dead_segment_of_another_format_stays(compiled: Compile, prefix: str, field: str) -> None:
    with dead(compiled, prefix, 10) as (file,):
        with (SHM / file).open("r+b", buffering=0) as opened:
            page = bytearray(os.pread(opened.fileno(), forge.PAGE, 0))
            forge.put(page, "header", {field: forge.header_value(page, field) + 1})
            os.pwrite(opened.fileno(), forge.seal(page), 0)
        newcomer(compiled)
        assert (find(prefix), records(prefix)) == ([file], [])


def test_a_dead_segment_with_inconsistent_counters_stays(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10, 20, 30) as (file, cut, _):
        with (SHM / file).open("r+b", buffering=0) as opened:
            os.pwrite(opened.fileno(), b"other", forge.field("header", "service")[0])
        os.truncate(SHM / cut, (SHM / cut).stat().st_size - 1)
        newcomer(compiled)
        assert find(prefix) == sorted((file, cut))
    assert [each["begun"] for each in records(prefix)] == [30]


@pytest.mark.ci
def test_one_new_worker_removes_the_oldest_32_segments_and_the_next_continues(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, *range(1, 41)) as by_age:
        newcomer(compiled)
        assert find(prefix) == sorted(by_age[32:])
        assert [each["begun"] for each in records(prefix)] == list(range(1, 33))
        newcomer(compiled)
    assert find(prefix) == []
    assert [each["begun"] for each in records(prefix)] == list(range(1, 41))


@pytest.mark.ci
@pytest.mark.parametrize(
    "step_ns",
    [pytest.param(10**9, id="in seconds", marks=pytest.mark.ci), pytest.param(10**6, id="in milliseconds")],
)
def test_the_oldest_segments_go_first_whatever_their_order_of_creation(
    compiled: Compile, prefix: str, step_ns: int
) -> None:
    with dead(compiled, prefix, *range(1, 41)) as made:
        for age, file in enumerate(reversed(made)):
            os.utime(SHM / file, ns=(age * step_ns, age * step_ns))
        newcomer(compiled)
        assert find(prefix) == sorted(made[:8])
    assert [each["begun"] for each in records(prefix)] == list(range(40, 8, -1))


@pytest.mark.ci
def test_a_new_worker_examines_a_bounded_number_of_files(compiled: Compile, prefix: str) -> None:
    # the limit of two entries is used up by "." and ".."
    limited = program(compiled, "removed", *GREEDY, "-DBRICK_LOOKED_AT=2u")
    with dead(compiled, prefix, 10, 20) as left, native(limited, "0", "none", "1") as process:
        process.paused()
        assert set(left) <= set(find(prefix))
        process.end()


def test_files_created_since_the_count_do_not_hide_a_dead_segment(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10, 20), native(program(compiled, "removed", *GREEDY), "0", "counted", "1") as process:
        assert process.next_report() == "counted"
        for number in range(400):  # more than other tests remove from /dev/shm at the same time
            (SHM / f"new-{prefix}{number}").touch(0o600)
        process.go()
        process.paused()
        process.end()
        for number in range(400):
            (SHM / f"new-{prefix}{number}").unlink()
        assert find(prefix) == []


def test_a_file_of_records_is_not_taken_for_a_segment(compiled: Compile, prefix: str) -> None:
    strangers = [f"{prefix}removed-{uid}" for uid in (0, 1, 65534, 2**32 - 1)] + [f"{prefix}x-removed-7"]
    others = [f"{prefix}removed-", f"{prefix}removed-x", f"{prefix}removed-12345678901", f"{prefix}removed7"]
    for name in strangers + others:
        (SHM / name).touch(0o600)  # now the file of the removed segments accepts records
    assert find(prefix) == sorted(others)
    with dead(compiled, prefix, 10) as (file,):
        (SHM / file).replace(SHM / strangers[1])
        newcomer(compiled)
        assert (SHM / strangers[1]).stat().st_size > 0


# ---- the memory that dead segments take


@pytest.mark.ci
@needs_namespaces
def test_dead_segments_are_removed_while_they_exceed_an_eighth_of_free_space(worker: Start, prefix: str) -> None:
    process = worker(
        small(18)
        + """
killed(40)
looks = [seen()]
for _ in range(3):
    comes()
    looks.append(seen())
report(looks)
"""
    )
    (free, taken, many, _), *looks = process.next_report()
    assert process.end() == 0
    one = taken // many
    for before, segments, left, recorded in looks:
        spared = max(many - 32, min(many, free // 8 // one))
        assert (left, recorded, segments) == (spared, 40 - spared, one * spared)
        free, many = before, left
    assert looks[-1] == looks[-2], "below the limit, nothing is removed"
    assert looks[-1][2] > 0


@pytest.mark.ci
@needs_namespaces
def test_a_full_dev_shm_has_space_for_the_record_that_frees_some(worker: Start, prefix: str) -> None:
    process = worker(
        small(4)
        + """
for _ in range(16): comes(1)
killed(3)
fill()
report(seen())
comes()
report(seen())
"""
    )
    free, _, dead_before, recorded = process.next_report()
    assert (free, dead_before, recorded) == (0, 3, 16), "the file of records needs a new page, but /dev/shm is full"
    assert process.next_report()[2:] == [0, 19]
    assert process.end() == 0


# ---- kills


@pytest.mark.parametrize(("point", "left"), [("ended", 0), ("recorded", 1)])
def test_a_kill_during_a_clean_end_leaves_at_most_one_record(
    compiled: Compile, prefix: str, point: str, left: int
) -> None:
    with native(program(compiled, "removed", *GREEDY), "5", point, "1") as process:
        process.paused()
        assert process.end() == -signal.SIGKILL
    assert (reading(prefix).ended, exact(reading(prefix))) == (True, {"begun": 5, "summarized": 5})
    assert [each["begun"] for each in records(prefix)] == [5] * left


def test_a_kill_during_removal_leaves_the_segment_with_its_record(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10, 20) as (oldest, next_one):
        newcomer(compiled, "recorded", "2")
        assert find(prefix) == [next_one]
        assert [each["begun"] for each in records(prefix)] == [10, 20]
        newcomer(compiled)
        assert find(prefix) == []
    assert [each["begun"] for each in records(prefix)] == [10, 20, 20]
    assert oldest != next_one
