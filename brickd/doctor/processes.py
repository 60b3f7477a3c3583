"""The processes of this user that load brick_agent or map a segment.

Owns: the facts that /proc reports about these processes. Must not know: which findings follow from a process.
Invariants: Other users' processes are not inspected, even if root runs the doctor. A process that cannot be inspected,
or that ends during the search, is counted and does not affect the others. The search ends after a second and reports
how many processes it skipped. A process owns the segment whose lock it holds, even if it maps other segments.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from brickd.base.files import read

_LONGEST_SECONDS = 1.0
_EXTENSION = b"brick_agent/_core"
# A line of /proc/PID/maps that describes a file in /dev/shm with a segment's name: device, inode and path.
_SEGMENT = re.compile(
    rb"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +/dev/shm/([^/\n]{0,39}[0-9a-f]{32})( \(deleted\))?$", re.MULTILINE
)

Place = Literal["here", "elsewhere", "removed"]
File = tuple[int, int, int]  # device, major and minor, and inode


class Mapped(NamedTuple):
    """A segment that a process maps: its own (`owned`), an earlier segment of its own, or a segment of its parent."""

    file: str
    place: Place
    owned: bool


@dataclass(frozen=True, slots=True)
class Process:
    """One process; in each field, None means unknown.

    Attributes:
        pid: its pid in this pid namespace.
        command: the short name of its command.
        settings: its environment variables that begin with BRICKD, as they were at its start.
        our_time: whether it is in the same time namespace as this process.
        free_bytes: the free space in its /dev/shm.
    """

    pid: int
    command: str
    segments: tuple[Mapped, ...] = ()
    settings: Mapping[str, str] | None = None
    our_time: bool | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that were found, and how complete the search was.

    Attributes:
        seen: the number of this user's processes.
        closed: how many of these could not be inspected.
        left: the number of skipped processes; these may belong to any user.
    """

    found: tuple[Process, ...]
    seen: int
    closed: int
    left: int


def observe(shm: str, proc: Path = Path("/proc")) -> Processes:
    """Inspect every process of this user, the newest first, because the newest is often the one that the user means."""
    pids = sorted((int(name) for name in os.listdir(proc) if name.isdigit()), reverse=True) if proc.is_dir() else []
    owners = _owners(read(proc / "locks", 1 << 24) or "")
    found: list[Process] = []
    closed = seen = left = 0
    deadline = time.monotonic() + _LONGEST_SECONDS
    for number, pid in enumerate(pids):
        if time.monotonic() > deadline:
            left = len(pids) - number
            break
        if _owner(proc / str(pid)) != os.geteuid():
            continue
        seen += 1
        try:
            maps = (proc / str(pid) / "maps").read_bytes()
        except PermissionError:
            closed += bool(read(proc / str(pid) / "cmdline", 1))  # a kernel thread has no command line
            continue
        except OSError:
            continue
        segments = tuple(_segments(pid, maps, owners, shm))
        if segments or _EXTENSION in maps:
            found.append(_process(pid, segments, shm, proc))
    return Processes(tuple(sorted(found, key=lambda process: process.pid)), seen, closed, left)


def _owner(process: Path) -> int | None:
    try:
        return process.stat().st_uid
    except OSError:  # the process has ended
        return None


def _owners(locks: str) -> set[tuple[int, File]]:
    """From /proc/locks, return a pair of pid and file for each write lock on the byte that a worker locks."""
    owners = set()
    for line in locks.splitlines():
        fields = line.replace("-> ", "").split()
        if len(fields) == 8 and fields[1] == "POSIX" and fields[3] == "WRITE" and fields[6] == "0":
            major, minor, inode = fields[5].split(":")
            owners.add((int(fields[4]), (int(major, 16), int(minor, 16), int(inode))))
    return owners


def _segments(pid: int, maps: bytes, owners: set[tuple[int, File]], shm: str) -> Iterable[Mapped]:
    if b"/dev/shm/" not in maps:
        return
    files: dict[File, tuple[str, bool]] = {}
    for major, minor, inode, name, deleted in _SEGMENT.findall(maps):
        files[int(major, 16), int(minor, 16), int(inode)] = os.fsdecode(name), bool(deleted)
    for file, (name, deleted) in files.items():
        place: Place = "removed" if deleted else "here" if _named(shm, name) == file else "elsewhere"
        yield Mapped(name, place, (pid, file) in owners)


def _named(shm: str, name: str) -> File | None:
    try:
        status = os.lstat(os.path.join(shm, name))
    except OSError:
        return None
    return os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


def _process(pid: int, segments: tuple[Mapped, ...], shm: str, proc: Path) -> Process:
    of = proc / str(pid)
    environ = read(of / "environ", 1 << 20)
    pairs = (entry.partition("=") for entry in (environ or "").split("\0") if entry.startswith("BRICKD"))
    return Process(
        pid=pid,
        command=(read(of / "comm") or "").rstrip("\n"),
        segments=segments,
        settings=None if environ is None else {name: value for name, _, value in pairs},
        our_time=_same(of / "ns/time", proc / "self/ns/time"),
        free_bytes=_free_bytes(of / "root" / shm.lstrip("/")),
    )


def _same(one: Path, other: Path) -> bool | None:
    try:
        return one.samefile(other)
    except OSError:
        return None


def _free_bytes(folder: Path) -> int | None:
    try:
        room = os.statvfs(folder)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize if room.f_blocks else None
