"""Files with one uuid: which is the worker's segment, and why the others are refused.

Owns: that rule, the same for a daemon and for a verb that reads shared memory itself. Must not know: how a file is
drained or shown. Invariant: at most one file of a uuid counts, so that no span counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brickd.errors import SegmentUndrained
from brickd.shm.segment_files import Identifier


class Twin(NamedTuple):
    """One of several files with one uuid; a copy never has more `activity` than its original.

    `alive`: a process holds the worker's lock on it.
    """

    name: str
    identifier: Identifier
    alive: bool
    activity: int


def original(twins: Sequence[Twin], known: Identifier | None) -> Twin | None:
    """The worker's own file; None: not known which one.

    Args:
        twins: at least one, in the order of their names.
        known: the file that a daemon drained under this uuid, from its checkpoint.
    """
    for twin in twins:
        if twin.identifier == known:
            return twin
    alive = [twin for twin in twins if twin.alive]
    if len(alive) > 1:
        return None
    # An earlier copy of the dead would hide what the worker counted after that.
    return alive[0] if alive else max(twins, key=lambda twin: twin.activity)


def undecided(name: str, other: str) -> SegmentUndrained:
    """The error for a file that cannot be distinguished from its twin yet."""
    reason = f"has the same uuid as {other}, and a worker lives in each: neither is read until one of them ends"
    return SegmentUndrained(name, reason)
