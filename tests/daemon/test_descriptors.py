"""If descriptors are scarce, the daemon first refuses clients; workers and the checkpoint keep their descriptors."""

from __future__ import annotations

import os
import resource
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from faults import Start
from running import Running, running, until
from serving import connected, following, request
from verbs import document

from brickd.base.open_file_limits import RESERVED, divided
from brickd.base.paths import runtime
from brickd.base.units import SECOND
from brickd.daemon.collector import Collector
from brickd.daemon.daemon import Daemon
from brickd.errors import DaemonRefused
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory
from brickd.state.runtime_dir import Home

LIMIT = 64
WORKING = """
    b = brick.brick("b")
    while True:
        with b: pass
        b.defer(stream=1)
        brick.finalize(stream=1)
        report(_core._segment_name())
        if not os.read(0, 1): break
"""


def test_the_limit_is_divided_between_reserve_workers_and_clients() -> None:
    assert divided(64) == (16, 8)
    assert divided(1_024) == (792, 100)
    assert divided(524_288) == (1_024, 100)
    for limit in range(LIMIT, 4_096):
        workers, clients = divided(limit)
        assert RESERVED + workers + 2 * clients <= limit
        assert min(workers, clients) >= 8


@pytest.mark.parametrize("limit", [0, 20, LIMIT - 1])
def test_a_limit_that_is_too_low_is_refused_with_the_minimum(limit: int) -> None:
    with pytest.raises(DaemonRefused, match=rf"^the limit of open files is {limit}, expected at least 64: .*-n 64\)$"):
        divided(limit)


@contextmanager
def half_open(count: int) -> Iterator[list[socket.socket]]:
    """Return clients that are connected and have sent half a request."""
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            clients.append(stack.enter_context(connected(runtime().socket)))
            clients[-1].send(request("/v1")[:20])
        yield clients


def is_closed(client: socket.socket) -> bool:
    poll = select.poll()
    poll.register(client, select.POLLHUP)
    return bool(poll.poll(0))


def deferred(daemon: Running) -> dict[str, int]:
    return {each["name"]: each["ledger"]["deferred"]["bounded"] for each in daemon.ask("/workers")["workers"]}


def kept() -> dict[str, int]:
    """Return the deferred work of each worker in the checkpoint."""
    memory = checkpoint.load(runtime().checkpoint)
    assert memory is not None
    return {each.name: each.deferred.counts["bounded"] for each in memory.known.values()}


@pytest.mark.ci
def test_half_open_clients_block_neither_the_checkpoint_nor_new_workers(worker: Start, prefix: str) -> None:
    with running(before=("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")) as daemon:
        one = worker(WORKING, BRICKD_SERVICE="one")
        one.next_report()
        daemon.until("worker_found")
        with half_open(2 * LIMIT) as clients:
            two = worker(WORKING, BRICKD_SERVICE="two")
            two.next_report()
            one.go()
            one.next_report()
            until(lambda: kept() == {"one/0": 2, "two/0": 1})
            assert deferred(daemon) == {"one/0": 2, "two/0": 1}
            _, most = divided(LIMIT)
            assert sum(not is_closed(each) for each in clients) <= most
            assert not is_closed(clients[-1]), "the newest clients stay connected"
        assert document("status", code=0)["problems"] == []
        kinds = {each["kind"] for each in daemon.ask("/events")["events"]}
        assert not kinds & {"checkpoint_failed", "starved", "quarantined", "defect"}


@pytest.mark.ci
def test_streams_take_half_of_the_connections_and_more_are_refused(prefix: str) -> None:
    with running(before=("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")) as daemon, ExitStack() as clients:
        reported = []
        for _ in range(2 * divided(LIMIT).clients):
            client = clients.enter_context(connected(runtime().socket))
            client.send(request("/v1/events/stream"))
            reported.append(client.recv(1 << 10).split()[1])
        assert reported == 4 * [b"200"] + 12 * [b"429"]
        assert daemon.ask("")["pid"] == daemon.pid


@contextmanager
def no_descriptor_left(pid: int, but: int = 0) -> Iterator[None]:
    """Let a process open only `but` more files than it has open now."""
    # If the process is this one, its open files include the descriptor that lists the folder.
    listed = os.listdir(f"/proc/{pid}/fd")
    numbers = {int(each) for each in listed if os.path.lexists(f"/proc/{pid}/fd/{each}")}
    free = [number for number in range(len(numbers) + but + 1) if number not in numbers]
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[but], hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.ci
@pytest.mark.parametrize("what", ["a new worker", "the checkpoint"])
def test_without_free_descriptors_clients_are_disconnected(worker: Start, prefix: str, what: str) -> None:
    with running() as daemon, ExitStack() as stack:
        one = worker(WORKING, BRICKD_SERVICE="one")
        one.next_report()
        daemon.until("worker_found")
        streams = [stack.enter_context(following(runtime().socket, "/v1/events/stream?since=99")) for _ in range(4)]
        until(lambda: kept() == {"one/0": 1})
        with no_descriptor_left(daemon.pid):
            if what == "a new worker":
                worker(WORKING, BRICKD_SERVICE="two").next_report()
                wanted = {"one/0": 1, "two/0": 1}
            else:
                one.go()
                one.next_report()
                wanted = {"one/0": 2}
            until(lambda: kept() == wanted)
        for stream in streams:  # the daemon has ended all streams
            list(stream)
        event = daemon.until("starved")
        assert event["text"].endswith(" open files was reached: all clients were closed (raise ulimit -n)")


def test_saving_a_checkpoint_without_free_descriptors_disconnects_clients(prefix: str) -> None:
    closed: list[str] = []
    with Home(runtime()) as home:
        daemon = Daemon(home)
        daemon.saver.close_clients = lambda: closed.append("all")
        with no_descriptor_left(os.getpid()), pytest.raises(OSError, match="Too many open files"):
            daemon.saver.keep(b"content")
        assert closed == ["all"]
        daemon.saver.keep(b"content")
        assert (runtime().checkpoint.read_bytes(), closed) == (b"content", ["all"])


@pytest.mark.parametrize("left", [0, 1])
def test_a_worker_that_found_no_descriptor_is_retried_after_a_second(worker: Start, prefix: str, left: int) -> None:
    starved: list[int] = []
    loop = Collector(
        Memory(prefix), lambda _: None, lambda *_, **__: None, starve=lambda: starved.append(left), clock=int
    )
    loop.tick(0)
    for each in [worker("brick.init(); pause()") for _ in range(2)]:
        each.paused()
    # one descriptor is enough to list the segments, and to drain one of the two workers
    with no_descriptor_left(os.getpid(), left):
        loop.tick(10 * SECOND)
        loop.tick(10 * SECOND)
    assert (starved, len(loop.passes.drains)) == ([left], left)
    loop.tick(11 * SECOND)
    loop.tick(11 * SECOND)
    assert (starved, len(loop.passes.drains)) == ([left], 2)
    loop.end(12 * SECOND)


@pytest.mark.ci
def test_a_daemon_raises_its_soft_limit_to_the_hard_limit(prefix: str) -> None:
    with running(before=("sh", "-c", 'ulimit -S -n 40; exec "$@"', "sh")) as daemon:
        soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        assert soft == hard > 40
