"""The limits of a process's control groups: of memory, version 1 or 2, and of processor time, version 2.

Owns: which limit of memory leaves the least room, how long the limits of processor time have held a process back. Must
not know: who asks, how much room is enough. Invariant: a limit binds all groups below it, so each group above is asked
too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from brickd.base.machine import number, read

# The hierarchy's place, and the files of a limit, of the use, and the line of what the kernel would drop first.
_V1 = ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
_NO_LIMIT = 1 << 60  # version 1 says its largest number of pages


@dataclass(frozen=True, slots=True)
class Limit:
    """The memory limit of one group, the file that holds it, and the use that cannot be dropped."""

    file: str
    limit_bytes: int
    used_bytes: int

    @property
    def room_bytes(self) -> int:
        """What may still be taken."""
        return max(0, self.limit_bytes - self.used_bytes)


class Room(NamedTuple):
    """How much memory a process may still take, and what limits it."""

    bytes: int
    of: str


def observe(root: Path = Path("/"), process: str = "self") -> Limit | None:
    """The limit of a process that leaves the least room; None: there is no limit."""
    lines = (read(root / "proc" / process / "cgroup") or "").splitlines()
    limits = [limit for line in lines for limit in _above(line, root)]
    return min(limits, key=lambda limit: limit.room_bytes, default=None)


def room(pid: int, root: Path = Path("/")) -> Room | None:
    """What a process may still take of its control groups and of the machine; None: not known."""
    found = []
    if (limit := observe(root, str(pid))) is not None:
        found.append(Room(limit.room_bytes, limit.file))
    for line in (read(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split()[:1] and value.split()[0].isdecimal():
            found.append(Room(int(value.split()[0]) * 1024, "of this machine"))
    return min(found, default=None)


def throttled_ns(pid: int, root: Path = Path("/")) -> int | None:
    """How long the groups of a process were throttled so far, all together; None: not known."""
    top = root / _V2[0]
    lines = (line.split(":", 2) for line in (read(root / "proc" / str(pid) / "cgroup") or "").splitlines())
    inner = next((line[2] for line in lines if len(line) == 3 and line[0] == "0"), None)
    if inner is None:
        return None
    folder, found = top / inner.strip("/"), []
    for group in (folder, *folder.parents):
        stat = read(group / "cpu.stat") or ""
        if any(line.startswith("throttled_usec ") for line in stat.splitlines()):
            found.append(1_000 * _line(stat, "throttled_usec"))
        if group == top:
            break
    return sum(found) if found else None


def _above(line: str, root: Path) -> Iterator[Limit]:
    """The limits of a group and of all above it, in one hierarchy: a line of /proc/self/cgroup."""
    hierarchy, controllers, inner = (*line.split(":", 2), "", "")[:3]
    if hierarchy == "0":
        place, limit_file, use_file, dropped = _V2
    elif "memory" in controllers.split(","):
        place, limit_file, use_file, dropped = _V1
    else:
        return
    top = root / place
    folder = top / inner.strip("/")
    # In a container the kernel may name a path outside of what is mounted here; the mount's root is its group then.
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
