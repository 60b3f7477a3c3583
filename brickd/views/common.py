"""Answers: what every view gives back.

Owns: what all documents begin with, which workers a view is asked about and over what time, what is said beside a
document. Must not know: any view, who asks. Invariants: where our user has no segments and others have some, the answer
says whose they are; other users' segments change no document and no exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from brickd.base.users import others_have
from brickd.datasources.world import Source, World
from brickd.errors import BrickdError, NoDaemon
from brickd.model.workers import Survey, Worker, select
from brickd.query.query import SLOTS, START

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A document, and notes for a person (`words`)."""

    document: Document
    words: tuple[str, ...] = ()


class ChosenWorkers(NamedTuple):
    """The survey, the workers that are chosen, and notes about the rest."""

    survey: Survey
    workers: list[Worker]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """Workers whose readings hold what they recorded over a time.

    Attributes:
        over: that time, as it was asked for.
        length_ns: how long that really is; None: since the start, which differs by worker.
    """

    workers: list[Worker]
    over: str = START
    length_ns: int | None = None

    def document(self) -> Document:
        """As JSON has it."""
        return {"over": self.over, "over_ns": self.length_ns}


class Sourced(Protocol):
    """What documents are built from."""

    @property
    def source(self) -> Source:
        """Where what it shows comes from."""
        ...


def begun(world: Sourced) -> Document:
    """What every document begins with."""
    return {"schema_version": 1, "source": world.source}


def chosen(world: World, names: Sequence[str]) -> ChosenWorkers:
    """The workers that are named; all if none is.

    Raises:
        NoSuchWorker: a name that no worker and no service has.
    """
    found = world.survey()
    services = {each.service for each in found.removed}
    workers = select(found.workers, names, foreign=found.foreign, services=services)
    return ChosenWorkers(found, workers, found.words + foreign_words(found))


def counted(world: World, found: ChosenWorkers, over: str | None) -> Counted:
    """The chosen workers with what they recorded over a time.

    `over` None: the last 60 seconds if they are known, else since the start.

    Raises:
        NoDaemon: without a daemon there are no windows.
    """
    if over == START:
        return Counted(found.workers)
    length = over or "60s"
    window = world.window(found.survey, found.workers, SLOTS[length])
    if window is not None:
        return Counted(window.workers, length, window.length_ns)
    if over is None:
        return Counted(found.workers)
    if world.source == "shared memory":
        raise NoDaemon(f"no daemon has looked at the workers {length} ago (start one: brickd up -d; or --over {START})")
    raise BrickdError(
        f"there is only one snapshot of the workers, and two are needed for the last {length}: --over {START}"
    )


def foreign_words(found: Survey) -> tuple[str, ...]:
    """Whose segments there are, where none is ours."""
    if found.foreign and not (found.workers or found.refused or found.removed):
        return (others_have(found.foreign),)
    return ()
