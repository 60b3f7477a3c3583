"""Workers whose segments were removed, and the counts of these workers that are in no total.

Owns: the counts of removed workers, their sums, and how both are written to documents and checkpoints. Must not know:
files, screens. Invariants: Each uuid is counted once. It is not counted at all if its counts are shown elsewhere. If a
uuid has two records, the larger record is used. A worker that is in a sum has no separate record. The number of records
and sums is limited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from brickd.base.json_values import I32_MAX, U64_MAX, flag, plain, unicode, whole
from brickd.base.timestamps import rfc3339
from brickd.shm import _reader
from brickd.shm.segment_copy import begins, label

# The reasons why a segment was removed, as in documents.
REASONS = {_reader.REMOVED_ROOM: "room", _reader.REMOVED_ENDED: "ended", _reader.REMOVED_PRUNED: "pruned"}

ALONE_MAX = _reader.REMOVED_MAX  # at most this many removed workers have a separate record
SERVICES_MAX = 64  # at most this many services have a separate sum
OTHERS = "others"


class WorkerCounts(NamedTuple):
    """A worker's counts: begun spans, attempted details, events and marks, and lost records."""

    spans: int = 0
    details: int = 0
    events: int = 0
    marks: int = 0
    lost: int = 0

    def and_(self, other: WorkerCounts) -> WorkerCounts:
        """Return the sum, limited to the range of a counter."""
        return WorkerCounts(*(min(mine + its, U64_MAX) for mine, its in zip(self, other, strict=True)))

    def without(self, other: WorkerCounts) -> WorkerCounts:
        """Return the difference of the counts; a negative difference becomes 0."""
        return WorkerCounts(*(max(0, mine - its) for mine, its in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class RemovedWorker:
    """A worker whose segment was removed, or the sum of several such workers of a service.

    Attributes:
        uuid: the uuid of the removed segment; "" for a sum.
        took: "", or the first half of the uuid of an earlier, lost segment whose totals this worker took over.
        index: the index in the service that the worker declared, or -1.
        coordinates: the worker's coordinates or name, truncated to the size of the record's field.
        reason: `enum brick_removed_reason`; 0 for a sum.
        started_ns: when the segment was created, since 1970.
        removed_ns: when the segment was removed, since 1970.
        asked: whether a user requested or acknowledged the removal.
        workers: the number of workers; above 1 only for a sum.
    """

    uuid: str
    took: str
    service: str
    index: int
    coordinates: str
    reason: int
    started_ns: int
    removed_ns: int
    asked: bool
    workers: int
    counts: WorkerCounts

    @classmethod
    def of(cls, record: _reader.Removed) -> RemovedWorker:
        """Return the worker that a record describes."""
        dropped = record["span_dropped"] + record["event_dropped"]
        lost = min(sum(record["rejected"]) + record["no_lane"] + record["nested"] + dropped, U64_MAX)
        return cls(
            uuid=record["uuid"].hex(),
            took=begins(record["took"]),
            service=label(record["service"]),
            index=record["index"],
            coordinates=label(record["coordinates"]),
            reason=record["reason"],
            started_ns=record["started_ns"],
            removed_ns=record["removed_ns"],
            asked=record["reason"] == _reader.REMOVED_PRUNED,
            workers=1,
            counts=WorkerCounts(
                record["begun"], record["span_attempts"], record["event_attempts"], record["marks"], lost
            ),
        )

    @classmethod
    def several(cls, service: str, asked: bool, workers: int, counts: WorkerCounts) -> RemovedWorker:
        """Return the sum of some workers of a service."""
        return cls("", "", service, -1, "", 0, 0, 0, asked, workers, counts)

    def document(self) -> dict[str, Any]:
        """Return the worker as JSON."""
        alone = bool(self.uuid)
        return {
            "uuid": self.uuid or None,
            "service": self.service,
            "index": self.index if self.index >= 0 else None,
            "coordinates": self.coordinates or None,
            "reason": REASONS.get(self.reason, "other") if alone else None,
            "started": rfc3339(self.started_ns) if alone else None,
            "removed": rfc3339(self.removed_ns) if alone else None,
            "together": self.workers,
            **self.counts._asdict(),
        }


def uncounted(
    removed: Iterable[RemovedWorker],
    shown: Mapping[str, WorkerCounts],
    taken: Collection[str],
    settled: Collection[str],
) -> list[RemovedWorker]:
    """Return those counts of removed workers that no total includes.

    A worker that loses its segment continues its counts in a new segment. So the record of the new segment includes the
    counts of the lost one. If a total still includes the lost segment, its counts are subtracted from the record.

    Args:
        removed: the records; a worker may have several.
        shown: the counts that a total includes, by uuid.
        taken: the first halves of the uuids of lost segments whose counts continue in other segments.
        settled: the uuids of workers that must not be counted, because a sum contains them or their segments exist.
    """
    largest: dict[str, RemovedWorker] = {}
    for each in removed:
        largest[each.uuid] = _larger(each, largest.get(each.uuid))
    gone_on = {*taken, *(each.took for each in largest.values())}
    took = {each.uuid[:16]: each.took for each in largest.values()}
    begins = {uuid[:16]: counts for uuid, counts in shown.items()}
    left = (
        replace(each, counts=each.counts.without(shown.get(each.uuid) or _shown(each.took, took, begins)))
        for each in largest.values()
        if each.uuid not in settled and each.uuid[:16] not in gone_on
    )
    return [each for each in left if any(each.counts)]


def _shown(lost: str, took: Mapping[str, str], begins: Mapping[str, WorkerCounts]) -> WorkerCounts:
    """Return the counts of the worker's last lost segment, if a total includes that segment."""
    for _ in range(len(took) + 1):  # a limit, because invalid records may name each other in a circle
        if not lost or lost in begins:
            break
        lost = took.get(lost, "")
    return begins.get(lost, WorkerCounts())


def _larger(one: RemovedWorker, other: RemovedWorker | None) -> RemovedWorker:
    if other is None:
        return one
    larger = one if one.counts.spans > other.counts.spans else other
    return replace(larger, asked=one.asked or other.asked)


@dataclass(slots=True)
class Removals:
    """The removed workers in a checkpoint.

    Attributes:
        alone: their records by uuid, the oldest first. A record may include counts that the checkpoint also has
            elsewhere.
        sums: the workers without a separate record, by service and `asked`.
    """

    alone: dict[str, RemovedWorker] = field(default_factory=dict)
    sums: dict[tuple[str, bool], RemovedWorker] = field(default_factory=dict)
    _text: list[str] = field(
        default_factory=list, compare=False, repr=False
    )  # shared by copies until one of them changes

    def fold(self, found: Iterable[RemovedWorker]) -> list[RemovedWorker]:
        """Add records. Return the records of workers that had no record yet."""
        new: dict[str, RemovedWorker] = {}
        for each in found:
            if each.uuid not in self.alone:
                new[each.uuid] = each
            self.alone[each.uuid] = _larger(each, self.alone.get(each.uuid))
            self._text = []
        return list(new.values())

    def settle(self, uuid: str, shown: WorkerCounts) -> list[str]:
        """Move a worker's record, minus the counts `shown`, to a sum. Return the uuids of the worker's segments."""
        settled = [uuid, *(each.uuid for each in self.alone.values() if each.took == uuid[:16])]
        for each in settled:
            removed, self._text = self.alone.pop(each, None), []
            if removed is not None and any(rest := removed.counts.without(shown)):
                self.add(removed.service, removed.asked, 1, rest)
        return settled

    def add(self, service: str, asked: bool, workers: int, counts: WorkerCounts) -> None:
        """Add workers to the sum of their service, or to a common sum if the limit of services is reached."""
        if (service, asked) not in self.sums and len({name for name, _ in self.sums} | {service}) > SERVICES_MAX:
            service = OTHERS
        self._text = []
        before = self.sums.get((service, asked), RemovedWorker.several(service, asked, 0, WorkerCounts()))
        self.sums[service, asked] = RemovedWorker.several(
            service, asked, workers + before.workers, counts.and_(before.counts)
        )

    def limit(self, shown: Collection[str]) -> list[str]:
        """Move the oldest records above the limit to sums, but keep those of `shown` workers.

        Return the uuids of the moved records.
        """
        begins = {uuid[:16] for uuid in shown}
        oldest = [
            uuid
            for uuid, each in list(self.alone.items())[:-ALONE_MAX]
            if uuid not in shown and each.took not in begins
        ]
        for uuid in oldest:
            self.settle(uuid, WorkerCounts())
        return oldest

    def take_note(self) -> None:
        """Mark all removals as acknowledged by a user."""
        self._text = []
        self.alone = {uuid: replace(each, asked=True) for uuid, each in self.alone.items()}
        for each in [each for each in self.sums.values() if not each.asked]:
            del self.sums[each.service, False]
            self.add(each.service, True, each.workers, each.counts)

    def discard(self, begin: Collection[str]) -> list[str]:
        """Drop the records whose uuids begin with one of these first halves; return the dropped uuids."""
        uuids = [uuid for uuid in self.alone if uuid[:16] in begin]
        for uuid in uuids:
            del self.alone[uuid]
        self._text = [] if uuids else self._text
        return uuids

    def copy(self) -> Removals:
        """Return an independent copy."""
        return Removals(dict(self.alone), dict(self.sums), self._text)

    def text(self) -> str:
        """Return the JSON text. The text is cached, because each checkpoint needs it and it rarely changes."""
        if not self._text:
            rows = ([_row(each) for each in of.values()] for of in (self.alone, self.sums))
            self._text.append(plain([*rows]))
        return self._text[0]

    @classmethod
    def of(cls, document: Any) -> Removals:
        """Decode the output of `text`; raise a ValueError if it is invalid."""
        alone, sums = ([_believed(row) for row in rows] for rows in document)
        return cls({each.uuid: each for each in alone}, {(each.service, each.asked): each for each in sums})


def _row(of: RemovedWorker) -> list[Any]:
    return [getattr(of, each.name) for each in fields(RemovedWorker)]


def _believed(row: list[Any]) -> RemovedWorker:
    uuid, took, service, index, coordinates, reason, started_ns, removed_ns, asked, workers, counts = row
    return RemovedWorker(
        unicode(uuid),
        unicode(took),
        unicode(service),
        whole(index, -(2**31), I32_MAX),
        unicode(coordinates),
        whole(reason),
        whole(started_ns),
        whole(removed_ns),
        flag(asked),
        whole(workers, 1),
        WorkerCounts._make(map(whole, counts)),
    )
