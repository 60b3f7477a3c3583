"""What views look at: the workers of this machine, and the daemon that shows them, if any.

Owns: what a view may ask for, and the answer where no daemon is: shared memory, read now. Must not know: any view, who
asks. Invariant: a view that is given another world builds the same document from the same workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from brickd.analysis.numerics.evidence import recall
from brickd.analysis.numerics.fingerprints import ALL_BYTES, Numerics
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.weights import codec, verdicts
from brickd.analysis.weights.monitor import watching
from brickd.analysis.weights.replicas import judge
from brickd.analysis.weights.shards import shard_of, shards_of
from brickd.analysis.weights.store import Weights
from brickd.base.paths import runtime
from brickd.base.timestamps import rfc3339
from brickd.errors import CheckpointRefused, NotPermitted, SegmentRefused
from brickd.model import workers
from brickd.model.kernel_sources.files import Filed
from brickd.model.kernel_sources.store import KnownSources, Sources
from brickd.model.retained_workers import Background
from brickd.model.workers import Survey, Worker
from brickd.shm import _reader, segment_files
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_copy import Reading
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory

if TYPE_CHECKING:
    from brickd.analysis.problem_book import Book
    from brickd.analysis.timing.alarms import Alarm
    from brickd.analysis.timing.findings import StragglerVerdict
    from brickd.model.windows import Window


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

    def weighed(self, found: Survey) -> Sequence[verdicts.WeightsVerdict]:
        """The verdicts on the weights of a survey's workers, for services that watch any."""

    def sources(self, of: Sequence[Worker]) -> KnownSources:
        """What the kernels of some of the workers of a survey, and of others, were compiled from."""

    def files(self) -> Sequence[str]:
        """The names of all files that may be inspected, whatever they begin with."""

    def segment(self, file: str) -> AbstractContextManager[SegmentInside]:
        """A segment to look into, by its file's name; the caller must not close it."""

    def details(self, uuid: str) -> Details | None:
        """What was taken from a segment's rings; None: it is not drained here."""


def left_behind() -> tuple[Background, tuple[str, ...]]:
    """What the checkpoint knows of the workers here; a note if it cannot be read."""
    try:
        memory = _memory()
    except (CheckpointRefused, OSError) as error:
        path = runtime().checkpoint
        note = f"{path}: {error}; what a daemon knew of ended workers and deferred work is left out (brickd doctor)"
        return Background(), (note,)
    return (Background() if memory is None else memory.background()), ()


def _memory() -> Memory | None:
    """What a daemon kept of the segments here."""
    memory = checkpoint.load(runtime().checkpoint)
    return memory if memory is not None and memory.prefix == segment_files.prefix() else None


def _weights_left() -> Weights | None:
    """What a daemon knew of workers' weights; None where that cannot be read."""
    with contextlib.suppress(CheckpointRefused, OSError):
        content = checkpoint.content_of(runtime().weights)
        return None if content is None else codec.decode(segment_files.prefix(), content)
    return None


# One may be there that does not answer yet: who was put into the checkpoint while the files were read, and removed from
# there, is in neither.
_LOOKS_MAX = 3


def _kept() -> tuple[int, int] | None:
    """Inode and time of the checkpoint."""
    try:
        status = runtime().checkpoint.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


class SharedMemory:
    """The world without a daemon."""

    source: Source = "shared memory"

    def daemon(self) -> None:
        """None: there is no daemon."""

    def survey(self) -> Survey:
        """What the segments say now, and what an earlier daemon left in its checkpoint."""
        for _ in range(_LOOKS_MAX):
            before = _kept()
            background, words = left_behind()
            found = workers.survey(background=background)._replace(words=words)
            if _kept() == before:
                break
        return found

    def window(self, found: Survey, of: Sequence[Worker], slots: int) -> None:
        """None: there was no look before."""

    def stragglers(self) -> None:
        """None: one look compares no workers."""

    def alarms(self) -> None:
        """None: one look shows nothing of a worker's past."""

    def problem_book(self) -> None:
        """None: there is no daemon."""

    def compared(self) -> Compared | None:
        """What an earlier daemon found."""
        with contextlib.suppress(CheckpointRefused, OSError):  # that is said beside the survey
            if (memory := _memory()) is not None and memory.compared.since_ns:
                return memory.compared
        return None

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """What is in their rings, since nothing drains these, and what an earlier daemon left."""
        numerics = self._collect(of, ALL_BYTES)
        if (compared := self.compared()) is not None:
            recall(numerics, compared, shards_of(of))
        return numerics

    def _collect(self, of: Sequence[Worker], bytes_max: int) -> Numerics:
        numerics = Numerics(bytes_max, _weights_left())
        self.add_fingerprints(of, numerics)
        return numerics

    def add_fingerprints(self, of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
        """Add the fingerprints of workers to others, under uuids with a mark before them."""
        for worker in of:
            with contextlib.suppress(SegmentRefused), open_segment(worker.reading.file) as segment:
                producer = numerics.producer(
                    mark + worker.reading.uuid, worker.service, segment.tables, shard_of(segment.coordinates)
                )
                for lane, _, _ in worker.reading.lanes:
                    producer.receive(_reader.checked(segment.ring(lane, events=True)[1], 0, 0)[0])
                producer.lose(segment.dropped(_reader.KIND_CHECKED))

    def weights(self, of: Sequence[Worker]) -> Weights:
        """As far as they lie there."""
        return self._collect(of, 0).weights

    def weighed(self, found: Survey) -> Sequence[verdicts.WeightsVerdict]:
        """Compare weights now; the rings are read only if a worker watches any."""
        of = watching(found.workers)
        return judge(self.weights(of), of) if of else ()

    def sources(self, of: Sequence[Worker]) -> Sources:
        """The sources that an earlier daemon left, and those in rings."""
        memory = None
        with contextlib.suppress(CheckpointRefused, OSError):  # that is said beside the survey
            memory = _memory()
        sources = Sources() if memory is None else memory.sources
        sources.go_into(Filed(runtime().sources))
        for worker in of:
            with contextlib.suppress(SegmentRefused, NotPermitted), open_segment(worker.reading.file) as segment:
                for lane, _, _ in worker.reading.lanes:
                    _, pieces = _reader.pieces(segment.ring(lane, events=True)[1])
                    sources.take(worker.reading.uuid, pieces)
        return sources

    def files(self) -> Sequence[str]:
        """All files in the directory of segments."""
        return segment_files.find("")

    def segment(self, file: str) -> AbstractContextManager[Segment]:
        """The segment, opened for one look."""
        return open_segment(file)

    def details(self, uuid: str) -> None:
        """Nothing is taken by looking."""
