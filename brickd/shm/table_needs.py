"""The sizes at which a worker's tables would hold all its names, paths and sites, including those that were refused.

Owns: how these sizes are computed from the worker's counters. Must not know: words, screens, other losses. Invariants:
The sizes are computed together, because a full table hides what the other tables would have needed. A size is larger
than the present one, and within the agent's limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low
from typing import Literal, NamedTuple

from brickd.shm import _reader
from brickd.shm.ledger import Ledger
from brickd.shm.segment_copy import CallPath, Reading

# A suggested size is at most this many times the present one. There must be a limit: a name, path or site is counted
# each time it is refused, so the counts may be too high.
TIMES_MAX = 16

Table = Literal["names", "paths", "sites"]
_MOST: dict[Table, int] = {"names": _reader.NUMBERS_MAX, "paths": _reader.NUMBERS_MAX, "sites": _reader.SITES_MAX}
_OTHER = 0  # the number of the name 'other', which stands for everything that got no name


class TableNeeds(NamedTuple):
    """The tables that are too small.

    Attributes:
        sizes: the size that each of these tables needs.
        exact: whether these sizes are certainly enough; if not, they are estimates.
    """

    sizes: dict[Table, int]
    exact: bool


def table_needs(reading: Reading, ledger: Ledger) -> TableNeeds:
    """Return the sizes that have room for everything that was refused.

    Without a name, a brick has no path and a kernel has no site. So refused names also need more rows in other tables.
    Marks may use only half of a table. So a refused mark already has a name if less than half of the table of names was
    used.
    """
    header, process = reading.header, reading.process
    rooms = {table: header[table] for table in _MOST}
    used = {table: min(process[table], room) for table, room in rooms.items()}
    full = [table for table, room in rooms.items() if used[table] == room]
    half = any(2 * used[table] >= rooms[table] for table in ("names", "paths"))
    marks, spans, often = ledger.marks["refused"] if half else 0, 0, 1
    if marks or "names" in full or "paths" in full:
        counts = list(_counts(reading))
        spans = sum(count for path, count in counts if path.name == _OTHER)
        # A path that was refused in a loop is counted once per iteration. So divide the refusals by the typical number
        # of times that a path was used.
        often = median_low([count for path, count in counts if path.name != _OTHER] or [1])
    marks, spans = -(-marks // often), -(-spans // often)
    nameless = marks if 2 * used["names"] >= rooms["names"] else 0
    share = 2 if marks else 1  # marks may use at most half of a table
    wanted: dict[Table, int] = {
        "names": share * (used["names"] + nameless + process["names_refused"]),
        "paths": share * (used["paths"] + marks + spans),
        "sites": used["sites"] + (process["sites_refused"] if "names" in full or "sites" in full else 0),
    }
    small = [table for table, room in rooms.items() if (wanted[table] > room or table in full) and room < _MOST[table]]
    most = {table: min(TIMES_MAX * rooms[table], _MOST[table]) for table in small}
    sizes = {table: min(max(wanted[table], 2 * rooms[table]), most[table]) for table in small}
    return TableNeeds(sizes, often == 1 and all(wanted[table] <= most[table] for table in small))


def _counts(reading: Reading) -> Iterator[tuple[CallPath, int]]:
    """Return the paths with their counts, without paths that were never used."""
    words = memoryview(reading.summaries).cast("B").cast("Q")[:: _reader.SUMMARY_BYTES // 8]
    return ((path, count) for path, count in zip(reading.paths, words, strict=False) if path is not None and count)
