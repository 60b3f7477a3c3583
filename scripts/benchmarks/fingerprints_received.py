"""What a checksum costs the daemon: `python -m benchmarks.fingerprints_received ROUNDS`.

The times are processor time, because no process runs for long without a pause on a busy machine. All workers take turns
and send the same number of fingerprints. The daemon's memory for fingerprints is full, so each new fingerprint evicts
another.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import brick_agent as brick
import numpy as np
from brick_agent import _core

from benchmarks import weighed
from benchmarks.goals import Goal
from benchmarks.report import Table
from benchmarks.workplace import Workplace, progress
from brickd.analysis.numerics.fingerprints import WINDOW_BYTES, Numerics
from brickd.analysis.numerics.watch import Watch
from brickd.analysis.numerics.watch_round import Roll
from brickd.shm import _reader
from brickd.shm.sites import WorkerNames

GOAL = Goal(2.0)  # processor time of one checksum, in µs
SITES = 1_500
_DRAINED = 512  # by default, each worker sends this many fingerprints in a pass
_FEW = 32  # with 1,024 workers, each sends only this many, so that the window holds all fingerprints of a group
_OF_A_ROUND = 1 << 15
_FILLING = WINDOW_BYTES // 512
_SITE, _OUTPUT, _INPUT = 8, 128, 256  # the byte offsets in the record of a checksum with one input


class Case(NamedTuple):
    """The workers of a case, and functions that return the input and the output of a worker's n-th fingerprint."""

    name: str
    workers: int
    given: Callable[[int, Any], Any]
    output: Callable[[int, Any], Any]
    sites: int = SITES
    each_sends: int = _DRAINED


CASES = (
    Case("one worker", 1, lambda w, n: n, lambda w, n: n),
    Case("that meet", 8, lambda w, n: n, lambda w, n: n),
    Case("of different places", 8, lambda w, n: n * 100 + w, lambda w, n: n),
    Case("that meet", 64, lambda w, n: n, lambda w, n: n),
    Case("of different places", 64, lambda w, n: n * 100 + w, lambda w, n: n),
    Case("that all differ", 64, lambda w, n: n, lambda w, n: n * 100 + w),
    Case("that meet", 1_024, lambda w, n: n, lambda w, n: n, each_sends=_FEW),
    Case("at 16,000 sites", 64, lambda w, n: n, lambda w, n: n, 16_000),
    Case("that contradict themselves at one site", 64, lambda w, n: n * 0 + 7, lambda w, n: n * 100 + w, 1),
)


def fingerprints_received(place: Workplace, rounds: int) -> Table:
    progress(f"checksums in the daemon, {rounds} rounds")
    rows = place.ask("fingerprints_received", rounds)
    title = f"Processor time of the daemon for a checksum: drained, received, compared; {rounds} rounds"
    return Table("fingerprints_received", title, rows)


def _drained(rounds: int) -> tuple[list[float], bytes]:
    """Measure how long it takes to read one fingerprint from a worker's ring. Return the times, and a record."""
    x = np.zeros(4, np.float32)
    brick.checksum("k", x, input=x)
    times, records = [], b""
    with open(Path(_reader.DIRECTORY) / _core._segment_name(), "r+b", buffering=0) as file:
        drain = _reader.Drain(file.fileno())
        for _ in range(rounds):
            for _ in range(_DRAINED):
                brick.checksum("k", x, input=x)
            began = time.thread_time_ns()
            _reader.drain([drain])
            records = drain.take_checked()
            _reader.write_all(_reader.tails([drain], True))
            times.append((time.thread_time_ns() - began) / (len(records) // (6 * 64)))
    return times, records[: 6 * 64]


def _records(case: Case, record: bytes, worker: int, first: int) -> bytes:
    rows = np.tile(np.frombuffer(record, np.uint8), (case.each_sends, 1))
    numbers = np.arange(first, first + case.each_sends, dtype=np.uint64)
    for at, values in (
        (_SITE, (numbers % case.sites + 1).astype(np.uint32)),
        (_OUTPUT, case.output(worker, numbers)),
        (_INPUT, case.given(worker, numbers)),
    ):
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(case.each_sends, -1)
        rows[:, at : at + raw.shape[1]] = raw
    return rows.tobytes()


def _timed(case: Case, record: bytes, rounds: int) -> list[float]:
    numerics = Numerics()
    watch = Watch(numerics, lambda *_, **__: None)
    sites = [None, *((1, layer, 0) for layer in range(16_000))]
    tables = WorkerNames([("other", 0), ("k", 0), *[("k", 0)] * 64], sites)
    producers = [numerics.producer(str(n), "bench", lambda: tables, "") for n in range(case.workers)]
    roll, times, first = Roll({}, {"bench"}, ()), [], 0

    def batch(count: int) -> Sequence[list[bytes]]:
        nonlocal first
        made = []
        for _ in range(max(1, count // case.each_sends // case.workers)):
            made.append([_records(case, record, worker, first) for worker in range(case.workers)])
            first += case.each_sends
        return made

    for records_of_worker in batch(_FILLING):
        for producer, records in zip(producers, records_of_worker, strict=True):
            producer.receive(records)
    watch.look(lambda: roll)
    for _ in range(rounds):
        made, before = batch(_OF_A_ROUND), numerics.fingerprints.end
        began = time.thread_time_ns()
        for records_of_worker in made:
            for producer, records in zip(producers, records_of_worker, strict=True):
                producer.receive(records)
        watch.look(lambda: roll)
        times.append((time.thread_time_ns() - began) / (numerics.fingerprints.end - before))
    return times


def _row(case: str, workers: int, drained: float, times: Sequence[float]) -> dict[str, Any]:
    least = (drained + min(times)) / 1e3
    return {
        "case": case,
        "workers": workers,
        "us_per_fingerprint_min": least,
        "us_per_fingerprint_median": (drained + statistics.median(times)) / 1e3,
        "of_these_drained": drained / 1e3,
        "goal": str(GOAL),
        "passed": GOAL.met(least),
    }


def main() -> None:
    """Measure, and print the rows as JSON."""
    rounds = int(sys.argv[1])
    times, record = _drained(rounds)
    rows = [_row(case.name, case.workers, min(times), _timed(case, record, rounds)) for case in CASES]
    rows += [_row(case.name, weighed.WORKERS, min(times), weighed.timed(case, rounds)) for case in weighed.CASES]
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
