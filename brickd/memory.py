"""What a daemon alone knows: how far it has read, deferred work, who is called what, the totals of the dead.

Owns: that state, and its form as a document. Must not know: how it is kept in a file, how it changes. Invariants: what
is in a segment is not here and what is here is in no segment, so that the two together count everything once; a worker
is known by its uuid; all of it is limited.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from brickd import _reader, kept
from brickd.deferred import Deferred
from brickd.overlay import Overlay, overlay
from brickd.segment import Reading


class Cursor(NamedTuple):
    """How far the rings of one lane were read.

    Attributes:
        span: slots of the span ring.
        event: slots of the event ring.
        events: records among these.
        sequence: the number of the last of them.
        spans_lost: details that were read by a daemon that is gone.
    """

    span: int
    event: int
    events: int
    sequence: int
    spans_lost: int


@dataclass(slots=True)
class Known:
    """A worker whose segment is there.

    Attributes:
        name: what it is called, also after others have come and gone.
        cursors: by lane.
        deferred: what it has handed to devices.
        finalizes_dropped: as far as `deferred` was told of them.
    """

    name: str = ""
    cursors: list[Cursor] = field(default_factory=list)
    deferred: Deferred = field(default_factory=Deferred)
    finalizes_dropped: int = 0


@dataclass(slots=True)
class Gone:
    """A worker whose segment was removed, or several of a service in one.

    Attributes:
        name: what it was called.
        reading: the last one of its segment, deferred work included.
        workers: how many these are.
    """

    name: str
    reading: Reading
    workers: int = 1

    def and_(self, other: Gone) -> Gone:
        """Both in one, which has nobody's own name any more."""
        header = {**self.reading.header, "index": -1, "coordinates": b""}
        reading = replace(kept.added(self.reading, other.reading), header=cast("_reader.Header", header))
        return Gone(f"{reading.service}/older", reading, self.workers + other.workers)


class Wish(NamedTuple):
    """What the operator wants of a service's workers: their span rings on, nothing recorded."""

    spans: bool = False
    off: bool = False


@dataclass(frozen=True, slots=True)
class Background:
    """What stands beside the segments when all workers are looked at, by uuid."""

    names: dict[str, str] = field(default_factory=dict)
    overlays: dict[str, Overlay] = field(default_factory=dict)
    gone: dict[str, Gone] = field(default_factory=dict)


@dataclass(slots=True)
class Memory:
    """All of it.

    Attributes:
        prefix: what the names of the segments begin with.
        known: by uuid.
        gone: by uuid, in the order in which they went.
        older: those that went before these, by service and clock.
        wishes: by service.
        newest_event: the number of the last thing that was told.
    """

    prefix: str
    known: dict[str, Known] = field(default_factory=dict)
    gone: dict[str, Gone] = field(default_factory=dict)
    older: dict[str, Gone] = field(default_factory=dict)
    wishes: dict[str, Wish] = field(default_factory=dict)
    newest_event: int = 0

    def names(self) -> dict[str, str]:
        """Who is called what, by uuid."""
        names = {uuid: known.name for uuid, known in self.known.items() if known.name}
        gone = [*self.gone.values(), *self.older.values()]
        return names | {each.reading.uuid: each.name for each in gone if each.name}

    def background(self) -> Background:
        """A copy of what belongs beside the segments."""
        overlays = {uuid: over for uuid, known in self.known.items() if (over := overlay(known.deferred)) is not None}
        gone = self.gone | {each.reading.uuid: each for each in self.older.values()}
        return Background(self.names(), overlays, gone)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "prefix": self.prefix,
            "known": {
                uuid: [each.name, each.cursors, each.deferred.document(), each.finalizes_dropped]
                for uuid, each in self.known.items()
            },
            "gone": _documents(self.gone),
            "older": _documents(self.older),
            "wishes": self.wishes,
            "newest_event": self.newest_event,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> Memory:
        """What `document` said."""
        return cls(
            prefix=document["prefix"],
            known={
                uuid: Known(name, [Cursor(*each) for each in cursors], Deferred.of(deferred), dropped)
                for uuid, (name, cursors, deferred, dropped) in document["known"].items()
            },
            gone=_all_gone(document["gone"]),
            older=_all_gone(document["older"]),
            wishes={service: Wish(*wish) for service, wish in document["wishes"].items()},
            newest_event=document["newest_event"],
        )


def _documents(gone: dict[str, Gone]) -> dict[str, Any]:
    return {key: [each.name, kept.document(each.reading), each.workers] for key, each in gone.items()}


def _all_gone(documents: dict[str, Any]) -> dict[str, Gone]:
    return {key: Gone(name, kept.reading(reading), workers) for key, (name, reading, workers) in documents.items()}
