"""A daemon that starts late, is stopped or cannot save: totals are exact, and losses are counted."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Worker
from faults import Start, needs_namespaces
from running import Running, running, until

from brickd.base.paths import runtime
from brickd.shm.segment_files import find

pytestmark = pytest.mark.slow

# The number of slots in a ring, and how many of them deferred starts may use. The other slots are reserved for
# finalizes and measured times.
RING, STARTS = 4096, 4096 - 512

# Fills both rings a given number of times, and reports when it has done so.
WORK = f"""
span, kernel = brick.brick("span"), brick.brick("kernel")
brick.init()
report(_core._segment_name())
for line in sys.stdin:
    for _ in range(int(line) * {RING}):
        with span:
            kernel.defer()
    brick.finalize()
    report()
"""


def started_worker(start: Start) -> tuple[Worker, str]:
    """Start a worker; return it and its segment."""
    one = start(WORK, BRICKD_SERVICE="api")
    return one, one.next_report()


def work(worker: Worker, rings: int) -> None:
    """Let the worker fill its rings `rings` times, and wait until it has done so."""
    assert worker.process.stdin is not None
    worker.process.stdin.write(b"%d\n" % rings)
    worker.process.stdin.flush()
    worker.next_report()


def drained(daemon: Running) -> dict[str, Any]:
    """Return the ledger when the daemon has read and counted everything: two answers in a row are equal."""
    seen: list[dict[str, Any]] = [{}]

    def still(answer: Any) -> bool:
        seen.append(answer["ledger"])
        rest = [seen[-1][part][left] for part, left in (("details", "in_ring"), ("events", "in_ring"))]
        return not any(rest) and not seen[-1]["deferred"]["pending"] and seen[-1] == seen[-2]

    daemon.once("/status", still)
    return seen[-1]


def judge(ledger: dict[str, Any], *, rings: int, filled: int, recorded: int) -> None:
    """Check every term of the ledger.

    Args:
        ledger: the sum over workers.
        rings: how often the worker filled both rings with spans and deferred starts.
        filled: how often the rings were empty at that time, so that they kept as much as they have room for.
        recorded: how often span detail was on at that time.
    """
    assert (ledger["spans"]["begun"], ledger["spans"]["summarized"]) == (rings * RING, rings * RING)
    assert ledger["deferred"] | {"started": filled * STARTS, "bounded": filled * STARTS} == ledger["deferred"]
    assert ledger["deferred"]["orphaned"] == 0
    assert ledger["events"]["dropped"] == {"defer": rings * RING - filled * STARTS}
    assert ledger["events"]["consumed"] == filled * (STARTS + 1)
    assert ledger["details"]["consumed"] + sum(ledger["details"]["dropped"].values()) == recorded * RING
    assert ledger["details"]["lost_with_daemon"] == 0


@pytest.mark.parametrize("rings", [1, 3, 20])
def test_a_daemon_that_starts_late_finds_exact_totals(worker: Start, prefix: str, rings: int) -> None:
    one, _ = started_worker(worker)
    with running() as daemon:
        daemon.until("worker_found")
        daemon.ask("/set", b"service=api&spans=on")
        daemon.kill()
    work(one, rings)
    with running() as daemon:
        ledger = drained(daemon)
        judge(ledger, rings=rings, filled=1, recorded=rings)
        assert ledger["details"]["consumed"] == RING


def test_workers_continue_start_and_end_while_the_daemon_is_stopped(worker: Start, prefix: str) -> None:
    one, file = started_worker(worker)
    ends, _ = started_worker(worker)
    with running() as daemon:
        daemon.once("/workers", lambda answer: len(answer["workers"]) == 2)
        daemon.ask("/set", b"service=api&spans=on")
        with daemon.stopped():
            work(one, 5)
            work(ends, 3)
            assert ends.end() == 0
            late, late_file = started_worker(worker)
            work(late, 2)
        daemon.until("worker_ended")
        until(lambda: find(prefix) == sorted((file, late_file)))
        judge(drained(daemon), rings=10, filled=3, recorded=8)
        states = Counter(each["state"] for each in daemon.ask("/workers")["workers"])
        assert states == {"live": 2, "ended": 1}


# ---- no room for the checkpoint


@contextlib.contextmanager
def cramped(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Running, Path]]:
    """Start a daemon whose runtime directory has room for 64 KiB, and fill this room with a file.

    The daemon's socket is in another place.
    """
    directory = runtime().directory
    monkeypatch.setenv("BRICKD_SOCKET", f"{directory}.socket")
    fill = f"mount -t tmpfs -o size=64k,mode=700 none {directory} && head -c 65536 /dev/zero >{directory}/filler"
    before = ("unshare", "-m", "sh", "-c", fill + ' && exec "$@"', "sh")
    try:
        with running(before) as daemon:
            yield daemon, Path(f"/proc/{daemon.pid}/root{directory}")
    finally:
        runtime().socket.unlink(missing_ok=True)


@needs_namespaces
def test_a_full_runtime_directory_is_reported_and_loses_no_event(
    worker: Start, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, file = started_worker(worker)
    ends, ended_file = started_worker(worker)
    dies, died_file = started_worker(worker)
    with cramped(monkeypatch) as (daemon, directory):
        reported = daemon.until("checkpoint_failed")
        assert "No space left on device" in reported["text"]
        for each in (lives, ends, dies):
            work(each, 2)
        assert ends.end() == 0
        dies.kill()
        daemon.until("worker_died")
        status = daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["bounded"] >= 3 * STARTS)
        # While data is not saved, its segment is not removed, and its slots are not given back to the worker.
        assert find(prefix) == sorted((file, ended_file, died_file))
        work(lives, 1)
        problems = {problem["text"] for problem in status["problems"]}
        assert "the daemon cannot save its state: No space left on device" in problems
        (directory / "filler").unlink()
        daemon.until("checkpoint_written")
        until(lambda: find(prefix) == [file])
        judge(drained(daemon), rings=7, filled=3, recorded=0)
        work(lives, 1)
        ledger = drained(daemon)
        assert ledger["deferred"]["started"] + ledger["events"]["dropped"]["defer"] == 8 * RING
        assert ledger["deferred"]["started"] >= 4 * STARTS, "there is room again"
        assert (directory / "checkpoint").exists()
