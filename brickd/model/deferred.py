"""The deferred work of one worker: starts that wait for their end, and the durations of closed starts.

Owns: which finalize record closes which start record, and the resulting duration. Must not know: rings, files, other
workers.

When a worker hands work to a device, it records only the start. A finalize is a record that the host has waited for a
stream of the device, so the work that had started there is over. A start is closed by the first finalize of its stream
that has the same time or a later one. If the device's clock measured the work, the measurement is its duration, unless
it is longer than the time since the start. Otherwise only two bounds are known: the time up to the next start of the
stream (these times add up to the elapsed time), and the latency, which is the time from the start to the finalize.

The records of several lanes arrive in any order. A finalize is settled once every lane has been read to its end after
the finalize was read, because then all records before the finalize have arrived.

Invariants: Every start is counted exactly once: started = measured + bounded + pending + orphaned. The bounds of one
stream never add up to more than the elapsed time. The order in which lanes are read changes nothing. The number of
waiting starts is limited, and starts above the limit are orphaned and counted.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from brickd.base.json_values import pieces, plain, require, text, unicode, whole
from brickd.model.deferred_waiting import Batch, Finalize, Start, WaitingStarts
from brickd.shm import _reader
from brickd.shm.clock import Now
from brickd.shm.segment_codec import packed, packed_text

WAITING_MAX = 16_384
STREAMS_MAX = 4_096

_SOON_NS = 1_000_000_000  # a shorter measurement is accepted without reading the clock
_UNLIKE = 2  # a device's clock may run at most this many times as fast as the host's

_MOST = 2**64 - 1
_RECORD = struct.Struct("<QIHH6Q")


@dataclass(slots=True)
class DeferredStream:
    """A stream: the starts that wait for their end, and the time up to which every start has ended."""

    waiting: WaitingStarts = field(default_factory=WaitingStarts)
    closed: int = -1


class Deferred:
    """One worker's deferred work.

    Attributes:
        measured: for each path, the times that devices measured, in ns.
        bound: for each path, the part of the elapsed time that each start was assigned, in ns.
        latency: for each path, the times from start to finalize, in ns, for the same starts as `bound`.
        counts: `started`, `measured`, `bounded` and `orphaned` count starts by outcome. `late` counts bounded starts
            whose time was already assigned to other starts, so that their part is 0. `unmatched` counts measurements
            that have no waiting start, or that are longer than the time since the start. `refused` counts starts whose
            id a waiting start already has. `finalized` counts settled finalizes.
    """

    def __init__(self, ended: Callable[[Start, int], object] | None = None) -> None:
        """`ended` is called when a start ends: with the start, and its measured ns or its part of the time in ticks."""
        self._ended = ended
        self.measured = _reader.Summaries()
        self.bound = _reader.Summaries()
        self.latency = _reader.Summaries()
        self.counts: Counter[str] = Counter()
        self._streams: dict[int, DeferredStream] = {}
        self._closed = -1  # every start of any stream up to this time has ended
        self._waiting: dict[int, Start] = {}  # the starts without a measurement, by id
        # The records that arrived after the last complete pass over the lanes.
        self._fresh, self._ripe = Batch(), Batch()

    @property
    def pending(self) -> int:
        """The number of starts that wait for their end."""
        return len(self._waiting)

    @property
    def settled(self) -> bool:
        """Whether another pass over the lanes would change nothing."""
        return not (self._fresh or self._ripe)

    def take(self, records: bytes, now: Callable[[], Now]) -> None:
        """Take records of the event ring, in the order of each lane. `now` returns a clock value after all of them."""
        for _, payload, _, kind, a, b, c, d, e, f in _RECORD.iter_unpack(records):
            if kind == _reader.KIND_DEFER:
                self._begin(b, Start(a, c, payload, elements=e, bytes=f, stream=b, step=d), now)
            elif kind == _reader.KIND_FINALIZE:
                self._fresh.finalizes.append(Finalize(a, None if payload else b))
            elif kind == _reader.KIND_MEASURED:
                self._measure(a, b, now)

    def _begin(self, number: int, start: Start, now: Callable[[], Now]) -> None:
        if start.id in self._waiting:  # a correct agent never uses an id twice
            self.counts["refused"] += 1
            return
        self.counts["started"] += 1
        stream = self._streams.setdefault(number, DeferredStream())
        stream.waiting.add(start)
        self._waiting[start.id] = start
        if start.start <= (closed := max(stream.closed, self._closed)):
            self._fresh.finalizes.append(Finalize(closed, number, again=True))
        for batch in (self._ripe, self._fresh):
            if (elapsed_ns := batch.measurements.pop(start.id, None)) is not None:
                self._measure(start.id, elapsed_ns, now)

    def _measure(self, id: int, elapsed_ns: int, now: Callable[[], Now]) -> None:
        start = self._waiting.get(id)
        if start is None:
            self._fresh.measurements[id] = elapsed_ns
            return
        if elapsed_ns > _SOON_NS and _too_long(elapsed_ns, start, now()):
            self.counts["unmatched"] += 1
            return
        del self._waiting[id]
        start.measured = True
        self.measured.add(start.path, elapsed_ns, start.elements, start.bytes)
        self.counts["measured"] += 1
        if self._ended is not None:
            self._ended(start, elapsed_ns)

    def settle(self, tick_ns: float, *, complete: bool) -> None:
        """End a pass over the lanes. `complete` tells whether each lane was read to its end during the pass."""
        if complete or len(self._fresh) > WAITING_MAX:
            self._close_all(tick_ns)
            self.counts["unmatched"] += len(self._ripe.measurements)
            self._ripe, self._fresh = self._fresh, Batch()
        self._limit()

    def _close_all(self, tick_ns: float) -> None:
        ripe, self._ripe.finalizes = self._ripe.finalizes, []
        if not ripe:
            return
        self.counts["finalized"] += sum(not each.again for each in ripe)
        syncs: dict[int | None, list[int]] = defaultdict(list)
        for each in ripe + self._fresh.finalizes:
            syncs[each.stream].append(each.ticks)
        for ticks in syncs.values():
            ticks.sort()
        due: dict[int | None, int] = {}
        for each in ripe:
            due[each.stream] = max(due.get(each.stream, -1), each.ticks)
            if each.stream is not None:
                self._streams.setdefault(each.stream, DeferredStream())
        everywhere = due.get(None, -1)
        for number, stream in self._streams.items():
            # There may be thousands of streams. Streams without a waiting start need no entry, because `_closed` is
            # enough.
            if number in due or (None in due and stream.waiting):
                until = max(due.get(number, -1), everywhere)
                self._close(stream, until, (syncs[None], syncs[number]), tick_ns)
        self._closed = max(self._closed, everywhere)

    def _close(self, stream: DeferredStream, until: int, syncs: tuple[list[int], ...], tick_ns: float) -> None:
        """Assign each start its part of the time, which ends at the next start or at the first finalize.

        `until` is the last settled finalize; all earlier finalizes are settled too. `syncs` has the sorted ticks of
        finalizes, including `until`.
        """
        given = max(stream.closed, self._closed)
        stream.closed = max(stream.closed, until)
        over = stream.waiting.take(lambda each: each.start <= until)
        if not over:
            return
        over.sort(key=lambda each: (each.start, each.id))
        for start, following in zip(over, [*(each.start for each in over[1:]), until], strict=True):
            if start.measured:
                continue
            del self._waiting[start.id]
            sync = min(each[at] for each in syncs if (at := bisect_left(each, start.start)) < len(each))
            late = start.start < given  # this part of the time is already assigned
            part = 0 if late else min(following, sync) - start.start
            self.bound.add(start.path, _ns(part, tick_ns), start.elements, start.bytes)
            self.latency.add(start.path, _ns(sync - start.start, tick_ns), 0, 0)
            self.counts["bounded"] += 1
            self.counts["late"] += late
            if self._ended is not None:
                self._ended(start, part)

    def _limit(self) -> None:
        here = sum(len(stream.waiting) for stream in self._streams.values())
        if here > WAITING_MAX:
            # An eighth more than necessary is removed, so that this does not run at each new start.
            every = sorted((each.start, each.id) for stream in self._streams.values() for each in stream.waiting)
            self._orphan(set(every[: here - WAITING_MAX + WAITING_MAX // 8]))
        if len(self._streams) > STREAMS_MAX:
            idle = sorted((each.closed, number) for number, each in self._streams.items() if not each.waiting)
            for _, number in idle[: len(self._streams) - STREAMS_MAX]:
                del self._streams[number]

    def orphan(self) -> None:
        """Orphan all waiting starts, because the worker died or a finalize was dropped."""
        self._orphan(None)

    def _orphan(self, which: set[tuple[int, int]] | None) -> None:
        for stream in self._streams.values():
            for start in stream.waiting.take(lambda each: which is None or (each.start, each.id) in which):
                if not start.measured:
                    del self._waiting[start.id]
                    self.counts["orphaned"] += 1

    def absorb(self, other: Deferred) -> None:
        """Take over the state of a lost segment of the same process, in which the paths had the same indexes."""
        for mine, its in ((self.measured, other.measured), (self.bound, other.bound), (self.latency, other.latency)):
            mine.merge(its.tobytes(), array("i", range(len(its))))
        self.counts.update(other.counts)
        for number, stream in other._streams.items():
            own = self._streams.setdefault(number, DeferredStream())
            # A process uses an id only once. So a start of `other` is orphaned if a start with the same id already
            # waits here.
            once = [each for each in stream.waiting if each.measured or each.id not in self._waiting]
            self.counts["orphaned"] += len(stream.waiting) - len(once)
            own.waiting.add(*once)
            own.closed = max(own.closed, stream.closed)
        self._closed = max(self._closed, other._closed)
        self._waiting = other._waiting | self._waiting
        self._fresh.finalizes += other._ripe.finalizes + other._fresh.finalizes
        self._fresh.measurements |= other._ripe.measurements | other._fresh.measurements

    def members(self) -> dict[str, str]:
        """Return the JSON texts of all fields, as members of an object."""
        return {
            "counts": plain(self.counts),
            "closed": plain(self._closed),
            "streams": self._streams_text(),
            "batches": plain([batch.document() for batch in (self._ripe, self._fresh)]),
            **{name: packed_text(getattr(self, name).packed()) for name in _TABLES},
        }

    def pieces(self) -> Iterator[str]:
        """Return the JSON text of the deferred work, in pieces."""
        return pieces({name: (value,) for name, value in self.members().items()})

    def _streams_text(self) -> str:
        # The texts are joined, because encoding a list would scan these long, finished strings again.
        marked = sum(len(stream.waiting) for stream in self._streams.values()) > self.pending
        streams = [
            f'[{number},{each.closed},"{each.waiting.text()}","{each.waiting.marks() if marked else ""}"]'
            for number, each in self._streams.items()
        ]
        return f"[{','.join(streams)}]"

    @classmethod
    def of(cls, document: dict[str, Any]) -> Deferred:
        """Decode the document that `pieces` encoded. A restart of the daemon does not change the results."""
        self = cls()
        self.counts.update({unicode(name): whole(count) for name, count in document["counts"].items()})
        for name in _TABLES:
            setattr(self, name, _reader.Summaries(packed(document[name])))
        self._closed = whole(document["closed"], -1)
        pending = 0
        for number, closed, starts, marks in document["streams"]:
            require(whole(number) not in self._streams, "each stream once", number)
            waiting = WaitingStarts.of(text(starts), text(marks))
            self._streams[number] = DeferredStream(waiting, whole(closed, -1))
            unmeasured = [each for each in waiting if not each.measured]
            self._waiting |= {each.id: each for each in unmeasured}
            pending += len(unmeasured)
        require(len(self._waiting) == pending, "each start once", pending)
        self._ripe, self._fresh = (Batch.of(*each) for each in document["batches"])
        return self


_TABLES = ("measured", "bound", "latency")


def _too_long(elapsed_ns: int, start: Start, now: Now) -> bool:
    """Whether a duration is so long that it would have begun before the start of the work.

    False if the clock is unknown.
    """
    return now.ticks is not None and elapsed_ns > _UNLIKE * (now.ticks - start.start) * now.tick_ns


def _ns(ticks: int, tick_ns: float) -> int:
    """Convert ticks to ns, limited to 64 bits, because the times of a hostile worker may be larger."""
    return min(round(ticks * tick_ns), _MOST)
