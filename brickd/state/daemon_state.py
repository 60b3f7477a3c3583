"""The state of a daemon: its workers, totals of removed segments, orders, findings.

Owns: the daemon's state, and how it is written as a document. Must not know: how the state is stored in a file, when it
changes. Invariants: The state has no totals of segments that are still being read. So the state and the segments
together count everything once. A worker is identified by its uuid. Everything is limited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from brickd.analysis import evidence_news
from brickd.analysis.numerics import online_codec
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.problem_book import Book
from brickd.analysis.state_history import StateHistory
from brickd.base.json_values import flag, listed, pieces, plain, text, unicode, whole
from brickd.base.thresholds import Thresholds
from brickd.model.background import Background
from brickd.model.deferred_overlay import overlay
from brickd.model.exported_series import ExportedSeries
from brickd.model.kernel_sources.store import Sources
from brickd.model.retained_workers import RetainedTotals, RetainedWorker
from brickd.query.orders import Wish
from brickd.shm import segment_codec
from brickd.shm.ledger import ledger_of
from brickd.shm.removed_workers import OTHERS, Removals, RemovedWorker, WorkerCounts

OLDER_MAX = 64  # the limit of sums of former workers, by service and clock
BURIED_MAX = 4_096
_EVENTS_MAX = 2**62  # the limit for the saved number, which leaves room for further events


@dataclass(slots=True)
class Memory:
    """The state of a daemon.

    Attributes:
        known: the workers with a segment, by uuid.
        gone: the totals of removed segments by uuid, in the order of removal.
        older: the sums of totals of segments that were removed earlier, by service and clock.
        buried: uuids that must not be counted again, because their workers were merged into sums or forgotten, or
            because their segments cannot be removed.
        wishes: the settings of workers, by service.
        newest_event: the number of the last event.
        closed: whether the daemon ended cleanly, so that no events followed.
        sources: the sources of kernels that are in no file.
        removed: the workers whose segments were removed and which no total includes.
        thresholds: the thresholds of alarms.
        problems: the book of problems.
        history: the workers and problems of past times.
        unproven: the services and classes of evidence that were reported as unproven.
        exported: the bricks that have their own series in the metrics.
    """

    prefix: str
    known: dict[str, RetainedWorker] = field(default_factory=dict)
    gone: dict[str, RetainedTotals] = field(default_factory=dict)
    older: dict[str, RetainedTotals] = field(default_factory=dict)
    buried: list[str] = field(default_factory=list)
    wishes: dict[str, Wish] = field(default_factory=dict)
    newest_event: int = 0
    closed: bool = True
    compared: Compared = field(default_factory=Compared)
    sources: Sources = field(default_factory=Sources, compare=False)
    removed: Removals = field(default_factory=Removals)
    thresholds: Thresholds = Thresholds()  # noqa: RUF009
    problems: Book = field(default_factory=Book)
    history: StateHistory = field(default_factory=StateHistory)
    unproven: Collection[evidence_news.About] = frozenset()
    exported: ExportedSeries = ExportedSeries()  # noqa: RUF009

    def add_up(self, gone: RetainedTotals) -> RetainedTotals:
        """Add totals to the sum of their service.

        If there are too many sums, add them to a common sum. Return the sum that now includes the totals.
        """
        self.bury(*self.removed.settle(gone.reading.uuid, _counts(gone)))
        key = f"{gone.reading.service}/{gone.reading.clock}"
        if key not in self.older and len(self.older) >= OLDER_MAX:
            key = f"/{gone.reading.clock}"
            gone = gone.of_service(OTHERS)
        into = self.older.get(key)
        self.older[key] = gone if into is None else into.and_(gone)
        return self.older[key]

    def bury(self, *uuids: str) -> None:
        """Never count these uuids again."""
        buried = set(self.buried)
        self.buried = [*self.buried, *(uuid for uuid in uuids if uuid not in buried)][-BURIED_MAX:]

    def fold(self, found: Iterable[RemovedWorker], taken: Collection[str] = ()) -> list[RemovedWorker]:
        """Add records of removed workers. Return the records of workers that had no record yet.

        `taken`: the first halves of the uuids of lost segments. Their workers continue in other segments, and these
        other segments are drained.
        """
        found, buried = list(found), set(self.buried)
        gone_on = {each.took for each in (*found, *self.removed.alone.values())}.union(taken)
        gone_on.update(each.reading.lost for each in self.gone.values())
        new = self.removed.fold(each for each in found if each.uuid not in buried and each.uuid[:16] not in gone_on)
        self.supersede(gone_on)
        return new

    def supersede(self, begin: Collection[str]) -> None:
        """Drop the records whose uuids begin with one of these halves: their workers continue in other segments."""
        self.bury(*self.removed.discard(begin))

    def limit_removed(self) -> None:
        """Move the oldest removed workers above the limit to sums; later records of these workers are ignored."""
        self.bury(*self.removed.limit(self.known.keys() | self.gone.keys()))

    def drop(self, gone: RetainedTotals) -> None:
        """Count totals as removed, because a user asked to hide them."""
        counts = _counts(gone)
        if gone.workers == 1:
            self.bury(
                *self.removed.settle(gone.reading.uuid, counts)
            )  # the counts in the worker's record that are not in its totals
        self.removed.add(gone.reading.service, True, gone.workers, counts)

    def forget(self, uuids: Collection[str] | None = None) -> int:
        """Drop totals and findings of these dead workers, or of all; return how many workers were dropped."""

        def is_meant(each: RetainedTotals) -> bool:
            return uuids is None or each.reading.uuid in uuids

        dropped = [each for each in (*self.gone.values(), *self.older.values()) if is_meant(each)]
        for each in dropped:
            self.drop(each)
        departed = {uuid for uuid, each in self.gone.items() if is_meant(each)}
        added_up = {each.reading.service for each in self.older.values() if is_meant(each)}
        self.gone = {uuid: each for uuid, each in self.gone.items() if uuid not in departed}
        self.older = {key: each for key, each in self.older.items() if not is_meant(each)}
        # A sum does not contain the uuids of its workers.
        there = self.known.keys() | self.gone.keys()
        compared = self.compared
        places = [(place, set(finding.workers)) for place, finding in compared.findings.items()]
        places += [(place, set(doubt.workers)) for place, doubt in compared.doubts.items()]
        departed |= {
            uuid
            for place, workers in places
            if uuids is None or place.service in added_up
            for uuid in workers
            if uuid not in there
        }
        self.compared = replace(
            compared,
            findings={
                place: each
                for place, each in compared.findings.items()
                if not self.known.keys().isdisjoint(each.named)
                or (uuids is not None and departed.isdisjoint(each.named))
            },
        ).without(departed)
        return sum(each.workers for each in dropped)

    def names(self) -> dict[str, str]:
        """Return the names of workers, by uuid; sums have no name."""
        names = {uuid: known.name for uuid, known in self.known.items() if known.name}
        gone = [each for each in (*self.gone.values(), *self.older.values()) if each.workers == 1]
        return names | {each.reading.uuid: each.name for each in gone if each.name}

    def background(self) -> Background:
        """Return a copy of the part of the state that a survey needs in addition to the segments."""
        overlays = {uuid: over for uuid, known in self.known.items() if (over := overlay(known.deferred)) is not None}
        begun = {uuid[:16]: uuid for uuid in (*self.known, *self.gone)}
        files = {uuid: known.file for uuid, known in self.known.items() if known.file is not None}
        older = tuple(self.older.values())
        names = {each.reading.uuid: each.name for each in older} | self.names()
        removed = self.removed.copy()
        return Background(
            names, begun, files, overlays, dict(self.gone), older, frozenset(self.buried), removed=removed
        )

    def copy(self) -> Memory:
        """Return a copy that shares the known workers. Only the thread that changes the known workers may call this."""
        return replace(
            self,
            known=dict(self.known),
            gone=dict(self.gone),
            older=dict(self.older),
            removed=self.removed.copy(),
            wishes=dict(self.wishes),
        )

    def pieces(self) -> Iterator[str]:
        """Return the JSON text in pieces."""
        gone = [each.reading for each in (*self.gone.values(), *self.older.values())]
        return pieces(
            {
                "prefix": [plain(self.prefix)],
                "known": pieces({uuid: each.pieces() for uuid, each in self.known.items()}),
                "buried": [plain(self.buried)],
                "removed": [self.removed.text()],
                "wishes": [plain(self.wishes)],
                "thresholds": [plain(self.thresholds.changed())],
                "newest_event": [plain(self.newest_event)],
                "closed": [plain(self.closed)],
                "problems": [plain(self.problems.rows())],
                "history": [plain(self.history.plain())],
                "unproven": [plain(evidence_news.plain(self.unproven))],
                "exported": [plain(self.exported.plain())],
                "compared": online_codec.encode(self.compared),
                "sources": self.sources.pieces(),
                **{what: [text] for what, text in segment_codec.SharedTables.over(gone).texts().items()},
                "gone": pieces({uuid: [each.text()] for uuid, each in self.gone.items()}),
                "older": pieces({key: [each.text()] for key, each in self.older.items()}),
            }
        )

    @classmethod
    def of(cls, document: dict[str, Any]) -> Memory:
        """Decode the output of `pieces`. An invalid document may raise any exception."""
        tables = segment_codec.SharedTables.of(document)
        return cls(
            prefix=text(document["prefix"]),
            known={unicode(uuid): RetainedWorker.of(*known) for uuid, known in document["known"].items()},
            gone=_all_gone(document["gone"], tables),
            older=_all_gone(document["older"], tables),
            buried=[unicode(uuid) for uuid in listed(document["buried"], BURIED_MAX)],
            removed=Removals.of(document["removed"]) if "removed" in document else Removals(),
            wishes={unicode(service): Wish.of(wish) for service, wish in document["wishes"].items()},
            thresholds=Thresholds.of(document.get("thresholds", {})),
            newest_event=whole(document["newest_event"], most=_EVENTS_MAX),
            closed=flag(document["closed"]),
            problems=Book.of(document["problems"]) if "problems" in document else Book(),
            history=StateHistory.of(document["history"]) if "history" in document else StateHistory(),
            unproven=evidence_news.of_document(document.get("unproven", [])),
            exported=ExportedSeries.of(document["exported"]) if "exported" in document else ExportedSeries(),
            compared=online_codec.decode(document["compared"]) if "compared" in document else Compared(),
            sources=Sources.of(document["sources"]) if "sources" in document else Sources(),
        )


def _counts(gone: RetainedTotals) -> WorkerCounts:
    return ledger_of(gone.reading).counts()


def _all_gone(documents: dict[str, Any], tables: segment_codec.SharedTables) -> dict[str, RetainedTotals]:
    return {
        unicode(key): RetainedTotals(unicode(name), segment_codec.reading(reading, tables), whole(workers, 1))
        for key, (name, reading, workers) in documents.items()
    }
