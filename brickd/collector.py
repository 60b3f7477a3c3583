"""The daemon's loop: finds segments, drains them, remembers, and removes those of the dead.

Owns: the order of its own steps, which is what makes every event count once. Must not know: where its memory is kept
and who asks for it, signals, the time of day. A tick, in this order:

    look      new segments are opened, locked and gone on from where the memory says
    drain     what moved is copied and folded, in one call; events go to the workers' deferred work
    publish   tails of span rings: their details are not remembered, so their room is free at once
    judge     workers whose lock is free and that stand still are dead: drained to the end, their totals remembered
    keep      the memory is saved; only then are tails of event rings published, and segments of the dead removed

Invariants: nothing that the memory does not hold is ever given back to a writer or removed; a daemon that ends between
any two of these steps, or within one, leaves what its successor needs; one segment's trouble costs that segment alone;
memory is limited, and what goes over a limit is added up or refused, and told.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from brickd import _reader
from brickd.attached import Attached
from brickd.checkpoint import encode
from brickd.errors import NotPermitted, SegmentConsumed, SegmentRefused, SegmentUndrained, SegmentUnpublished
from brickd.files import Identifier, find, identifier_of, open_file
from brickd.memory import Cursor, Gone, Known, Memory, Wish
from brickd.naming import named
from brickd.overlay import lifted
from brickd.segment import Segment, open_segment
from brickd.workers import Held

SECOND = 1_000_000_000
STILL_NS = 5 * SECOND
KEEP_NS = JUDGE_NS = SECOND
LOOK_NS = 5 * SECOND
WORKERS_MAX = 1_024
TOLD_MAX = 16
GONE_MAX = 64
FASTEST_NS, SLOWEST_NS = SECOND // 1000, SECOND // 40
FILL_WANTED = 0.4  # of the fullest ring when it is drained: seldom enough to cost little, early enough to lose nothing
HELD_MAX = 0.5  # of an event ring may wait for the checkpoint's turn
QUIET_TICKS = 10  # after so many that found nothing, whoever waits looks for itself whether there is anything

_TURN_SECONDS = 0.01  # so long the loop waits for those who read segments, of whom there may always be one


class Tell(Protocol):
    """Who is told what happened."""

    def __call__(
        self,
        kind: str,
        text: str,
        *,
        service: str | None = None,
        worker: str | None = None,
        command: str | None = None,
    ) -> object:
        """Take it: what kind of thing, in words, of whom, and what may be done about it."""
        ...


@dataclass(slots=True)
class Unusable:
    """A file with a segment's name that is not drained, and why."""

    identifier: Identifier
    refused: SegmentRefused
    since_ns: int = 0

    def is_still(self, identifier: Identifier) -> bool:
        """Whether there is no reason to look at it again."""
        return self.identifier == identifier and not isinstance(self.refused, SegmentUndrained)


class Collector:
    """The loop's state.

    Attributes:
        memory: what is kept.
        attached: by uuid.
        quarantined: by file.
        foreign: how many segments we may not read.
        trouble: why the memory cannot be kept now, or "".
    """

    def __init__(
        self, memory: Memory, keep: Callable[[bytes], None], tell: Tell, *, workers_max: int = WORKERS_MAX
    ) -> None:
        self.memory = memory
        self._keep, self._tell = keep, tell
        self._workers_max = workers_max
        self.attached: dict[str, Attached] = {}
        self.quarantined: dict[str, Unusable] = {}
        self.foreign = 0
        self.trouble = ""
        self._blind = ""
        self._unpublished: dict[str, Unusable] = {}
        self._dirty = False
        self._urgent = False
        self._look_due = False
        # What each pass drains, as long as none comes or goes: a pass finds the caches cold, and whatever it looks at
        # costs more than what it does with it.
        self._drained: list[Attached] = []
        self._drains: list[_reader.Drain] = []
        self._unsettled: set[int] = set()
        self._regroup = False
        self._looked_ns = self._judged_ns = self._kept_ns = -(2**63)
        self._wait_ns, self._empty = SLOWEST_NS, 0
        # Whoever reads the memory from another thread holds `lock`, shortly; whoever reads segments holds `reading`.
        self.lock, self.reading = threading.Lock(), threading.Lock()

    # ---- the tick

    def tick(self, now_ns: int, *, look: bool = False) -> int:
        """Do what is due.

        Args:
            now_ns: a clock that never goes back.
            look: something came or went in the directory of segments.

        Returns:
            How many nanoseconds may pass until the next one.
        """
        self._look_due |= look or now_ns - self._looked_ns >= LOOK_NS or bool(self._unpublished)
        # Who reads opens files that are not attached yet: to close one of them then would give up our lock on it. Such
        # a one is soon done; where one follows another we wait for our turn.
        if self._look_due and self.reading.acquire(blocking=now_ns - self._looked_ns >= 2 * LOOK_NS):
            try:
                self.look(now_ns)
            finally:
                self.reading.release()
        fill = self._drain()
        self._publish(events=False)
        if now_ns - self._judged_ns >= JUDGE_NS:
            self._judge(now_ns)
        due = now_ns - self._kept_ns >= KEEP_NS
        if (self._urgent and (due or not self.trouble)) or (self._dirty and due):
            self.keep(now_ns)
        self._let_go()
        return self._pace(fill)

    def _pace(self, fill: float) -> int:
        self._empty = 0 if fill else self._empty + 1
        if self.quiet:
            return JUDGE_NS
        self._wait_ns = min(max(int(self._wait_ns * FILL_WANTED / max(fill, FILL_WANTED / 2)), FASTEST_NS), SLOWEST_NS)
        return self._wait_ns

    @property
    def quiet(self) -> bool:
        """Whether nothing comes, so that the time until the next tick is long."""
        return self._empty > QUIET_TICKS and not self._unpublished and not self._look_due

    @property
    def wants_spans(self) -> bool:
        """Whether workers are asked for every span in detail."""
        with self.lock:
            return any(wish.spans for wish in self.memory.wishes.values())

    # ---- look

    def look(self, now_ns: int) -> None:
        """Find the segments that came, and the files that went."""
        self._looked_ns, self._look_due = now_ns, False
        try:
            there = find(self.memory.prefix)
        except OSError as error:
            self._tell_blind(error.strerror or str(error))
            return
        self._blind = ""
        for gone in set(self.quarantined) - set(there):
            del self.quarantined[gone]
        bad = len(self.quarantined)
        ours = {each.segment.identifier: each.segment for each in self.attached.values()}
        identifiers = {file: identifier for file in there if (identifier := identifier_of(file)) is not None}
        self.foreign = 0
        waiting, self._unpublished = self._unpublished, {}
        before, untold = len(self.attached), 0
        for file, identifier in identifiers.items():
            known_bad = self.quarantined.get(file)
            if known_bad and known_bad.is_still(identifier):
                continue
            if (segment := ours.get(identifier)) is not None:
                if identifiers.get(segment.name) != identifier:
                    segment.name = file  # somebody renamed it
                continue
            try:
                self._attach(file, now_ns)
                self.quarantined.pop(file, None)
            except SegmentUnpublished as error:
                entry = waiting.get(file)
                if entry is None or entry.identifier != identifier:
                    entry = Unusable(identifier, error, now_ns)
                if not self._remove_unpublished(file, entry, now_ns):
                    self._unpublished[file] = entry
            except SegmentRefused as error:
                untold += self._quarantine(file, identifier, error, quiet=len(self.quarantined) - bad >= TOLD_MAX)
            except NotPermitted:
                self.foreign += 1
        if untold:
            self._tell("quarantined", f"and {untold:,} more files", command="brickd workers")
        if len(self.attached) != before:
            self._name_everybody()
        if not self.quarantined:  # else one that is known may be among them, for the time being
            self._forget_missed()

    def _forget_missed(self) -> None:
        with self.lock:
            here = {each.uuid for each in self.attached.values()}
            for uuid in [uuid for uuid in self.memory.known if uuid not in here]:
                known = self.memory.known.pop(uuid)
                text = f"{known.name or uuid} ended while no daemon ran: its totals went with its segment"
                self._tell("worker_missed", text)

    def _attach(self, file: str, now_ns: int) -> None:
        if len(self.attached) >= self._workers_max:
            raise SegmentUndrained(file, f"not drained: {self._workers_max:,} workers are, and no more")
        segment = open_segment(file, os.O_RDWR)
        same = (each for each in self.attached.values() if each.segment.identifier == segment.identifier)
        if (twin := next(same, None)) is not None:  # renamed just now
            twin.spares.append(segment)
            return
        try:
            if not segment.consume():
                raise SegmentConsumed(file, segment.consumer() or 0)
            uuid = segment.header["uuid"].hex()
            lives = segment.worker() is not None
            if twin := self.attached.get(uuid):
                self._tell_copy(segment, twin, lives=lives)
            if uuid in self.memory.buried:
                self._remove_remembered(segment)
                return
            if uuid in self.memory.gone:
                if not lives:  # a daemon before us ended between remembering it and removing it
                    self._remove_remembered(segment)
                    return
                del self.memory.gone[uuid]  # a copy of it was taken for it
            known = self.memory.known.get(uuid)
            try:
                drain = _reader.Drain(segment.fd, known.cursors if known else None)
            except ValueError as error:
                raise SegmentRefused(file, str(error)) from None
            took = segment.process()["took"]
        except BaseException:
            segment.close()
            raise
        each = Attached(segment, drain, known or Known(), now_ns, took)
        each.command(self.memory.wishes.get(each.service, Wish()))
        with self.lock:
            self.memory.known[uuid] = each.known
            self.attached[uuid] = each
            self._regroup = True
            for gone in [gone for gone in self.memory.gone if each.has_taken(gone)]:
                # Not dead, it had lost its lock: its totals came along, what only we know comes now.
                each.known.deferred.absorb(lifted(self.memory.gone.pop(gone).reading))
            for lost in [lost for lost in self.memory.known if lost not in self.attached and each.has_taken(lost)]:
                # Somebody removed its segment while no daemon ran.
                before = self.memory.known.pop(lost)
                each.known.deferred.absorb(before.deferred)
                each.known.name = each.known.name or before.name
        self._dirty = True
        self._empty = 0

    def _remove_unpublished(self, file: str, entry: Unusable, now_ns: int) -> bool:
        """Remove what a worker left that died before it had published it."""
        if now_ns - entry.since_ns < STILL_NS:
            return False
        try:
            with open_file(file) as left:
                return left.worker() is None and left.identifier == entry.identifier and left.unlink()
        except (SegmentRefused, NotPermitted):
            return False

    def _tell_copy(self, segment: Segment, twin: Attached, *, lives: bool) -> NoReturn:
        """Refuse the one of two with the same uuid that nobody lives in, or that came later."""
        if twin.leaving or not lives or twin.segment.worker() is not None:
            raise SegmentRefused(segment.name, f"says that it is {twin.segment.name}: one of them is a copy")
        reason = f"says that it is {segment.name}, where a worker lives: it is a copy"
        self._give_up(twin, SegmentRefused(twin.segment.name, reason))
        raise SegmentUndrained(segment.name, "not drained: a copy of it was")

    def _remove_remembered(self, segment: Segment) -> None:
        with segment:
            try:
                segment.unlink()
            except NotPermitted:
                reason = f"its worker ended and is remembered; only user {segment.uid} may remove it"
                raise SegmentRefused(segment.name, reason) from None

    def _quarantine(self, file: str, identifier: Identifier, error: SegmentRefused, *, quiet: bool = False) -> bool:
        """Remember what is wrong with a file; whether that is yet to be told."""
        before = self.quarantined.get(file)
        self.quarantined[file] = Unusable(identifier, error.with_traceback(None))
        if before is not None and before.refused.reason == error.reason:
            return False
        if not quiet:
            self._tell("quarantined", f"{file}: {error.reason}", command="brickd doctor")
        return quiet

    def _tell_blind(self, why: str) -> None:
        if why != self._blind:
            text = f"{_reader.DIRECTORY} cannot be listed ({why}): who starts now is not seen"
            self._tell("blind", text, command="brickd doctor")
        self._blind = why

    def held(self) -> Held:
        """What is known of the files, for whoever reads them beside us, under the lock."""
        bad = {
            f: each.refused
            for f, each in list(self.quarantined.items())
            if not isinstance(each.refused, SegmentUndrained)
        }
        return Held({each.segment.identifier: each.segment for each in self.attached.values()}, bad)

    def _name_everybody(self) -> None:
        with self.lock:
            names = self.memory.names()
            for name, who in named([e.segment.identity() for e in self.attached.values() if not e.leaving], names):
                known = self.memory.known[who.uuid]
                if known.name == name or (known.name and not who.alive):
                    continue
                known.name = name
                if who.alive:
                    text = f"{name} is process {who.pid or who.header['pid']}, drained from {who.file}"
                    self._tell("worker_found", text, service=who.service, worker=name)

    # ---- drain

    def _drain(self) -> float:
        """One pass over every segment; how full the fullest ring was."""
        self._group()
        results = {index: (events, refused) for index, events, refused in _reader.drain(self._drains)}
        for index in sorted(self._unsettled.union(results)):
            self._take(index, *results.get(index, (None, None)))
        return max((drain.fill for drain in self._drains), default=0.0)

    def _group(self) -> None:
        if self._regroup:
            self._regroup = False
            self._drained = [each for each in self.attached.values() if not each.leaving]
            self._drains = [each.drain for each in self._drained]
            self._unsettled = {n for n, each in enumerate(self._drained) if not each.known.deferred.settled}

    def _take(self, index: int, events: bytes | None, refused: str | None) -> None:
        each = self._drained[index]
        if refused is not None:
            self._give_up(each, SegmentRefused(each.segment.name, refused))
            return
        try:
            with self.lock:
                each.take(events)
        except Exception as error:  # the others' records are here already: they are not to be lost for this one
            self._give_up(each, _refused(each, error))
            return
        (self._unsettled.discard if each.known.deferred.settled else self._unsettled.add)(index)
        self._dirty = True
        self._urgent |= each.drain.held >= HELD_MAX

    def _give_up(self, each: Attached, error: SegmentRefused) -> None:
        self._quarantine(each.segment.name, each.segment.identifier, error)
        with self.lock:
            del self.memory.known[each.uuid]
        each.leaving = each.over = self._regroup = True

    def _let_go(self) -> None:
        """Close what nobody needs any more: later, while somebody reads."""
        over = [each for each in self.attached.values() if each.over]
        if over and self.reading.acquire(timeout=_TURN_SECONDS):
            try:
                for each in over:
                    del self.attached[each.uuid]
                    for segment in (each.segment, *each.spares):
                        segment.close()
            finally:
                self.reading.release()

    def _publish(self, *, events: bool) -> None:
        self._group()
        if writes := _reader.tails(self._drains, events):
            _reader.write_all(writes)

    # ---- judge

    def _judge(self, now_ns: int) -> None:
        self._judged_ns = now_ns
        for each in list(self.attached.values()):
            if each.leaving:
                continue
            if each.activity < 0 and each.drain.breaks:
                text = (
                    f"{each.name}: what an earlier daemon had read is not known any more; deferred work may be missing"
                )
                self._tell("break", text, service=each.service, worker=each.name)
            self._dirty |= each.moved(now_ns)
            if each.segment.worker() is not None:
                continue
            if each.drain.ended or now_ns - each.moved_ns >= STILL_NS:
                try:
                    self._bury(each, now_ns)
                except Exception as error:
                    self._give_up(each, _refused(each, error))

    def _bury(self, each: Attached, now_ns: int) -> None:
        """Read it to its end and remember its totals."""
        with self.lock:
            if not each.exhaust():
                return
            heir = None if each.segment.linked() else self._heir(each)
            if heir is not None:
                heir.known.deferred.absorb(each.known.deferred)
            else:
                each.known.deferred.orphan()
                self._remember(each)
            del self.memory.known[each.uuid]
        each.leaving = self._dirty = self._urgent = self._regroup = True
        kind, text = ("worker_died", f"{each.name} died; what it recorded is kept")
        if heir is not None:
            kind, text = (
                "worker_moved",
                f"{each.name} goes on in {heir.segment.name}: somebody had removed its segment",
            )
        elif each.drain.ended:
            kind, text = ("worker_ended", f"{each.name} ended; what it recorded is kept")
        self._tell(kind, text, service=each.service, worker=each.name)

    def _heir(self, each: Attached) -> Attached | None:
        """The segment into which the same process took its totals along, after somebody removed this one under it."""
        others = (other for other in self.attached.values() if not other.leaving)
        return next((other for other in others if other.has_taken(each.uuid)), None)

    def _remember(self, each: Attached) -> None:
        memory = self.memory
        memory.gone[each.uuid] = Gone(each.known.name, each.last_reading())
        if not each.segment.removable():
            memory.bury(each.uuid)
        while len(memory.gone) > GONE_MAX:
            memory.add_up(memory.gone.pop(next(iter(memory.gone))))

    # ---- keep

    def keep(self, now_ns: int) -> None:
        """Save the memory; then, and only then, give back and remove what it holds."""
        self._kept_ns = now_ns
        with self.lock:
            for each in self.attached.values():
                each.known.cursors = [Cursor(*cursor) for cursor in each.drain.cursors()]
            self._dirty = self._urgent = False
            content = encode(self.memory)
        try:
            self._keep(content)
        except OSError as error:
            self._dirty = True
            if not self.trouble:
                text = f"the checkpoint cannot be written ({error.strerror}): events stay in their rings, the dead stay"
                self._tell("checkpoint_failed", text, command="brickd doctor")
            self.trouble = error.strerror or str(error)
            return
        if self.trouble:
            self._tell("checkpoint_written", "the checkpoint can be written again")
        self.trouble = ""
        self._publish(events=True)
        for each in list(self.attached.values()):
            if each.leaving and not each.over:
                with contextlib.suppress(NotPermitted):  # it will be found once more, and then told
                    each.segment.unlink()
                each.over = True

    def end(self, now_ns: int) -> None:
        """Leave all so that a successor goes on from here, and the workers as if nobody had asked them anything."""
        self._drain()
        self._publish(events=False)
        self.memory.closed = True
        self.keep(now_ns)
        for each in list(self.attached.values()):
            if not each.leaving and each.segment.linked():
                each.command(Wish())
            each.leaving = each.over = self._regroup = True
        with self.reading:  # whoever reads comes to an end first
            pass
        self._let_go()

    def change(self) -> None:
        """The memory was changed from outside, under the lock: it is to be kept at once."""
        self._dirty = self._urgent = True
        self._empty = 0


def _refused(each: Attached, error: Exception) -> SegmentRefused:
    if isinstance(error, SegmentRefused):
        return error
    return SegmentRefused(each.segment.name, f"what it says cannot be worked out: {type(error).__name__}: {error}")
