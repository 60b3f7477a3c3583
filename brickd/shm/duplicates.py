"""Files with the same uuid. This module selects the worker's own segment and refuses the other files.

Owns: the rule for this selection. A daemon uses it, and so does a verb that runs without a daemon. Must not know: how a
file is drained or shown. Invariant: at most one file of each uuid is counted, so no span is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brickd.errors import SegmentUndrained
from brickd.shm.segment_files import Identifier


class Twin(NamedTuple):
    """One of several files with the same uuid.

    Attributes:
        alive: whether a process holds the worker's lock on this file.
        activity: the activity of the segment; a copy never has more than its original.
    """

    name: str
    identifier: Identifier
    alive: bool
    activity: int


def original(twins: Sequence[Twin], known: Identifier | None) -> Twin | None:
    """Return the worker's own file; None if that is undecided.

    Args:
        twins: at least one file, in the order of the names.
        known: the file with this uuid that a daemon has drained before, according to its checkpoint.
    """
    for twin in twins:
        if twin.identifier == known:
            return twin
    alive = [twin for twin in twins if twin.alive]
    if len(alive) > 1:
        return None
    # If no worker is alive, the file with the most activity is the worker's own, because a copy lacks later counts.
    return alive[0] if alive else max(twins, key=lambda twin: twin.activity)


def undecided(name: str, other: str) -> SegmentUndrained:
    """Return the error for a file that cannot yet be distinguished from its twin."""
    reason = f"has the same uuid as {other}, and both have a live worker: neither is read until one worker ends"
    return SegmentUndrained(name, reason)
