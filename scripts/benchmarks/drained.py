"""Drain, record, read and copy a full span ring: `python -m benchmarks.drained ROUNDS TURN`.

Draining 64 MiB takes longer than a time slice on a busy machine. So the times are processor time, including kernel
time, not wall time.
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

from benchmarks.comparisons import Comparison
from benchmarks.goals import Goal
from benchmarks.method import Case, measure, pin
from benchmarks.peers import needs
from benchmarks.timed import rows
from brickd.shm import _reader

SLOTS = 1 << 20
PATHS = 64

BYTES = SLOTS * 64

DRAIN = "drain: pread and fold"
SPOOL = "record, the loop's thread: drain into the spool"
WRITE = "record, its own thread: the spool into a file on a disk"
WRITE_SHM = "record, its own thread: the spool into a file in /dev/shm"
PREAD = "pread alone"
MEMCPY = "memcpy"

# Two threads make a recording at the same time: the slower thread limits the speed.
COMPARISONS = (
    Comparison(PREAD, DRAIN, Goal(0.70, at_least=True)),
    Comparison(MEMCPY, DRAIN),
    Comparison(MEMCPY, SPOOL, Goal(0.28, at_least=True)),
    Comparison(MEMCPY, WRITE, Goal(0.28, at_least=True)),
    Comparison(MEMCPY, WRITE_SHM),
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


def _drain(drain: _reader.Drain) -> None:
    """Drain the whole ring. One pass reads only a part of it."""
    while drain.spans < SLOTS:
        _reader.drain([drain])


@dataclass
class _Ring:
    """A ring that is drained in each round. The records may go into a spool, which has room for all of them."""

    segment: int
    spool: _reader.Spool | None = None
    drains: list[_reader.Drain] = field(default_factory=list)
    whole: int = 0

    def begin(self) -> None:
        if self.spool is not None:
            self.spool.clear()
        self.refused = self._refused
        self.drains[:] = [_reader.Drain(self.segment)]
        self.drains[0].record_into(self.spool)

    @property
    def _refused(self) -> int:
        return 0 if self.spool is None else self.spool.refused_slots

    def end(self) -> None:
        self.whole += self.drains[0].spans == SLOTS and self.refused == self._refused

    def case(self, name: str) -> Case:
        names = {"drain": _drain, "drains": self.drains}
        return Case(name, "drain(drains[0])", names, self.begin, self.end, batch_max=1, recorded=lambda: self.whole)


@dataclass
class _File:
    """Writes a new recording in each round, from a full spool; the kernel allocates the file during the write."""

    segment: int
    spool: _reader.Spool
    folder: str
    whole: int = 0

    def begin(self) -> None:
        self.spool.clear()
        drain = _reader.Drain(self.segment)
        drain.record_into(self.spool)
        _drain(drain)
        self.mark, _ = self.spool.ready()
        self.file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115  (until the end of the round)
        self.recording = _reader.Recording(self.file.fileno(), 2 * BYTES, bytes(16), 0)

    def write(self) -> None:
        self.recording.write(self.spool, self.mark)

    def end(self) -> None:
        self.whole += self.recording.bytes > BYTES
        self.recording.close()
        self.file.close()

    def case(self, name: str) -> Case:
        names = {"write": self.write}
        return Case(name, "write()", names, self.begin, self.end, batch_max=1, recorded=lambda: self.whole)


def cases(folder: Path) -> list[Case]:
    """Return the cases of the drain and of the recording, and the cases that they are compared with. Each case runs
    once in a round.
    """
    native, segment = _ring(folder)
    spool = _reader.Spool(BYTES + (1 << 20))
    return [
        _Ring(segment).case(DRAIN),
        _Ring(segment, spool).case(SPOOL),
        _File(segment, spool, os.fspath(folder)).case(WRITE),
        _File(segment, spool, _reader.DIRECTORY).case(WRITE_SHM),
        Case(PREAD, native=needs.loop(native.read_ring), batch_max=1),
        Case(MEMCPY, native=needs.loop(native.copy_ring), batch_max=1),
    ]


def main() -> None:
    """Measure, and print the rows as JSON."""
    rounds, turn = int(sys.argv[1]), int(sys.argv[2])
    cpu = pin(turn)
    times = measure(cases(Path.cwd()), rounds, seed=turn, clock=time.thread_time_ns)
    print(json.dumps(rows(times, COMPARISONS, turn, cpu, times.refused)))


if __name__ == "__main__":
    main()
