"""Weights are read and recorded in slices at the ends of steps, and again on request."""

from __future__ import annotations

import os
from pathlib import Path

import forge
import pytest
from conftest import SHM, reading, readings
from faults import ALERT, Compile, Start, order, program
from faults import native as running
from test_lost import taken_away
from verbs import brickd, document
from watched_weights import PAGE, PROGRAM, Record, emptied, found, left_by

from brickd.shm.segment import open_segment
from brickd.shm.segment_copy import Reading

# ---- room in the rings
# --------------------------------------------------------------------------------------------------------

HEAD = forge.place(PAGE, "lane") + forge.field("lane", "event_head")[0]


@pytest.mark.ci
def test_records_that_do_not_fit_wait_and_none_is_lost(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + f"""
def head(): return counter({HEAD})
brick.weights(model(2000), share=1)
while scans() == 0:
    pause()
    before = head()
    steps(lambda: head() - before >= 600 * 4 or scans())
report("done")
pause()
"""
    )
    seen: dict[int, Record] = {}
    while process.next_report() == "paused":
        seen |= {each.number: each for each in found(reading(prefix))}
        emptied(reading(prefix))
        process.go()
    process.paused()
    got = reading(prefix)
    seen |= {each.number: each for each in found(got)}
    assert [seen[number].layer for number in sorted(seen)] == list(range(2000))
    assert sorted(seen) == list(range(1, 2001))
    ((_, lane, _),) = got.lanes
    assert (lane["event_attempts"], lane["event_records"], sum(lane["event_dropped"])) == (2000, 2000, 0)
    assert got.process["scans"] == 1
    process.go()
    assert process.end() == 0


def test_checksums_fit_into_the_ring_during_a_scan(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
brick.weights(model(2000), share=1)
steps(iter([False] * 2000 + [True]).__next__)
for n in range(256): brick.checksum("kernel", b"x", step=n)
pause()
"""
    )
    process.paused()
    got = reading(prefix)
    ((_, lane, _),) = got.lanes
    assert sum(lane["event_dropped"]) == 0
    assert lane["event_records"] == 256 + 640
    process.go()
    assert process.end() == 0


@pytest.mark.ci
def test_tensors_beyond_the_limit_of_sites_are_refused_and_counted(worker: Start, prefix: str) -> None:
    got, records, _, _ = left_by(
        worker,
        prefix,
        """
        for n in range(2048): brick.checksum("kernel", b"", layer=n)  # all that there are
        brick.weights(model(16_500, 1))
        """,
    )
    assert records == []
    assert (got.process["sites_refused"], got.process["weights"], got.process["scans"]) == (16_500, 16_500, 1)
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == lane["event_records"] + sum(lane["event_dropped"]) == 2048 + 16_500


@pytest.mark.ci
def test_a_large_tensor_is_read_in_slices(worker: Start, prefix: str) -> None:
    _, records, reported, _ = left_by(
        worker,
        prefix,
        """
        class Counting(dict):
            asked = 0
            def __getitem__(self, name):
                self.asked += 1
                return super().__getitem__(name)
        tensors = Counting(large=np.arange(1 << 22, dtype="f"))
        brick.weights(tensors, rescan_s=1e-9, share=1)
        reported = [tensors.asked]
        steps(lambda: scans() >= 2)
        reported.append(tensors.asked)
        """,
    )
    assert reported[0] == 1
    assert reported[1] > 3
    assert len({each.checksum for each in records}) == 1


# ---- later scans
# -------------------------------------------------------------------------------------------------------

ASKED = forge.place(PAGE, "control") + forge.later("control", "weights")


def ask(of: Reading, number: int) -> None:
    """Request a rescan of all weights, as a daemon does."""
    fd = os.open(SHM / of.file, os.O_RDWR)
    try:
        os.pwrite(fd, number.to_bytes(8, "little"), ASKED)
    finally:
        os.close(fd)


@pytest.mark.ci
def test_a_scan_begins_only_on_request(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
brick.weights(model(3), share=1)
some = [False] * 20_000 + [True]
steps(iter(some).__next__)
report(scans()); pause()
for n in (2, 3, 4):
    steps(lambda: scans() >= n)
    steps(iter(some).__next__)
    report(scans()); pause()
"""
    )
    for scan, number in ((1, 7), (2, 2**64 - 1), (3, 0), (4, 0)):
        assert process.next_report() == scan
        process.paused()
        got = reading(prefix)
        assert [each.layer for each in found(got)] == [0, 1, 2] * scan
        assert {each.generation for each in found(got)} == {1}
        ask(got, number)
        process.go()
    assert process.end() == 0


def test_a_scan_finds_changed_shrunk_removed_and_returned_tensors(worker: Start, prefix: str) -> None:
    got, records, reported, _ = left_by(
        worker,
        prefix,
        """
        tensors = {"a": array("f", [1, 2, 3]), "b": bytearray(8), "c": np.arange(5)}
        def after(change):
            change()
            at = scans() + 2  # one may be on its way
            steps(lambda: scans() >= at)
            reported.append([watched(), checksum(tensors["a"]), checksum(tensors["c"])])
        reported = []
        brick.weights(tensors, rescan_s=1e-9, share=1)
        after(lambda: tensors["a"].pop())
        after(lambda: tensors.pop("b"))
        after(lambda: tensors.__setitem__("c", np.arange(6)))
        after(lambda: tensors.update(b=bytearray(9)))
        after(lambda: tensors["b"].append(1))
        """,
    )
    assert [each[0] for each in reported] == [3, 2, 2, 3, 3]
    last = {each.name: each.checksum for each in records}
    assert [last["a"], last["c"]] == reported[-1][1:]
    assert len({each.checksum for each in records if each.name == "a"}) == 2
    assert len({each.checksum for each in records if each.name == "b"}) == 3
    assert got.process["tensors_refused"] == 0


def test_an_empty_mapping_ends_watching(worker: Start, prefix: str) -> None:
    _, records, reported, _ = left_by(
        worker,
        prefix,
        """
        import weakref
        class Model(dict): pass
        first = Model(model(2))
        alive = weakref.ref(first)
        brick.weights(first, rescan_s=1e-9)
        del first
        brick.weights({})
        reported = [alive() is None, watched(), scans()]
        steps(iter([False] * 20_000 + [True]).__next__)
        reported.append(scans())
        """,
    )
    assert reported == [True, 0, 1, 1]
    assert len(records) == 2


# ---- recording is off, forks, several threads
# --------------------------------------------------------------------------------

UNSEEN = """
import weakref
class Watched(dict):
    def keys(self): raise SystemExit("looked at")
"""


def test_while_recording_is_off_no_weights_are_read_or_kept(worker: Start, prefix: str) -> None:
    _, records, reported, _ = left_by(
        worker,
        prefix,
        UNSEEN
        + """
brick.init()
brick.disable()
one = Watched()
brick.weights(one)
alive = weakref.ref(one)
del one
reported = alive() is None
brick.enable()
with brick.step(None): pass
""",
    )
    assert (reported, records) == (True, [])


def test_a_worker_that_is_off_from_the_start_makes_no_key(worker: Start, prefix: str) -> None:
    process = worker(PROGRAM + UNSEEN + "brick.weights(Watched())\nwith brick.step(1): pass\npause()", BRICKD="0")
    process.paused()
    assert readings(prefix) == []
    assert not os.path.exists(os.environ["BRICKD_STATE_DIR"] + "/key")
    process.go()
    assert process.end() == 0


def test_a_consumer_that_disables_recording_stops_scans(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
brick.init()
pause()
brick.weights(model(3), share=1)
steps(iter([False] * 20_000 + [True]).__next__)
report([scans(), watched()])
pause()
steps(lambda: scans() == 1)
pause()
"""
    )
    process.paused()
    got = reading(prefix)
    with open_segment(got.file, os.O_RDWR) as segment:
        segment.command(1)
        process.go()
        assert process.next_report() == [0, 0]
        process.paused()
        assert found(reading(prefix)) == []
        segment.command(0)
    process.go()
    process.paused()
    assert [each.layer for each in found(reading(prefix))] == [0, 1, 2]
    process.go()
    assert process.end() == 0


def test_a_forked_child_records_weights_into_its_own_segment(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
brick.weights({f"embedding.{n}": array("f", [n]) for n in range(4)}, share=1)
if os.fork() == 0:
    with brick.step(None): pass
    steps(lambda: scans() == 1)
    pause()
    os._exit(0)
pause()
"""
    )
    process.paused()
    process.paused()
    parent, child = readings(prefix)
    assert parent.uuid != child.uuid
    assert found(parent) == found(child) != []
    assert child.process["weights"] == 4
    process.go()
    process.go()
    assert process.end() == 0


def test_a_child_forked_during_a_load_continues_it(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
import ctypes, signal, sys, threading
sys.setswitchinterval(1_000)  # the interpreter's lock is given up by whoever waits, and by nobody else
asked, looked_up = threading.Lock(), []
asked.acquire()
class Model(dict):
    def __getitem__(self, name):
        looked_up.append(name)
        if name == "large": asked.release()
        return super().__getitem__(name)
tensors = Model(large=np.zeros(1 << 21, "f"), small=np.ones(8, "f"))
while looked_up[-1:] != ["large"]:  # else it was done with all of them before this thread came to run
    loader = threading.Thread(target=brick.weights, args=(tensors,), kwargs={"share": 1})
    loader.start()
    asked.acquire()
    if looked_up[-1] != "large": loader.join()
libc, text = ctypes.PyDLL(None), ctypes.create_string_buffer(200)  # its calls keep that lock
stat = libc.open(f"/proc/self/task/{loader.native_id}/stat".encode(), 0)
def waits(): return libc.pread(stat, text, 199, ctypes.c_long(0)) and text.value.rpartition(b")")[2].split()[0] == b"S"
while not waits(): pass  # it has read what is large, and wants the lock back
child = os.fork()
if child == 0:
    signal.alarm(5)
    with brick.step(None): pass
    steps(lambda: scans() == 1)
    os._exit(0)
report(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
loader.join()
"""
    )
    assert process.next_report() == 0
    assert process.end() == 0


def test_concurrent_steps_record_each_tensor_once_per_scan(worker: Start, prefix: str) -> None:
    got, records, _, _ = left_by(
        worker,
        prefix,
        """
        import threading
        brick.weights(model(7), rescan_s=1e-9, share=1)
        begin = threading.Barrier(3)
        def work():
            begin.wait()
            steps(lambda: scans() >= 20)
            begin.wait()  # none has another's lane
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads: t.start()
        for t in threads: t.join()
        """,
    )
    counted = [sum(each.layer == layer for each in records) for layer in range(7)]
    assert min(counted) >= 20
    assert max(counted) - min(counted) <= 1
    assert max(counted) - got.process["scans"] <= 1


# ---- engines -----------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(compiled: Compile) -> Path:
    """Start an engine in C, which checks every few microseconds whether its segment still exists."""
    return program(compiled, "weights", *SCANS)


SCANS = (*ALERT, "-DBRICK_RESCAN_LEAST_NS=1")


LOADED = [("layers.*.w", 0), ("experts.*.w", -1), ("large", -1)]


@pytest.mark.ci
def test_an_engine_loads_its_weights_and_scans_them_in_slices(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        assert order(process, "l") == [5]
        got = reading(prefix)
        assert [each[:2] for each in found(got)] == LOADED
        assert (got.process["weights"], got.process["scans"], got.process["tensors_refused"]) == (4, 1, 1)
        order(process, "r")
        assert order(process, "w")[0] > 1
        again = found(reading(prefix))
        assert [each.checksum for each in again[3:6]] == [each.checksum for each in again[:3]]
        assert order(process, "t") == [1]


@pytest.mark.ci
def test_without_a_period_a_scan_begins_after_200_times_its_duration(compiled: Compile, prefix: str) -> None:
    # The tensor is small here. With the usual tensor of 8 MiB, 200 times the duration of a scan would take seconds.
    with running(program(compiled, "weights", *SCANS, "-DLARGE=4096")) as process:
        assert order(process, "l") == [5]
        order(process, "aw")  # send both commands at once, because a scan may take long on a busy machine
        assert reading(prefix).process["scans"] == 2


def plan(of: Reading) -> tuple[int, int]:
    """Return the time between the starts of two scans, and the number of weights that are read only at load."""
    ((_, lane, _),) = of.lanes
    return lane["weights_every"], lane["weights_once"]


@pytest.mark.ci
def test_a_segment_has_the_scan_period_and_the_number_of_load_only_tensors(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        order(process, "l")
        assert plan(reading(prefix)) == (0, 5), "without a time between scans, all tensors are read only at load"
        (worker,) = document("weights", code=6)["workers"]
        assert (worker["tensors"], worker["tensors_load_only"]) == (3, 3)
        assert "3 tensors read at load only (brickd weights --rescan)" in brickd("weights").stdout
        order(process, "rl")
        assert plan(reading(prefix)) == (1, 0)
        order(process, "al")
        assert plan(reading(prefix)) == (0, 0)
        order(process, "sl")
        assert plan(reading(prefix)) == (0, 1)
        taken_away(prefix, "reopen")
        order(process, "n")
        assert plan(reading(prefix)) == (0, 1), "the next segment has the same times between scans"


@pytest.mark.ci
def test_a_load_during_a_slice_is_left_to_the_following_slices(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        order(process, "lLw")
        got = found(reading(prefix))
        assert [each[:2] for each in got] == LOADED * 2
        assert [each.generation for each in got] == [1] * 3 + [2] * 3


def test_a_constantly_moving_tensor_is_refused_and_ends_no_scan(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        order(process, "lrmw")
        order(process, "w")
        got = reading(prefix)
        assert [each[:2] for each in found(got)[3:5]] == LOADED[:2]
        assert got.process["tensors_refused"] >= 5


@pytest.mark.ci
def test_a_tensor_moved_once_during_its_read_is_read_again(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        order(process, "lr")
        before = reading(prefix).process["tensors_refused"]
        assert order(process, "ow")[1] > 1
        got = reading(prefix)
        assert [each[:2] for each in found(got)[:6]] == LOADED * 2
        assert got.process["tensors_refused"] == before + got.process["scans"] - 1, (
            "the tensor is recorded once in each scan"
        )


@pytest.mark.ci
def test_each_borrowed_tensor_is_released_even_if_unreadable(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        assert order(process, "lrwk")[-1] == 0
        refused = reading(prefix).process["tensors_refused"]
        assert order(process, "iwwk")[-1] == 0
        got = reading(prefix)
        assert got.process["tensors_refused"] >= refused + 4, "each scan counts two tensors"
        assert [each[:2] for each in found(got)[-2:]] == LOADED[1:]


@pytest.mark.ci
@pytest.mark.parametrize("how", ["rm", "reopen"])
def test_all_weights_are_recorded_again_into_a_replacement_segment(engine: Path, prefix: str, how: str) -> None:
    with running(engine) as process:
        order(process, "l")
        before = reading(prefix)
        taken_away(prefix, how)
        order(process, "n")
        after = reading(prefix)
        assert after.uuid != before.uuid
        assert [each[:2] for each in found(after)] == LOADED
        assert (after.process["weights"], after.process["scans"]) == (4, 1)


@pytest.mark.ci
def test_a_child_forked_during_a_slice_records_all_weights(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        assert order(process, "lrf") == [5, 0, 0]
