"""The world without a daemon: the segments of this machine, read on demand.

Owns: the answers without a daemon, and the state that an earlier daemon saved in files. Must not know: views, callers.
Invariant: a module that decodes saved files, fingerprints, weights or sources is imported only if there is data to
decode.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from brickd.base import state_file
from brickd.base.paths import runtime
from brickd.errors import CheckpointRefused
from brickd.model import worker_survey
from brickd.model.background import Background
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
    from brickd.model.step_texts import StepTexts
    from brickd.state.daemon_state import Memory


def left_behind() -> tuple[Background, tuple[str, ...]]:
    """Return the checkpoint's state of workers, and a note if the checkpoint cannot be read."""
    try:
        memory = _memory()
    except (CheckpointRefused, OSError) as error:
        path = runtime().checkpoint
        note = f"{path}: {error}; a daemon's data on ended workers and deferred work is missing here (brickd doctor)"
        return Background(), (note,)
    return (Background() if memory is None else memory.background()), ()


def _memory() -> Memory | None:
    """Return the state in the checkpoint, if it belongs to these segments."""
    content = state_file.content_of(runtime().checkpoint)
    if content is None:
        return None
    from brickd.state import checkpoint

    memory = checkpoint.decode(content)
    return memory if memory.prefix == segment_files.prefix() else None


# A survey is repeated if the checkpoint changed during the survey. A daemon that starts may move a worker from its
# segment to the checkpoint, so that this process finds the worker in neither of them.
_LOOKS_MAX = 3


def _kept() -> tuple[int, int] | None:
    try:
        status = runtime().checkpoint.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


class SharedMemory:
    """The world without a daemon."""

    source: Source = "shared memory"

    def daemon(self) -> None:
        """Return None, because there is no daemon."""

    def survey(self) -> Survey:
        """Return the segments, with the state that an earlier daemon saved in its checkpoint."""
        for _ in range(_LOOKS_MAX):
            before = _kept()
            background, words = left_behind()
            found = worker_survey.survey(background=background)._replace(words=words)
            if _kept() == before:
                break
        return found

    def window(self, found: Survey, of: Sequence[Worker], length_ns: int) -> None:
        """Return None, because there is no earlier survey."""

    def at_ns(self) -> int:
        """Return when the survey was made, in ns since 1970."""
        return time.time_ns()

    def day(self, began_ns: int, ended_ns: int) -> None:
        """Return None, because there is no earlier survey."""

    def day_slots(self, began_ns: int, ended_ns: int, *, work: bool) -> tuple[()]:
        """Return no slots, because there is no earlier survey."""
        return ()

    def stragglers(self) -> None:
        """Return None, because a single survey is not enough to compare workers."""

    def alarms(self) -> None:
        """Return None, because a single survey does not show a worker's past."""

    def earlier(self, at_ns: int) -> None:
        """Return None, because shared memory has only the present."""

    def past(self, at_ns: int) -> None:
        """Return None, because shared memory has only the present."""

    def problem_book(self) -> None:
        """Return None, because there is no daemon."""

    def compared(self) -> Compared | None:
        """Return the comparison that an earlier daemon saved."""
        with contextlib.suppress(CheckpointRefused, OSError):  # the notes of the survey report this error
            if (memory := _memory()) is not None and memory.compared.since_ns:
                return memory.compared
        return None

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """Return the fingerprints in the rings of workers, and the evidence that an earlier daemon saved."""
        from brickd.datasources import ring_records

        numerics = ring_records.opened()
        self.add_fingerprints(of, numerics)
        ring_records.recall(numerics, self.compared(), of)
        return numerics

    def add_fingerprints(self, of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
        """Add the fingerprints of workers to `numerics`, with `mark` as a prefix of the workers' uuids."""
        from brickd.datasources import ring_records

        ring_records.add_fingerprints(of, numerics, mark)

    def step_texts(self, of: Sequence[Worker]) -> StepTexts:
        """Return the texts of steps."""
        return self.numerics(of).step_texts

    def weights(self, of: Sequence[Worker]) -> Weights:
        """Return the weights in the rings of workers, and those that an earlier daemon saved."""
        from brickd.datasources import ring_records

        numerics = ring_records.opened(0)
        self.add_fingerprints(of, numerics)
        return numerics.weights

    def weighed(self, found: Survey) -> Sequence[WeightsVerdict]:
        """Compare the weights. The rings are read only if a worker watches weights."""
        if not any(worker.reading.process["weights"] for worker in found.workers):
            return ()
        from brickd.analysis.weights.monitor import watching
        from brickd.analysis.weights.replicas import judge

        of = watching(found.workers)
        return judge(self.weights(of), of)

    def sources(self, of: Sequence[Worker]) -> Sources:
        """Return the sources that an earlier daemon saved, and those in the rings."""
        from brickd.datasources import ring_records

        memory = None
        with contextlib.suppress(CheckpointRefused, OSError):  # the notes of the survey report this error
            memory = _memory()
        return ring_records.sources(of, None if memory is None else memory.sources)

    def files(self) -> Sequence[str]:
        """Return the names of all files in the directory of segments."""
        return segment_files.find("")

    def segment(self, file: str) -> AbstractContextManager[Segment]:
        """Open a segment."""
        return open_segment(file)

    def details(self, uuid: str) -> None:
        """Return None, because this process does not drain rings."""


class SurveyedOnce(SharedMemory):
    """The world without a daemon, for several answers that must fit together: its workers are read once."""

    def __init__(self) -> None:
        self._survey: Survey | None = None

    def survey(self) -> Survey:
        """Return the first survey again."""
        if self._survey is None:
            self._survey = super().survey()
        return self._survey
