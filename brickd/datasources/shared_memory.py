"""The world where no daemon answers: the segments of this machine, read now.

Owns: those answers, and what an earlier daemon left in its files. Must not know: any view, who asks. Invariant: nothing
that decodes a daemon's files, fingerprints, weights or sources is loaded before there are any to decode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from brickd.base import state_file
from brickd.base.paths import runtime
from brickd.errors import CheckpointRefused
from brickd.model import workers
from brickd.model.retained_workers import Background
from brickd.model.workers import Survey, Worker
from brickd.shm import segment_files
from brickd.shm.segment import Segment, open_segment

if TYPE_CHECKING:
    from brickd.analysis.numerics.fingerprints import Numerics
    from brickd.analysis.numerics.online_state import Compared
    from brickd.analysis.weights.store import Weights
    from brickd.analysis.weights.verdicts import WeightsVerdict
    from brickd.datasources.world import Source
    from brickd.model.kernel_sources.store import Sources
    from brickd.state.daemon_state import Memory


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
    content = state_file.content_of(runtime().checkpoint)
    if content is None:
        return None
    from brickd.state import checkpoint

    memory = checkpoint.decode(content)
    return memory if memory.prefix == segment_files.prefix() else None


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
        from brickd.datasources import ring_records

        numerics = ring_records.opened()
        self.add_fingerprints(of, numerics)
        ring_records.recall(numerics, self.compared(), of)
        return numerics

    def add_fingerprints(self, of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
        """Add the fingerprints of workers to others, under uuids with a mark before them."""
        from brickd.datasources import ring_records

        ring_records.add_fingerprints(of, numerics, mark)

    def weights(self, of: Sequence[Worker]) -> Weights:
        """As far as they lie there."""
        from brickd.datasources import ring_records

        numerics = ring_records.opened(0)
        self.add_fingerprints(of, numerics)
        return numerics.weights

    def weighed(self, found: Survey) -> Sequence[WeightsVerdict]:
        """Compare weights now; the rings are read only if a worker watches any."""
        if not any(worker.reading.process["weights"] for worker in found.workers):
            return ()
        from brickd.analysis.weights.monitor import watching
        from brickd.analysis.weights.replicas import judge

        of = watching(found.workers)
        return judge(self.weights(of), of)

    def sources(self, of: Sequence[Worker]) -> Sources:
        """The sources that an earlier daemon left, and those in rings."""
        from brickd.datasources import ring_records

        memory = None
        with contextlib.suppress(CheckpointRefused, OSError):  # that is said beside the survey
            memory = _memory()
        return ring_records.sources(of, None if memory is None else memory.sources)

    def files(self) -> Sequence[str]:
        """All files in the directory of segments."""
        return segment_files.find("")

    def segment(self, file: str) -> AbstractContextManager[Segment]:
        """The segment, opened for one look."""
        return open_segment(file)

    def details(self, uuid: str) -> None:
        """Nothing is taken by looking."""
