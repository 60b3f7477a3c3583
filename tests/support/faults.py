"""Code that tests of faults share: exact ledgers, workers in C, workers with their own /dev/shm.

Started as a program, this module reads every segment in /dev/shm, for workers whose /dev/shm the test cannot see.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, WRITER, Worker, readings
from recorded import record, summaries

from brickd.shm.ledger import ledger_of
from brickd.shm.segment import open_segment
from brickd.shm.segment_copy import Reading

__all__ = ["Start", "counts", "exact", "native", "readings", "record", "summaries"]

Start = Callable[..., Worker]
Compile = Callable[..., Path]
NATIVE = ROOT / "tests" / "native"


def until_stopped(pid: int) -> None:
    """Wait until all threads of a process have stopped after SIGSTOP."""
    while any(_state(thread) != "T" for thread in Path(f"/proc/{pid}/task").iterdir()):
        os.sched_yield()


def _state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the thread ended before the signal reached it
        return "T"


def counts(of: Reading) -> dict[str, int]:
    """Return the number of ended spans for each name, over all paths and layers."""
    result: Counter[str] = Counter()
    for path, row in summaries(of).items():
        result[path[-1].partition("[")[0]] += row["count"]
    return dict(result)


def exact(of: Reading) -> dict[str, int]:
    """Check each lane, the total and the summaries. Then return the terms of the ledger that are not zero."""
    for _, lane, _ in of.lanes:
        accounted = lane["summarized"] + sum(lane["rejected"]) + lane["open"] + lane["abandoned"]
        assert lane["begun"] - accounted in ((0,) if of.alive else (0, 1))
        assert lane["span_attempts"] - lane["span_head"] - sum(lane["span_dropped"]) in ((0,) if of.alive else (0, 1))
        assert lane["event_attempts"] - lane["event_records"] - sum(lane["event_dropped"]) in (
            (0,) if of.alive else (0, 1)
        )
    spans: dict[str, int] = ledger_of(of).document()["spans"]
    ended = ("summarized", "rejected", "open", "abandoned", "unpublished")
    assert spans["begun"] == sum(spans[term] for term in ended)
    assert sum(counts(of).values()) - spans["summarized"] in (0, spans["unpublished"])
    assert of.moving == 0
    return {term: n for term, n in spans.items() if n}


def total(many: list[Reading]) -> dict[str, int]:
    """Return the sum of the exact ledgers of several segments."""
    result: Counter[str] = Counter()
    for each in many:
        result.update(exact(each))
    return dict(result)


def program(compiled: Compile, name: str, *flags: str) -> Path:
    """Build a program of tests/native with the writer and these flags; calls with equal flags share one build."""
    writer = compiled("writer.so", WRITER, "-shared", "-fPIC", *flags)
    return compiled(name, (NATIVE / f"{name}.c", writer), *flags)


# Builds a writer that has named points (BRICK_POINT), and that checks every few microseconds whether its segment still
# exists.
ALERT = ("-DBRICK_TEST_POINTS", "-DBRICK_LOOK_TICKS=UINT64_C(20000)")


def fault_at(
    compiled: Compile,
    plan: str | None = None,
    under: tuple[Path, ...] = (),
    log: int | None = None,
    of: str | None = None,
) -> dict[str, str]:
    """Return an environment in which a program dies, or gets a disk error, at one of its effects on files (fault_at.c).

    `plan` is a plan of fault_at.c, such as "kill-after:17"; without a plan, nothing happens. If `under` is given, only
    effects on files below these paths count. If `of` is given, only effects with this name count. Each effect writes a
    line to the descriptor `log`, which the program must inherit.
    """
    environment = {"LD_PRELOAD": str(compiled("fault_at.so", (NATIVE / "fault_at.c",), "-shared", "-fPIC"))}
    if plan is not None:
        environment["BRICKD_TEST_FAULT"] = plan
    if under:
        environment["BRICKD_TEST_FAULT_UNDER"] = ":".join(map(str, under))
    if log is not None:
        environment["BRICKD_TEST_FAULT_LOG"] = str(log)
    if of is not None:
        environment["BRICKD_TEST_FAULT_OF"] = of
    return environment


@contextmanager
def native(binary: Path, *arguments: str, **environment: str) -> Iterator[Worker]:
    """Start a worker in C, and kill it at the end if it still runs."""
    process = subprocess.Popen(
        [binary, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )
    with process:
        try:
            yield Worker(process)
        finally:
            if process.poll() is None:
                process.kill()


def order(worker: Worker, letters: str) -> list[Any]:
    """Send these letters to a worker in C, one after the other; return its answers."""
    answers = []
    for letter in letters:
        assert worker.process.stdin is not None
        worker.process.stdin.write(letter.encode())
        worker.process.stdin.flush()
        answers.append(worker.next_report())
    return answers


def _namespaces() -> bool:
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0
    )


needs_namespaces = pytest.mark.skipif(not _namespaces(), reason="needs root and unshare, for a /dev/shm of its own")

# The first lines of a program. They give the worker private mounts, and let it read its own segments inside of these
# mounts.
PRIVATE = f"""
import ctypes, json, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def mount(source, target, kind, flags, data):
    if libc.mount(source, target, kind, flags, data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target.decode())
def look():
    found = dict(os.environ, PYTHONPATH={str(ROOT / "tests")!r})
    printed = subprocess.run([sys.executable, {__file__!r}], stdout=subprocess.PIPE, check=True, env=found)
    report(json.loads(printed.stdout))
if libc.unshare(0x20000) != 0:
    raise OSError(ctypes.get_errno(), "unshare")
mount(b"none", b"/", None, 0x44000, None)
"""


def _look() -> None:
    found = [
        {
            "spans": exact(each),
            "dropped": ledger_of(each).document()["details"]["dropped"],
            "events_dropped": ledger_of(each).document()["events"]["dropped"],
            "counts": counts(each),
            "process": each.process,
        }
        for each in readings(os.environ["BRICKD_SHM_PREFIX"])
    ]
    print(json.dumps(found))


def read_file(file: str) -> Reading:
    """Return one reading of a segment."""
    with open_segment(file) as segment:
        return segment.read()


if __name__ == "__main__":
    _look()
    sys.exit(0)
