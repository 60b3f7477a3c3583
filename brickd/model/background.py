"""A copy of the part of a daemon's state that a survey needs in addition to the segments.

Owns: the copy. Must not know: how the state changes, how it is stored. Invariants: A worker is identified by its uuid.
The decoder of deferred work is imported only when there is deferred work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brickd.shm.removed_workers import Removals

if TYPE_CHECKING:
    from brickd.model.deferred_overlay import Overlay
    from brickd.model.retained_workers import RetainedTotals
    from brickd.model.worker_origins import Origin
    from brickd.shm.segment_copy import Reading
    from brickd.shm.segment_files import Identifier


@dataclass(frozen=True, slots=True)
class Background:
    """The part of a daemon's state that a survey needs in addition to the segments, keyed by uuid.

    Attributes:
        names: the names of workers, keyed by uuid, and the names of sums, keyed by the uuid of their reading.
        begun: the uuids of known workers, keyed by the first half of the uuid. A worker knows only this half of the
            uuid of its lost segment.
        files: the segment of each known worker.
        older: the sums that have no uuid.
        buried: the uuids of segments that are not read, because their workers are in a sum or were forgotten.
        added: the workers that were recently merged into each sum, keyed by the uuid of the sum.
        removed: the workers whose segments were removed; some of these workers are sums.
    """

    names: dict[str, str] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)
    files: dict[str, Identifier] = field(default_factory=dict)
    overlays: dict[str, Overlay] = field(default_factory=dict)
    gone: dict[str, RetainedTotals] = field(default_factory=dict)
    older: tuple[RetainedTotals, ...] = ()
    buried: frozenset[str] = frozenset()
    added: dict[str, tuple[Origin, ...]] = field(default_factory=dict)
    removed: Removals = field(default_factory=Removals)

    def before(self, took: int) -> str | None:
        """Return the uuid of the lost segment whose totals a worker took over; None if it is unknown."""
        return self.begun.get(took.to_bytes(8, "little").hex()) if took else None

    def overlay(self, uuid: str, before: str | None) -> Overlay | None:
        """Return the deferred work of a worker.

        It is kept under the uuid of its segment, or else of its lost segment.
        """
        if (found := self.overlays.get(uuid)) is not None or before is None:
            return found
        if before not in self.gone:
            return self.overlays.get(before)
        from brickd.model.deferred_overlay import lifted, overlay

        return overlay(lifted(self.gone[before].reading))

    def laid_over(self, reading: Reading, before: str | None) -> Reading:
        """Return a worker's reading with its deferred work; `before` is the uuid of its lost segment."""
        over = self.overlay(reading.uuid, before)
        if over is None:
            return reading
        from brickd.model.deferred_overlay import laid_over

        return laid_over(reading, over)
