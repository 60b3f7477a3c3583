"""The source of an answer: the daemon, shared memory without a daemon, or recordings.

Owns: the choice of the source. Must not know: individual views, the client's protocol, screens. Invariants: The
document is the same from every source. If a daemon exists but does not answer, this is always reported. If a daemon
answers, modules that read segments or build views are not loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from brickd.client import client
from brickd.client.client import NoAnswer, TurnedAway
from brickd.errors import BrickdError, NoSuchWorker
from brickd.query.query import Query, parameters, to_query
from brickd.views.next_command import rewritten

if TYPE_CHECKING:
    from brickd.datasources.world import World
    from brickd.query.queries import HistoryQuery
    from brickd.recording.replay import Replay
    from brickd.views.common import Answer, Document

Passes = Callable[[float], object]  # waits for some seconds; returns true if the answer has arrived
Reads = Callable[[str, int, int], None]  # (file, bytes read, total bytes)
Reading = Callable[[], AbstractContextManager[Reads]]


def silent() -> AbstractContextManager[Reads]:
    """Return a progress display that shows nothing."""
    return nullcontext(lambda path, at, of: None)


class Missing(NamedTuple):
    """Why a daemon did not answer, and whether it is certain that the daemon has ended."""

    what: str
    ended: bool


class FetchedAnswer(NamedTuple):
    """An answer.

    Attributes:
        words: notes for stderr.
        missing: the daemon that did not answer; None if it answered, or if there is none.
    """

    document: Document
    words: tuple[str, ...]
    missing: Missing | None = None


def find(
    name: str,
    query: Query,
    *,
    recordings: Sequence[str] | None = (),
    view: str | None = None,
    seconds: float = 0.0,
    meanwhile: Callable[[Passes], None] | None = None,
    reading: Reading = silent,
    memory: Callable[[], World] | None = None,
) -> FetchedAnswer:
    """Answer a query.

    Args:
        name: the name that the daemon uses for the view.
        query: the query.
        recordings: if any are given, they are the only source. None: the verb takes no recordings.
        view: the function that builds the document in this process, as MODULE:FUNCTION; the default is `answer` of the
            view `name`.
        seconds: how long the daemon waits before it answers.
        meanwhile: a function that waits for that time.
        reading: shows the progress of reading recordings.
        memory: returns what is read if no daemon answers; None for a new survey of shared memory.
    """
    view = view or f"brickd.views.{name}:answer"
    with nullcontext() if recordings is None else _naming_files(query):
        if recordings:
            with recorded(recordings, reading) as find_recorded:
                return find_recorded(view, query)
        missing = None
        try:
            pending = client.ask(name, to_query(query), seconds=seconds)
            if meanwhile is not None:
                meanwhile(pending.arrives)
            return received(pending.document())
        except NoAnswer as error:
            # There is no daemon, or it drains other segments. Neither case is an error here.
            if error.why not in ("none", "elsewhere"):
                missing = Missing(error.what, ended=error.why == "stale")
        except TurnedAway as error:
            missing = Missing(str(error), ended=False)
        here = from_shared_memory(view, query, memory)
        # Only `status --check` reports a daemon that has ended.
        notes = (f"{missing.what}; shared memory is read instead",) if missing is not None and not missing.ended else ()
        return FetchedAnswer(here.document, notes + here.words, missing)


def from_shared_memory(view: str, query: Query, memory: Callable[[], World] | None = None) -> Answer:
    """Answer a query without a daemon; `view` is MODULE:FUNCTION, and `memory` is that of `find`."""
    from brickd.datasources.shared_memory import SharedMemory

    return _answer(view)(SharedMemory() if memory is None else memory(), query)


@contextmanager
def _naming_files(query: Query) -> Iterator[None]:
    """If an unknown name is that of a file that is not a recording, say this in the error."""
    try:
        yield
    except NoSuchWorker as error:
        from brickd.recording.mistaken_files import named_files

        given = [getattr(query, name) for name, each in parameters(type(query)).items() if each.positional]
        words = (word for value in given for word in (value if isinstance(value, tuple) else [value]))
        raise NoSuchWorker(named_files(words) + str(error)) from None


@contextmanager
def recorded(recordings: Sequence[str], reading: Reading = silent) -> Iterator[RecordedAnswers]:
    """Open recordings; yield what answers queries from them."""
    from brickd.recording.replay import opened

    with reading() as reads, opened(recordings, reads) as world:
        yield RecordedAnswers(world)


class RecordedAnswers:
    """Answers queries from open recordings."""

    def __init__(self, world: Replay) -> None:
        self._world = world

    def __call__(self, view: str, query: Query) -> FetchedAnswer:
        """Answer a query; `view` is MODULE:FUNCTION."""
        return self._fetched(_answer(view)(self._world, query))

    def histories(self, query: HistoryQuery, bricks: Sequence[str]) -> dict[str, FetchedAnswer | BrickdError]:
        """Return the history of each brick, or the error in place of it. The recordings are read only once."""
        from brickd.views.history import of_bricks

        found = of_bricks(self._world, query, bricks).items()
        return {brick: each if isinstance(each, BrickdError) else self._fetched(each) for brick, each in found}

    def _fetched(self, answer: Answer) -> FetchedAnswer:
        document = rewritten({**answer.document, "recording": self._world.document()})
        return FetchedAnswer(document, self._world.words() + answer.words)


def _answer(view: str) -> Callable[[World, Query], Answer]:
    module, _, function = view.partition(":")
    answer: Callable[[World, Query], Answer] = getattr(importlib.import_module(module), function)
    return answer


def received(document: dict[str, Any]) -> FetchedAnswer:
    """Return the answer that a daemon sent."""
    return FetchedAnswer(document, tuple(document.pop("words", ())))
