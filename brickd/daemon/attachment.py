"""A segment that the daemon drains, and what the daemon knows about it.

Owns: the flow from a pass over the rings to the worker's deferred work, and the last reading of a segment. Must not
know: other segments, when a pass is due, files. Invariants: The complete result of a pass is processed before the next
pass begins. The segment of a dead worker is read to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum

from brickd.analysis.numerics.fingerprints import FingerprintProducer
from brickd.errors import SegmentRefused
from brickd.model.deferred import Deferred
from brickd.model.deferred_overlay import laid_over, overlay
from brickd.model.kernel_sources.store import Sources
from brickd.model.retained_workers import Cursor, RetainedWorker
from brickd.query.orders import Wish
from brickd.shm import _reader
from brickd.shm.memory_budget import MIB, Account, Ration
from brickd.shm.reading_sums import together
from brickd.shm.sampling import left_out, rate_of
from brickd.shm.segment import Segment
from brickd.shm.segment_copy import Reading, begins

_COMPLEMENT = 2**64 - 1
_LANES_KEPT = 64  # a dead worker with more lanes gets one lane, which is the sum of its lanes
_BEGINNING = Cursor(0, 0, 0, 0, 0)
# How much is read from the rings of a dead worker. In one pass, it is about _LAST_BYTES, because copying this much
# takes 20 ms. In total, it is about _LAST_TIMES the memory of the file: a ring gets all its memory before its first
# record, so a valid ring never has more to read.
_LAST_BYTES, _LAST_TIMES = 64 * MIB, 4


class Stage(Enum):
    """The stage of a segment in the daemon."""

    DRAINED = "drained"
    READ = "read"  # drained to its end; it may be removed when its totals are saved
    OVER = "over"  # the segment is no longer needed


@dataclass(slots=True, eq=False)
class Attached:
    """A segment that the daemon drains.

    Attributes:
        took: if this segment has the totals of a lost segment, the word of `brick_shm.h` that names it; else 0.
        activity: the segment's activity after its last change, which was seen at `moved_ns`.
        gaps: how many gaps in the sequence of events were already handled.
        spares: further open descriptors of the same file; closing one of them would release the lock on the file.
        heir: the segment in which the worker continues, because this segment was removed; both describe the same work.
        producer: receives the worker's checksums; None if they are dropped.
        take_canaries: receives the uuid, and pieces of the worker's results of canaries; None if they are dropped.
        wish: the last settings that were sent to the worker.
        epoch: the epoch word that the worker has; 0 if it has none.
        filtered_sites: how many sites there were when the wish was applied to them; -1 if some had no name yet.
        reported: the ration that was last logged for this segment.
        last_bytes: the number of bytes read from the rings since the worker died.
    """

    segment: Segment
    drain: _reader.Drain
    known: RetainedWorker
    sources: Sources
    moved_ns: int
    took: int
    activity: int = -1
    gaps: int = 0
    spans: int = 0
    spares: list[Segment] = field(default_factory=list)
    heir: Attached | None = None
    stage: Stage = Stage.DRAINED
    producer: FingerprintProducer | None = None
    take_canaries: Callable[[str, list[tuple[int, int, bytes]]], None] | None = None
    wish: Wish = field(default_factory=Wish)
    epoch: int = 0
    filtered_sites: int = -1
    account: Account = field(init=False)
    reported: Ration = Ration.WHOLE
    last_bytes: int = 0

    def __post_init__(self) -> None:
        self.account = Account(lambda: self.known.deferred.pending, lambda: self.drain.resident)

    @property
    def uuid(self) -> str:
        """The worker's uuid."""
        return self.segment.header["uuid"].hex()

    @property
    def service(self) -> str:
        """The worker's service."""
        return self.segment.service

    @property
    def owner(self) -> Attached:
        """The segment in which the worker continues; if there is none, this segment."""
        return self if self.heir is None else self.heir.owner

    @property
    def deferred(self) -> Deferred:
        """The worker's deferred work."""
        return self.owner.known.deferred

    def goes_on_in(self, heir: Attached) -> None:
        """Give the deferred work to the heir."""
        heir.deferred.absorb(self.known.deferred)
        self.known.deferred = Deferred()
        self.heir = heir

    @property
    def lost(self) -> str:
        """If this segment has the totals of a lost segment, the first half of the uuid of that segment; else ""."""
        return begins(self.took)

    def has_taken(self, uuid: str) -> bool:
        """Whether this segment took over the totals of the segment with this uuid."""
        return self.lost != "" and self.lost == uuid[:16]

    @property
    def name(self) -> str:
        """The worker's name; the file's name as long as the worker has none."""
        return self.known.name or self.segment.name

    def is_of(self, names: Collection[str]) -> bool:
        """Whether the name of the worker or of its service is among `names`; True if there are no names."""
        return not names or self.name in names or self.service in names

    def command(self, wish: Wish) -> None:
        """Send the operator's settings to the worker."""
        self.wish = wish
        flags = (_reader.CONTROL_SPANS if wish.spans else 0) | (_reader.CONTROL_OFF if wish.off else 0)
        with suppress(SegmentRefused):  # the next pass reports the problem
            left_out = self._left_out(wish.sites) if wish.sites and self.segment.thins else 0
            self.segment.command(flags, rate_of(wish.fingerprints) or 0, left_out)

    def _left_out(self, patterns: Sequence[str]) -> int:
        number = self.segment.process()["sites"]
        names, sites = self.segment.tables()
        entries = [names[row[0]] if row is not None and row[0] < len(names) else None for row in sites]
        # A site may have no name yet. Then all sites are checked again, because a new name does not change how many
        # sites there are.
        self.filtered_sites = -1 if None in entries else number
        return left_out([None if entry is None else entry[0] for entry in entries], patterns)

    def follow(self) -> None:
        """Apply the operator's settings to new sites of the worker."""
        if not self.wish.sites or not self.segment.thins:
            return
        with suppress(SegmentRefused):
            if self.segment.process()["sites"] != self.filtered_sites:
                self.command(self.wish)

    def rescan(self) -> bool:
        """Tell the worker to read its weights again; return False if it watches no weights."""
        with suppress(SegmentRefused):
            if self.segment.process()["weights"]:
                self.segment.rescan()
                return True
        return False

    def moved(self, now_ns: int) -> bool:
        """Note activity since the last call; return whether any details were read."""
        drain = self.drain
        activity = drain.activity if self.detailed else self._activity()
        if activity != self.activity:
            self.activity, self.moved_ns = activity, now_ns
        changed = drain.spans != self.spans
        self.spans = drain.spans
        return changed

    def cursors(self) -> list[Cursor]:
        """Return how far each lane was read. Lanes at the end that have no record yet are left out."""
        rows = self.drain.cursors()
        while rows and not any(rows[-1]):
            rows.pop()
        return [Cursor(*row) if any(row) else _BEGINNING for row in rows]

    @property
    def detailed(self) -> bool:
        """Whether the rings of the segment are read, not only its totals."""
        return self.account.ration is Ration.WHOLE

    def _activity(self) -> int:
        try:
            return self.segment.activity()
        except SegmentRefused:  # the next reading reports the reason
            return self.activity

    def take(self, events: bytes | None) -> None:
        """Process the events from one pass."""
        if events is not None:
            others, sources, canaries = _reader.pieces(events)
            if sources:
                self.sources.take(self.uuid, sources, self.service, self.name)
            if canaries and self.take_canaries is not None:
                self.take_canaries(self.uuid, canaries)
            self.deferred.take(others, self.segment.now)
            if self.producer is not None and (texts := _reader.step_texts(others)):
                self.producer.name_steps(texts)
        if self.drain.gaps != self.gaps:
            self.gaps = self.drain.gaps
            self._miss_finalizes()
            if self.producer is not None:
                self.producer.lose(self.segment.dropped(_reader.KIND_CHECKED))

    def listen(self) -> None:
        """Give the checksums from one pass to the producer."""
        if self.producer is not None:
            self.producer.receive(self.drain.take_checked())

    def settle(self, *, complete: bool) -> None:
        """End a pass over all segments; `complete`: whether all segments of this worker were read to their ends."""
        self.deferred.settle(self.segment.now().tick_ns, complete=complete)

    def _miss_finalizes(self) -> None:
        """If a finalize was dropped, count all open starts as orphaned, because that finalize may have closed them."""
        dropped = self.segment.dropped(_reader.KIND_FINALIZE)
        if dropped > self.known.finalizes_dropped:
            self.known.finalizes_dropped = dropped
            self.deferred.orphan()

    def exhaust(self) -> bool:
        """Read the rings of a dead worker; return False until they are read to their end.

        Raise SegmentRefused if they are invalid.
        """
        self.drain.salvage()
        quiet, begun = 0, self.drain.read
        while self.drain.read - begun < _LAST_BYTES:
            ((_, events, refused),) = _reader.drain([self.drain])[2] or [(0, None, None)]
            if refused is not None:
                raise SegmentRefused(self.segment.name, refused)
            self.take(events)
            self.listen()
            if self.heir is None:
                self.settle(complete=self.drain.complete)
            quiet = 0 if events is not None or not self.drain.complete else quiet + 1
            if quiet == 3:  # after an empty pass, two more are needed for events that waited
                return True
        self.last_bytes += self.drain.read - begun
        if self.last_bytes > (most := _LAST_TIMES * self.segment.memory_bytes + _LAST_BYTES):
            read = f"{self.last_bytes / MIB:,.0f} MiB were read from them, expected at most {most / MIB:,.0f} MiB"
            reason = f"its rings do not end: {read}"
            raise SegmentRefused(self.segment.name, reason)
        return False

    def last_reading(self) -> Reading:
        """Return the last reading, together with the deferred work. In this reading, all rings are marked as read."""
        cursors = [Cursor(*cursor) for cursor in self.drain.cursors()]

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

        reading = self.segment.read()
        if new := [number for number, _, _ in reading.lanes if number >= len(cursors)]:
            wanted = f"expected only the first {len(cursors)} lanes"
            raise SegmentRefused(
                self.segment.name, f"lane {new[0]} came into use after the end of the worker, {wanted}"
            )
        made = {(id(lane), cursors[number]): closed(lane, cursors[number]) for number, lane, _ in reading.lanes}
        lanes = [(number, *made[id(lane), cursors[number]]) for number, lane, _ in reading.lanes]
        if len(lanes) > _LANES_KEPT:
            lanes = together(lanes)
        last = replace(reading, pid=None, lanes=lanes, memory_bytes=0, flags=0, asked_rate=0, left_out=0)
        return laid_over(last, overlay(self.known.deferred))
