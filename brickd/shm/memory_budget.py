"""The memory budget of segments: the bytes that a reading copies and keeps.

Owns: the limits for one segment and for all segments of one user, the cost of each row, and the ration of a segment.
Must not know: how a segment is read. Invariants: A segment's cost comes from its content, not from its header. A ration
depends on numbers of bytes, not on time. If callers ask for the cheapest segment first, an expensive segment takes
nothing from a cheap one. A segment over the limits is first read without its detail, then its totals are read less
often, then it is not read at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from brickd.errors import SegmentOverBudget
from brickd.shm import _reader
from brickd.shm.segment import Extent, Segment
from brickd.shm.segment_copy import Reading

MIB = 1 << 20

# The bytes of one row in a reading, measured with names of 30 bytes and numbers of 50 bits. A lane takes two dicts.
LANE_BYTES, NAME_BYTES, PATH_BYTES, SITE_BYTES = 2_560, 280, 190, 170
PENDING_BYTES = 200  # the bytes that one start of deferred work takes until its end
_LINE_BYTES = 3 * 384 + 2 * 64  # the bytes of a lane line and a consumer line, over all reads of them
_BLOCK_BYTES = 64 * (_reader.SUMMARY_BYTES + 2 * 8)  # summaries, and their sequence numbers, which are read twice

# The interval between readings of totals whose cost is too high to read them each time.
SELDOM_NS = 60_000_000_000
SELDOM = 6  # during SELDOM_NS, other segments are read at least this many times


class Cost(NamedTuple):
    """The cost of a segment in bytes.

    Attributes:
        read: what a reading copies.
        kept: what is kept of a reading.
        detail: what is kept of the rings.
    """

    read: int
    kept: int
    detail: int = 0


# The limits for one segment and for all segments of a user. They were chosen after two measurements. For 64 workers
# with 32 threads each and the same 256 paths, reading 620 MB took 0.22 s of processor time, and 32 MB were kept. For
# one worker with 65,472 paths, 76 MB were read per thread, and 106 MB were kept.
SEGMENT = Cost(read=1024 * MIB, kept=112 * MIB)
OWNER = Cost(read=2048 * MIB, kept=128 * MIB)


class Ration(IntEnum):
    """How much of a segment is read."""

    WHOLE = 0
    NO_DETAIL = 1  # the segment's rings are not read; the worker drops and counts the records that do not fit
    SELDOM = 2  # like NO_DETAIL, but the totals are read only once a minute
    NOTHING = 3


def cost_of(extent: Extent, pending: int = 0, detail: int = 0) -> Cost:
    """Return the cost of a segment that has `pending` starts of deferred work and `detail` bytes from its rings."""
    rows = extent.names * NAME_BYTES + extent.paths * (PATH_BYTES + _reader.SUMMARY_BYTES) + extent.sites * SITE_BYTES
    tables = extent.names * 2 * 128 + (extent.paths + extent.sites) * 8
    return Cost(
        read=extent.lines * _LINE_BYTES + tables + extent.blocks * _BLOCK_BYTES,
        kept=extent.lanes * LANE_BYTES + rows + pending * PENDING_BYTES,
        detail=detail,
    )


@dataclass(slots=True)
class Budget:
    """The cost of the segments read so far, per user. A caller that reads each segment only once sets `seldom` to 1."""

    seldom: int = SELDOM
    _read: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _kept: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def ration(self, owner: int, cost: Cost) -> tuple[Ration, str]:
        """Return the ration of a segment and the reason. Callers must ask for the cheapest segment first."""
        rations = {
            Ration.WHOLE: Cost(cost.read, cost.kept + cost.detail),
            Ration.NO_DETAIL: Cost(cost.read, cost.kept),
            Ration.SELDOM: Cost(cost.read // self.seldom, cost.kept),
        }
        why = ""
        for ration, part in rations.items():
            over = _over(owner, part, self._read[owner], self._kept[owner])
            if not over:
                self._read[owner] += part.read
                self._kept[owner] += part.kept
                return ration, why
            why = over
        return Ration.NOTHING, why

    def grown(self, owner: int, before: int, after: int) -> str:
        """Charge a segment that grew while it was read. If its cost exceeds a limit, return the reason; else ""."""
        others = self._kept[owner] - before
        if over := _over(owner, Cost(0, after), 0, others):
            return over
        self._kept[owner] = others + max(before, after)
        return ""

    def freed(self, owner: int, amount: int) -> None:
        """Subtract the bytes that a reading no longer takes after it was packed."""
        self._kept[owner] -= amount


def _kept(reading: Reading) -> int:
    """Return how many bytes a reading takes in memory."""
    names, paths, sites = len(reading.names), len(reading.paths), len(reading.sites)
    return cost_of(Extent(lines=0, lanes=len(reading.alike()), names=names, paths=paths, sites=sites, blocks=0)).kept


def kept_of(readings: Iterable[Reading], size: Callable[[bytes | _reader.Packed], int] = len) -> Iterator[int]:
    """Yield for each compact reading how many bytes it takes, without the tables that an earlier reading has, too."""
    seen: set[int] = set()
    for each in readings:
        kept = len(each.lanes) * LANE_BYTES + size(each.summaries) + size(each.latency)
        for rows, bytes_each in ((each.names, NAME_BYTES), (each.paths, PATH_BYTES), (each.sites, SITE_BYTES)):
            kept += 0 if id(rows) in seen else len(rows) * bytes_each
            seen.add(id(rows))
        yield kept


def packed_size(table: bytes | _reader.Packed) -> int:
    """Return how many bytes a table takes in packed form."""
    return len(table if isinstance(table, bytes) else table.form())


@dataclass(slots=True)
class Account:
    """The ration of one segment, over all its readings; `why` tells why the ration is not larger.

    Once the rings of a segment have been refused, they are never read again, because their cost is no longer known.
    """

    pending: Callable[[], int] = lambda: 0
    detail: Callable[[], int] = lambda: 0
    ration: Ration = Ration.WHOLE
    why: str = ""
    _last: Reading | None = None
    _last_ns: int = 0

    def read(self, segment: Segment, budget: Budget, now_ns: int) -> Reading:
        """Read the totals of the segment, or return its last reading, or raise SegmentRefused."""
        extent = segment.extent()
        cost = cost_of(extent, self.pending(), self.detail())
        ration, why = budget.ration(segment.uid, cost)
        self.ration, self.why = max(ration, min(self.ration, Ration.NO_DETAIL)), why or self.why
        if ration is Ration.NOTHING:
            raise SegmentOverBudget(segment.name, why)
        seldom = ration is Ration.SELDOM
        if not seldom or self._last is None or now_ns - self._last_ns >= SELDOM_NS:
            reading = segment.read()
            if why := budget.grown(segment.uid, cost_of(extent).kept, _kept(reading)):
                raise SegmentOverBudget(segment.name, why)
            # From now on, the reading is charged with its packed size.
            budget.freed(segment.uid, len(reading.summaries) - packed_size(reading.summaries))
            self._last, self._last_ns = (reading if seldom else None), now_ns
            return reading
        return replace(self._last, pid=segment.worker())


def _over(owner: int, part: Cost, read: int, kept: int) -> str:
    """Return the first limit that would be exceeded, with the amount; "" if no limit would be exceeded."""
    for what, takes, one, all_of, taken in (
        ("to be read", part.read, SEGMENT.read, OWNER.read, read),
        ("of memory", part.kept, SEGMENT.kept, OWNER.kept, kept),
    ):
        if takes > one:
            return f"takes {_mib(takes)} {what}: the limit for one segment is {_mib(one)}"
        if takes + taken > all_of:
            limit = f"the limit for the segments of user {owner} is {_mib(all_of)}"
            return f"takes {_mib(takes)} {what}, and smaller ones take {_mib(taken)}: {limit}"
    return ""


def _mib(count: int) -> str:
    return f"{count / MIB:,.1f} MiB"
