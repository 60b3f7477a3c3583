"""Checks the memory for segments: /dev/shm, the free room in it, and the free room in this process's control group.

Owns: how much memory a worker needs. Must not know: the content of segments, the control groups of workers (a worker
counts in its segment how much memory its group refused). Invariant: a problem that results from another problem is not
reported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from brickd.base.cgroups import Limit
from brickd.base.files import read
from brickd.base.units import plural
from brickd.doctor.check import CheckResult, fine, mib
from brickd.doctor.container import Container, enlarged, more_memory

# Measured (docs/explanation/benchmarks.md) for two segments: one with one thread and 200 paths, and one with 32
# threads, 200 paths and span rings.
LEAST_BYTES = 430 << 10
USUAL_BYTES = 19 << 20
_USUAL = "the need of a new worker with 32 threads and 200 paths"

_IN_MEMORY = ("tmpfs", "devtmpfs", "ramfs")
_MODE = 0o1777


class Demand(NamedTuple):
    """The memory of a live worker's segment: its present use, and the most that its present threads and paths need."""

    taken_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class ShmFacts:
    """The kernel's report on the folder of segments.

    Attributes:
        filesystem: the type of its file system; None if the folder does not exist.
        usable: whether this user may list it and create files in it.
        size_bytes: its size; 0 without a limit.
        more_files: whether there is room for at least one more file.
    """

    path: str
    filesystem: str | None
    read_only: bool = False
    mode: int = _MODE
    owner: int = 0
    usable: bool = True
    size_bytes: int = 0
    free_bytes: int = 0
    more_files: bool = True


def observe(path: str, mounts: Path = Path("/proc/self/mountinfo")) -> ShmFacts:
    """Ask the kernel about the folder."""
    try:
        status, room = os.stat(path), os.statvfs(path)
    except OSError:
        return ShmFacts(path, None)
    if not os.path.isdir(path):
        return ShmFacts(path, None)
    return ShmFacts(
        path=path,
        filesystem=_filesystem(path, read(mounts, 1 << 22) or ""),
        read_only=bool(room.f_flag & os.ST_RDONLY),
        mode=status.st_mode & 0o7777,
        owner=status.st_uid,
        usable=os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True),
        size_bytes=room.f_blocks * room.f_frsize,
        free_bytes=room.f_bavail * room.f_frsize,
        # A tmpfs without a limit reports 0 blocks of 0.
        more_files=room.f_files == 0 or room.f_favail > 0,
    )


def _filesystem(path: str, mounts: str) -> str:
    """Return the type of the mount that contains a path.

    This is the mount with the longest mount point. If several mounts have the same mount point, the last one counts.
    """
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        point = fields[4]
        if len(point) >= len(best) and (path == point or path.startswith(point.rstrip("/") + "/")):
            best, kind = point, fields[fields.index("-", 6) + 1]
    return kind


def judge_place(shm: ShmFacts) -> CheckResult:
    """Judge whether the folder exists, is in memory, and is writable."""
    wanted = "a writable tmpfs"
    mount = f"mkdir -p {shm.path} && mount -t tmpfs -o mode=1777 tmpfs {shm.path}"
    if shm.filesystem is None:
        return CheckResult("shm", "broken", f"{shm.path} does not exist", wanted, mount, "workers cannot record")
    if shm.read_only:
        fix = f"mount -o remount,rw {shm.path}"
        return CheckResult("shm", "broken", f"{shm.path} is read-only", wanted, fix, "workers cannot write to it")
    if shm.filesystem not in _IN_MEMORY and shm.filesystem != "unknown":
        seen, why = f"{shm.path} is on {shm.filesystem}", "workers write to a disk"
        return CheckResult("shm", "advice", seen, wanted, mount, why)
    return fine("shm", f"{shm.path} is a {shm.filesystem}", wanted)


def judge_access(shm: ShmFacts, container: Container) -> list[CheckResult]:
    """Judge whether this user and other users can create files in the folder."""
    if shm.filesystem is None or shm.read_only:
        return []
    seen, wanted, fix = f"mode {shm.mode:04o} of user {shm.owner}", f"mode {_MODE:04o}", f"chmod {_MODE:04o} {shm.path}"
    if not shm.usable:
        why = "this user can neither create nor find segments there"
        return [CheckResult("shm-access", "broken", seen, wanted, fix, why)]
    # A volume of a pod has no sticky bit, but only the pod uses it.
    if shm.mode != _MODE and not (container.kind == "kubernetes" and shm.mode & 0o777 == 0o777):
        why = "other users cannot write to it, or can delete our segments"
        return [CheckResult("shm-access", "advice", seen, wanted, fix, why)]
    return [fine("shm-access", seen, wanted)]


def judge_room(shm: ShmFacts, workers: Sequence[Demand], container: Container) -> list[CheckResult]:
    """Judge whether there is room for another worker, and for the existing workers to grow."""
    if shm.filesystem is None:
        return []
    if shm.size_bytes == 0:
        return [fine("shm-room", "no limit on its size", "room for workers")]
    growth = sum(max(0, worker.most_bytes - worker.taken_bytes) for worker in workers)
    need = growth + USUAL_BYTES
    seen = f"{mib(shm.free_bytes)} of {mib(shm.size_bytes)} free, in {container}"
    wanted = f"{mib(need)}, {_USUAL}"
    if workers:
        takers = f"what {plural(len(workers), 'worker')} may still take with the present threads and paths"
        wanted = f"{mib(need)}, {takers} ({mib(growth)}), and {_USUAL}"
    fix = enlarged(container, 2 * (shm.size_bytes - shm.free_bytes + need))
    if not shm.more_files:
        more = f"mount -o remount,nr_inodes=1M {shm.path}"
        seen = f"no room for another file of any size, in {container}"
        return [CheckResult("shm-room", "broken", seen, "room for files", more, "no worker can create its segment")]
    if shm.free_bytes < LEAST_BYTES:
        return [CheckResult("shm-room", "broken", seen, wanted, fix, "full: workers run, but record nothing")]
    if shm.free_bytes < need:
        return [CheckResult("shm-room", "advice", seen, wanted, fix, "when it is full, spans are lost")]
    return [fine("shm-room", seen, wanted)]


def judge_group(limit: Limit | None, container: Container) -> CheckResult:
    """Judge whether the control group of this process has room for one more worker."""
    name, wanted = "memory-group", f"{mib(USUAL_BYTES)}, {_USUAL}"
    if limit is None:
        return fine(name, "no limit", wanted)
    seen = f"{mib(limit.room_bytes)} of {mib(limit.limit_bytes)} left in {limit.file}"
    if limit.room_bytes >= USUAL_BYTES:
        return fine(name, seen, wanted)
    fix = more_memory(container, limit.file, limit.limit_bytes + (1 << 30))
    why = "a worker that starts here runs, but records nothing"
    return CheckResult(name, "advice", seen, wanted, fix, why)
