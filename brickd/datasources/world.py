"""What views look at: the protocol of a world, and what a daemon reports of itself.

Owns: what a view may ask for. Must not know: any view, who asks, how an answer comes about. Invariants: a view that is
given another world builds the same document from the same workers; to know the protocol loads nothing that answers.
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
    """What a daemon reports of itself.

    Attributes:
        version: of brickd; None where it runs from a bare source tree.
        started_ns: since 1970; `uptime_ns` is by a monotonic clock.
        checkpoint_problem: why its last checkpoint failed; None: it did not.
        loop_still_ns: since the loop came round.
        broken: the state that it could not restore when it started; None: all of it was, or there was none.
        recording_problem: why the recording cannot be written; None: it can, or nothing is recorded.
        notify: the counts of each target to which alarms go.
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

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "version": self.version,
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

    `longest` is the longest span of each path: its number, duration, start, step, elements.
    """

    newest: bytes
    longest: list[tuple[int, int, int, int, int]]


Source = Literal["shared memory", "daemon", "recording", "several"]


class SegmentInside(Protocol):
    """What may be seen of one segment."""

    @property
    def header(self) -> _reader.Header:
        """The header that its worker wrote."""

    def read(self) -> Reading:
        """Everything but the rings."""

    def consumer(self) -> int | None:
        """The pid of the process that drains it, or None."""

    def control(self) -> _reader.Control:
        """What the consumer asked of the worker."""

    def ring(self, lane: int, *, events: bool, newest: int) -> tuple[int, bytes]:
        """The number of the first slot that is there, and the slots; `newest` of them are wanted."""


class World(Protocol):
    """All that a view may look at."""

    @property
    def source(self) -> Source:
        """Where what it shows comes from."""

    def daemon(self) -> DaemonStatus | None:
        """The daemon that answers; None: this process reads segments itself."""

    def survey(self) -> Survey:
        """Every worker, at one time."""

    def window(self, found: Survey, of: Sequence[Worker], slots: int) -> Window | None:
        """What workers of a survey recorded in the last slots of ten seconds; None: not known."""

    def stragglers(self) -> StragglerVerdict | None:
        """The stragglers; None: nothing compares workers."""

    def alarms(self) -> tuple[Alarm, ...] | None:
        """What is wrong with single workers; None: nothing watches them."""

    def compared(self) -> Compared | None:
        """Where workers differ, and how much was compared; None: nothing compares them."""

    def problem_book(self) -> Book | None:
        """What is known of problems over time; None: nothing watches them."""

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """The fingerprints of some of the workers of a survey, as far as they are here."""

    def weights(self, of: Sequence[Worker]) -> Weights:
        """The weights of workers alone, which is less to copy."""

    def weighed(self, found: Survey) -> Sequence[WeightsVerdict]:
        """The verdicts on the weights of a survey's workers, for services that watch any."""

    def sources(self, of: Sequence[Worker]) -> KnownSources:
        """What the kernels of some of the workers of a survey, and of others, were compiled from."""

    def files(self) -> Sequence[str]:
        """The names of all files that may be inspected, whatever they begin with."""

    def segment(self, file: str) -> AbstractContextManager[SegmentInside]:
        """A segment to look into, by its file's name; the caller must not close it."""

    def details(self, uuid: str) -> Details | None:
        """What was taken from a segment's rings; None: it is not drained here."""
