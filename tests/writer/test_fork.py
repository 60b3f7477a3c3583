"""Forks of every kind: each recording process has its own segment; all counts are exact."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import SHM, reading, readings
from faults import Compile, Start, counts, exact, native, program, total

from brickd.shm.segment import open_segment

pytestmark = pytest.mark.interpreter

# Three ways to fork: by Python, by the C library, and by the system call itself. The process holds the interpreter lock
# meanwhile, so the child holds it, too.
FORKS = {
    "python": "os.fork()",
    "libc": "ctypes.PyDLL(None).fork()",
    "clone": "ctypes.PyDLL(None).syscall(clone, 17, 0, 0, 0, 0)",
}
FORKING = """
import ctypes, platform
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
def fork():
    return FORK
def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def record(many):
    for _ in range(many):
        with b: pass
b = brick.brick("b")
"""


def forking(how: str) -> str:
    return FORKING.replace("FORK", FORKS[how])


@pytest.mark.parametrize("how", FORKS)
def test_a_forked_child_records_into_its_own_segment(worker: Start, prefix: str, how: str) -> None:
    process = worker(
        forking(how)
        + """
record(10)
children = []
for n in range(3):
    child = fork()
    if child == 0:
        record(10_000)
        os._exit(n)
    children.append(child)
report(children)
report([wait(child) for child in children])
record(5)
pause()
"""
    )
    children = process.next_report()
    assert process.next_report() == [0, 1, 2]
    process.paused()
    found = {each.header["pid"]: each for each in readings(prefix)}
    assert found.keys() == {process.pid, *children}
    assert exact(found[process.pid]) == {"begun": 15, "summarized": 15}
    for child in children:
        assert not found[child].alive
        assert exact(found[child]) == {"begun": 10_000, "summarized": 10_000}
        assert counts(found[child]) == {"b": 10_000}
    process.go()
    assert process.end() == 0
    assert {each.header["pid"] for each in readings(prefix)} == set(children), "a parent removes only its own segment"


@pytest.mark.ci
@pytest.mark.parametrize("how", FORKS)
def test_a_child_that_records_nothing_makes_and_removes_no_segment(worker: Start, prefix: str, how: str) -> None:
    process = worker(
        forking(how)
        + """
record(10)
for end in (lambda: sys.exit(0), lambda: os._exit(0), brick.shutdown):
    child = fork()
    if child == 0:
        end()
        record(10)
        os._exit(0)
    report(wait(child))
pause()
"""
    )
    assert [process.next_report() for _ in range(3)] == [0, 0, 0]
    process.paused()
    assert reading(prefix).alive
    assert exact(reading(prefix)) == {"begun": 10, "summarized": 10}
    process.go()
    assert process.end() == 0
    assert readings(prefix) == []


@pytest.mark.ci
def test_a_child_that_ends_cleanly_removes_only_its_own_segment(worker: Start, prefix: str) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + """
record(10)
child = fork()
if child == 0:
    record(20)
    sys.exit(7)
report(wait(child))
pause()
"""
    )
    assert process.next_report() == 7
    process.paused()
    assert exact(reading(prefix)) == {"begun": 10, "summarized": 10}
    process.go()
    assert process.end() == 0


@pytest.mark.parametrize("how", FORKS)
def test_a_span_around_a_fork_belongs_to_the_parent(worker: Start, prefix: str, how: str) -> None:
    process = worker(
        forking(how)
        + """
with b:
    child = fork()
if child == 0:
    silent = _core._segment_name() == ""
    record(20)
    os._exit(7 if silent else 8)
report(child)
report(wait(child))
pause()
"""
    )
    child = process.next_report()
    assert process.next_report() == 7
    process.paused()
    found = {each.header["pid"]: exact(each) for each in readings(prefix)}
    assert found == {process.pid: {"begun": 1, "summarized": 1}, child: {"begun": 20, "summarized": 20}}


def test_a_child_that_leaves_the_parents_span_counts_an_unmatched_end(worker: Start, prefix: str) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + """
outer = brick.brick("outer")
with outer:
    child = fork()
    record(20)
if child == 0:
    os._exit(0)
report(child)
report(wait(child))
pause()
"""
    )
    child = process.next_report()
    assert process.next_report() == 0
    process.paused()
    found = {each.header["pid"]: exact(each) for each in readings(prefix)}
    assert found[process.pid] == {"begun": 21, "summarized": 21}
    assert found[child] == {"begun": 20, "summarized": 20, "unmatched": 1}


@pytest.mark.ci
def test_grandchildren_have_their_own_segments_whether_or_not_parents_recorded(worker: Start, prefix: str) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + """
record(1)
for between in (0, 10):
    if (child := fork()) == 0:
        record(between)
        if (grandchild := fork()) == 0:
            record(100)
            if (last := fork()) == 0:
                record(1000)
                os._exit(0)
            os._exit(wait(last))
        os._exit(wait(grandchild))
    report(wait(child))
pause()
"""
    )
    assert [process.next_report(), process.next_report()] == [0, 0]
    process.paused()
    found = readings(prefix)
    assert sorted(exact(each)["begun"] for each in found) == [1, 10, 100, 100, 1000, 1000]
    assert total(found) == {"begun": 2211, "summarized": 2211}


@pytest.mark.parametrize(
    ("call", "index"),
    [
        ("brick.init('api', worker=7)", 7),
        *(
            pytest.param(*each, marks=pytest.mark.ci)
            for each in (
                ("brick.init(worker='7.tp1')", 7),
                ("brick.init('api')", 0),
                ("record(1)", 0),
                ("record(1); brick.init(worker=7)", 0),
            )
        ),
    ],
)
def test_a_child_may_name_its_worker_before_its_first_record(worker: Start, prefix: str, call: str, index: int) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + f"""
brick.init("api", worker=0); record(1)
if (child := fork()) == 0:
    {call}
    if (grandchild := fork()) == 0:
        record(1)
        os._exit(0)
    os._exit(wait(grandchild))
report(wait(child))
pause()
"""
    )
    assert process.next_report() == 0
    process.paused()
    found = readings(prefix)
    assert sorted(each.header["index"] for each in found) == [0, index, index]
    assert {each.service for each in found} == {"api"}
    process.go()
    assert process.end() == 0
    refused = call.startswith("record(1); ")
    assert ("init must give the worker with which this process already records (0), not 7" in process.stderr) == refused
    assert sum(lane["amounts"] for each in found for _, lane, _ in each.lanes) == refused


@pytest.mark.ci
def test_names_and_paths_keep_their_numbers_in_a_child(worker: Start, prefix: str) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + """
bricks = [brick.brick(f"name {n}", f"kind {n % 3}") for n in range(200)]
for outer in bricks:
    with outer, bricks[0]: pass
child = fork()
if child == 0:
    with brick.span("the child's"): pass
    for outer in bricks:
        with outer, bricks[0]: pass
    os._exit(0)
report(wait(child))
with brick.span("the parent's"): pass
pause()
"""
    )
    assert process.next_report() == 0
    process.paused()
    parent, child = readings(prefix)
    assert parent.names[:-1] == child.names[:-1]
    assert parent.paths[:-1] == child.paths[:-1]
    both = {f"name {n}": 1 for n in range(1, 200)} | {"name 0": 201}
    assert counts(parent) == both | {"the parent's": 1}
    assert counts(child) == both | {"the child's": 1}
    assert exact(parent) == exact(child) == {"begun": 401, "summarized": 401}


@pytest.mark.slow
def test_a_child_forked_while_other_threads_intern_names_loses_none(compiled: Compile, prefix: str) -> None:
    rounds = 40
    with native(program(compiled, "forks"), "intern", str(rounds)) as process:
        spans = process.next_report()
        found = readings(prefix)
        (parent,) = (each for each in found if each.alive)
        children = [each for each in found if not each.alive]
        assert len(children) == rounds
        assert exact(parent) == {"begun": spans, "summarized": spans}
        for child in children:
            assert exact(child) == {"begun": 110, "summarized": 110}
            assert counts(child) == {"known": 100, "fresh": 10}
            for theirs, ours in zip(child.names, parent.names, strict=False):
                # A name is written before its category, so a fork can happen between the two writes.
                assert theirs is None or ours is None or theirs in (ours, (ours[0], 0)) or theirs[0] == "fresh"
        process.go()
        assert process.end() == 0


@pytest.mark.ci
def test_threads_of_the_parent_do_not_affect_a_child(worker: Start, prefix: str) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + """
import threading
stop, started = threading.Event(), threading.Barrier(4)
def run():
    done = 0
    with brick.span("held"):
        while not stop.is_set():
            record(10)
            done += 10
            if done == 10: started.wait()
    totals.append(done + 1)
totals = []
threads = [threading.Thread(target=run) for _ in range(3)]
for thread in threads: thread.start()
started.wait()
children = []
for _ in range(20):
    if (child := fork()) == 0:
        record(50)
        os._exit(0)
    children.append(wait(child))
stop.set()
for thread in threads: thread.join()
report([children, sum(totals)])
pause()
"""
    )
    statuses, spans = process.next_report()
    assert statuses == [0] * 20
    process.paused()
    found = readings(prefix)
    assert {each.alive: exact(each) for each in found} == {
        True: {"begun": spans, "summarized": spans},
        False: {"begun": 50, "summarized": 50},
    }
    assert len(found) == 21


@pytest.mark.parametrize("call", ["disable", pytest.param("shutdown", marks=pytest.mark.ci)])
def test_recording_disabled_before_a_fork_stays_disabled_in_the_child(worker: Start, prefix: str, call: str) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + f"""
record(5)
brick.{call}()
child = fork()
if child == 0:
    record(10)
    os._exit(_core._segment_name() != "")
report(wait(child))
child = fork()
if child == 0:
    brick.enable()
    record(10)
    os._exit(0)
report(wait(child))
pause()
"""
    )
    assert [process.next_report(), process.next_report()] == [0, 0]
    process.paused()
    found = [exact(each)["begun"] for each in readings(prefix)]
    assert found == ([5, 10] if call == "disable" else [])


@pytest.mark.ci
def test_two_hundred_children_at_once_are_counted_exactly(worker: Start, prefix: str) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + """
record(1)
gate, ready = os.pipe(), os.pipe()
children = []
for n in range(200):
    child = fork()
    if child == 0:
        os.close(gate[1])
        record(n + 1)
        os.write(ready[1], b".")
        os.read(gate[0], 1)
        os._exit(0)
    children.append(child)
for _ in range(200): os.read(ready[0], 1)
pause()
os.close(gate[1])
report([wait(child) for child in children])
"""
    )
    process.paused()
    found = readings(prefix)
    assert len(found) == 201
    assert total(found) == {"begun": 1 + 200 * 201 // 2, "summarized": 1 + 200 * 201 // 2}
    process.go()
    assert process.next_report() == [0] * 200
    assert process.end() == 0


@pytest.mark.ci
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_are_counted_with_any_start_method(
    worker: Start, prefix: str, tmp_path: Path, method: str
) -> None:
    (tmp_path / "job.py").write_text(
        "import brick_agent\n"
        "def run(many, ready, go):\n"
        "    for _ in range(many):\n"
        "        with brick_agent.span('job'): pass\n"
        "    ready.release()\n"
        "    go.acquire()\n"
    )
    process = worker(
        f"""
        import multiprocessing
        sys.path.insert(0, {str(tmp_path)!r})
        import job
        with brick.span("parent"): pass
        context = multiprocessing.get_context({method!r})
        ready, go = context.Semaphore(0), context.Semaphore(0)
        children = [context.Process(target=job.run, args=(100, ready, go)) for _ in range(3)]
        for child in children: child.start()
        for child in children: ready.acquire()
        pause()
        for child in children: go.release()
        for child in children: child.join()
        report([child.exitcode for child in children])
        """
    )
    process.paused()
    named = [counts(each) for each in readings(prefix)]
    assert sorted(named, key=str) == [{"job": 100}, {"job": 100}, {"job": 100}, {"parent": 1}]
    assert total(readings(prefix)) == {"begun": 301, "summarized": 301}
    process.go()
    assert process.next_report() == [0, 0, 0]
    assert process.end() == 0


@pytest.mark.ci
def test_started_programs_neither_make_nor_hold_a_segment(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import subprocess
        with brick.span("b"): pass
        inherited = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True)
        report(inherited.stdout)
        for n in range(30):
            with brick.span("b"):
                assert subprocess.run(["true"], close_fds=n % 2 == 0).returncode == 0
            assert os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)[1] == 0
        pause()
        """
    )
    assert prefix not in process.next_report()
    process.paused()
    assert reading(prefix).alive
    assert exact(reading(prefix)) == {"begun": 31, "summarized": 31}
    process.go()
    assert process.end() == 0
    assert readings(prefix) == []


@pytest.mark.ci
def test_vfork_and_posix_spawn_do_not_affect_the_parent(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "forks"), "vfork", "100") as process:
        spans = process.next_report()
        assert reading(prefix).alive
        assert exact(reading(prefix)) == {"begun": spans, "summarized": spans}
        process.go()
        assert process.end() == 0
    assert readings(prefix) == []


def test_exec_counts_as_a_death(worker: Start, prefix: str) -> None:
    process = worker(
        """
        b = brick.brick("b")
        for _ in range(3):
            with b: pass
        b.start()
        pause()
        program = "import os; os.write(1, b'1\\\\n'); os._exit(len(os.read(0, 1)))"
        os.execv(sys.executable, [sys.executable, "-c", program])
        """
    )
    process.paused()
    assert reading(prefix).alive
    process.go()
    assert process.next_report() == 1
    old = reading(prefix)
    assert old.header["pid"] == process.pid, "the process continues with another program"
    assert not old.alive
    assert exact(old) == {"begun": 4, "summarized": 3, "abandoned": 1}
    process.go()
    assert process.end() == 1


def test_a_childs_file_shares_no_part_of_its_parents_name(worker: Start, prefix: str) -> None:
    process = worker(
        FORKING.replace("FORK", "os.fork()")
        + """
record(1)
child = fork()
record(1)
report(_core._segment_name())
if child == 0: os._exit(0)
report(wait(child))
pause()
"""
    )
    reported = [process.next_report() for _ in range(3)]
    process.paused()
    assert {name for name in reported if name} == set(os.listdir(SHM)) & {name for name in reported if name}
    uuids = set()
    for each in readings(prefix):
        with open_segment(each.file) as segment:
            uuids.add(segment.header["uuid"])
    assert len(uuids) == 2
