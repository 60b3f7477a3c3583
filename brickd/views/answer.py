"""Answers: what every view gives back.

Owns: what all documents begin with, which workers a view is asked about, what is said beside a document. Must not know:
any view, who asks. Invariants: what was not read is said; where nothing may be read, nobody is told that nothing is
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from brickd.errors import NotPermitted
from brickd.workers import Survey, Worker, select, unread
from brickd.world import World

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A document, and what is to be said to a person beside it."""

    document: Document
    words: tuple[str, ...] = ()


class Chosen(NamedTuple):
    """All that is there, the workers that are meant, and what is to be said of the rest."""

    survey: Survey
    workers: list[Worker]
    words: tuple[str, ...]


def begun(world: World) -> Document:
    """What every document begins with."""
    return {"schema_version": 1, "source": world.source}


def chosen(world: World, names: Sequence[str]) -> Chosen:
    """The workers that are meant: everybody when nothing is named.

    Raises:
        NoSuchWorker: a name that nobody has.
        NotPermitted: nothing is named, and all that is there belongs to others.
    """
    found = world.survey()
    if not names:
        require_readable(found)
    workers = select(found.workers, names, foreign=found.foreign)
    foreign = (unread(found.foreign),) if found.foreign else ()
    return Chosen(found, workers, found.words + foreign)


def require_readable(found: Survey) -> None:
    """Refuse to go on where there are segments and none may be read: that is not the same as nothing.

    Raises:
        NotPermitted: all that is there belongs to others.
    """
    if found.foreign and not found.workers and not found.refused:
        raise NotPermitted(unread(found.foreign))
