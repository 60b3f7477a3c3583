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

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from brickd import _reader
from brickd.errors import NotPermitted, SegmentRefused, SegmentUnpublished
from brickd.memory import Cursor, Gone, Known, Memory, Wish
from brickd.naming import named
from brickd.overlay import laid_over, overlay
from brickd.segment import Reading, Segment, find, identifier_of, open_file, open_segment
from brickd.workers import Survey, survey

SECOND = 1_000_000_000
STILL_NS = 5 * SECOND
KEEP_NS = JUDGE_NS = SECOND
LOOK_NS = 5 * SECOND
WORKERS_MAX = 1_024
GONE_MAX = 64
FASTEST_NS, BUSY_NS, IDLE_NS = SECOND // 1000, SECOND // 50, SECOND // 10

_COMPLEMENT = 2**64 - 1

Kind = Literal["worker", "break", "quarantine", "trouble", "well"]
Tell = Callable[[Kind, str, str], None]


@dataclass(slots=True)
class Attached:
    """A segment that is drained.

    Attributes:
        unreleased: event records that were read and whose room is not given back yet.
        activity: as it was when it last changed, at `moved_ns`.
        gaps: of the sequences of its events, as far as they were looked into.
        leaving: its totals are in the memory; it goes with the next checkpoint.
    """

    segment: Segment
    drain: _reader.Drain
    known: Known
    moved_ns: int
    activity: int = -1
    unreleased: int = 0
    gaps: int = 0
    spans: int = 0
    leaving: bool = False

    @property
    def uuid(self) -> str:
        """Which worker it is."""
        return self.segment.header["uuid"].hex()

    @property
    def service(self) -> str:
        """What it belongs to."""
        return self.segment.service

    def took(self, uuid: str) -> bool:
        """Whether the totals of the segment with this uuid came along into this one."""
        return self.segment.process()["took"].to_bytes(8, "little").hex() == uuid[:16]


@dataclass(slots=True)
class Unusable:
    """A file with a segment's name that is not drained, and why."""

    identifier: tuple[int, int] | None
    refused: SegmentRefused
    since_ns: int = 0


class Collector:
    """The loop's state.

    Attributes:
        memory: what is kept.
        attached: by file.
        quarantined: by file.
        foreign: how many segments we may not read.
        trouble: why the memory cannot be kept now, or "".
    """

    def __init__(self, prefix: str, memory: Memory, keep: Callable[[Memory], None], tell: Tell) -> None:
        self.prefix, self.memory = prefix, memory
        self._keep, self._tell = keep, tell
        self.attached: dict[str, Attached] = {}
        self.quarantined: dict[str, Unusable] = {}
        self.foreign = 0
        self.trouble = ""
        self._unpublished: dict[str, Unusable] = {}
        self._dirty = False
        self._urgent = False
        self._looked_ns = self._judged_ns = self._kept_ns = -(2**63)
        self._wait_ns = BUSY_NS
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
        if look or now_ns - self._looked_ns >= LOOK_NS or self._unpublished:
            self._look(now_ns)
        fill = self._drain(now_ns)
        self._publish(events=False)
        if now_ns - self._judged_ns >= JUDGE_NS:
            self._judge(now_ns)
        if self._urgent or (self._dirty and now_ns - self._kept_ns >= KEEP_NS):
            self.keep(now_ns)
        return self._pace(fill)

    def _pace(self, fill: float) -> int:
        """So often that a ring is an eighth full by then; ever more seldom while nothing comes."""
        if fill == 0:
            self._wait_ns = min(self._wait_ns * 3 // 2, IDLE_NS)
        else:
            self._wait_ns = min(max(int(self._wait_ns * min(0.125 / fill, 2.0)), FASTEST_NS), BUSY_NS)
        return self._wait_ns

    # ---- look

    def _look(self, now_ns: int) -> None:
        self._looked_ns = now_ns
        there = find(self.prefix)
        for gone in set(self.quarantined) - set(there):
            del self.quarantined[gone]
        ours = {each.segment.identifier for each in self.attached.values()}
        self.foreign = 0
        waiting, self._unpublished = self._unpublished, {}
        before = len(self.attached)
        for file in there:
            identifier = identifier_of(file)
            known_bad = self.quarantined.get(file)
            if identifier is None or identifier in ours or (known_bad and known_bad.identifier == identifier):
                continue
            try:
                self._attach(file, now_ns)
            except SegmentUnpublished as error:
                entry = waiting.get(file)
                if entry is None or entry.identifier != identifier:
                    entry = Unusable(identifier, error, now_ns)
                if not self._remove_unpublished(file, entry, now_ns):
                    self._unpublished[file] = entry
            except SegmentRefused as error:
                self._quarantine(file, identifier, error)
            except NotPermitted:
                self.foreign += 1
        if len(self.attached) != before:
            self._name_everybody()
        with self.lock:
            here = {each.uuid for each in self.attached.values()}
            for uuid in [uuid for uuid in self.memory.known if uuid not in here]:
                known = self.memory.known.pop(uuid)
                self._tell("worker", known.name, "ended while no daemon ran; its totals went with its segment")

    def _attach(self, file: str, now_ns: int) -> None:
        if len(self.attached) >= WORKERS_MAX:
            raise SegmentRefused(file, f"not drained: {WORKERS_MAX:,} workers are, and no more")
        segment = open_segment(file, os.O_RDWR)
        try:
            if not segment.consume():
                raise SegmentRefused(file, f"drained by process {segment.consumer()}")
            uuid = segment.header["uuid"].hex()
            if twin := next((each.segment.name for each in self.attached.values() if each.uuid == uuid), None):
                raise SegmentRefused(file, f"says that it is {twin}: one of them is a copy")
            if uuid in self.memory.gone:  # a daemon before us ended between remembering it and removing it
                segment.unlink()
                segment.close()
                return
            known = self.memory.known.get(uuid)
            try:
                drain = _reader.Drain(segment.fd, known.cursors if known else None)
            except ValueError as error:
                raise SegmentRefused(file, str(error)) from None
        except BaseException:
            segment.close()
            raise
        each = Attached(segment, drain, known or Known(), now_ns)
        with self.lock:
            self.memory.known[uuid] = each.known
            self.attached[file] = each
            for gone in [gone for gone in self.memory.gone if each.took(gone)]:  # it was not dead, it had lost its lock
                del self.memory.gone[gone]
        self._command(each)
        self._dirty = True

    def _remove_unpublished(self, file: str, entry: Unusable, now_ns: int) -> bool:
        """Remove what a worker left that died before it had published it."""
        if now_ns - entry.since_ns < STILL_NS:
            return False
        try:
            with open_file(file) as left:
                return left.worker() is None and left.identifier == entry.identifier and left.unlink()
        except (SegmentRefused, NotPermitted):
            return False

    def _quarantine(self, file: str, identifier: tuple[int, int] | None, error: SegmentRefused) -> None:
        self.quarantined[file] = Unusable(identifier, error)
        self._tell("quarantine", file, error.reason)

    def _name_everybody(self) -> None:
        with self.lock:
            names = self.memory.names()
            for name, who in named([e.segment.identity() for e in self.attached.values() if not e.leaving], names):
                known = self.memory.known[who.uuid]
                if who.alive and known.name != name:
                    known.name = name
                    self._tell("worker", name, f"is drained: process {who.pid or who.header['pid']}, {who.file}")

    # ---- drain

    def _drain(self, now_ns: int) -> float:
        """One pass over every segment; how full the fullest ring was."""
        every = [each for each in self.attached.values() if not each.leaving]
        results = {index: (events, refused) for index, events, refused in _reader.drain([e.drain for e in every])}
        fill = 0.0
        for index, each in enumerate(every):
            events, refused = results.get(index, (None, None))
            if refused is not None:
                self._give_up(each, SegmentRefused(each.segment.name, refused))
                continue
            self._take(each, events, now_ns)
            fill = max(fill, each.drain.fill)
        return fill

    def _take(self, each: Attached, events: bytes | None, now_ns: int) -> None:
        """What one pass brought of one segment."""
        drain, deferred = each.drain, each.known.deferred
        if drain.activity != each.activity:
            if each.activity < 0 and drain.breaks:
                self._tell("break", each.known.name, "what an earlier daemon had read of it is not known any more")
            each.activity, each.moved_ns = drain.activity, now_ns
        if drain.spans != each.spans:
            each.spans, self._dirty = drain.spans, True
        if events is None and deferred.settled:
            return
        with self.lock:
            if events is not None:
                each.unreleased += len(events) // 64
                deferred.take(events)
            if drain.gaps != each.gaps:
                each.gaps = drain.gaps
                self._miss_finalizes(each)
            deferred.settle(each.segment.tick_ns(), complete=drain.complete)
        self._dirty = True
        if each.unreleased * 2 >= each.segment.header["event_slots"]:
            self._urgent = True

    def _miss_finalizes(self, each: Attached) -> None:
        """Where the writer found no room for a finalize, nobody knows which starts it closed."""
        dropped = each.segment.dropped(_reader.KIND_FINALIZE)
        if dropped > each.known.finalizes_dropped:
            each.known.finalizes_dropped = dropped
            each.known.deferred.orphan()

    def _give_up(self, each: Attached, error: SegmentRefused) -> None:
        self._quarantine(each.segment.name, each.segment.identifier, error)
        with self.lock:
            del self.memory.known[each.uuid]
        self._detach(each)

    def _detach(self, each: Attached) -> None:
        with self.reading:
            del self.attached[each.segment.name]
            each.segment.close()

    def _publish(self, *, events: bool) -> None:
        writes = [
            (each.segment.fd, offset, data)
            for each in self.attached.values()
            for offset, data in each.drain.tails(events)
        ]
        if writes:
            _reader.write_all(writes)

    # ---- judge

    def _judge(self, now_ns: int) -> None:
        self._judged_ns = now_ns
        for each in list(self.attached.values()):
            if each.leaving or each.segment.worker() is not None:
                continue
            if each.drain.ended or now_ns - each.moved_ns >= STILL_NS:
                try:
                    self._bury(each, now_ns)
                except SegmentRefused as error:
                    self._give_up(each, error)

    def _bury(self, each: Attached, now_ns: int) -> None:
        """Drain it to the end and remember its totals."""
        each.drain.salvage()
        deferred = each.known.deferred
        settled = 0
        while settled < 3:  # a pass that finds nothing, and two after it for what waits for one
            ((_, events, refused),) = _reader.drain([each.drain]) or [(0, None, None)]
            if refused is not None:
                raise SegmentRefused(each.segment.name, refused)
            self._take(each, events, now_ns)
            settled = 0 if events is not None or not each.drain.complete else settled + 1
        reading = each.segment.read()
        with self.lock:
            heir = self._heir(each) if not each.segment.linked() else None
            if heir is not None:
                heir.known.deferred.absorb(deferred)
            else:
                deferred.orphan()
                self._remember(each, laid_over(_closed(reading, each.drain), overlay(deferred)))
            del self.memory.known[each.uuid]
        each.leaving = self._dirty = self._urgent = True
        said = "goes on in another segment" if heir else "ended" if each.drain.ended else "died"
        self._tell("worker", each.known.name, said)

    def _heir(self, each: Attached) -> Attached | None:
        """The segment into which the same process took its totals along, after somebody removed this one under it."""
        return next((other for other in self.attached.values() if other.took(each.uuid)), None)

    def _remember(self, each: Attached, reading: Reading) -> None:
        memory = self.memory
        memory.gone[each.uuid] = Gone(each.known.name, reading)
        while len(memory.gone) > GONE_MAX:
            oldest = memory.gone.pop(next(iter(memory.gone)))
            key = f"{oldest.reading.service}/{oldest.reading.clock}"
            into = memory.older.get(key)
            memory.older[key] = oldest if into is None else into.and_(oldest)

    # ---- keep

    def keep(self, now_ns: int) -> None:
        """Save the memory; then, and only then, give back and remove what it holds."""
        with self.lock:
            for each in self.attached.values():
                each.known.cursors = [Cursor(*cursor) for cursor in each.drain.cursors()]
        self._kept_ns = now_ns
        try:
            self._keep(self.memory)
        except OSError as error:
            if not self.trouble:
                self._tell(
                    "trouble", "", f"the checkpoint cannot be written: {error.strerror}; it is tried each second"
                )
            self.trouble = error.strerror or str(error)
            self._dirty, self._urgent = True, False
            return
        if self.trouble:
            self._tell("well", "", "the checkpoint can be written again")
        self.trouble, self._dirty, self._urgent = "", False, False
        self._publish(events=True)
        for each in list(self.attached.values()):
            each.unreleased = 0
            if each.leaving:
                each.segment.unlink()
                self._detach(each)

    def end(self, now_ns: int) -> None:
        """Leave all so that a successor goes on from here, and the workers as if nobody had asked them anything."""
        self._drain(now_ns)
        self._publish(events=False)
        self.keep(now_ns)
        for each in list(self.attached.values()):
            if each.segment.linked():
                each.segment.command(0)
            self._detach(each)

    # ---- asked from other threads

    def survey(self) -> Survey:
        """All workers, as they are now."""
        with self.reading:
            with self.lock:
                background = self.memory.background()
                held = {file: each.segment for file, each in self.attached.items()}
            return survey(self.prefix, background, held)

    def wish(self, service: str, *, spans: bool | None = None, off: bool | None = None) -> int:
        """Ask something of a service's workers, those to come included; None leaves it as it is.

        Returns:
            How many workers there are now whom it concerns.
        """
        with self.reading, self.lock:
            before = self.memory.wishes.get(service, Wish())
            wish = Wish(before.spans if spans is None else spans, before.off if off is None else off)
            self.memory.wishes[service] = wish
            if wish == Wish():
                del self.memory.wishes[service]
            self._dirty = self._urgent = True
            concerned = [each for each in self.attached.values() if each.service == service and not each.leaving]
            for each in concerned:
                self._command(each)
            return len(concerned)

    def forget(self) -> int:
        """Drop the totals of the dead; how many workers that were."""
        with self.lock:
            gone = [*self.memory.gone.values(), *self.memory.older.values()]
            self.memory.gone.clear()
            self.memory.older.clear()
            self._dirty = self._urgent = True
            return sum(each.workers for each in gone)

    def _command(self, each: Attached) -> None:
        wish = self.memory.wishes.get(each.service, Wish())
        flags = (_reader.CONTROL_SPANS if wish.spans else 0) | (_reader.CONTROL_OFF if wish.off else 0)
        each.segment.command(flags)


def _closed(reading: Reading, drain: _reader.Drain) -> Reading:
    """The reading of a segment that nobody writes any more, with heads and tails as they are when all was read."""

    def closed(lane: _reader.Lane, cursor: Cursor) -> tuple[_reader.Lane, _reader.Consumer]:
        heads: _reader.Lane = {
            **lane,
            "span_head": cursor.span,
            "event_head": cursor.event,
            "event_records": cursor.events,
        }
        return heads, {
            "span": (cursor.span, cursor.span ^ _COMPLEMENT),
            "event": (cursor.event, cursor.event ^ _COMPLEMENT),
            "spans_lost": cursor.spans_lost,
            "events_read": cursor.events,
        }

    cursors = [Cursor(*cursor) for cursor in drain.cursors()]
    return replace(reading, pid=None, lanes=[(n, *closed(lane, cursors[n])) for n, lane, _ in reading.lanes])
