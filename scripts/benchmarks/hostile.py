"""`scripts/bench hostile`: what hostile files cost a daemon, a verb and an honest worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from benchmarks import beside, machine
from benchmarks.goals import Goal
from benchmarks.report import Report, Table
from benchmarks.running import Running, running
from benchmarks.workplace import SHM, Workplace, progress

HELP = "memory, answers and losses next to 200 sparse segments, and next to 100,000 files of another user"

SEGMENTS, FILES, STRANGER = 200, 100_000, 65534
_MB = 1_000_000
_RESIDENT_MB, _STATUS_S, _LOST, _END_S = Goal(300), Goal(2), Goal(0), Goal(2)


def run(place: Workplace, quick: bool) -> Report:
    """Measure. The hostile segments are measured first."""
    seconds = 15 if quick else 60
    return Report("hostile", machine.facts(), [_sparse(place, seconds), _strangers(place, seconds)])


@contextmanager
def started(place: Workplace, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module of this package that ends when its stdin closes."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(
        command, env=place.environment, cwd=place.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def _sparse(place: Workplace, seconds: float) -> Table:
    with started(place, "benchmarks.sparse", str(SEGMENTS)) as files:
        title = f"{SEGMENTS} maximal sparse segments under the prefix, {int(_line(files.stdout)) / _MB:.0f} MB in all"
        progress("a look without a daemon")
        alone = _row("status without a daemon, s", _timed(lambda: place.python("-m", "brickd", "status")), _STATUS_S)
        return Table("sparse", f"{title}, {seconds:g} s", [alone, *_beside(place, title, seconds, lambda: None)])


def _strangers(place: Workplace, seconds: float) -> Table:
    title = f"{FILES:,} files of another user under the prefix"
    if os.geteuid() != 0:
        return Table("strangers", title, [], "only root can make files of another user")

    def crowd() -> None:
        for number in range(FILES):
            path = SHM / f"{place.environment['BRICKD_SHM_PREFIX']}{number:06}"
            path.touch(0o600)
            os.chown(path, STRANGER, STRANGER)

    return Table("strangers", f"{title}, {seconds:g} s", _beside(place, title, seconds, crowd))


def _beside(place: Workplace, title: str, seconds: float, then: Callable[[], None]) -> list[dict[str, Any]]:
    """Measure the daemon's cost and an honest worker's losses while hostile files exist or are created."""
    progress(title)
    with running(place) as daemon, started(place, "benchmarks.beside") as worker:
        _line(worker.stdout)
        then()
        until, answers, resident = time.monotonic() + seconds, [], 0
        shares = daemon.shares(2, seconds / 6)
        while time.monotonic() < until:
            answers.append(_timed(daemon.status))
            resident = max(resident, daemon.resident_bytes())
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
        starts = int(_line(worker.stdout))
        Running.until(lambda: _settled(daemon), "events are still in the ring")
        lost = starts - _deferred(daemon)["started"]
        ended = _timed(daemon.end)
    return [
        _row("daemon RSS, MB", resident / _MB, _RESIDENT_MB),
        _row("share of a core", max(shares), None),
        _row("slowest status, s", max(answers), _STATUS_S),
        _row(f"events of {beside.SERVICE} lost, of {starts:,}", lost, _LOST),
        _row("end after SIGTERM, s", ended, _END_S),
    ]


def _deferred(daemon: Running) -> dict[str, int]:
    found: dict[str, int] = daemon.status()["ledger"]["deferred"]
    return found


def _settled(daemon: Running) -> bool:
    ledger = daemon.status()["ledger"]
    return bool(ledger["events"]["in_ring"] == 0 and ledger["deferred"]["pending"] == 0)


def _timed(what: Callable[[], object]) -> float:
    began = time.monotonic()
    what()
    return time.monotonic() - began


def _row(what: str, value: float, goal: Goal | None) -> dict[str, Any]:
    return {
        "what": what,
        "value": value,
        "goal": None if goal is None else str(goal),
        "passed": None if goal is None else goal.met(value),
    }
