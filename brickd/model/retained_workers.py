"""A daemon's state about workers: cursors, deferred work, totals of removed segments.

Owns: that state, and its form as JSON. Must not know: how it is stored in a file, how it changes. Invariants: a worker
is identified by its uuid; `Background` is a copy of the state that a survey needs in addition to the segments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from brickd.base.json_values import U64_MAX, listed, optional, plain, unicode, whole
from brickd.model.deferred import Deferred
from brickd.model.deferred_overlay import Overlay, lifted, overlay
from brickd.model.worker_origins import Origin
from brickd.shm import _reader, segment_codec
from brickd.shm.removed_workers import Removals
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import Identifier

_UID_MAX = 2**32 - 1


class Cursor(NamedTuple):
    """How far the rings of one lane were read.

    Attributes:
        span: slots of the span ring.
        event: slots of the event ring.
        events: records in these slots.
        sequence: the number of the last of these records.
        spans_lost: details that an earlier daemon read.
    """

    span: int
    event: int
    events: int
    sequence: int
    spans_lost: int


@dataclass(slots=True)
class RetainedWorker:
    """A worker whose segment exists.

    Attributes:
        name: it stays the same when other workers start and end.
        cursors: by lane.
        finalizes_dropped: the number that `deferred` has taken into account.
        file: its segment, once that is drained; None if an earlier brickd's checkpoint lacks it.
    """

    name: str = ""
    cursors: list[Cursor] = field(default_factory=list)
    deferred: Deferred = field(default_factory=Deferred)
    finalizes_dropped: int = 0
    file: Identifier | None = None

    def pieces(self) -> Iterator[str]:
        """The JSON text, in pieces."""
        dropped = min(self.finalizes_dropped, U64_MAX)  # a hostile worker's lanes may exceed it
        # Older brickds, whose daemons served several users, expect the uid as fourth member.
        yield f"[{plain(self.name)},{plain(self.cursors)},{dropped},{os.geteuid()},"
        yield from self.deferred.pieces()
        yield f",{plain(self.file)}]"

    @classmethod
    def of(
        cls, name: Any, cursors: Any, finalizes_dropped: Any, uid: Any, deferred: Any, file: Any = None
    ) -> RetainedWorker:
        """Decode what `pieces` encoded; an earlier brickd's checkpoint has no file."""
        whole(uid, -1, _UID_MAX)
        return cls(
            unicode(name),
            [Cursor(*map(whole, each)) for each in listed(cursors, _reader.LANES_MAX)],
            Deferred.of(deferred),
            whole(finalizes_dropped),
            optional(file, _identifier),
        )


@dataclass(slots=True)
class RetainedTotals:
    """The last reading of a removed segment in compact form, or the sum of several of a service."""

    name: str
    reading: Reading
    workers: int = 1
    _text: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        self.reading = segment_codec.compact(self.reading)

    def text(self) -> str:
        """The JSON text; cached, because each checkpoint needs it and it never changes."""
        if not self._text:
            self._text = f"[{plain(self.name)},{segment_codec.written(self.reading)},{self.workers}]"
        return self._text

    def of_service(self, service: str) -> RetainedTotals:
        """The same totals under another service's name."""
        header = {**self.reading.header, "service": service.encode(), "index": -1, "coordinates": b""}
        return RetainedTotals(service, replace(self.reading, header=cast("_reader.Header", header)), self.workers)

    def and_(self, other: RetainedTotals) -> RetainedTotals:
        """The sum of both, named after the service."""
        header = {**self.reading.header, "index": -1, "coordinates": b""}
        reading = replace(segment_codec.added(self.reading, other.reading), header=cast("_reader.Header", header))
        return RetainedTotals(f"{reading.service}/older", reading, self.workers + other.workers)


@dataclass(frozen=True, slots=True)
class Background:
    """A daemon's state that a survey needs in addition to the segments, by uuid.

    Attributes:
        names: of workers, and of sums by the uuid of their reading.
        begun: the uuids of known workers by their first half; a worker names its lost segment by that half.
        files: each known worker's segment.
        older: the sums, which have no uuid of their own.
        buried: the uuids of segments that are not read: their workers are in a sum, or were forgotten.
        added: the workers that were recently added to each sum, by the sum's uuid.
        removed: workers whose segments were removed, and sums of earlier ones.
    """

    names: dict[str, str] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)
    files: dict[str, Identifier] = field(default_factory=dict)
    overlays: dict[str, Overlay] = field(default_factory=dict)
    gone: dict[str, RetainedTotals] = field(default_factory=dict)
    older: tuple[RetainedTotals, ...] = ()
    buried: frozenset[str] = frozenset()
    added: dict[str, tuple[Origin, ...]] = field(default_factory=dict)
    removed: Removals = field(default_factory=Removals)

    def before(self, took: int) -> str | None:
        """The known uuid of the lost segment whose totals a worker took over."""
        return self.begun.get(took.to_bytes(8, "little").hex()) if took else None

    def overlay(self, uuid: str, before: str | None) -> Overlay | None:
        """The deferred work of a worker, by the uuid of its segment or of its lost segment."""
        if (found := self.overlays.get(uuid)) is not None or before is None:
            return found
        return overlay(lifted(self.gone[before].reading)) if before in self.gone else self.overlays.get(before)


def _identifier(file: Any) -> Identifier:
    device, inode = file
    return whole(device), whole(inode)
