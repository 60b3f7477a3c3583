"""Processes that fork, exec, stop, or lose their locks and segments.

In all these cases, a daemon knows which workers are live, and counts each record once.
"""

from __future__ import annotations

import os
import signal
import struct

import pytest
from conftest import SHM, Worker
from faults import ALERT, Compile, Start, native, order, program, until_stopped
from forge import PAGE, U64
from rounds import ROUNDS, STARTS, again, closed, entry, logged, states
from running import IGNORING, ignored, running, until

from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find

# ---- fork and exec

# When the child begins, 200 deferred starts of the parent are pending. Then both the parent and the child add 200.
FORKS = """
ready, over = os.pipe(), os.pipe()
b = brick.brick("b")
def record():
    for n in range(10_000):
        with b: pass
        if n % 50 == 0: b.defer(stream=1)
record()
child = os.fork()
record()
if child == 0:
    b.defer(stream=2)  # never closed
    brick.finalize(stream=1)
    os.write(ready[1], b".")
    os.close(over[1])
    os.read(over[0], 1)  # until its parent is gone
    os._exit(0)
os.read(ready[0], 1)
report(child)
pause()
brick.finalize(stream=1)
pause()
"""


def forked(worker: Start) -> tuple[Worker, int]:
    """Start a process that forks; return it and the pid of its child."""
    parent = worker(FORKS, BRICKD_SERVICE="api")
    child: int = parent.next_report()
    parent.paused()
    return parent, child


@pytest.mark.interpreter
def test_a_forked_parent_and_child_count_once_each(worker: Start, prefix: str) -> None:
    with running() as daemon:
        parent, _ = forked(worker)
        status = closed(daemon, 200)
        assert status["ledger"]["deferred"]["pending"] == 401, "a child finalizes only deferred work that it began"
        assert states(status) == {"api/0": "live", "api/1": "live"}
        parent.go()
        parent.paused()
        status = closed(daemon, 600)
        assert status["ledger"]["deferred"]["pending"] == 1
        assert status["ledger"]["spans"]["begun"] == status["ledger"]["spans"]["summarized"] == 30_000


@pytest.mark.slow
def test_a_killed_child_is_dead_and_its_parent_lives(worker: Start, prefix: str) -> None:
    with running() as daemon:
        parent, child = forked(worker)
        closed(daemon, 200)
        os.kill(child, signal.SIGKILL)
        assert daemon.until("worker_died")["worker"] == "api/1"
        parent.go()
        parent.paused()
        status = closed(daemon, 600)
        assert states(status) == {"api/0": "live", "api/1": "died"}
        assert status["ledger"]["deferred"]["orphaned"] == 1
        assert status["ledger"]["spans"]["summarized"] == 30_000


ANOTHER = """
import os
import brick_agent as brick
b = brick.brick("b")
for _ in range(20):
    with b: pass
    b.defer(stream=1)
brick.finalize(stream=1)
os.write(1, b"1\\n")
os.read(0, 1)
"""

EXECUTES = f"""
{ROUNDS}
work()
b.defer(stream=1)
b.start()
pause()
os.execv(sys.executable, [sys.executable, "-c", {ANOTHER!r}])
"""


@pytest.mark.slow
def test_a_worker_that_execs_is_dead_and_the_new_program_is_another_worker(worker: Start, prefix: str) -> None:
    with running() as daemon:
        one = worker(EXECUTES, BRICKD_SERVICE="api")
        one.paused()
        (before,) = closed(daemon, STARTS)["workers"]
        one.go()
        one.next_report()
        assert daemon.until("worker_died")["worker"] == "api/0"
        status = closed(daemon, STARTS + 20)
        lives, dead = sorted(daemon.ask("/workers")["workers"], key=lambda each: each["state"] == "died")
        assert (lives["state"], lives["pid"]) == ("live", one.pid)
        assert (dead["state"], dead["segment"], dead["pid"]) == ("died", before["segment"], one.pid)
        spans = {term: n for term, n in status["ledger"]["spans"].items() if n}
        assert spans == {"begun": STARTS + 21, "summarized": STARTS + 20, "abandoned": 1}
        assert status["ledger"]["deferred"]["orphaned"] == 1
        until(lambda: find(prefix) == [lives["segment"]])
        assert closed(daemon, STARTS + 20)["ledger"] == status["ledger"]


# ---- locks and signals

STRAY = 'os.close(os.open("/dev/shm/" + _core._segment_name(), os.O_RDONLY))'


@pytest.mark.slow
def test_a_worker_is_alive_if_it_records_or_holds_its_lock(worker: Start, prefix: str) -> None:
    with running() as daemon:
        lost = worker(f"{ROUNDS}\nwork()\n{STRAY}\nrounds()", BRICKD_SERVICE="lost")
        stopped, killed = (worker(f"{ROUNDS}\nrounds()", BRICKD_SERVICE=name) for name in ("stopped", "killed"))
        file, still, _ = (each.next_report() for each in (lost, stopped, killed))
        starts = 4 * STARTS
        closed(daemon, starts)
        with open_segment(file) as segment:
            assert segment.worker() is None
        stopped.process.send_signal(signal.SIGSTOP)
        until_stopped(stopped.pid)
        killed.kill()
        # By the time the daemon declares this worker dead, it has watched the other workers for just as long.
        while not logged(daemon, "worker_died"):
            again(lost)
            starts += STARTS
        status = closed(daemon, starts)
        assert [each["worker"] for each in logged(daemon, "worker_died")] == ["killed/0"]
        assert status["ledger"]["spans"]["summarized"] == starts
        assert {file, still} <= set(find(prefix))
        assert entry(daemon, still)["state"] == "live"
        stopped.process.send_signal(signal.SIGCONT)
        again(stopped)
        starts += STARTS
        assert closed(daemon, starts)["ledger"]["deferred"]["orphaned"] == 0
        # The daemon also notices the end of a worker that has no lock.
        assert lost.end() == 0, lost.stderr
        assert daemon.until("worker_ended")["worker"] == "lost/0"
        assert closed(daemon, starts)["ledger"]["spans"]["summarized"] == starts
        assert [each["worker"] for each in logged(daemon, "worker_died")] == ["killed/0"]


# ---- segments that their own user changes or removes


def test_overwritten_tails_change_no_count(worker: Start, prefix: str) -> None:
    with running() as daemon:
        one = worker(f"{ROUNDS}\nrounds()", BRICKD_SERVICE="api")
        with (SHM / one.next_report()).open("r+b", buffering=0) as segment:
            closed(daemon, STARTS)
            # Each pair of words is a tail and the complement of this tail. The pair for the tail 0 is valid, but a tail
            # of 0 is far behind.
            for rounds, words in enumerate(((0, 0), (12, 12), (U64, U64), (1 << 63, U64 >> 1), (0, U64)), start=2):
                os.pwrite(segment.fileno(), struct.pack("<2Q", *words) * (PAGE // 16), 2 * PAGE)
                again(one)
                ledger = closed(daemon, rounds * STARTS)["ledger"]
                assert ledger["spans"]["summarized"] == rounds * STARTS
                assert ledger["deferred"]["orphaned"] == 0
        assert not logged(daemon, "quarantined")
        assert not logged(daemon, "break")


@pytest.mark.slow
def test_unlinking_all_segments_loses_nothing_and_counts_nothing_twice(prefix: str, compiled: Compile) -> None:
    binary = program(compiled, "lost", *ALERT)
    with (
        running() as daemon,
        native(binary, BRICKD_SERVICE="api") as one,
        native(binary, BRICKD_SERVICE="api") as two,
        native(binary, BRICKD_SERVICE="api") as three,
    ):
        for each in (one, two, three):
            order(each, "bmddfddd")
        assert closed(daemon, 6)["ledger"]["deferred"]["pending"] == 9
        for file in find(prefix):
            (SHM / file).unlink()
        three.kill()  # kill the worker before it can notice that its segment was removed
        spans = 3 * 100
        for each in (one, two):
            (more,) = order(each, "w")
            spans += more + 100
            order(each, "mdd")
        until(lambda: len(logged(daemon, "worker_moved")) == 2 and logged(daemon, "worker_died"))
        for each in (one, two):
            order(each, "f")
        # Each surviving worker has five deferred starts: three that were already pending, and two new ones.
        status = closed(daemon, 6 + 2 * 5)
        assert sorted(states(status).values()) == ["died", "live", "live"]
        assert (status["ledger"]["deferred"]["pending"], status["ledger"]["deferred"]["orphaned"]) == (0, 3)
        assert status["ledger"]["spans"]["summarized"] == spans
        assert len(find(prefix)) == 2


@pytest.mark.ci
def test_a_signal_ignored_at_the_daemons_start_stays_ignored(prefix: str) -> None:
    with running(IGNORING) as daemon:
        assert {signal.SIGINT, signal.SIGHUP} <= ignored(daemon.pid)
        assert "has ended" in daemon.end()
