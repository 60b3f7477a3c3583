"""One attempt: a full span ring drained, read alone, and copied: `python -m benchmarks.drained ROUNDS TURN`.

A drain of 64 MiB takes longer than the scheduler lets a busy machine's process run: so the times are the processor's,
the kernel's part included, and not the clock's on the wall.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.comparisons import Comparison
from benchmarks.goals import Goal
from benchmarks.method import Case, measure, pin
from benchmarks.peers import needs
from benchmarks.timed import rows
from brickd import _reader

SLOTS = 1 << 20
PATHS = 64

DRAIN = "drain: pread and fold"
PREAD = "pread alone"
MEMCPY = "memcpy"

COMPARISONS = (
    Comparison(PREAD, DRAIN, Goal(0.70, at_least=True)),
    Comparison(MEMCPY, DRAIN),
    Comparison(MEMCPY, PREAD),
)
_ROOT = Path(__file__).resolve().parents[2]
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared")


def _ring(folder: Path) -> tuple[ctypes.CDLL, int]:
    include = (f"-I{_ROOT / 'agent/include'}", f"-I{_ROOT / 'brickd/reader'}")
    command = (needs.tool("gcc", "Debian: gcc"), *_FLAGS, *include, Path(__file__).with_name("ring.c"))
    native = needs.library(folder / "libring.so", command)
    name = f"{os.environ['BRICKD_SHM_PREFIX']}ring-{os.getpid()}"
    segment = native.make_segment(str(Path(_reader.DIRECTORY) / name).encode(), SLOTS, PATHS)
    if segment < 0:
        raise RuntimeError(f"{_reader.DIRECTORY} has no room for a ring of {SLOTS * 64 >> 20} MiB")
    return native, segment


def cases(folder: Path) -> list[Case]:
    """The drain and what it is compared with; each runs once a round."""
    native, segment = _ring(folder)
    fresh: list[_reader.Drain] = []
    whole: list[bool] = []

    def begin() -> None:
        fresh[:] = [_reader.Drain(segment)]

    def end() -> None:
        whole.append(fresh[0].spans == SLOTS)

    names = {"drain": _reader.drain, "segments": fresh}
    return [
        Case(DRAIN, "drain(segments)", names, begin, end, batch_max=1, recorded=lambda: sum(whole)),
        Case(PREAD, native=needs.loop(native.read_ring), batch_max=1),
        Case(MEMCPY, native=needs.loop(native.copy_ring), batch_max=1),
    ]


def main() -> None:
    """Measure; the rows as JSON."""
    rounds, turn = int(sys.argv[1]), int(sys.argv[2])
    cpu = pin(turn)
    times = measure(cases(Path.cwd()), rounds, seed=turn, clock=time.thread_time_ns)
    print(json.dumps(rows(times, COMPARISONS, turn, cpu, times.refused)))


if __name__ == "__main__":
    main()
