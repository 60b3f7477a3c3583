"""A daemon's state about workers: cursors, deferred work, totals of removed segments.

Owns: this state, how it is written as JSON, how many totals are kept. Must not know: how the state is stored in a file,
how it changes. Invariant: a worker is identified by its uuid.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple, cast

from brickd.base.json_values import U64_MAX, listed, optional, plain, unicode, whole
from brickd.model.deferred import Deferred
from brickd.shm import _reader, segment_codec
from brickd.shm.memory_budget import MIB, kept_of
from brickd.shm.reading_sums import added
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import Identifier

GONE_MAX = 64  # the limit of kept totals; older totals are added up
GONE_BYTES = 96 * MIB  # the limit of their memory when read; 64 workers with 1,024 shared paths take 72 MiB

_UID_MAX = 2**32 - 1


class Cursor(NamedTuple):
    """How far the rings of one lane have been read.

    Attributes:
        span: the number of slots read from the span ring.
        event: the number of slots read from the event ring.
        events: the number of records in these slots of the event ring.
        sequence: the sequence number of the last of these records.
        spans_lost: the number of single spans that an earlier daemon had read and that were lost when it ended.
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
        name: the worker's name, which does not change when other workers start or end.
        cursors: the cursors by lane.
        finalizes_dropped: the number of dropped finalizes that `deferred` has taken into account.
        file: the segment, if it was ever drained; None if unknown, as in the checkpoint of an earlier version.
    """

    name: str = ""
    cursors: list[Cursor] = field(default_factory=list)
    deferred: Deferred = field(default_factory=Deferred)
    finalizes_dropped: int = 0
    file: Identifier | None = None

    def pieces(self) -> Iterator[str]:
        """Return the JSON text, in pieces."""
        dropped = min(self.finalizes_dropped, U64_MAX)  # the lanes of a hostile worker may contain more
        # Earlier versions of brickd, whose daemon served several users, expect the uid as the fourth member.
        yield f"[{plain(self.name)},{plain(self.cursors)},{dropped},{os.geteuid()},"
        yield from self.deferred.pieces()
        yield f",{plain(self.file)}]"

    @classmethod
    def of(
        cls, name: Any, cursors: Any, finalizes_dropped: Any, uid: Any, deferred: Any, file: Any = None
    ) -> RetainedWorker:
        """Decode the output of `pieces`. In the checkpoint of an earlier version, the file is missing."""
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
    """The last reading of a removed segment in compact form, or the sum of several such readings."""

    name: str
    reading: Reading
    workers: int = 1
    _text: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        self.reading = segment_codec.compact(self.reading)

    def text(self) -> str:
        """Return the JSON text. The text is cached, because each checkpoint needs it and it never changes."""
        if not self._text:
            self._text = f"[{plain(self.name)},{segment_codec.written(self.reading)},{self.workers}]"
        return self._text

    def of_service(self, service: str) -> RetainedTotals:
        """Return the same totals under the name of another service."""
        header = {**self.reading.header, "service": service.encode(), "index": -1, "coordinates": b""}
        return RetainedTotals(service, replace(self.reading, header=cast("_reader.Header", header)), self.workers)

    def and_(self, other: RetainedTotals) -> RetainedTotals:
        """Return the sum of both totals, which is named after the service."""
        header = {**self.reading.header, "index": -1, "coordinates": b""}
        reading = replace(added(self.reading, other.reading), header=cast("_reader.Header", header))
        return RetainedTotals(f"{reading.service}/older", reading, self.workers + other.workers)


def beyond_limits(gone: Mapping[str, RetainedTotals]) -> list[str]:
    """Return the uuids of the totals that must be merged, the oldest first; `gone` is sorted in the same way."""
    newest = list(gone.items())[::-1]
    taken = accumulate(kept_of(each.reading for _, each in newest))
    kept = sum(1 for number, size in enumerate(taken) if number < GONE_MAX and size <= GONE_BYTES)
    return [uuid for uuid, _ in newest[kept:]][::-1]


def _identifier(file: Any) -> Identifier:
    device, inode = file
    return whole(device), whole(inode)
