"""The world of views: the protocol of a data source, and the status of a daemon.

Owns: the methods that a view may call. Must not know: views, callers, implementations. Invariants: A view builds the
same document from the same workers, whichever world they come from. Importing the protocol imports no implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from brickd.base.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from brickd.analysis.numerics.fingerprints import Numerics
    from brickd.analysis.numerics.online_state import Compared
    from brickd.analysis.problem_book import Book
    from brickd.analysis.state_history import PastState
    from brickd.analysis.timing.alarms import Alarm
    from brickd.analysis.timing.findings import StragglerVerdict
    from brickd.analysis.weights.store import Weights
    from brickd.analysis.weights.verdicts import WeightsVerdict
    from brickd.model.day_slots import DaySlot
    from brickd.model.kernel_sources.store import KnownSources
    from brickd.model.step_texts import StepTexts
    from brickd.model.windows import Window
    from brickd.model.workers import Survey, Worker
    from brickd.shm import _reader
    from brickd.shm.segment_copy import Reading


class DaemonStatus(NamedTuple):
    """The status of a daemon.

    Attributes:
        version: the version of brickd; None if it runs from a source tree.
        started_ns: when the daemon started, since 1970; `uptime_ns` is measured by a monotonic clock.
        checkpoint_problem: why the last checkpoint failed; None if it succeeded.
        loop_still_ns: the time since the daemon's loop last ran.
        broken: the state that the daemon could not restore when it started; None if it restored all state, or had none.
        recording_problem: why the recording cannot be written; None if it can be written, or if there is no recording.
        notify: the counts of each target of alarms.
        metrics_problem: why the file of metrics cannot be written; None if it can be written, or if there is none.
        build: the digest of the daemon's sources; None if unknown, as in a recording.
        flight_recorder: the state of the flight recorder; None if it is off, and in a recording.
    """

    version: str | None
    pid: int
    started_ns: int
    uptime_ns: int
    prefix: str
    checkpoint_problem: str | None = None
    loop_still_ns: int = 0
    broken: str | None = None
    recording_problem: str | None = None
    notify: tuple[dict[str, Any], ...] = ()
    build: str | None = None
    metrics_problem: str | None = None
    flight_recorder: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """Return the status as JSON."""
        return {
            "version": self.version,
            "build": self.build,
            "pid": self.pid,
            "started": rfc3339(self.started_ns),
            "uptime_ns": self.uptime_ns,
            "prefix": self.prefix,
            "checkpoint_problem": self.checkpoint_problem,
            "loop_still_ns": self.loop_still_ns,
            "broken": self.broken,
            "recording_problem": self.recording_problem,
            "metrics_problem": self.metrics_problem,
            "notify": list(self.notify),
            "flight_recorder": self.flight_recorder,
        }


class Details(NamedTuple):
    """What a daemon drained from the span rings of a segment.

    `newest` has the newest slots, and the oldest of these comes first. `longest` has the longest span of each path, as
    (path, duration, start, step, elements).
    """

    newest: bytes
    longest: list[tuple[int, int, int, int, int]]


Source = Literal["shared memory", "daemon", "recording", "several"]


class SegmentInside(Protocol):
    """The readable parts of one segment."""

    @property
    def header(self) -> _reader.Header:
        """The header that the worker wrote."""

    def read(self) -> Reading:
        """Return the content of the segment except its rings."""

    def consumer(self) -> int | None:
        """Return the pid of the process that drains the segment, or None."""

    def control(self) -> _reader.Control:
        """Return the settings that the consumer requests from the worker."""

    def ring(self, lane: int, *, events: bool, newest: int) -> tuple[int, bytes]:
        """Return the position of the first slot, and the slots.

        If more than `newest` slots are available, the older ones may be left out.
        """


class World(Protocol):
    """The data source of a view."""

    @property
    def source(self) -> Source:
        """The kind of data source."""

    def daemon(self) -> DaemonStatus | None:
        """Return the status of the daemon; None if this process reads segments itself."""

    def survey(self) -> Survey:
        """Return all workers as they are at one moment."""

    def window(self, found: Survey, of: Sequence[Worker], length_ns: int) -> Window | None:
        """Return the work of workers in the last `length_ns`, or since the oldest snapshot; None without snapshots."""

    def at_ns(self) -> int:
        """Return when the survey was made, in ns since 1970."""

    def day(self, began_ns: int, ended_ns: int) -> DaySlot | None:
        """Return the work of services in a period (since 1970), as far as it is stored; None if unknown.

        If the period is shorter than a slot, return the slot that contains its middle.
        """

    def day_slots(self, began_ns: int, ended_ns: int, *, work: bool) -> Iterable[DaySlot]:
        """Return the slots of a period (since 1970), the oldest first; `work`: include the work of each worker."""

    def stragglers(self) -> StragglerVerdict | None:
        """Return the stragglers; None if workers are not compared continuously."""

    def alarms(self) -> tuple[Alarm, ...] | None:
        """Return the active alarms; None if workers are not watched."""

    def compared(self) -> Compared | None:
        """Return the differences of workers and the coverage; None if workers are not compared."""

    def problem_book(self) -> Book | None:
        """Return the problems over time; None if no such history is kept."""

    def earlier(self, at_ns: int) -> World | None:
        """Return this data source as it was at a past time; None if it cannot go back, and knows only `past`."""

    def past(self, at_ns: int) -> PastState | None:
        """Return the workers and problems of a past time; None if they are unknown."""

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """Return the available fingerprints of some workers of a survey."""

    def step_texts(self, of: Sequence[Worker]) -> StepTexts:
        """Return the known texts of steps, at least those of these workers; `numerics` copies more."""

    def weights(self, of: Sequence[Worker]) -> Weights:
        """Return the weights of workers. `numerics` returns the weights too, but it copies more."""

    def weighed(self, found: Survey) -> Sequence[WeightsVerdict]:
        """Return the verdicts on the weights of a survey's workers, for services that watch weights."""

    def sources(self, of: Sequence[Worker]) -> KnownSources:
        """Return the known sources of kernels, at least those of these workers."""

    def files(self) -> Sequence[str]:
        """Return the names of all files that may be inspected, whatever their prefix is."""

    def segment(self, file: str) -> AbstractContextManager[SegmentInside]:
        """Open a segment by the name of its file. The caller must not close the segment."""

    def details(self, uuid: str) -> Details | None:
        """Return the details drained from a segment's rings; None if this process does not drain rings."""
