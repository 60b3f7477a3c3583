"""Who is drained: workers come, are named, die and are remembered.

Owns: the segments that are attached, and that each worker stands in the memory once: as known while its segment is
there, as gone afterwards. Must not know: rings, when anything is due, how the memory is kept. Invariants: nobody is
removed whom the memory does not hold; a worker whose segment was lost under it is counted in the one where it goes on;
a segment is closed only while nobody else reads, since that gives up every lock on it.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import NoReturn

from brickd import _reader
from brickd.attached import Attached, Stage
from brickd.directory import Directory
from brickd.errors import NotPermitted, SegmentConsumed, SegmentLeft, SegmentRefused, SegmentUndrained
from brickd.events import Tell
from brickd.files import owner_of
from brickd.lately import Lately, Origin
from brickd.memory import Background, Gone, Known, Memory, Wish
from brickd.naming import named
from brickd.numerics.numerics import Numerics
from brickd.numerics.shards import shard_of
from brickd.overlay import lifted
from brickd.recording.rings import Rings
from brickd.segment import Segment, open_segment
from brickd.workers import Held

GONE_MAX = 64  # those before them are added up
SPARES_MAX = 16  # descriptors of one file
SHARE = 4  # another user may have this part of the places


class Roster:
    """Everybody.

    Attributes:
        memory: what is kept.
        directory: the files.
        attached: by uuid.
        rings: whose records go into a recording; None: nobody's.
        changed: somebody came or went since this was last set to False.
        lock: of the memory and of this: held shortly by whoever reads or changes them.
        reading: held by whoever reads segments.
    """

    def __init__(
        self, memory: Memory, directory: Directory, tell: Tell, workers_max: int, numerics: Numerics | None
    ) -> None:
        self.memory = memory
        self.directory = directory
        self.attached: dict[str, Attached] = {}
        self.rings: Rings | None = None
        self.changed = False
        self.lock, self.reading = threading.Lock(), threading.Lock()
        self._tell = tell
        self._workers_max, self._numerics = workers_max, numerics
        self._owned: Counter[int] = Counter()  # by user
        self._over: list[Attached] = []  # still to be closed
        self._came: list[Attached] = []  # with this look
        self._lately = Lately()

    def drained(self) -> list[Attached]:
        """Those whose rings are read."""
        return [each for each in self.attached.values() if each.stage is Stage.DRAINED]

    def held(self) -> Held:
        """What is known of the files, for whoever reads them beside us, under the lock."""
        ours = {each.segment.identifier: each.segment for each in self.attached.values()}
        drained = [each.segment for each in self.drained() if each.heir is None]
        return Held(ours, drained, self.directory.refused())

    def background(self, now_ns: int) -> Background:
        """What belongs beside the segments, for whoever reads them beside us, under the lock."""
        return replace(self.memory.background(), added=self._lately.by_sum(now_ns))

    def record(self, rings: Rings | None) -> None:
        """Have the records of some go into a recording from now on, or of nobody; under the lock."""
        self.rings = rings
        for each in self.drained():
            if rings is None:
                each.drain.record_into(None)
            self._command(each)

    def of_service(self, service: str) -> list[Attached]:
        """Those of a service, under the lock."""
        return [each for each in self.drained() if each.service == service]

    def command(self, service: str) -> None:
        """Ask of the workers of a service what is wanted of them, under the lock."""
        for each in self.of_service(service):
            self._command(each)

    def follow(self) -> None:
        """Have what is wanted of checksums hold for the sites, too, that came since; under the lock."""
        for each in self.drained():
            each.follow()

    def _command(self, each: Attached) -> None:
        """What the operator wants of it, and what a recording does."""
        wish, rings = self.memory.wishes.get(each.service, Wish()), self.rings
        if rings is not None and rings.wants(each.name, each.service):
            rings.take(each.uuid, each.drain)
            wish = wish._replace(spans=wish.spans or rings.spans)
        each.command(wish)

    # ---- they come

    def look(self, now_ns: int) -> None:
        """Find the segments that came, and the files that went."""
        ours = {each.segment.identifier: each.segment for each in self.attached.values()}
        if not self.directory.look(now_ns, ours, lambda file: self._attach(file, now_ns)):
            return
        if self._came:
            with self.lock:
                for each in self._came:  # all of them are here now: who is known and not among them has no segment
                    if each.stage is Stage.DRAINED:  # not given up for another that came with it
                        self._inherit(each)
            self._came.clear()
            self._name_everybody()
        if not self.directory.waits_for_any:  # else one that is known may be among them
            self._forget_missed()

    def _attach(self, file: str, now_ns: int) -> None:
        self._require_room(file)
        segment = open_segment(file, os.O_RDWR)
        same = (each for each in self.attached.values() if each.segment.identifier == segment.identifier)
        if (twin := next(same, None)) is not None:  # renamed just now
            twin.spares.append(segment)
            if len(twin.spares) > SPARES_MAX:
                self.give_up(twin, SegmentRefused(file, f"was renamed {SPARES_MAX} times while it was opened"))
            return
        try:
            if not segment.consume():
                raise SegmentConsumed(file, segment.consumer() or 0)
            uuid = segment.header["uuid"].hex()
            lives = segment.worker() is not None
            if twin := self.attached.get(uuid):
                self._tell_copy(segment, twin, lives=lives)
            if uuid in self.memory.buried or (uuid in self.memory.gone and not lives):
                # It stands in the memory: a daemon before us ended before it had removed it, or might not.
                self._remove(segment, uuid)
                return
            known = self.memory.known.get(uuid)
            try:
                drain = _reader.Drain(segment.fd, known.cursors if known else None)
            except ValueError as error:
                raise SegmentRefused(file, str(error)) from None
            took = segment.process()["took"]
        except BaseException:
            segment.close()
            raise
        each = Attached(segment, drain, known or Known(uid=segment.uid), self.memory.sources, now_ns, took)
        with self.lock:
            self.memory.gone.pop(uuid, None)  # a copy of it was taken for it
            self.memory.known[uuid] = each.known
            if self._numerics is not None:  # here, so that nobody is taken for one who is not known any more
                shard = shard_of(segment.coordinates)
                each.speaker = self._numerics.speaker(uuid, segment.service, segment.tables, shard)
            self.attached[uuid] = each
            self._owned[segment.uid] += 1
            self.changed = True
            self._came.append(each)
            self._command(each)

    def _remove(self, segment: Segment, uuid: str) -> None:
        with segment:
            try:
                segment.unlink()
            except NotPermitted:
                self.memory.bury(uuid)
                self.changed = True
                raise SegmentLeft(segment.name, "its worker ended and is remembered", segment.uid) from None

    def _require_room(self, file: str) -> None:
        if len(self.attached) >= self._workers_max:
            raise SegmentUndrained(file, f"not drained: {self._workers_max:,} workers are, and no more")
        # Whoever else may put segments here leaves room for ours, and for others'.
        owner, most = owner_of(file), self._workers_max // SHARE
        if owner is not None and owner != os.geteuid() and self._owned[owner] >= most:
            raise SegmentUndrained(file, f"not drained: {most:,} workers of user {owner} are, and no more")

    def _tell_copy(self, segment: Segment, twin: Attached, *, lives: bool) -> NoReturn:
        """Refuse the one of two with the same uuid that nobody lives in, or that came later."""
        if twin.stage is not Stage.DRAINED or not lives or twin.segment.worker() is not None:
            raise SegmentRefused(segment.name, f"says that it is {twin.segment.name}: one of them is a copy")
        reason = f"says that it is {segment.name}, where a worker lives: it is a copy"
        self.give_up(twin, SegmentRefused(twin.segment.name, reason))
        raise SegmentUndrained(segment.name, "not drained: a copy of it was")

    def _inherit(self, each: Attached) -> None:
        """Take over what is known under the uuids of segments that its worker lost: their totals it took along."""
        memory = self.memory
        uid = each.segment.uid  # who says of another user's worker that it goes on here is not believed
        for gone in [g for g, was in memory.gone.items() if each.has_taken(g) and was.reading.header["uid"] == uid]:
            # Not dead, it had lost its lock.
            before = memory.gone.pop(gone)
            each.known.deferred.absorb(lifted(before.reading))
            each.known.name = each.known.name or before.name
            text = f"{before.name} lives: it had lost its lock; events after it was taken for dead may be missing"
            self._tell("worker_returned", text, service=each.service, worker=before.name)
        for lost in [lost for lost, known in memory.known.items() if each.has_taken(lost) and known.uid == uid]:
            known = memory.known[lost]
            if (other := self.attached.get(lost)) is None:  # somebody removed its segment while no daemon ran
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
                    self._tell("worker_found", text, service=who.service, worker=name)

    def _forget_missed(self) -> None:
        with self.lock:
            for uuid in [uuid for uuid in self.memory.known if uuid not in self.attached]:
                known = self.memory.known.pop(uuid)
                text = f"{known.name or uuid} ended while no daemon ran: its totals went with its segment"
                self._tell("worker_missed", text)

    # ---- they leave

    def bury(self, each: Attached) -> bool:
        """Read a dead worker's segment to its end and remember its totals; False: there is no end of it."""
        with self.lock:
            if not each.exhaust():
                return False
            if each.heir is None:
                each.deferred.orphan()
                self._remember(each)
            del self.memory.known[each.uuid]
        each.stage, self.changed = Stage.READ, True
        kind, text = ("worker_died", f"{each.name} died; what it recorded is kept")
        if each.heir is not None:
            kind, text = (
                "worker_moved",
                f"{each.name} goes on in {each.heir.segment.name}: somebody had removed its segment",
            )
        elif each.drain.ended:
            kind, text = ("worker_ended", f"{each.name} ended; what it recorded is kept")
        self._tell(kind, text, service=each.service, worker=each.name)
        return True

    def _remember(self, each: Attached) -> None:
        self.memory.gone[each.uuid] = Gone(each.known.name, each.last_reading())

    def forget(self, uuids: Collection[str]) -> int:
        """Drop the totals of some that are gone, under the lock; of how many."""
        for uuid in uuids:
            del self.memory.gone[uuid]
            if uuid in self.attached:  # its segment is there still, until the memory is kept
                self.memory.bury(uuid)
        return len(uuids)

    def give_up(self, each: Attached, error: SegmentRefused) -> None:
        """Drain it no more: it does not add up; nor those whose worker goes on in it, which tell of the same work."""
        if each.stage is not Stage.DRAINED:
            return
        self.directory.quarantine(each.segment.name, each.segment.identifier, error)
        with self.lock:
            del self.memory.known[each.uuid]
        self._let_go(each)
        for lost in [other for other in self.drained() if other.heir is each]:
            self.give_up(lost, error)

    def _let_go(self, each: Attached) -> None:
        each.stage, self.changed = Stage.OVER, True
        self._over.append(each)

    def remove_read(self, now_ns: int) -> bool:
        """Remove the segments of those that the memory holds, which is kept by now; whether it changed with that."""
        for each in self.attached.values():
            if each.stage is Stage.READ:
                try:
                    each.segment.unlink()
                except NotPermitted:  # it will be found once more, and then told
                    self.memory.bury(each.uuid)
                self._let_go(each)
        with self.lock:
            # Added up it has no uuid any more by which a segment that is still there would be known.
            oldest = list(self.memory.gone)[:-GONE_MAX]
            for uuid in oldest:
                gone = self.memory.gone.pop(uuid)
                self._lately.add(now_ns, Origin.of(gone.reading), self.memory.add_up(gone).reading.uuid)
        return bool(oldest)

    def release(self) -> None:
        """Let go of those that are left."""
        for each in self.drained():
            if each.segment.linked():
                each.command(Wish())
        for each in self.attached.values():
            if each.stage is not Stage.OVER:
                self._let_go(each)

    def close(self, timeout: float) -> None:
        """Close what nobody needs any more: later, while somebody reads for longer than this."""
        if self._over and self.reading.acquire(timeout=timeout):
            try:
                for each in self._over:
                    del self.attached[each.uuid]
                    self._owned[each.segment.uid] -= 1
                    for segment in (each.segment, *each.spares):
                        segment.close()
                self._over.clear()
            finally:
                self.reading.release()
