"""The workers that the daemon drains: their start, their names, their death, and what remains of them.

Owns: the attached segments. The state lists each worker once: among the known workers while its segment exists, and
among the gone workers afterwards. Must not know: rings, when steps are due, how the state is saved. Invariants: A
segment is removed only if the saved state has its totals. A worker whose segment was lost is counted in the segment in
which it continues. A segment is closed only while no other thread reads it, because closing a file releases every lock
on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.problem import problem_id
from brickd.analysis.weights.shards import shard_of
from brickd.daemon.admission import Admission
from brickd.daemon.attachment import Attached, Stage
from brickd.daemon.segment_directory import Directory
from brickd.errors import NotPermitted, SegmentRefused
from brickd.model import retained_workers
from brickd.model.background import Background
from brickd.model.deferred_overlay import lifted
from brickd.model.event_log import LogEvent
from brickd.model.retained_workers import RetainedTotals
from brickd.model.worker_names import named
from brickd.model.worker_origins import Origin, RecentlyMerged
from brickd.model.workers import Held
from brickd.query.orders import Wish
from brickd.recording.ring_taps import Rings
from brickd.shm.ledger import ledger_of
from brickd.shm.removed_workers import RemovedWorker, uncounted
from brickd.state.daemon_state import Memory


class Roster:
    """All attached segments.

    Attributes:
        attached: the segments, by uuid.
        rings: receives the rings that are recorded; None without a recording.
        changed: whether a segment came or went since this was last set to False.
        lock: protects the state and this object; it is held only briefly.
        reading: held while segments are read.
        crowded: whether there are more totals of gone workers than the limits allow, so that some must be merged.
        take_canaries: receives the uuid of a worker, and pieces of its results of canaries.
        stays: whether workers that end cleanly leave their segments, even while no daemon drains them.
    """

    def __init__(
        self, memory: Memory, directory: Directory, log_event: LogEvent, workers_max: int, numerics: Numerics | None
    ) -> None:
        self.memory = memory
        self.directory = directory
        self.attached: dict[str, Attached] = {}
        self.rings: Rings | None = None
        self.changed = self.crowded = False
        self.stays = True
        self.take_canaries: Callable[[str, list[tuple[int, int, bytes]]], None] | None = None
        self.lock, self.reading = threading.Lock(), threading.Lock()
        self._log_event = log_event
        self._admission = Admission(memory, self.attached, workers_max, self.give_up, self._bury_file)
        self._numerics = numerics
        self._over: list[Attached] = []  # segments that must still be closed
        self._came: list[Attached] = []  # segments that came in this look
        self._merged = RecentlyMerged()

    def drained(self) -> list[Attached]:
        """Return the segments that the daemon drains."""
        return [each for each in self.attached.values() if each.stage is Stage.DRAINED]

    def held(self, goes_on: Callable[[], bool] = lambda: True) -> Held:
        """Return the known files, for readers in other threads; the caller must hold the lock.

        The readers stop when `goes_on` returns False.
        """
        ours = {each.segment.identifier: each.segment for each in self.attached.values()}
        drained = [each.segment for each in self.drained() if each.heir is None]
        accounts = {each.segment.identifier: each.account for each in self.attached.values()}
        return Held(ours, drained, self.directory.refused(), self.directory.others, accounts, goes_on)

    def background(self, now_ns: int) -> Background:
        """Return the state that readers of segments need; the caller must hold the lock."""
        return replace(self.memory.background(), added=self._merged.by_aggregate(now_ns))

    def record(self, rings: Rings | None) -> None:
        """Copy records into a recording from now on; None stops this. The caller must hold the lock."""
        self.rings = rings
        for each in self.drained():
            if rings is None:
                each.drain.record_into(None)
            self._command(each)

    def of_service(self, service: str) -> list[Attached]:
        """Return the drained segments of a service; the caller must hold the lock."""
        return [each for each in self.drained() if each.service == service]

    def command(self, service: str) -> None:
        """Apply the settings of a service to its workers; the caller must hold the lock."""
        for each in self.of_service(service):
            self._command(each)

    @property
    def wants_spans(self) -> bool:
        """Whether the daemon asks workers to record every span in detail."""
        with self.lock:
            recorded = self.rings is not None and self.rings.spans
            return recorded or any(wish.spans for wish in self.memory.wishes.values())

    def follow(self) -> None:
        """Apply the settings for fingerprints to new sites; the caller must hold the lock."""
        for each in self.drained():
            each.follow()

    def _command(self, each: Attached) -> None:
        """Send the operator's settings, combined with the settings that a recording needs."""
        wish, rings = self.memory.wishes.get(each.service, Wish()), self.rings
        if rings is not None and rings.wants(each.name, each.service):
            rings.take(each.uuid, each.drain)
            wish = wish._replace(spans=wish.spans or rings.spans)
        each.command(wish)

    # ---- workers come

    def look(self, now_ns: int, goes_on: Callable[[], bool]) -> None:
        """Find new segments, and files that were removed. Stop when `goes_on` returns False."""
        ours = {each.segment.identifier: each.segment for each in self.attached.values()}
        if not self.directory.look(now_ns, ours, lambda file: self._attach(file, now_ns), goes_on):
            return
        if self._came:
            with self.lock:
                for each in self._came:  # all are attached now, so a known worker that is not among them has no segment
                    if each.stage is Stage.DRAINED:  # so that it is not given up for another new segment
                        each.known.file = each.segment.identifier
                        self._inherit(each)
            self._came.clear()
            self._name_everybody()
        if not self.directory.waits_for_any:  # a file that waits may belong to a known worker
            self._forget_missed()

    def _attach(self, file: str, now_ns: int) -> None:
        if (each := self._admission.admit(file, now_ns, marks=self.stays)) is None:
            return
        with self.lock:
            self.memory.gone.pop(each.uuid, None)  # a copy of this segment was taken for the original
            self.memory.known[each.uuid] = each.known
            each.take_canaries = self.take_canaries
            if self._numerics is not None:  # under the lock, because `forget` drops the producers of unknown workers
                segment, shard = each.segment, shard_of(each.segment.coordinates)
                each.producer = self._numerics.producer(each.uuid, each.service, segment.tables, shard)
            self.attached[each.uuid] = each
            self.changed = True
            self._came.append(each)
            self._command(each)

    def _bury_file(self, uuid: str) -> None:
        self.memory.bury(uuid)
        self.changed = True

    def _inherit(self, each: Attached) -> None:
        """If this segment has the totals of lost segments of the same worker, take over the state of those segments."""
        memory = self.memory
        memory.supersede({each.lost})
        for gone in [gone for gone in memory.gone if each.has_taken(gone)]:
            # The worker is not dead; it only lost its lock.
            before = memory.gone.pop(gone)
            each.known.deferred.absorb(lifted(before.reading))
            each.known.name = each.known.name or before.name
            text = f"{before.name} is alive, but had lost its lock; events since it was counted as dead may be missing"
            self._log_event("worker_returned", text, service=each.service, worker=before.name)
        for lost in [lost for lost in memory.known if each.has_taken(lost)]:
            known = memory.known[lost]
            # The lost segment is not attached if it was removed while no daemon ran.
            if (other := self.attached.get(lost)) is None:
                each.known.deferred.absorb(known.deferred)
                del memory.known[lost]
            elif not other.segment.linked():
                other.goes_on_in(each)
            else:
                continue
            each.known.name = each.known.name or known.name

    def _name_everybody(self) -> None:
        with self.lock:
            names = self.memory.names()
            here = [each.segment.identity() for each in self.drained() if each.heir is None]
            for name, who in named(here, names):
                known = self.memory.known[who.uuid]
                if known.name == name or (known.name and not who.alive):
                    continue
                known.name = name
                self._command(self.attached[who.uuid])
                if who.alive:
                    text = f"{name} is process {who.pid or who.header['pid']}, drained from {who.file}"
                    self._log_event("worker_found", text, service=who.service, worker=name)

    def _forget_missed(self) -> None:
        with self.lock:
            for uuid in [uuid for uuid in self.memory.known if uuid not in self.attached]:
                known = self.memory.known.pop(uuid)
                text = f"{known.name or uuid} ended while no daemon ran: its totals are lost with its segment"
                self._log_event("worker_missed", text)

    # ---- workers leave

    def bury(self, each: Attached) -> bool:
        """Read the segment of a dead worker and keep its totals; return False until it is read completely."""
        with self.lock:
            if not each.exhaust():
                return False
            if each.heir is None:
                each.deferred.orphan()
                self.memory.gone[each.uuid] = RetainedTotals(each.known.name, each.last_reading())
            del self.memory.known[each.uuid]
        each.stage, self.changed = Stage.READ, True
        kind, text = "worker_died", "died; its totals are kept"
        if each.heir is not None:
            kind, text = "worker_moved", f"continues in {each.heir.segment.name}: its old segment was removed"
        elif each.drain.ended:
            kind, text = "worker_ended", "ended; its totals are kept"
        problem = problem_id("died", each.service) if kind == "worker_died" else None
        self._log_event(kind, f"{each.name} {text}", service=each.service, worker=each.name, problem=problem)
        return True

    def forget(self, uuids: Collection[str]) -> None:
        """Drop the totals of some gone workers; the caller must hold the lock."""
        for uuid in uuids:
            self.memory.drop(self.memory.gone.pop(uuid))

    def give_up(self, each: Attached, error: SegmentRefused) -> None:
        """Stop draining an invalid segment, and also the lost segments whose worker continues in it."""
        if each.stage is not Stage.DRAINED:
            return
        self.directory.quarantine(each.segment.name, each.segment.identifier, error)
        with self.lock:
            del self.memory.known[each.uuid]
        self._let_go(each)
        for lost in [other for other in self.drained() if other.heir is each]:
            self.give_up(lost, error)

    @contextmanager
    def isolating(self, each: Attached) -> Iterator[None]:
        """Give up a segment after any error, so that the records of the other segments are not lost."""
        try:
            yield
        except SegmentRefused as error:
            self.give_up(each, error)
        except Exception as error:
            reason = f"its content cannot be processed: {type(error).__name__}: {error}"
            self.give_up(each, SegmentRefused(each.segment.name, reason))

    def _let_go(self, each: Attached) -> None:
        each.stage, self.changed = Stage.OVER, True
        self._over.append(each)

    def fold(self, found: Iterable[RemovedWorker]) -> list[RemovedWorker]:
        """Add records of removed workers, under the lock. Return the new records that are in no total."""
        new = self.memory.fold(found, {each.lost for each in self.attached.values()})
        shown = {uuid: ledger_of(each.reading).counts() for uuid, each in self.memory.gone.items()} if new else {}
        return uncounted((each for each in new if each.uuid not in self.attached), shown, (), ())

    def remove_read(self, now_ns: int, goes_on: Callable[[], bool]) -> bool:
        """Remove saved segments, and merge the oldest totals; return whether anything was removed or merged."""
        for each in self.attached.values():
            if each.stage is Stage.READ:
                try:
                    each.segment.unlink()
                except NotPermitted:  # the next look finds the file again and reports it
                    self.memory.bury(each.uuid)
                self._let_go(each)
        with self.lock:
            # Totals are merged last: after a merge, a segment that still exists is no longer recognised by its uuid.
            oldest = retained_workers.beyond_limits(self.memory.gone)
            added = 0
            for uuid in takewhile(lambda _: goes_on(), oldest):
                gone = self.memory.gone.pop(uuid)
                self._merged.add(now_ns, Origin.of(gone.reading), self.memory.add_up(gone).reading.uuid)
                added += 1
            self.crowded = added < len(oldest)
        return added > 0

    def release(self) -> None:
        """Release all segments."""
        for each in self.drained():
            if each.segment.linked():
                each.command(Wish())
        for each in self.attached.values():
            if each.stage is not Stage.OVER:
                self._let_go(each)

    def close(self, timeout: float) -> None:
        """Close segments that are no longer needed. If readers need more than `timeout` seconds, try again later."""
        if self._over and self.reading.acquire(timeout=timeout):
            try:
                for each in self._over:
                    del self.attached[each.uuid]
                    for segment in (each.segment, *each.spares):
                        segment.close()
                self._over.clear()
            finally:
                self.reading.release()
