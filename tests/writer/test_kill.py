"""Workers that die at any moment: at most the current span is unpublished."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable

import dtypes
import pytest
from conftest import ROOT, SHM, reading, readings
from faults import ALERT, Compile, Start, counts, exact, native, needs_namespaces, program, read_file, total
from forge import PAGE, place

from brickd.errors import SegmentRefused
from brickd.shm import _reader, records
from brickd.shm.ledger import ledger_of
from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find

SOURCES = (ROOT / "agent" / "src" / "writer").glob("*.[ch]")
POINTS = sorted({name for source in SOURCES for name in re.findall(r'BRICK_POINT\("(\w+)"\)', source.read_text())})

# The worker dies when it first reaches a point. Each row has the numbers of unpublished spans, odd summaries (half
# written) and lost records.
IN_BEGIN = {"begun": (1, 0, 0), "open": (0, 0, 0)}
IN_END = {
    "popped": (1, 0, 0),
    "summary": (1, 0, 0),
    "summary_odd": (1, 1, 0),
    "summary_half": (1, 1, 0),
    "summary_even": (1, 1, 0),
    "summarized": (1, 0, 0),
    "record": (0, 0, 1),
    "record_sequence": (0, 0, 1),
    "record_head": (0, 0, 1),
}
# The worker dies while it records an event, before the head moves. Each row says whether the event is complete in its
# slot, and whether it is counted.
IN_EVENT = {
    "event": (False, False),
    "event_sequence": (False, False),
    "event_counted": (True, False),
    "event_head": (True, True),
}
ELSEWHERE = {"header", "published", "name_text", "path_claimed", "site_claimed"}
IN_REOPEN = {"bind", "leave", "moved", "next"}  # tested in test_lost.py, where another thread opens the next segment
IN_REMOVAL = {"counted", "ended", "recorded"}  # tested in tests/daemon/test_removed.py


# The worker dies while it records marks. Each row has the numbers of missing marks and of odd summaries. Each round has
# three records, the third of which is a span.
IN_MARK = {"mark": (1, 0), "summary": (1, 0), "summary_odd": (1, 1)}

# The worker dies while it records a checksum, which takes more than one slot. The results are the same as for an event.
IN_CHECKSUM = IN_EVENT | {"checked": (False, False)}


def test_every_named_step_of_the_writer_is_tested_here() -> None:
    known = IN_BEGIN.keys() | IN_END.keys() | IN_CHECKSUM.keys() | IN_MARK.keys() | ELSEWHERE | IN_REOPEN | IN_REMOVAL
    assert set(POINTS) == known


def left_by(compiled: Compile, point: str, at: int, of: str = "steps") -> None:
    with native(program(compiled, of, *ALERT), point, str(at)) as process:
        assert process.end() == -signal.SIGKILL, f"the worker does not reach {point} {at} times"


def left_in_lane(prefix: str) -> tuple[dict[str, int], int, int]:
    """Check the ring of a dead worker. Return its ledger, the number of its odd summaries, and the number of its lost
    records.
    """
    dead = reading(prefix)
    assert not dead.alive
    ((number, lane, _),) = dead.lanes
    with open_segment(dead.file) as segment:
        first, slots = segment.ring(number, events=False)
    assert first == 0
    assert [int.from_bytes(slots[at : at + 8], "little") for at in range(0, len(slots), 64)] == list(
        range(1, lane["span_head"] + 1)
    )
    return exact(dead), dead.odd, lane["span_attempts"] - lane["span_head"]


# The program repeats these steps: outer begins, inner begins, inner ends, outer ends. The table below has the terms of
# the ledger after a death in the n-th step.
@pytest.mark.parametrize("at", [1, 2, 7, 20])
@pytest.mark.parametrize("point", IN_BEGIN)
def test_a_death_while_a_span_begins_leaves_only_it_unpublished(
    compiled: Compile, prefix: str, point: str, at: int
) -> None:
    left_by(compiled, point, at)
    unpublished, odd, lost = IN_BEGIN[point]
    around = (at + 1) % 2
    wanted = {
        "begun": at,
        "summarized": at - 1 - around,
        "abandoned": around + 1 - unpublished,
        "unpublished": unpublished,
    }
    assert left_in_lane(prefix) == ({term: n for term, n in wanted.items() if n}, odd, lost)


@pytest.mark.parametrize("at", [1, 2, 7, 20])
@pytest.mark.parametrize("point", IN_END)
def test_a_death_while_a_span_ends_leaves_only_it_unpublished(
    compiled: Compile, prefix: str, point: str, at: int
) -> None:
    left_by(compiled, point, at)
    unpublished, odd, lost = IN_END[point]
    around = at % 2
    wanted = {
        "begun": at + around,
        "summarized": at - unpublished,
        "abandoned": around,
        "unpublished": unpublished,
    }
    assert left_in_lane(prefix) == ({term: n for term, n in wanted.items() if n}, odd, lost)


# The program repeats these steps: a launch, its shape, the end of the span around both.
@pytest.mark.parametrize("at", [1, 2, 7, 20])
@pytest.mark.parametrize("point", IN_MARK)
def test_a_death_while_a_mark_is_counted_leaves_only_it_unpublished(
    compiled: Compile, prefix: str, point: str, at: int
) -> None:
    left_by(compiled, point, at, "marks")
    dead = reading(prefix)
    spans = 0 if point == "mark" else at // 3
    unpublished, odd = IN_MARK[point] if point == "mark" or at % 3 else (0, IN_MARK[point][1])
    account = ledger_of(dead)
    counts = dtypes.summaries(dead.summaries)["count"]
    counted = sum(int(counts[n]) for n, path in enumerate(dead.paths) if path is not None and path.marks)
    assert (account.marks["wanted"], account.marks["refused"]) == (at - spans, 0)
    assert (account.marks["wanted"] - counted, dead.odd) == (unpublished, odd)


def event_slots(file: str, slots: Iterable[int], lane: int) -> bytes:
    with (SHM / file).open("rb", buffering=0) as opened:
        header = os.pread(opened.fileno(), PAGE, 0)
        return b"".join(os.pread(opened.fileno(), 64, place(header, "event_ring", slot, lane)) for slot in slots)


# The program repeats these events: two deferred starts, a measurement, a finalize.
@pytest.mark.parametrize("at", [1, 2, 3, 4, 40])
@pytest.mark.parametrize("point", IN_EVENT)
def test_a_death_while_an_event_is_written_leaves_only_it_unpublished(
    compiled: Compile, prefix: str, point: str, at: int
) -> None:
    left_by(compiled, point, at, "deferred")
    whole, counted = IN_EVENT[point]
    dead = reading(prefix)
    assert exact(dead) == {}
    ((number, lane, _),) = dead.lanes
    assert (lane["event_attempts"], lane["event_head"], lane["event_records"]) == (at, at - 1, at - 1 + counted)
    assert not any(lane["event_dropped"])
    with open_segment(dead.file) as segment:
        first, slots = segment.ring(number, events=True)
    events, others = records.events(slots)
    assert (first, others) == (0, {})
    assert [each["sequence"] for each in events] == list(range(1, at))
    assert [each["kind"] for each in events] == [(3, 3, 5, 4)[n % 4] for n in range(at - 1)]
    at_the_head = event_slots(dead.file, [at - 1], number)
    # The reader uses the record at the head if its sequence number shows that the record is complete.
    assert [each["sequence"] for each in records.events(at_the_head)[0] if each["sequence"]] == [at] * whole


# The program repeats two checksums: one without an input, and one with two inputs.
@pytest.mark.parametrize("at", [1, 2, 3, 14])
@pytest.mark.parametrize("point", IN_CHECKSUM)
def test_a_death_while_a_checksum_is_written_leaves_only_it_unpublished(
    compiled: Compile, prefix: str, point: str, at: int
) -> None:
    left_by(compiled, point, at, "checked")
    whole, counted = IN_CHECKSUM[point]
    dead = reading(prefix)
    ((number, lane, _),) = dead.lanes
    inputs = [0, 2] * 10
    slots = [4 + 2 * n for n in inputs]
    below = sum(slots[: at - 1])
    assert (lane["event_attempts"], lane["event_head"], lane["event_records"]) == (at, below, at - 1 + counted)
    with open_segment(dead.file) as segment:
        events, others = records.events(segment.ring(number, events=True)[1])
    assert others == {}
    assert [(each["sequence"], each["inputs"]) for each in events] == list(enumerate(inputs[: at - 1], 1))
    around = event_slots(dead.file, ((below + n) % 128 for n in range(slots[at - 1])), number)
    found = [each for each in records.events(around)[0] if each["sequence"]] if whole else []
    assert [(each["sequence"], each["inputs"], len(each["tensors"])) for each in found] == (
        [(at, inputs[at - 1], inputs[at - 1] + 1)] * whole
    )
    assert len({each["tensors"][0]["checksum"] for each in (*events, *found)}) <= 1
    fd = os.open(SHM / dead.file, os.O_RDWR)
    try:
        drain = _reader.Drain(fd)
        drain.salvage()
        assert _reader.drain([drain])[2] == []
    finally:
        os.close(fd)
    assert drain.cursors()[0][1:4] == (below + slots[at - 1] * whole, at - 1 + whole, at - 1 + whole)
    assert (drain.rejected, drain.skipped, drain.gaps) == (0, 0, 0)


@pytest.mark.parametrize("at", [1, 4, 5, 8])
@pytest.mark.parametrize("point", sorted(IN_CHECKSUM.keys() - {"event"}))
def test_a_death_while_rows_are_written_leaves_only_them_unpublished(
    compiled: Compile, prefix: str, point: str, at: int
) -> None:
    left_by(compiled, point, at, "rows")
    whole, counted = IN_CHECKSUM[point]
    dead = reading(prefix)
    ((number, lane, _),) = dead.lanes
    inputs = [1, 3, 5, 7] * 2
    slots = [4 + 2 * n for n in inputs]
    below = sum(slots[: at - 1])
    assert (lane["event_attempts"], lane["event_head"], lane["event_records"]) == (at, below, at - 1 + counted)
    with open_segment(dead.file) as segment:
        events, others = records.events(segment.ring(number, events=True)[1])
    assert others == {}
    assert [(each["sequence"], each["inputs"]) for each in events] == list(enumerate(inputs[: at - 1], 1))
    around = event_slots(dead.file, range(below, below + slots[at - 1]), number)
    found = [each for each in records.events(around)[0] if each["sequence"]] if whole else []
    assert [(each["sequence"], len(each["tensors"])) for each in found] == [(at, inputs[at - 1] + 1)] * whole


def test_a_death_between_a_site_and_its_key_leaves_an_unused_number(compiled: Compile, prefix: str) -> None:
    left_by(compiled, "site_claimed", 1, "checked")
    dead = reading(prefix)
    assert dead.process["sites"] == 1
    with open_segment(dead.file) as segment:
        assert segment.read().sites == [None]


@pytest.mark.parametrize(("at", "open_then"), [(1, 0), (2, 1)])
def test_a_death_between_a_path_and_its_key_leaves_an_unused_number(
    compiled: Compile, prefix: str, at: int, open_then: int
) -> None:
    left_by(compiled, "path_claimed", at)
    assert reading(prefix).process["paths"] == 1 + at
    assert reading(prefix).paths[at] is None
    assert exact(reading(prefix)) == ({"begun": 1, "abandoned": 1} if open_then else {})


def test_a_death_while_a_name_is_written_leaves_it_unready(compiled: Compile, prefix: str) -> None:
    left_by(compiled, "name_text", 3)
    left = reading(prefix)
    assert left.process["names"] == 3
    assert [entry[0] if entry is not None else None for entry in left.names] == ["other", "outer", None]
    assert exact(left) == {}


@pytest.mark.parametrize("point", ["header", "name_text"])
def test_a_death_before_publication_leaves_a_refused_and_harmless_file(
    compiled: Compile, worker: Start, prefix: str, point: str
) -> None:
    left_by(compiled, point, 1)
    (file,) = find(prefix)
    with pytest.raises(SegmentRefused, match="not published"):
        open_segment(file)
    process = worker('with brick.span("b"): pass\nreport(_core._segment_name())\npause()')
    mine = process.next_report()
    assert exact(read_file(mine)) == {"begun": 1, "summarized": 1}
    process.paused()
    process.go()
    assert process.end() == 0
    assert find(prefix) == [file]


def test_a_death_just_after_publication_leaves_an_empty_segment(compiled: Compile, prefix: str) -> None:
    left_by(compiled, "published", 1)
    assert exact(reading(prefix)) == {}
    assert not reading(prefix).alive


def test_a_killed_worker_leaves_everything_it_had_recorded(worker: Start, prefix: str) -> None:
    process = worker(
        """
        outer, inner = brick.brick("outer"), brick.brick("inner")
        for _ in range(1000):
            with outer, inner: pass
        with outer:
            inner.start()
            pause()
        """
    )
    process.paused()
    assert exact(reading(prefix)) == {"begun": 2002, "summarized": 2000, "open": 2}
    process.kill()
    assert process.end() == -signal.SIGKILL
    assert exact(reading(prefix)) == {"begun": 2002, "summarized": 2000, "abandoned": 2}
    assert counts(reading(prefix)) == {"outer": 1000, "inner": 1000}


@pytest.mark.interpreter
def test_os_exit_inside_a_span_leaves_it_abandoned(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("b"):\n    os._exit(6)')
    assert process.end() == 6
    assert not reading(prefix).alive
    assert exact(reading(prefix)) == {"begun": 1, "abandoned": 1}


@pytest.mark.interpreter
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
def test_a_worker_killed_by_a_signal_dies_of_that_signal(worker: Start, prefix: str, number: int) -> None:
    process = worker(f'with brick.span("b"):\n    os.kill(os.getpid(), {int(number)})\n    os.read(0, 1)')
    assert process.end() == -number
    assert exact(reading(prefix)) == {"begun": 1, "abandoned": 1}


@pytest.mark.ci
def test_100_dead_segments_that_fill_little_of_dev_shm_are_kept(worker: Start, prefix: str) -> None:
    process = worker(
        """
        ready = os.pipe()
        children = []
        for n in range(100):
            child = os.fork()
            if child == 0:
                for _ in range(1000):
                    with brick.span("b"): pass
                os._exit(0)
            children.append(child)
        for child in children: os.waitpid(child, 0)
        with brick.span("parent"): pass
        pause()
        """
    )
    process.paused()
    assert total(readings(prefix)) == {"begun": 100_001, "summarized": 100_001}


@pytest.mark.slow
@needs_namespaces
def test_a_reused_pid_does_not_revive_a_dead_worker(prefix: str) -> None:
    # In a pid namespace of its own, the test can predict the next pid, and no other process takes it.
    source = """
import os, sys
def child(record):
    pid = os.fork()
    if pid == 0:
        import brick_agent as brick
        for _ in range(record):
            with brick.span("b"): pass
        os.write(1, b"%d\\n" % os.getpid())
        os.read(never[0], 1)
    return pid
never = os.pipe()
first = child(10)
os.read(0, 1)
os.kill(first, 9); os.waitpid(first, 0)
open("/proc/sys/kernel/ns_last_pid", "w").write(str(first - 1))
second = child(0)
assert second == first
os.read(0, 1)
os.kill(second, 9); os.waitpid(second, 0)
open("/proc/sys/kernel/ns_last_pid", "w").write(str(first - 1))
third = child(20)
assert third == first
os.read(0, 1)
os.kill(third, 9); os.waitpid(third, 0)
"""
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        pid = process.stdout.readline()
        assert reading(prefix).alive
        os.write(process.stdin.fileno(), b".")
        assert process.stdout.readline() == pid, "another process has the pid of the dead worker now"
        assert not reading(prefix).alive
        assert exact(reading(prefix)) == {"begun": 10, "summarized": 10}
        os.write(process.stdin.fileno(), b".")
        assert process.stdout.readline() == pid, "another worker has the pid of the dead worker now"
        dead, alive = readings(prefix)
        assert (dead.alive, alive.alive) == (False, True)
        assert dead.header["pid"] == alive.header["pid"]
        assert dead.uuid != alive.uuid
        assert exact(dead) == {"begun": 10, "summarized": 10}
        assert exact(alive) == {"begun": 20, "summarized": 20}
        os.write(process.stdin.fileno(), b".")
        assert process.wait() == 0
