"""Segments that something removes, closes or overwrites while the worker is live."""

from __future__ import annotations

import os
import random
import signal
import struct
from pathlib import Path

import dtypes
import forge
import pytest
from conftest import SHM, Worker, reading, readings
from faults import ALERT, Compile, Start, counts, exact, native, needs_namespaces, order, program, read_file
from recorded import events

from brickd.errors import SegmentRefused
from brickd.shm import _reader
from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find

MASK = 2**64 - 1
CONTROL = 4096
CONSUMERS = 8192


@pytest.fixture
def lost(compiled: Compile) -> os.PathLike[str]:
    """A worker that checks every few microseconds whether its segment still exists."""
    return program(compiled, "lost", *ALERT)


def taken_away(prefix: str, how: str) -> None:
    (file,) = find(prefix)
    if how == "rm":
        (SHM / file).unlink()
    else:
        with (SHM / file).open("r+b", buffering=0) as opened:
            os.pwrite(opened.fileno(), struct.pack("<Q", 1), CONTROL + 16)


WAYS = ["rm", "reopen"]


@pytest.mark.parametrize("how", WAYS)
def test_a_worker_whose_segment_is_gone_opens_another_with_all_totals(
    lost: os.PathLike[str], prefix: str, how: str
) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bmmM")
        before = reading(prefix)
        assert exact(before) == {"begun": 201, "summarized": 200, "open": 1}
        taken_away(prefix, how)
        (more,) = order(process, "w")
        after = reading(prefix)
        assert after.uuid != before.uuid
        assert after.process["took"].to_bytes(8, "little").hex() == before.uuid[:16]
        assert after.alive
        order(process, "em")
        after = reading(prefix)
        assert exact(after) == {"begun": 301 + more, "summarized": 301 + more}
        assert counts(after) == {"mine": 301 + more}
        assert after.category(1) == "first"
        assert [lane["opened"] for _, lane, _ in after.lanes] == [1]
        process.process.stdin.close()  # type: ignore[union-attr]
        assert process.process.wait() == 0
    assert find(prefix) == []


def test_a_lane_moved_without_its_thread_follows_the_new_segments_settings(lost: os.PathLike[str], prefix: str) -> None:
    def want_spans() -> None:
        with open_segment(reading(prefix).file, os.O_RDWR) as segment:
            segment.command(_reader.CONTROL_SPANS)

    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bm")
        want_spans()
        order(process, "k")
        taken_away(prefix, "rm")
        order(process, "w")
        want_spans()
        order(process, "k")
        _, (_, lane, _) = reading(prefix).lanes
        assert (lane["opened"], lane["span_attempts"], sum(lane["span_dropped"])) == (2, 100, 0)


@pytest.mark.parametrize("how", WAYS)
def test_sites_refusals_and_key_names_are_kept_and_positions_continue(
    lost: os.PathLike[str], prefix: str, how: str
) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bc")
        before = reading(prefix)
        taken_away(prefix, how)
        order(process, "wc")
        after = reading(prefix)
        assert after.uuid != before.uuid
        assert after.process["key"] == before.process["key"] != 0
        assert (before.process["tensors_refused"], after.process["tensors_refused"]) == (1, 2)
        with open_segment(after.file) as segment:
            assert [None if site is None else (after.name(site[0]), site[2]) for site in segment.read().sites] == [
                ("mine", 0),
                ("token", _reader.SITE_OFF),
            ]
        (found,) = events(after)
        assert (found["site"], found["position"]) == (0, 2)


@pytest.mark.parametrize("how", WAYS)
def test_a_sleeping_thread_follows_with_its_next_span(lost: os.PathLike[str], prefix: str, how: str) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bom")
        taken_away(prefix, how)
        (more,) = order(process, "w")
        order(process, "om")
        assert exact(reading(prefix)) == {"begun": 400 + more, "summarized": 400 + more}
        assert counts(reading(prefix)) == {"mine": 200 + more, "other thread's": 200}


@pytest.mark.parametrize("how", WAYS)
def test_a_thread_that_ended_meanwhile_keeps_its_totals(lost: os.PathLike[str], prefix: str, how: str) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bom")
        taken_away(prefix, how)
        (more,) = order(process, "w")
        order(process, "xm")
        assert counts(reading(prefix)) == {"mine": 200 + more, "other thread's": 100}
        assert exact(reading(prefix)) == {"begun": 300 + more, "summarized": 300 + more}


@pytest.mark.parametrize("how", WAYS)
def test_a_thread_that_had_ended_before_is_not_forgotten(lost: os.PathLike[str], prefix: str, how: str) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bomx")
        taken_away(prefix, how)
        (more,) = order(process, "w")
        assert (reading(prefix).odd, reading(prefix).moving) == (0, 0), "nothing changes any longer"
        assert counts(reading(prefix)) == {"mine": 100 + more, "other thread's": 100}
        assert exact(reading(prefix)) == {"begun": 200 + more, "summarized": 200 + more}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("number", ["n", "N"])
def test_a_number_interned_during_a_reopen_has_its_name_in_the_new_segment(
    lost: os.PathLike[str], prefix: str, how: str, number: str
) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bom")
        taken_away(prefix, how)
        (more,) = order(process, number)
        order(process, "m")
        assert counts(reading(prefix)) == {"mine": 200, "other thread's": 100 + more, "late": 1}
        assert exact(reading(prefix)) == {"begun": 301 + more, "summarized": 301 + more}


@pytest.mark.parametrize("how", WAYS)
def test_a_thread_that_arrives_during_a_reopen_continues_its_lanes_totals(
    lost: os.PathLike[str], prefix: str, how: str
) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bomx")
        taken_away(prefix, how)
        (more,) = order(process, "j")
        assert counts(reading(prefix)) == {"mine": 100 + more, "other thread's": 200}
        assert exact(reading(prefix)) == {"begun": 300 + more, "summarized": 300 + more}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("before", "left"), [("", 0), ("k", 100)], ids=["a new lane", "a lane that was used before"])
def test_a_thread_that_binds_during_a_reopen_records_into_the_new_segment(
    lost: os.PathLike[str], prefix: str, how: str, before: str, left: int
) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bm" + before)
        taken_away(prefix, how)
        more, _ = order(process, "rm")
        assert counts(reading(prefix)) == {"mine": 200 + more, "other thread's": left + 100}
        assert exact(reading(prefix)) == {"begun": left + 300 + more, "summarized": left + 300 + more}


@pytest.mark.parametrize("how", WAYS)
def test_a_thread_that_follows_during_a_second_reopen_loses_no_span(
    lost: os.PathLike[str], prefix: str, how: str
) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bom")
        taken_away(prefix, how)
        first, _ = order(process, "wb")
        taken_away(prefix, how)
        second, _ = order(process, "rm")
        assert counts(reading(prefix)) == {"mine": 200 + first + second, "other thread's": 200}
        assert exact(reading(prefix)) == {"begun": 400 + first + second, "summarized": 400 + first + second}


@pytest.mark.parametrize("how", WAYS)
def test_a_lane_is_not_reassigned_before_it_has_moved(lost: os.PathLike[str], prefix: str, how: str) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bmk")
        taken_away(prefix, how)
        (more,) = order(process, "h")
        after = reading(prefix)
        assert counts(after) == {"mine": 100 + more, "other thread's": 200}
        assert exact(after) == {"begun": 300 + more, "summarized": 300 + more}
        order(process, "k")
        assert [lane["opened"] for _, lane, _ in after.lanes] == [1, 1, 1]
        assert [lane["opened"] for _, lane, _ in reading(prefix).lanes] == [1, 2, 1], "the free lane is used again"


@pytest.mark.parametrize("how", WAYS)
def test_a_worker_that_only_records_given_times_notices_its_lost_segment(
    lost: os.PathLike[str], prefix: str, how: str
) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bm")
        taken_away(prefix, how)
        (more,) = order(process, "g")
        assert exact(reading(prefix)) == {"begun": 100 + more, "summarized": 100 + more}


def test_a_thread_that_ends_during_a_reopen_keeps_its_totals(lost: os.PathLike[str], prefix: str) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bm")
        more, _ = order(process, "lm")
        assert counts(reading(prefix)) == {"mine": 200 + more, "other thread's": 100}
        assert exact(reading(prefix)) == {"begun": 300 + more, "summarized": 300 + more}


def test_a_category_declared_during_a_reopen_is_kept(lost: os.PathLike[str], prefix: str) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "mK")
        after = reading(prefix)
        number = next(n for n, row in enumerate(after.names) if row is not None and row[0] == "late")
        assert after.category(number) == "second"


def only_uuid(prefix: str) -> str | None:
    """Return the uuid of the only segment; None while it changes."""
    try:
        found = readings(prefix)
    except SegmentRefused:
        return None
    return found[0].uuid if len(found) == 1 else None


@pytest.mark.ci
@pytest.mark.parametrize("how", WAYS)
def test_a_thread_that_records_throughout_is_counted_exactly(lost: os.PathLike[str], prefix: str, how: str) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        done = 0
        order(process, "m")
        for _ in range(20):
            before = only_uuid(prefix)
            order(process, "s")
            taken_away(prefix, how)
            while only_uuid(prefix) in (before, None):
                assert process.process.poll() is None, f"the worker ended with {process.process.returncode}"
            done += order(process, "t")[0]
        order(process, "mo")
        got = reading(prefix)
        spans = exact(got)
        assert spans["begun"] + spans.get("no_lane", 0) == 300 + done
        assert spans["summarized"] == spans["begun"]
        assert "unmatched" not in spans


@pytest.mark.ci
@pytest.mark.parametrize("how", WAYS)
def test_threads_that_record_during_a_reopen_lose_nothing_uncounted(
    lost: os.PathLike[str], prefix: str, how: str
) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        tried = 0
        for _ in range(10):
            order(process, "bs")
            taken_away(prefix, how)
            tried += sum(order(process, "wt"))
            tried += sum(order(process, "mo"))
            spans = exact(reading(prefix))
            assert spans.keys() <= {"begun", "summarized", "no_lane"}, "each end has a begin, and no span stays open"
            assert spans["begun"] + spans.get("no_lane", 0) == tried


@pytest.mark.parametrize("how", WAYS)
def test_rings_and_their_dropped_counts_stay_in_the_lost_segment(lost: os.PathLike[str], prefix: str, how: str) -> None:
    with native(lost, BRICKD_EVENTS="64") as process:  # type: ignore[arg-type]
        order(process, "b")
        (file,) = find(prefix)
        with open_segment(file, os.O_RDWR) as segment:
            segment.command(2)
        order(process, 42 * "m" + 70 * "d")
        ((_, lane, _),) = reading(prefix).lanes
        assert (lane["span_attempts"], lane["span_head"], lane["span_dropped"]) == (4200, 4096, (104, 0))
        kept = lane["event_records"]
        assert (lane["event_attempts"], lane["event_head"], sum(lane["event_dropped"])) == (70, kept, 70 - kept)
        assert 0 < kept < 70
        taken_away(prefix, how)
        order(process, "w")
        ((_, lane, _),) = reading(prefix).lanes
        assert (lane["span_attempts"], lane["span_head"], lane["span_dropped"]) == (0, 0, (0, 0))
        assert (lane["event_attempts"], lane["event_head"], lane["event_records"]) == (0, 0, 0)
        assert not any(lane["event_dropped"])


@pytest.mark.ci
def test_every_path_up_to_the_limit_is_copied(lost: os.PathLike[str], prefix: str) -> None:
    with native(lost, BRICKD_PATHS="8192") as process:  # type: ignore[arg-type]
        order(process, "bPox")
        taken_away(prefix, "rm")
        (more,) = order(process, "w")
        after = reading(prefix)
        found = dtypes.summaries(after.summaries)["count"].tolist()
        assert (found[0], found[1:]) == (more, [1] * 8190 + [100])


def test_a_summary_is_marked_as_changing_while_it_is_copied(lost: os.PathLike[str], prefix: str) -> None:
    with native(lost) as process:  # type: ignore[arg-type]
        order(process, "bm")
        process.process.stdin.write(b"D")  # type: ignore[union-attr]
        assert process.end() == -signal.SIGKILL
    with (SHM / reading(prefix).file).open("rb") as file:
        page = file.read(forge.PAGE)
        file.seek(forge.regions(page)["area"])
        sequences = struct.unpack("<64Q", file.read(64 * 8))
    assert [n for n, sequence in enumerate(sequences) if sequence % 2] == [1]


@needs_namespaces
def test_a_thread_without_memory_in_the_new_segment_stops_recording(lost: os.PathLike[str], prefix: str) -> None:
    small = 'mount -t tmpfs -o size=8m none /dev/shm && exec "$@"'
    with native(Path("unshare"), "-m", "sh", "-c", small, "sh", os.fspath(lost)) as process:
        order(process, "mW")
        process.process.stdin.close()  # type: ignore[union-attr]
        assert process.process.wait() == 0


# ---- the descriptor ----------------------------------------------------------------------------------------------


def test_a_host_that_closes_every_descriptor_is_still_recorded(worker: Start, prefix: str) -> None:
    process = worker(
        """
        b = brick.brick("b")
        with b: pass
        os.closerange(3, 256)
        for _ in range(2):
            for _ in range(10):
                with b: pass
            pause()
        """
    )
    process.paused()
    (file,) = find(prefix)
    with open_segment(file) as segment:
        assert segment.worker() is None, "the worker's lock is lost"
        before = segment.activity()
        process.go()
        process.paused()
        assert segment.activity() > before, "the segment still changes"
    got = reading(prefix)
    assert ([lane["begun"] for _, lane, _ in got.lanes], counts(got)) == ([21], {"b": 21})
    process.go()
    assert process.end() == 0


def test_a_lock_dropped_by_a_stray_close_does_not_stop_the_counting(worker: Start, prefix: str) -> None:
    process = worker(
        """
        b = brick.brick("b")
        with b: pass
        os.close(os.open("/dev/shm/" + _core._segment_name(), os.O_RDONLY))
        for _ in range(2):
            for _ in range(10):
                with b: pass
            pause()
        """
    )
    process.paused()
    (file,) = find(prefix)
    with open_segment(file) as segment:
        assert segment.worker() is None
        before = segment.activity()
        process.go()
        process.paused()
        assert segment.activity() - before == 20
    assert exact(reading(prefix)) == {"begun": 21, "summarized": 21}
    process.go()
    assert process.end() == 0
    assert readings(prefix) == []


REUSE = """
import tempfile, threading
b = brick.brick("b")
with b: pass
number = _core._segment_fd()
os.closerange(3, 256)
host_file = os.open(os.environ["HOST_FILE"], os.O_RDWR | os.O_CREAT)
if host_file != number: os.dup2(host_file, number)
os.write(number, b"the host's")
"""


@pytest.mark.ci
@pytest.mark.parametrize("in_dev_shm", [False, True])
def test_a_host_file_that_reused_the_descriptor_is_not_closed(
    worker: Start, prefix: str, tmp_path: Path, in_dev_shm: bool
) -> None:
    host_file = SHM / f"{prefix}host_file" if in_dev_shm else tmp_path / "host_file"
    process = worker(
        REUSE
        + """
brick.shutdown()
os.write(number, b", still")
if (child := os.fork()) == 0:
    with b: pass
    os.write(number, b", and a child's")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
        HOST_FILE=str(host_file),
    )
    assert process.end() == 0, process.stderr
    assert host_file.read_text() == "the host's, still, and a child's"


@pytest.mark.ci
def test_a_host_file_that_reused_the_descriptor_does_not_grow(
    worker: Start, prefix: str, tmp_path: os.PathLike[str]
) -> None:
    process = worker(
        REUSE
        + """
def work():
    for n in range(100):
        with brick.span(f"path {n}"): pass
work()
thread = threading.Thread(target=work); thread.start(); thread.join()
if (child := os.fork()) == 0:
    work()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
os.pwrite(number, b"", 0)
report(os.fstat(number).st_size)
pause()
""",
        HOST_FILE=os.path.join(tmp_path, "host_file"),
    )
    assert process.next_report() == len("the host's")
    process.paused()
    parent, child = sorted(readings(prefix), key=lambda each: each.header["pid"] != process.pid)
    assert counts(child) == {f"path {n}": 1 for n in range(100)}
    begun = sum(lane["begun"] for _, lane, _ in parent.lanes)
    assert begun + parent.process["no_lane"] == 201
    assert sum(counts(parent).values()) == begun
    process.go()
    assert process.end() == 0


# ---- the consumer's pages ----------------------------------------------------------------------------------------


def scribble(fd: int, chance: random.Random, lanes: int) -> None:
    """Write any bytes at any position, as a hostile consumer could. But never set the flag that turns recording off."""
    at = chance.randrange(CONTROL + 4, CONSUMERS + 64 * lanes)
    os.pwrite(fd, chance.randbytes(min(chance.randrange(1, 200), CONSUMERS + 64 * lanes - at)), at)
    os.pwrite(fd, struct.pack("<I", chance.getrandbits(32) & ~1), CONTROL)
    tail = chance.choice([0, 1, 4096, chance.getrandbits(64), chance.getrandbits(13)])
    os.pwrite(fd, struct.pack("<QQ", tail, chance.choice([tail ^ MASK, 0, tail])), CONSUMERS)


@pytest.mark.ci
def test_a_hostile_consumer_changes_no_total(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import threading
        b = brick.brick("b")
        def work():
            for _ in range(300):
                for _ in range(100):
                    with b, b(elements=1): pass
        with b: pass
        pause()
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        report("done")
        pause()
        """
    )
    process.paused()
    (file,) = find(prefix)
    chance = random.Random(7)
    assert process.process.stdout is not None
    os.set_blocking(process.process.stdout.fileno(), False)
    with (SHM / file).open("r+b", buffering=0) as opened:
        process.go()
        while os.read(process.process.stdout.fileno(), 0) == b"" and not process.process.stdout.peek(1):  # type: ignore[attr-defined]
            for _ in range(100):
                scribble(opened.fileno(), chance, 32)
        os.set_blocking(process.process.stdout.fileno(), True)
        assert process.next_report() == "done"
        process.paused()
    got = reading(prefix)
    assert exact(got) == {"begun": 120_001, "summarized": 120_001}
    assert counts(got) == {"b": 120_001}
    for _, lane, _ in got.lanes:
        assert lane["span_attempts"] == lane["span_head"] + sum(lane["span_dropped"])
    process.go()
    assert process.end() == 0


FILLING = """
b = brick.brick("b")
with b: pass
pause()
for _ in range(5000):
    with b: pass
pause()
"""


def filled(worker: Start, prefix: str, tail: tuple[int, int]) -> tuple[Worker, str]:
    """Start a worker whose span ring overflows, with this tail in its first consumer line."""
    process = worker(FILLING)
    process.paused()
    (file,) = find(prefix)
    with (SHM / file).open("r+b", buffering=0) as opened:
        os.pwrite(opened.fileno(), struct.pack("<I", 2), CONTROL)
        os.pwrite(opened.fileno(), struct.pack("<QQ", *tail), CONSUMERS)
    process.go()
    process.paused()
    return process, file


@pytest.mark.parametrize(
    "tail",
    [
        (2**40, 2**40 ^ MASK),  # a valid pair, but the tail is ahead of the head
        (MASK, 0),
        (5, 5),  # the second word is not the complement of the first
        (0, 7),
        (4097, 4097 ^ MASK),
    ],
)
def test_an_impossible_tail_is_rejected_and_counted(worker: Start, prefix: str, tail: tuple[int, int]) -> None:
    process, file = filled(worker, prefix, tail)
    got = read_file(file)
    ((number, lane, _),) = got.lanes
    assert (lane["span_head"], lane["span_attempts"], lane["span_dropped"]) == (4096, 5000, (904, 0))
    assert lane["tails_refused"] == 904
    with (SHM / file).open("r+b", buffering=0) as opened:
        os.pwrite(opened.fileno(), bytes(16), CONSUMERS)
    with open_segment(file) as segment:
        first, slots = segment.ring(number, events=False)
    assert (first, len(slots)) == (0, 4096 * 64), "nothing was overwritten"
    assert [struct.unpack_from("<Q", slots, at)[0] for at in range(0, len(slots), 64)] == list(range(1, 4097))
    assert exact(got) == {"begun": 5001, "summarized": 5001}
    process.go()
    assert process.end() == 0


def test_a_full_ring_without_a_consumer_drops_and_counts_new_records(worker: Start, prefix: str) -> None:
    process, file = filled(worker, prefix, (0, 0))
    ((_, lane, _),) = read_file(file).lanes
    assert (lane["span_head"], lane["span_attempts"], lane["span_dropped"]) == (4096, 5000, (904, 0))
    assert lane["tails_refused"] == 0
    process.go()
    assert process.end() == 0


def test_a_request_to_stop_is_obeyed_and_open_spans_still_end(worker: Start, prefix: str) -> None:
    process = worker(
        """
        b = brick.brick("b")
        with b:
            pause()
            for _ in range(100):
                with b: pass
        pause()
        for _ in range(10):
            with b: pass
        pause()
        """
    )
    process.paused()
    (file,) = find(prefix)
    with (SHM / file).open("r+b", buffering=0) as opened:
        os.pwrite(opened.fileno(), struct.pack("<I", 1), CONTROL)
        process.go()
        process.paused()
        assert exact(reading(prefix)) == {"begun": 1, "summarized": 1}
        os.pwrite(opened.fileno(), struct.pack("<I", 0), CONTROL)
        process.go()
        process.paused()
    assert exact(reading(prefix)) == {"begun": 11, "summarized": 11}
    process.go()
    assert process.end() == 0
