"""The world of views: the protocol of a data source, and the status of a daemon.

Owns: the methods that a view may call. Must not know: views, callers, implementations. Invariants: a view builds the
same document from the same workers in any world; importing the protocol imports no implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from brickd.base.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from brickd.analysis.numerics.fingerprints import Numerics
    from brickd.analysis.numerics.online_state import Compared
    from brickd.analysis.problem_book import Book
    from brickd.analysis.timing.alarms import Alarm
    from brickd.analysis.timing.findings import StragglerVerdict
    from brickd.analysis.weights.store import Weights
    from brickd.analysis.weights.verdicts import WeightsVerdict
    from brickd.model.kernel_sources.store import KnownSources
    from brickd.model.windows import Window
    from brickd.model.workers import Survey, Worker
    from brickd.shm import _reader
    from brickd.shm.segment_copy import Reading


class DaemonStatus(NamedTuple):
    """The status of a daemon.

    Attributes:
        version: the version of brickd; None if it runs from a source tree.
        started_ns: since 1970; `uptime_ns` is by a monotonic clock.
        checkpoint_problem: why its last checkpoint failed; None: it did not fail.
        loop_still_ns: the time since the loop's last round.
        broken: the state that it could not restore at its start; None: it restored all, or there was none.
        recording_problem: why the recording cannot be written; None: it can, or there is no recording.
        notify: the counts of each target of alarms.
        build: the digest of its sources; None: unknown, as in a recording.
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

    def document(self) -> dict[str, Any]:
        """The JSON document."""
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
            "notify": list(self.notify),
        }


class Details(NamedTuple):
    """The `newest` slots that a daemon took from a segment's span rings, the oldest first.

    `longest`: the longest span of each path, as (path, duration, start, step, elements).
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
        """The content except the rings."""

    def consumer(self) -> int | None:
        """The pid of the process that drains it, or None."""

    def control(self) -> _reader.Control:
        """The settings that the consumer requests from the worker."""

    def ring(self, lane: int, *, events: bool, newest: int) -> tuple[int, bytes]:
        """Return the number of the first slot, and the slots; at least the `newest` available ones."""


class World(Protocol):
    """The data source of a view."""

    @property
    def source(self) -> Source:
        """The kind of data source."""

    def daemon(self) -> DaemonStatus | None:
        """The status of the daemon; None: this process reads segments itself."""

    def survey(self) -> Survey:
        """All workers at one time."""

    def window(self, found: Survey, of: Sequence[Worker], length_ns: int) -> Window | None:
        """The work of a survey's workers in the last `length_ns`, as far as it is kept; None: unknown."""

    def stragglers(self) -> StragglerVerdict | None:
        """Return the stragglers; None: workers are not compared continuously."""

    def alarms(self) -> tuple[Alarm, ...] | None:
        """Return the active alarms; None: workers are not watched."""

    def compared(self) -> Compared | None:
        """Return the differences of workers and the coverage; None: they are not compared."""

    def problem_book(self) -> Book | None:
        """Return the problems over time; None: they are not recorded."""

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """The available fingerprints of some workers of a survey."""

    def weights(self, of: Sequence[Worker]) -> Weights:
        """Return only the weights of workers, to copy less."""

    def weighed(self, found: Survey) -> Sequence[WeightsVerdict]:
        """The verdicts on the weights of a survey's workers, for services that watch weights."""

    def sources(self, of: Sequence[Worker]) -> KnownSources:
        """The known sources of kernels; at least those of these workers."""

    def files(self) -> Sequence[str]:
        """The names of all files that may be inspected, with any prefix."""

    def segment(self, file: str) -> AbstractContextManager[SegmentInside]:
        """Open a segment by its file's name; the caller must not close it."""

    def details(self, uuid: str) -> Details | None:
        """Return the details taken from a segment's rings; None: this process does not drain."""
