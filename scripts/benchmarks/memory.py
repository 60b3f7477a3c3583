"""The memory that a segment commits, which is the blocks of its file after a worker has recorded.

`python -m benchmarks.memory THREADS PATHS on|off` runs that worker. It prints the number of bytes.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Any

from benchmarks.goals import Goal
from benchmarks.report import Table
from benchmarks.workplace import Workplace, progress

_MIB = 1 << 20
_WORKERS = (
    (1, 200, "off", Goal(1)),
    (1, 200, "on", Goal(2)),
    (32, 200, "on", Goal(32)),
    (32, 1024, "on", None),
)


def _row(place: Workplace, threads: int, paths: int, ring: str, goal: Goal | None) -> dict[str, Any]:
    mib = place.ask("memory", threads, paths, ring) / _MIB
    return {
        "worker": f"{threads} thread{'s' if threads > 1 else ''} x {paths} paths, span ring {ring}",
        "committed_mib": mib,
        "goal": None if goal is None else str(goal),
        "passed": None if goal is None else goal.met(mib),
    }


def committed(place: Workplace) -> Table:
    progress("memory of segments")
    return Table("memory", "Memory that a segment commits", [_row(place, *worker) for worker in _WORKERS])


def main() -> None:
    from brick_agent import _core, brick, init

    from benchmarks.cases import CONTROL_OFFSET
    from brickd.shm import _reader

    threads, paths, ring = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if not init("bench"):
        raise RuntimeError("no segment could be opened: see the line that brick_agent wrote")
    segment = os.open(Path(_reader.DIRECTORY) / _core._segment_name(), os.O_RDWR)
    if ring == "on":
        os.pwrite(segment, struct.pack("<I", _reader.CONTROL_SPANS), CONTROL_OFFSET)
    bricks = [brick(f"brick {number}") for number in range(paths)]
    # no thread may end before the others begin, because the next thread would take its lane
    together = threading.Barrier(threads)

    def work() -> None:
        for b in bricks:
            with b:
                pass
        together.wait()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lanes = sum(line["begun"] >= paths for _, line, _ in _reader.SegmentCopier(segment).lanes())
    if lanes != threads:
        raise RuntimeError(f"{lanes} lanes have {paths} spans, expected {threads} lanes")
    print(json.dumps(os.fstat(segment).st_blocks * 512))


if __name__ == "__main__":
    main()
