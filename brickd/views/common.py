"""The parts shared by all views: the answer, the chosen workers and period, the first keys of a document.

Owns: the first keys, the choices, the notes next to a document. Must not know: single views, callers. Invariants: If
only other users have segments, the answer names these users. Segments of other users never change a document or an exit
code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from brickd.base.units import NO_WORKERS, NONE_RECORDED, SECOND, duration
from brickd.base.users import others_have
from brickd.datasources.world import Source, World
from brickd.errors import BrickdError, NoDaemon
from brickd.model.survey_snapshot import EVERY_NS
from brickd.model.workers import Survey, Worker, select
from brickd.query.query import OVER, START

Document = dict[str, Any]


class Answer(NamedTuple):
    """A document, and notes for the user (`words`)."""

    document: Document
    words: tuple[str, ...] = ()


class ChosenWorkers(NamedTuple):
    """The survey, the chosen workers, and notes about the other workers."""

    survey: Survey
    workers: list[Worker]
    words: tuple[str, ...]


class Counted(NamedTuple):
    """Workers whose readings contain the records of a period.

    Attributes:
        over: the period, as in the query.
        length_ns: the real length of the period; None if it began at each worker's start.
        words: why the real length differs from the length in the query.
    """

    workers: list[Worker]
    over: str = START
    length_ns: int | None = None
    words: tuple[str, ...] = ()

    def document(self) -> Document:
        """The keys of the document that describe the period."""
        return {"over": self.over, "over_ns": self.length_ns}


class Sourced(Protocol):
    """An object that has data for documents."""

    @property
    def source(self) -> Source:
        """The source of the data."""
        ...


def begun(world: Sourced) -> Document:
    """The first keys of every document."""
    return {"schema_version": 1, "source": world.source}


def no_workers(world: Sourced) -> str:
    """The reason why no workers are shown."""
    return NONE_RECORDED if world.source == "recording" else NO_WORKERS


def chosen(world: World, names: Sequence[str]) -> ChosenWorkers:
    """Choose the named workers, or all workers if no name is given.

    Raises:
        NoSuchWorker: no worker and no service has one of the names.
    """
    found = world.survey()
    services = {each.service for each in found.removed}
    workers = select(found.workers, names, foreign=found.foreign, services=services)
    return ChosenWorkers(found, workers, found.words + foreign_words(found))


def counted(world: World, found: ChosenWorkers, over: float | str | None) -> Counted:
    """Return the chosen workers with what they recorded in a period.

    The default (`over` is None) is the last 60 seconds if there are windows, else the time since each worker's start.

    Raises:
        NoDaemon: the query names a period, but there is no daemon, so there are no windows.
    """
    if over == START:
        return Counted(found.workers)
    seconds = OVER.most if over is None else float(over)
    length = OVER.write(seconds)
    window = world.window(found.survey, found.workers, round(seconds * SECOND))
    if window is not None:
        words = () if over is None else _other_length(length, round(seconds * SECOND), window.length_ns)
        return Counted(window.workers, length, window.length_ns, words)
    if over is None:
        return Counted(found.workers)
    if world.source == "shared memory":
        raise NoDaemon(
            f"the totals of the last {length} need a daemon that has run for that time"
            f" (start one: brickd up -d; or use --over {START})"
        )
    raise BrickdError(f"there is 1 snapshot of the workers, expected 2 to count the last {length}: use --over {START}")


def _other_length(over: str, asked_ns: int, length_ns: int) -> tuple[str, ...]:
    """Explain why a window is shorter or longer than the period in the query; () if its length is right."""
    if abs(asked_ns - length_ns) < SECOND:
        return ()
    why = f"a window begins at the nearest snapshot, and a snapshot is taken every {EVERY_NS // SECOND} s"
    return (f"over {over} counts the last {duration(length_ns)}: {why}",)


def foreign_words(found: Survey) -> tuple[str, ...]:
    """Name the owners of the segments, if all segments belong to other users."""
    if found.foreign and not (found.workers or found.refused or found.removed):
        return (others_have(found.foreign),)
    return ()
