"""The limits of control groups: memory and processor time (versions 1 and 2).

Owns: which memory limit leaves the least room, how many processors a process may use at a time, how long the limits of
processor time have throttled a process. Must not know: who asks, how much room is enough. Invariant: a limit also
applies to the groups below, so all groups above the process are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from brickd.base.files import number, read

# The root of the hierarchy, the file with the limit, the file with the memory in use, and the kind of memory that the
# kernel drops first.
_V1 = ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
_NO_LIMIT = 1 << 60  # version 1 reports a missing limit as its largest number of pages


@dataclass(frozen=True, slots=True)
class Limit:
    """The memory limit of one group, its file, and the memory in use that cannot be dropped."""

    file: str
    limit_bytes: int
    used_bytes: int

    @property
    def room_bytes(self) -> int:
        """Return the memory that is still available."""
        return max(0, self.limit_bytes - self.used_bytes)


class Room(NamedTuple):
    """The memory that a process may still take, and the name of the limit."""

    bytes: int
    of: str


def observe(root: Path = Path("/"), process: str = "self") -> Limit | None:
    """Return the limit that leaves a process the least room; None if there is no limit."""
    lines = (read(root / "proc" / process / "cgroup") or "").splitlines()
    limits = [limit for line in lines for limit in _above(line, root)]
    return min(limits, key=lambda limit: limit.room_bytes, default=None)


def room(pid: int, root: Path = Path("/")) -> Room | None:
    """Return the memory that a process may still take; None if unknown."""
    found = []
    if (limit := observe(root, str(pid))) is not None:
        found.append(Room(limit.room_bytes, limit.file))
    for line in (read(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split()[:1] and value.split()[0].isdecimal():
            found.append(Room(int(value.split()[0]) * 1024, "of this machine"))
    return min(found, default=None)


def throttled_ns(pid: int, root: Path = Path("/")) -> int | None:
    """Return the total time for which the groups of a process were throttled; None if unknown."""
    found = []
    for group in _cpu_groups(pid, root):
        stat = read(group / "cpu.stat") or ""
        for word, ns in (("throttled_usec", 1_000), ("throttled_time", 1)):  # version 2, version 1
            if any(line.startswith(f"{word} ") for line in stat.splitlines()):
                found.append(ns * _line(stat, word))
    return sum(found) if found else None


def processors(pid: int, root: Path = Path("/")) -> float | None:
    """Return the average number of processors that the groups of a process allow; None if there is no limit."""
    found = []
    for group in _cpu_groups(pid, root):
        words = (read(group / "cpu.max") or "").split()
        if not words:
            words = [(read(group / f"cpu.cfs_{what}_us") or "").strip() for what in ("quota", "period")]
        quota, period = words if len(words) == 2 else ("", "")
        if quota.isdecimal() and period.isdecimal() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def _cpu_groups(pid: int, root: Path) -> Iterator[Path]:
    """Yield the folders of the groups that limit the processor time of a process, the lowest group first."""
    for line in (read(root / "proc" / str(pid) / "cgroup") or "").splitlines():
        hierarchy, controllers, inner = (*line.split(":", 2), "", "")[:3]
        if hierarchy == "0":
            top = root / _V2[0]
        elif "cpu" in controllers.split(","):
            top = root / "sys/fs/cgroup/cpu"
        else:
            continue
        folder = top / inner.strip("/")
        for group in (folder, *folder.parents):
            yield group
            if group == top:
                break


def _above(line: str, root: Path) -> Iterator[Limit]:
    """Yield the limits of a group and of all groups above it. `line` is the group's line in /proc/self/cgroup."""
    hierarchy, controllers, inner = (*line.split(":", 2), "", "")[:3]
    if hierarchy == "0":
        place, limit_file, use_file, dropped = _V2
    elif "memory" in controllers.split(","):
        place, limit_file, use_file, dropped = _V1
    else:
        return
    top = root / place
    folder = top / inner.strip("/")
    # In a container, the path may be outside of the mount. If so, the root of the mount is the container's group.
    for group in (folder, *folder.parents):
        limit, used = number(group / limit_file), number(group / use_file)
        if limit is not None and used is not None and limit < _NO_LIMIT:
            droppable = _line(read(group / "memory.stat") or "", dropped)
            yield Limit(f"/{(group / limit_file).relative_to(root)}", limit, max(0, used - droppable))
        if group == top:
            return


def _line(text: str, word: str) -> int:
    values = (line.partition(" ")[2] for line in text.splitlines() if line.startswith(f"{word} "))
    return next((int(value) for value in values if value.isascii() and value.isdigit()), 0)
