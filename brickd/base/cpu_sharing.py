"""Finds, for a process that may use only one processor, which other process uses this processor.

Owns: the reading of other processes. Must not know: callers. Invariants: A process that may use several processors is
not examined. One scan of all processes is enough to examine any number of processes. A value that cannot be read is
None.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from brickd.base.files import read

_PROCESSES_MAX = 65_536
# In /proc/PID/stat, the fields after the name: the time in user mode, the time in the kernel, and the last processor.
_USER, _KERNEL, _CPU = 11, 12, 36


class Sharing(NamedTuple):
    """The only processor of a process, and the pid of the other process that used it most; None if unknown."""

    cpu: int
    pid: int | None


def only_cpu(pid: int) -> int | None:
    """Return the only processor that a process may use; None if it may use several, or if this is unknown."""
    try:
        cpus = os.sched_getaffinity(pid) if pid > 0 else ()
    except OSError:
        return None
    return next(iter(cpus)) if len(cpus) == 1 else None


class CpuSharing:
    """Scans all processes at each call, and compares with the previous scan."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._before: dict[int, int] = {}  # the processor time of each process, in ticks

    def of(self, cpus: Mapping[int, int]) -> dict[int, int]:
        """For each process, return the other process that used the same processor most since the last call.

        `cpus` has the only processor of each process. The first call returns nothing, because there is no earlier scan.
        A call after one with empty `cpus` returns nothing either.
        """
        before, self._before = self._before, {}
        took: dict[int, dict[int, int]] = {}  # ticks by processor and process
        for pid in self._pids() if cpus else ():
            found = self._stat(pid)
            if found is not None:
                self._before[pid], cpu = found
                if (ran := found[0] - before.get(pid, found[0])) > 0:
                    took.setdefault(cpu, {})[pid] = ran
        there = {
            pid: [(ran, other) for other, ran in took.get(cpu, {}).items() if other != pid] for pid, cpu in cpus.items()
        }
        return {pid: max(others)[1] for pid, others in there.items() if others}

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
