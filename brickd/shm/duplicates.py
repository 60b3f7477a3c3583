"""Files with the same uuid: selects the worker's segment, and refuses the others.

Owns: the rule, the same for a daemon and for a verb that reads shared memory. Must not know: how a file is drained or
shown. Invariant: at most one file per uuid counts, so no span counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brickd.errors import SegmentUndrained
from brickd.shm.segment_files import Identifier


class Twin(NamedTuple):
    """One of several files with the same uuid.

    Attributes:
        alive: whether a process holds the worker's lock on it.
        activity: the segment's activity; a copy never has more than its original.
    """

    name: str
    identifier: Identifier
    alive: bool
    activity: int


def original(twins: Sequence[Twin], known: Identifier | None) -> Twin | None:
    """Return the worker's file; None: unknown.

    Args:
        twins: at least one file, in the order of the names.
        known: the file with this uuid that a daemon has drained, according to its checkpoint.
    """
    for twin in twins:
        if twin.identifier == known:
            return twin
    alive = [twin for twin in twins if twin.alive]
    if len(alive) > 1:
        return None
    # If all are dead, use the one with the most activity: an earlier copy lacks the worker's later counts.
    return alive[0] if alive else max(twins, key=lambda twin: twin.activity)


def undecided(name: str, other: str) -> SegmentUndrained:
    """Return the error for a file that cannot yet be distinguished from its twin."""
    reason = f"has the same uuid as {other}, and both have a live worker: neither is read until one of them ends"
    return SegmentUndrained(name, reason)
