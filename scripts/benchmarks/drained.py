"""One attempt: a full span ring drained, recorded, read alone, and copied: `python -m benchmarks.drained ROUNDS TURN`.

A drain of 64 MiB takes longer than the scheduler lets a busy machine's process run: so the times are the processor's,
the kernel's part included, and not the clock's on the wall.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.comparisons import Comparison
from benchmarks.goals import Goal
from benchmarks.method import Case, measure, pin
from benchmarks.peers import needs
from benchmarks.timed import rows
from brickd import _reader

SLOTS = 1 << 20
PATHS = 64

BYTES = SLOTS * 64

DRAIN = "drain: pread and fold"
RECORD = "drain into a file in /dev/shm whose room is taken"
RECORD_NEW = "drain into a file in /dev/shm that takes its room"
PREAD = "pread alone"
MEMCPY = "memcpy"

COMPARISONS = (
    Comparison(PREAD, DRAIN, Goal(0.70, at_least=True)),
    Comparison(MEMCPY, DRAIN),
    Comparison(MEMCPY, RECORD, Goal(0.28, at_least=True)),
    Comparison(MEMCPY, RECORD_NEW),
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


@dataclass
class _Ring:
    """Drained anew each round; with `ahead_bytes` into a new recording, whose file is where the ring is, too."""

    segment: int
    ahead_bytes: int = 0
    drains: list[_reader.Drain] = field(default_factory=list)
    whole: int = 0
    file: IO[bytes] | None = None
    recording: _reader.Recording | None = None

    def begin(self) -> None:
        self.drains[:] = [_reader.Drain(self.segment)]
        if self.ahead_bytes:
            self.file = tempfile.TemporaryFile(dir=_reader.DIRECTORY)  # noqa: SIM115  (until the end of the round)
            self.recording = _reader.Recording(self.file.fileno(), 2 * BYTES, bytes(16), 0, 0, self.ahead_bytes)
            self.drains[0].record_into(self.recording)

    def end(self) -> None:
        refused = 0
        if self.recording is not None and self.file is not None:
            refused = self.recording.refused_slots
            self.drains[0].record_into(None)
            self.recording.close()
            self.file.close()
        self.whole += self.drains[0].spans == SLOTS and not refused

    def case(self, name: str) -> Case:
        names = {"drain": _reader.drain, "segments": self.drains}
        return Case(name, "drain(segments)", names, self.begin, self.end, batch_max=1, recorded=lambda: self.whole)


def cases(folder: Path) -> list[Case]:
    """The drain and what it is compared with; each runs once a round."""
    native, segment = _ring(folder)
    return [
        _Ring(segment).case(DRAIN),
        _Ring(segment, BYTES + (1 << 20)).case(RECORD),
        _Ring(segment, 4 << 20).case(RECORD_NEW),
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
