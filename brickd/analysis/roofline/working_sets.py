"""How much is to be read of a level of memory, so that it comes from there and neither from nearer nor from farther.

Owns: which caches a processor has, what each thread is to read of each, how much memory may be taken for that. Must not
know: how anything is read or timed. Invariants: together the threads take no more than a share of what is free; a level
that cannot be told from the nearer one, or has no room, is told with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from brickd.analysis.roofline.peaks import MEMORY, Skipped
from brickd.base import cgroups
from brickd.base.machine import read

PAGE = 4096
_CPUS = Path("/sys/devices/system/cpu")
# Of a machine that does not say how large its caches are, what none holds.
_LAST_CACHE_BYTES = 64 << 20
# How much of the room that there is may be taken.
_SHARE_OF_ROOM = 4


class CpuCache(NamedTuple):
    """A cache of data, as one processor sees it."""

    level: str
    size_bytes: int
    cpus: frozenset[int]


class WorkingSet(NamedTuple):
    """What each thread reads, so that it comes from the level."""

    level: str
    size_bytes: int


def caches(cpu: int, cpus: Path = _CPUS) -> list[CpuCache]:
    """Those of a processor, the nearest first; none where the kernel does not say."""
    found = []
    for folder in (cpus / f"cpu{cpu}" / "cache").glob("index*"):
        kind, level, size, shared = (
            (read(folder / name) or "").strip() for name in ("type", "level", "size", "shared_cpu_list")
        )
        if kind in ("Data", "Unified") and level.isdigit() and size[:-1].isdigit() and size[-1:] == "K":
            found.append(CpuCache(f"L{level}", int(size[:-1]) << 10, frozenset(listed(shared))))
    return sorted(found)


def listed(numbers: str) -> Iterator[int]:
    """The numbers of a list as the kernel writes one.

    >>> list(listed("0-2,8"))
    [0, 1, 2, 8]
    """
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first), int(last or first) + 1)


def working_sets(
    found: Iterable[CpuCache], cpus: Collection[int], factor: int, room_bytes: int
) -> Iterator[WorkingSet | Skipped]:
    """What each of the threads, one on each of the processors, is to read of each level.

    Args:
        found: the caches of any of these processors, the nearest first.
        cpus: those.
        factor: of how many of its last caches memory's working set is.
        room_bytes: what all threads may take together.
    """
    below = 0
    for level, size_bytes, shared in found:
        mine = size_bytes // max(1, len(shared & set(cpus)))
        # More than the nearer level holds and less than this one, by the same factor; of the first one half.
        wanted = math.isqrt(below * mine) if below else mine // 2
        if mine <= 2 * below:
            yield Skipped(level, f"a thread's {mine >> 10} KiB of it are not twice the {below >> 10} KiB nearer to it")
        elif wanted * len(cpus) > room_bytes:
            yield Skipped(level, _no_room(wanted * len(cpus), room_bytes))
        else:
            yield WorkingSet(level, max(PAGE, wanted // PAGE * PAGE))
        below = max(below, mine)
    wanted = factor * (below or _LAST_CACHE_BYTES)
    if wanted * len(cpus) > room_bytes:
        yield Skipped(MEMORY, _no_room(wanted * len(cpus), room_bytes))
    else:
        yield WorkingSet(MEMORY, wanted // PAGE * PAGE)


def _no_room(wanted_bytes: int, room_bytes: int) -> str:
    return f"{wanted_bytes >> 20} MiB are more than what may be taken, {room_bytes >> 20} MiB of what is free"


def room() -> int:
    """How many bytes may be taken without harm to who else is here."""
    limit = cgroups.observe()
    lines = (read(Path("/proc/meminfo")) or "").splitlines()
    free = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    return min(free + ([] if limit is None else [limit.room_bytes]), default=0) // _SHARE_OF_ROOM
