"""Working sets: how many bytes to read so that they come from a certain level of memory.

Owns: the caches of a processor, the working set of each thread per level, the memory limit. Must not know: how memory
is read and timed. Invariants: All threads together use at most a fixed share of the free memory. A level is skipped if
it cannot be distinguished from the next nearer level, or if there is no room. The reason is reported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from brickd.analysis.roofline.peaks import MEMORY, Skipped
from brickd.base import cgroups
from brickd.base.files import read
from brickd.base.processors import CPUS, listed

PAGE = 4096
# A size that is larger than any cache, for a machine that does not report cache sizes.
_LAST_CACHE_BYTES = 64 << 20
# The working sets use at most the free memory divided by this number.
_SHARE_OF_ROOM = 4


class CpuCache(NamedTuple):
    """A data cache of a processor."""

    level: str
    size_bytes: int
    cpus: frozenset[int]


class WorkingSet(NamedTuple):
    """The number of bytes that each thread must read so that they come from the level."""

    level: str
    size_bytes: int


def caches(cpu: int, cpus: Path = Path("/", CPUS)) -> list[CpuCache]:
    """Return the data caches of a processor, the nearest first; empty if the kernel does not report them."""
    found = []
    for folder in (cpus / f"cpu{cpu}" / "cache").glob("index*"):
        kind, level, size, shared = (
            (read(folder / name) or "").strip() for name in ("type", "level", "size", "shared_cpu_list")
        )
        if kind in ("Data", "Unified") and level.isdigit() and size[:-1].isdigit() and size[-1:] == "K":
            found.append(CpuCache(f"L{level}", int(size[:-1]) << 10, frozenset(listed(shared))))
    return sorted(found)


def working_sets(
    found: Iterable[CpuCache], cpus: Collection[int], factor: int, room_bytes: int
) -> Iterator[WorkingSet | Skipped]:
    """Return the working set of each thread for each level, with one thread on each processor.

    Args:
        found: the caches of any of these processors, the nearest first.
        cpus: the processors.
        factor: the working set of memory, as a multiple of the last cache.
        room_bytes: the limit for all threads together.
    """
    below = 0
    for level, size_bytes, shared in found:
        mine = size_bytes // max(1, len(shared & set(cpus)))
        # The geometric mean of the sizes of this level and the next nearer one; for the first level, half of its size.
        between = math.isqrt(below * mine) if below else mine // 2
        if mine <= 2 * below:
            yield Skipped(
                level,
                f"each thread's part is {mine >> 10} KiB, expected more than twice the {below >> 10} KiB of the level "
                f"below",
            )
        else:
            yield _fitting(level, between, len(cpus), room_bytes)
        below = max(below, mine)
    yield _fitting(MEMORY, factor * (below or _LAST_CACHE_BYTES), len(cpus), room_bytes)


def _fitting(level: str, size_bytes: int, threads: int, room_bytes: int) -> WorkingSet | Skipped:
    if size_bytes * threads > room_bytes:
        needed = f"{size_bytes * threads >> 20} MiB"
        return Skipped(level, f"{needed} needed, the limit is {room_bytes >> 20} MiB of the free memory")
    return WorkingSet(level, max(PAGE, size_bytes // PAGE * PAGE))


def room() -> int:
    """Return the number of bytes that this process may use without harm to other processes."""
    limit = cgroups.observe()
    lines = (read(Path("/proc/meminfo")) or "").splitlines()
    free = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    return min(free + ([] if limit is None else [limit.room_bytes]), default=0) // _SHARE_OF_ROOM
