"""The admission of segments: which files the daemon drains, and which it refuses.

Owns: the lock on a file, the choice between copies, the position at which the drain of a segment continues. Must not
know: names, other threads, what happens to a segment later. Invariants: A refused file is closed. The totals of a
worker are never drained twice, even if its segment was copied or an earlier daemon could not remove it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from brickd.daemon.attachment import Attached
from brickd.errors import NotPermitted, SegmentConsumed, SegmentCopy, SegmentRefused, SegmentUndrained
from brickd.model.retained_workers import RetainedWorker
from brickd.shm import _reader
from brickd.shm.duplicates import Twin, original, undecided
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_files import find, identifier_of
from brickd.state.daemon_state import Memory

SPARES_MAX = 16  # the limit of descriptors of one file


class Admission:
    """Opens files as segments to drain; `attached` has the segments that the daemon drains already, by uuid."""

    def __init__(
        self,
        memory: Memory,
        attached: Mapping[str, Attached],
        workers_max: int,
        give_up: Callable[[Attached, SegmentRefused], None],
        bury: Callable[[str], None],
    ) -> None:
        """`give_up` stops the drain of a segment.

        `bury` notes a file whose totals are kept, but that cannot be removed.
        """
        self._memory, self._attached, self._workers_max = memory, attached, workers_max
        self._give_up, self._bury = give_up, bury

    def admit(self, file: str, now_ns: int, *, marks: bool) -> Attached | None:
        """Lock and open a file; return None if there is nothing to drain in it. Raise SegmentRefused.

        With `marks`, the file gets a mark. A worker with this mark leaves its segment for a daemon when it ends.
        """
        if len(self._attached) >= self._workers_max:
            reason = f"not drained: the limit of {self._workers_max:,} workers is reached (raise ulimit -n)"
            raise SegmentUndrained(file, reason)
        segment = open_segment(file, os.O_RDWR)
        same = (each for each in self._attached.values() if each.segment.identifier == segment.identifier)
        if (twin := next(same, None)) is not None:  # the file was renamed during this look
            twin.spares.append(segment)
            if len(twin.spares) > SPARES_MAX:
                self._give_up(twin, SegmentRefused(file, f"was renamed {SPARES_MAX} times while it was opened"))
            return None
        try:
            if not segment.consume():
                raise SegmentConsumed(file, segment.consumer() or 0)
            uuid = segment.header["uuid"].hex()
            lives = segment.worker() is not None
            self._require_original(segment, uuid)
            if uuid in self._memory.buried or (uuid in self._memory.gone and not lives):
                # The totals of the file are already saved: an earlier daemon ended before it removed the file, or was
                # not permitted to remove it.
                self._remove(segment, uuid)
                return None
            known = self._memory.known.get(uuid)
            if known is not None and len(known.cursors) > segment.header["lanes"]:
                known = None  # the checkpoint describes another segment
            try:
                drain = _reader.Drain(segment.fd, known.cursors if known else None)
            except ValueError as error:
                raise SegmentRefused(file, str(error)) from None
            took = segment.process()["took"]
            if marks:
                with suppress(SegmentRefused):  # a worker that cannot be told is drained all the same
                    segment.mark_attached()
        except BaseException:
            segment.close()
            raise
        return Attached(segment, drain, known or RetainedWorker(), self._memory.sources, now_ns, took)

    def _remove(self, segment: Segment, uuid: str) -> None:
        with segment:
            try:
                segment.unlink()
            except NotPermitted:
                self._bury(uuid)
                reason = "its worker ended, and its totals are kept, but the file cannot be removed: permission denied"
                raise SegmentRefused(segment.name, reason) from None

    def _require_original(self, segment: Segment, uuid: str) -> None:
        """Refuse a file if another file with the same uuid is, or may be, the original."""
        known = self._memory.known.get(uuid)
        if (twin := self._attached.get(uuid)) is not None:
            self._judge_twins(segment, twin)
        elif known is not None and known.file not in (None, segment.identifier):
            for name in find(self._memory.prefix):
                if identifier_of(name) == known.file:
                    raise SegmentCopy(segment.name, name, known.file)

    def _judge_twins(self, segment: Segment, twin: Attached) -> NoReturn:
        """Refuse one of two files with the same uuid, or both.

        If the new file is the original, the next search for segments attaches it.
        """
        before, mine = twin.segment, segment
        files = [
            Twin(each.name, each.identifier, each.worker() is not None, each.activity()) for each in (before, mine)
        ]
        real = original(files, twin.known.file)
        if real is not None and real.identifier == before.identifier:
            raise SegmentCopy(mine.name, before.name, before.identifier)
        if real is None:
            self._give_up(twin, undecided(before.name, mine.name))
            raise undecided(mine.name, before.name)
        self._give_up(twin, SegmentCopy(before.name, mine.name, mine.identifier))
        raise SegmentUndrained(mine.name, f"not drained yet: the daemon drained its copy {before.name} until now")
