"""What a recording is made of, as whoever makes it sees it.

Owns: what is asked of a daemon that records. Must not know: files, what is written when. Invariant: everything here may
be called from the recording's thread, while the daemon works.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from brickd.analysis.weights.store import Weights
from brickd.datasources.world import DaemonStatus
from brickd.model.event_log import Log
from brickd.model.kernel_sources.store import KnownSources
from brickd.model.workers import Survey, Worker
from brickd.recording.ring_taps import Rings
from brickd.shm import _reader


class RecordingInput(Protocol):
    """What is recorded."""

    @property
    def events(self) -> Log:
        """What happens."""

    def daemon(self) -> DaemonStatus:
        """Who drains."""

    def survey(self) -> Survey:
        """Every worker, now."""

    def weights(self, of: Sequence[Worker]) -> Weights:
        """What some of them have said of their weights, as it is now: to be looked at, or changed."""

    def sources(self, of: Sequence[Worker]) -> KnownSources:
        """What kernels were compiled from, as far as it is known by now."""

    def lives(self, names: tuple[str, ...]) -> bool:
        """Whether any worker of these names, or of any where none is given, is drained still."""

    def drain_into(self, rings: Rings, spool: _reader.Spool | None) -> None:
        """Copy the records of these rings into a spool; None: stop after those made by now."""

    def tell(self, kind: str, text: str, *, command: str | None = None) -> None:
        """Note what happened."""
