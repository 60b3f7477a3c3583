"""Conditions of the machine: reused pids, namespaces, other clocks, files in other places."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from urllib.parse import quote

import pytest
from faults import Start, needs_namespaces
from forge import golden
from rounds import ROUNDS, STARTS, again, closed, entry, logged, states
from running import refused, running, until
from serving import ask
from verbs import brickd

from brickd.base.paths import runtime
from brickd.shm.segment_files import find

# Starts the first process of a new pid namespace.
ALONE = ("unshare", "--pid", "--fork", "--kill-child")


# ---- pids

# Each child is killed, and the next child gets its pid. The last child is not a worker.
ONE_AFTER_THE_OTHER = """
b = brick.brick("b")
never = os.pipe()
def child(spans):
    pid = os.fork()
    if pid == 0:
        for _ in range(spans):
            with b: pass
            b.defer(stream=1)
        if spans:
            brick.finalize(stream=1)
            b.defer(stream=1)
        report([os.getpid(), _core._segment_name()])
        os.read(never[0], 1)
    return pid
pid = child(10)
for spans in (20, 0):
    os.read(0, 1)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(pid - 1))
    assert child(spans) == pid
os.read(0, 1)
"""


@pytest.mark.slow
@needs_namespaces
def test_a_reused_pid_neither_revives_a_worker_nor_hides_its_death(worker: Start, prefix: str) -> None:
    # In a pid namespace of its own, the next pid is predictable, and no other process takes it.
    host = worker(ONE_AFTER_THE_OTHER, before=(*ALONE, "--mount-proc"), BRICKD_SERVICE="api")
    pid, first = host.next_report()
    there = f"/proc/{host.pid}/ns"
    # The daemon runs in this namespace, too, so that it sees the same pid.
    with running(("nsenter", f"--pid={there}/pid_for_children", f"--mount={there}/mnt", "--")) as daemon:
        closed(daemon, 10)
        host.go()
        assert host.next_report()[0] == pid
        closed(daemon, 30)
        both = daemon.ask("/workers")["workers"]
        assert [each["pid"] for each in both] == [pid, pid]
        (second,) = {each["segment"] for each in both} - {first}
        host.go()
        assert host.next_report() == [pid, ""]
        until(lambda: not find(prefix))
        status = closed(daemon, 30)
        assert {each["segment"] for each in status["workers"]} == {first, second}
        assert list(states(status).values()) == ["died", "died"]
        assert len(logged(daemon, "worker_died")) == 2
        assert status["ledger"]["spans"]["begun"] == status["ledger"]["spans"]["summarized"] == 30
        assert status["ledger"]["deferred"]["orphaned"] == 2


@pytest.mark.slow
@needs_namespaces
def test_workers_that_are_pid_1_of_their_own_namespaces_are_distinguished(worker: Start, prefix: str) -> None:
    with running() as daemon:
        workers = [
            worker(f"{ROUNDS}\nreport(os.getpid())\nrounds()", before=ALONE, BRICKD_SERVICE="api") for _ in range(3)
        ]
        assert [each.next_report() for each in workers] == [1, 1, 1]
        files = [each.next_report() for each in workers]
        status = closed(daemon, 3 * STARTS)
        assert states(status) == dict.fromkeys(("api/0", "api/1", "api/2"), "live")
        lives, ends, dies = (entry(daemon, file)["name"] for file in files)
        assert workers[1].end() == 0
        assert daemon.until("worker_ended")["worker"] == ends
        os.kill(entry(daemon, files[2])["pid"], signal.SIGKILL)
        assert daemon.until("worker_died")["worker"] == dies
        again(workers[0])
        status = closed(daemon, 4 * STARTS)
        assert states(status) == {lives: "live", ends: "ended", dies: "died"}
        assert status["ledger"]["spans"]["summarized"] == 4 * STARTS


@pytest.mark.slow
@needs_namespaces
def test_a_daemon_in_another_pid_namespace_detects_live_workers(worker: Start, prefix: str) -> None:
    lives, ends, dies = (worker(f"{ROUNDS}\nrounds()", BRICKD_SERVICE="api") for _ in range(3))
    file, _, _ = (each.next_report() for each in (lives, ends, dies))
    with running(ALONE) as daemon:
        closed(daemon, 3 * STARTS)
        assert ends.end() == 0
        dies.kill()
        daemon.until("worker_ended")
        daemon.until("worker_died")
        again(lives)
        status = closed(daemon, 4 * STARTS)
        assert sorted(states(status).values()) == ["died", "ended", "live"]
        assert entry(daemon, file)["state"] == "live"
        assert entry(daemon, file)["pid"] == lives.pid, "the pid that the worker reported"


@pytest.mark.slow
@needs_namespaces
def test_a_second_daemon_reports_the_pid_namespace_of_the_first(worker: Start, prefix: str, tmp_path: Path) -> None:
    worker(f"{ROUNDS}\nrounds()").next_report()
    with running() as first:
        closed(first, STARTS)
        taken = f"a daemon is already running in {runtime().directory}: a process of another pid namespace (run `brickd"
        assert taken in refused(ALONE)
        drained = f"a process of another pid namespace already drains the segments {prefix}*"
        assert drained in refused(ALONE, BRICKD_RUNTIME_DIR=str(tmp_path / "other"))


# ---- clocks

# A worker that reports the total time of its spans.
CLOCKED = """
import time
b = brick.brick("b")
def busy():
    until = time.monotonic_ns() + 5_000_000
    while time.monotonic_ns() < until: pass
began = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
with b:
    busy()
b.defer(stream=1)
busy()
brick.finalize(stream=1)
b.start()
pause()
report(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - began)
pause()
"""


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize("offset", ["1000000", "-100"])
@pytest.mark.parametrize("clock", ["tsc", "monotonic"])
def test_workers_of_different_time_namespaces_and_clocks_have_correct_times(
    worker: Start, prefix: str, clock: str, offset: str
) -> None:
    there = ("unshare", "--time", "--kill-child", "--monotonic", offset)
    with running() as daemon:
        both = {
            "here": worker(CLOCKED, BRICKD_SERVICE="here"),
            "there": worker(CLOCKED, before=there, BRICKD_SERVICE="there", BRICKD_CLOCK=clock),
        }
        for each in both.values():
            each.paused()
        closed(daemon, 2)
        bricks = [daemon.ask(f"/bricks?name={service}")["bricks"] for service in both]
        opened = {each["service"]: each["open"] for each in daemon.ask("/workers")["workers"]}
        for (service, each), times in zip(both.items(), bricks, strict=True):
            each.go()
            took = each.next_report()
            assert {(row["bounded"], row["count"]) for row in times} == {(False, 1), (True, 1)}
            assert all(0.99 * 5_000_000 <= row["total_ns"] <= took for row in times)
            assert all(row["latency_to_sync_max_ns"] <= took for row in times if row["bounded"])
            (age_ns,) = (span["since_ns"] for span in opened[service])
            assert 0 <= age_ns <= took


@pytest.mark.slow
@needs_namespaces
def test_an_impossible_age_is_hidden_where_time_namespaces_are_unknown(worker: Start, prefix: str) -> None:
    offsets = {"here": "0", "past": "-100", "future": "1000000"}
    # The daemon cannot see the process of this worker, because it is in another pid namespace.
    with running(ALONE) as daemon:
        for service, offset in offsets.items():
            before = ("unshare", "--time", "--kill-child", "--monotonic", offset)
            worker(CLOCKED, before=before, BRICKD_SERVICE=service, BRICKD_CLOCK="monotonic").paused()
        closed(daemon, 3)
        entries = {each["service"]: each for each in daemon.ask("/workers")["workers"]}
        assert {service: len(each["open"]) for service, each in entries.items()} == dict.fromkeys(offsets, 1)
        known = {service: each["age_ns"] is not None for service, each in entries.items()}
        assert known == {"here": True, "past": False, "future": False}
        assert known == {service: each["open"][0]["since_ns"] is not None for service, each in entries.items()}
        answer = brickd("hang", "--watch", "0.01", "--json")
        assert {row["service"]: row["since_ns"] is not None for row in json.loads(answer.stdout)["open"]} == known
        assert [brickd(*verb).returncode for verb in (("hang", "--watch", "0.01"), ("workers",), ("status",))] == [
            0
        ] * 3


# ---- paths


def test_a_path_is_not_accepted_as_a_segment_name(prefix: str, tmp_path: Path, worker: Start) -> None:
    worker(f"{ROUNDS}\nrounds()", BRICKD_SERVICE="../..", BRICKD_WORKER="../etc/passwd").next_report()
    (file,) = find(prefix)
    elsewhere = tmp_path / f"{prefix}elsewhere"
    elsewhere.write_bytes(golden())
    up = "/".join([".."] * 20)
    paths = [f"{up}{elsewhere}", str(elsewhere), f"../shm/{file}", f"./{file}", f"/{file}", f"{file}/..", "..", "."]

    with running() as daemon:
        closed(daemon, STARTS)
        for path in paths:
            for target in (path, quote(path, safe=""), path.replace(".", "%2e"), f"?name={path}"):
                answer = ask(runtime().socket, f"/v1/inspect{'' if target.startswith('?') else '/'}{target}")
                assert (answer.status, answer.document["error"]["kind"]) == (404, "no_such_worker"), target
        assert daemon.ask(f"/inspect/{file}")["segment"] == file
        refused = [brickd("inspect", paths[0], "--json")]
    refused.append(brickd("inspect", paths[0], "--json"))
    for each in refused:
        assert (each.returncode, each.stdout) == (4, "")
        assert "no worker, service or segment" in each.stderr
