"""Which other process runs on the only processor that a process may use.

Owns: what is read of other processes for that. Must not know: callers. Invariants: a process that may use several
processors has no result; a value that cannot be read is None; nothing is written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from brickd.base.machine import read

_PROCESSES_MAX = 65_536
# In /proc/PID/stat, behind the name: the time in user mode and in the kernel, and the processor of the last run.
_USER, _KERNEL, _CPU = 11, 12, 36


class Sharing(NamedTuple):
    """The only processor of a process, and the other process that ran most there lately; None: not known."""

    cpu: int
    pid: int | None


class CpuSharing:
    """Looks at all processes when it is asked, and remembers that look for the next one."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._before: dict[int, int] = {}  # what each process had of the processors, in ticks

    def of(self, pid: int) -> Sharing | None:
        """With whom a process shares its only processor, since the last question; None: it may use others."""
        try:
            cpus = os.sched_getaffinity(pid)
        except OSError:
            return None
        if pid <= 0 or len(cpus) != 1:
            return None
        (cpu,) = cpus
        before, self._before, there = self._before, {}, {}
        for other in self._pids():
            found = self._stat(other)
            if found is not None:
                ran, last = found
                self._before[other] = ran
                if last == cpu and other != pid and (took := ran - before.get(other, ran)) > 0:
                    there[other] = took
        return Sharing(cpu, max(there, key=lambda each: (there[each], each), default=None))

    def _pids(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self._root) if name.isdecimal()][:_PROCESSES_MAX]
        except OSError:
            return []

    def _stat(self, pid: int) -> tuple[int, int] | None:
        fields = (read(self._root / str(pid) / "stat") or "").rpartition(")")[2].split()
        try:
            return int(fields[_USER]) + int(fields[_KERNEL]), int(fields[_CPU])
        except (IndexError, ValueError):
            return None
