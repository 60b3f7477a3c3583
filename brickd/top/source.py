"""Where the documents of the screen come from: the daemon, shared memory without a daemon, or a recording.

Owns: the choice between them, a request to a view, the two looks of `hang`. Must not know: screens, when it is asked.
Invariants: A recording is opened once. A request for a time is answered from that time: by the query's own `at` on a
machine, by an earlier snapshot in a recording. An interrupted reading changes nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from brickd.base.units import SECOND
from brickd.errors import NoDaemon
from brickd.query.queries import HistoryQuery
from brickd.query.query import Query
from brickd.views import fetch_answer
from brickd.views.fetch_answer import FetchedAnswer

if TYPE_CHECKING:
    from brickd.datasources.world import World
    from brickd.query.queries import EventsQuery, HangQuery
    from brickd.recording.body_codec import Shown
    from brickd.recording.chunks import RingRecords
    from brickd.recording.file_index import FileIndex
    from brickd.recording.replay import Replay
    from brickd.views.common import Answer


_Read = TypeVar("_Read")

_SILENT_SECONDS = 10.0  # a silent daemon delays an answer by 5 s, so each of them would be late


class Request(NamedTuple):
    """A request to a view. `at` is the shown time of a recording in seconds since 1970; None is its end."""

    view: str
    query: Query
    at: float | None = None


class InterruptionError(Exception):
    """The reading of a recording ended early, because its answer is no longer wanted."""


class DocumentSource(Protocol):
    """Answers requests. A request may raise any error of the views and of the client, and InterruptionError.

    Attributes:
        recorded: whether this is a recording.
        stops: whether a long reading ends early; it is called often while a recording is read.
    """

    recorded: bool
    stops: Callable[[], bool]

    def together(self) -> AbstractContextManager[object]:
        """Return a context whose answers are about the same moment, if this process reads the data itself."""
        ...

    def answer(self, request: Request) -> FetchedAnswer:
        """Answer a request."""
        ...

    def newest(self) -> float:
        """Return the time of the newest data, in seconds since 1970."""
        ...


class LiveSource:
    """This machine, now. A daemon that exists but does not answer is asked again only after some seconds."""

    recorded = False

    def __init__(self, rest_seconds: float = _SILENT_SECONDS) -> None:
        """Rest for this time before a silent daemon is asked again."""
        self.stops: Callable[[], bool] = lambda: False  # a request to a daemon has a time limit
        self._rest_seconds = rest_seconds
        self._silent: tuple[float, str] | None = None  # until when the daemon is not asked, and why
        self._shares = False  # whether the answers are about the same moment
        self._memory: World | None = None  # what they have read

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Read the segments once for all answers in this context."""
        self._shares = True
        try:
            yield
        finally:
            self._shares, self._memory = False, None  # a survey of thousands of bricks takes megabytes

    def _read(self, view: str) -> World:
        from brickd.datasources.shared_memory import SharedMemory, SurveyedOnce

        if not self._shares or view == "hang":  # `hang` waits, and then reads the segments again
            return SharedMemory()
        self._memory = self._memory or SurveyedOnce()
        return self._memory

    def answer(self, request: Request) -> FetchedAnswer:
        """Ask the daemon, or read shared memory if no daemon answers."""
        own = {"hang": watched.__name__, "events": logged.__name__}.get(request.view)
        view = f"brickd.views.{request.view}:answer" if own is None else f"{__name__}:{own}"
        memory = partial(self._read, request.view)
        if self._silent is not None and time.monotonic() < self._silent[0]:
            answer = fetch_answer.from_shared_memory(view, request.query, memory)
            return FetchedAnswer(answer.document, (self._silent[1], *answer.words))
        seconds: float = getattr(request.query, "watch", 0.0)
        found = fetch_answer.find(request.view, request.query, view=view, seconds=seconds, memory=memory)
        if found.missing is not None and not found.missing.ended:
            self._silent = time.monotonic() + self._rest_seconds, found.words[0]
        return found

    def newest(self) -> float:
        """Return the present time."""
        return time.time()


def _function(view: str) -> Any:
    module, _, function = view.partition(":")
    return getattr(importlib.import_module(module), function)


def watched(world: World, query: HangQuery) -> Answer:
    """Read the open spans twice without a daemon."""
    from brickd.views import hang

    before = hang.look(world, query)
    if before.workers:
        time.sleep(query.watch)
    return hang.answer(world, query, before)


def logged(world: World, query: EventsQuery) -> Answer:
    """Raise NoDaemon: without a daemon, no events are logged."""
    raise NoDaemon("the log of events needs a daemon (start one: brickd up -d)")


class RecordingSource:
    """A recording that is open."""

    recorded = True

    def __init__(self, replay: Replay) -> None:
        self.stops: Callable[[], bool] = lambda: False
        self._replay = replay
        self._earlier: tuple[float, Replay] | None = None  # the time that was shown last, because panels share it

    def together(self) -> AbstractContextManager[object]:
        """Do nothing: a recording does not change."""
        return contextlib.nullcontext()

    def answer(self, request: Request) -> FetchedAnswer:
        """Answer from the snapshot at the requested time."""
        from brickd.views.next_command import rewritten

        function = "of_recording" if request.view == "hang" else "answer"
        replay = self._shown(request.at)
        interruptible = replay.through(lambda file: cast("FileIndex", InterruptibleFile(file, self.stops)))
        if isinstance(request.query, HistoryQuery) and request.view == "histories":
            from brickd.views.history import of_each

            return FetchedAnswer({"histories": of_each(interruptible, request.query)}, ())
        answer: Answer = _function(f"brickd.views.{request.view}:{function}")(interruptible, request.query)
        return FetchedAnswer(
            rewritten({**answer.document, "recording": replay.document()}), replay.words() + answer.words
        )

    def _shown(self, at: float | None) -> Replay:
        if at is None:
            return self._replay
        if self._earlier is None or self._earlier[0] != at:
            self._earlier = at, self._replay.at(round(at * SECOND))
        return self._earlier[1]

    def newest(self) -> float:
        """Return the time of the last snapshot."""
        return self._replay.at_ns() / SECOND


class InterruptibleFile:
    """A file of a recording that is read only as long as the answer is wanted: the records of a day take seconds."""

    def __init__(self, file: FileIndex, stops: Callable[[], bool]) -> None:
        self._file, self._stops = file, stops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def records(self, uuids: Set[str]) -> Iterator[tuple[str, RingRecords]]:
        """Yield the records of workers, until the answer is no longer wanted."""
        return self._while_wanted(self._file.records(uuids))

    def snapshots(self) -> Iterator[Shown]:
        """Yield the snapshots, until the answer is no longer wanted."""
        return self._while_wanted(self._file.snapshots())

    def snapshots_of(self, began_ns: int, ended_ns: int) -> Iterator[Shown]:
        """Yield the snapshots of a period, until the answer is no longer wanted."""
        return self._while_wanted(self._file.snapshots_of(began_ns, ended_ns))

    def _while_wanted(self, found: Iterator[_Read]) -> Iterator[_Read]:
        """Yield what a file has.

        Raises:
            InterruptionError: the answer is no longer wanted.
        """
        for each in found:
            if self._stops():
                raise InterruptionError
            yield each


@contextlib.contextmanager
def opened(recordings: Sequence[str]) -> Iterator[DocumentSource]:
    """Yield the source of these recordings; without a recording, that of this machine."""
    if not recordings:
        yield LiveSource()
        return
    from brickd.recording.replay import opened as opened_recording

    with opened_recording(recordings) as replay:
        yield RecordingSource(replay)
