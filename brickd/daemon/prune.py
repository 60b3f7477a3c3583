"""The removal of segments that are no longer needed.

Owns: the evidence on which a segment is removed. Must not know: terminals. Invariants: A file is removed only if it
belongs to this user, its worker's lock is free, it has no consumer, and it did not change for five seconds. Pids are
not used as evidence. Only the file that was judged is removed, and no other file that has taken its name. A segment is
removed only if a record of it was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from brickd.errors import NotPermitted, SegmentRefused, SegmentUnpublished, SegmentUnrecorded
from brickd.shm import _reader
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_files import SegmentFile, find, open_file
from brickd.shm.segment_files import prefix as configured

STILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PrunedSegment:
    """A segment that was removed, or that would be removed without --dry-run."""

    file: str
    spans: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The removed files, and the refused files with the reasons."""

    removed: list[PrunedSegment]
    refused: list[SegmentRefused]


def prune(
    *,
    remove: bool,
    wait: Callable[[float], None],
    refused_too: bool = False,
    uuids: Collection[str] | None = None,
    prefix: str | None = None,
) -> Outcome:
    """Find the segments of dead workers, watch them, then remove or only report them.

    Args:
        remove: whether to remove the segments.
        wait: waits a number of seconds; it is called once, if there is a segment to watch.
        refused_too: include files that have the name of a segment but are invalid or have another format.
        uuids: the uuids of the workers; None for all workers.
        prefix: the prefix of the files' names; None for the configured prefix.
    """
    refused: list[SegmentRefused] = []
    with contextlib.ExitStack() as opened:
        dead: list[tuple[SegmentFile, int]] = []
        for name in find(prefix):
            try:
                file = opened.enter_context(_open(name, refused_too))
            except SegmentRefused as error:
                refused.append(error)
            except NotPermitted:
                continue
            else:
                meant = uuids is None or (isinstance(file, Segment) and file.header["uuid"].hex() in uuids)
                if meant and _abandoned(file):
                    dead.append((file, _activity(file)))
        if dead:
            wait(STILL_SECONDS)
        removed: list[PrunedSegment] = []
        for file, activity in dead:
            if not (_abandoned(file) and _activity(file) == activity and file.same_file()):
                continue
            spans = file.spans() if isinstance(file, Segment) else 0
            if remove and not _recorded(file, configured() if prefix is None else prefix):
                refused.append(SegmentUnrecorded(file.name))
            elif not remove or file.unlink():
                removed.append(PrunedSegment(file.name, spans, file.memory_bytes))
        return Outcome(removed, refused)


def _open(name: str, refused_too: bool) -> SegmentFile:
    try:
        return open_segment(name)
    except SegmentRefused as error:
        if not refused_too and not isinstance(error, SegmentUnpublished):
            raise
        return open_file(name)


def _abandoned(file: SegmentFile) -> bool:
    return file.worker() is None and file.consumer() is None


def _activity(file: SegmentFile) -> int:
    """Return a number that changes when the worker records something, or publishes the file."""
    if not isinstance(file, Segment):
        return int(file.published())
    try:
        return file.activity()
    except SegmentRefused:
        return -1


def _recorded(file: SegmentFile, prefix: str) -> bool:
    """Write a record of a worker's segment; return False if the segment must stay."""
    if not isinstance(file, Segment):
        return True
    try:
        record = file.removed(_reader.REMOVED_PRUNED)
    except SegmentRefused:
        return True  # invalid, so there is nothing to record, and the user asked for its removal
    return _reader.append_removed(prefix, record)
