"""The passes over the rings of all segments.

Owns: what each pass drains, and that all of it is delivered to the workers' deferred work, the sources and the
comparison. Must not know: when a pass is due, how the memory is saved, which workers are dead. Invariants: An invalid
segment affects no other segment. If a pass does not reach all segments of a worker, it leaves the deferred work of this
worker to a later pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from brickd.daemon.attachment import Attached, Stage
from brickd.daemon.drain_order import DrainResult, DrainTurns
from brickd.daemon.roster import Roster
from brickd.errors import SegmentRefused
from brickd.shm import _reader

HELD_MAX = 0.5  # the fraction of an event ring that may wait for the next regular checkpoint


@dataclass(slots=True)
class Unsaved:
    """Whether the memory has changes that are not in the checkpoint.

    Other threads also set these flags. So a flag must be cleared before the work that it requests, never after that
    work.

    Attributes:
        dirty: the memory must be saved at the next regular time.
        urgent: the memory must be saved immediately.
    """

    dirty: bool = False
    urgent: bool = False


class RingPasses:
    """The segments whose rings are read.

    Attributes:
        drains: the drains of the next pass.
        unsettled: the segments with deferred work that another pass may change.
    """

    def __init__(self, roster: Roster, unsaved: Unsaved) -> None:
        self._roster, self._unsaved = roster, unsaved
        # What each pass drains; valid until a segment is added or removed. The passes are prepared only once, because
        # at each pass the processor's caches are cold, and looking at a segment costs more than draining it.
        self._turns: list[DrainTurns] = []  # the turns of each user
        self.drains: list[_reader.Drain] = []
        self.unsettled: set[Attached] = set()

    def arrange(self) -> None:
        """Put cheap segments first."""
        for turns in self._turns:
            turns.arrange()

    def run(self, goes_on: Callable[[], bool]) -> float:
        """Make one pass over the segments, while `goes_on` returns True; return the fill of the fullest ring."""
        self._group()
        for turns in self._turns:
            turns.tick(self._take, goes_on)
        held = max((drain.held for drain in self.drains), default=0.0)
        if held:  # events of any kind, because they take the room of others until they are saved
            self._unsaved.dirty = True
        if held >= HELD_MAX:
            self._unsaved.urgent = True
        for each in self._drained():
            if each.drain.checked:
                with self._roster.isolating(each):
                    each.listen()
        if self.unsettled:
            self._settle()
        return max((drain.fill for drain in self.drains), default=0.0)

    def _group(self) -> None:
        if self._roster.changed:
            self._roster.changed, self._unsaved.dirty = False, True
            owners: dict[int, list[Attached]] = {}
            for each in self._roster.drained():
                if each.detailed:
                    owners.setdefault(each.segment.uid, []).append(each)
            self._turns = [DrainTurns(owned) for owned in owners.values()]
            self.drains = [each.drain for each in self._drained()]
            self.unsettled = {each.owner for each in self._drained() if not each.deferred.settled}

    def _drained(self) -> Iterator[Attached]:
        """Yield the segments whose rings are read."""
        return (each for turns in self._turns for each in turns.order)

    def _take(self, found: DrainResult) -> None:
        each, events, refused = found
        if refused is not None:
            self._roster.give_up(each, SegmentRefused(each.segment.name, refused))
            return
        with self._roster.isolating(each):
            with self._roster.lock:
                each.take(events)
            self.unsettled.add(each.owner)
            self._unsaved.dirty = True

    def _settle(self) -> None:
        self._unsaved.dirty = True
        partly = {each.owner for each in self._drained() if not each.drain.complete}
        partly |= {each.owner for turns in self._turns for each in turns.unreached}
        for each in list(self.unsettled):
            with self._roster.isolating(each), self._roster.lock:
                each.settle(complete=each not in partly)
            if each.deferred.settled or each.stage is not Stage.DRAINED:
                self.unsettled.discard(each)

    def publish(self, *, events: bool) -> None:
        """Free the slots that were read, so that the workers can use them again.

        With `events`, free those of the event rings too.
        """
        self._group()
        writes = _reader.tails(self.drains, events)
        if not writes or not (failed := _reader.write_all(writes)):
            return
        for each in self._drained():
            # A worker allocates all pages of its file before it publishes the file. So a file with a hole is not from a
            # worker.
            if error := failed.get(each.segment.fd):
                reason = f"cannot be written: {os.strerror(error)}"
                self._roster.give_up(each, SegmentRefused(each.segment.name, reason))
