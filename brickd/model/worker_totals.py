"""The work of every live worker in every brick between two snapshots, grouped by service.

Owns: the table of this work. Must not know: which worker is slow, windows of several slots, screens. Invariants: Times
are self times. A worker that recorded nothing in a brick has no entry for this brick. Dead workers and sums of workers
have no entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from brickd.base.timestamps import Moment
from brickd.model.brick_totals import names_in
from brickd.model.summary_fold import SummaryFold
from brickd.model.survey_snapshot import Snapshot
from brickd.model.windows import since
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading


@dataclass(frozen=True, slots=True)
class Share:
    """One worker in one brick.

    Attributes:
        usual_ns: the mean self time of the worker's usual calls; None if the mean of all calls is used instead.
    """

    worker: str
    count: int
    self_ns: float
    elements: int
    usual_ns: float | None = None

    @property
    def call_ns(self) -> float:
        """The mean self time of a call."""
        return self.self_ns / self.count if self.usual_ns is None else self.usual_ns


@dataclass(frozen=True, slots=True)
class Slot:
    """The time between two snapshots.

    Attributes:
        bricks: the work by service and brick, in the order of the workers' names.
        categories: for each brick, the first category that a worker of the service declared, or 'other'.
        bounded: the bricks that have only bounds and no measured time.
    """

    began: Moment
    ended: Moment
    bricks: Mapping[tuple[str, str], tuple[Share, ...]]
    categories: Mapping[tuple[str, str], str]
    bounded: Collection[tuple[str, str]] = ()

    @property
    def length_ns(self) -> int:
        """The length of the slot."""
        return self.ended.now_ns - self.began.now_ns


def slot(before: Snapshot, after: Snapshot, usual_from: float = math.inf) -> Slot:
    """Return the work of all live workers between two snapshots.

    `usual_from`: the mean of the usual calls is computed for bricks that take at least this fraction of the time.
    """
    from_ns = usual_from * (after.now_ns - before.now_ns)
    alive = [worker for worker in after.survey.workers if worker.reading.alive]
    fold: SummaryFold[tuple[str, bool]] = SummaryFold()
    categories: dict[str, dict[str, str]] = {}
    bricks: dict[tuple[str, str], list[Share]] = {}
    bounds: set[tuple[str, str]] = set()
    for worker in since((before,), alive):
        key_of = _measured(worker.reading, categories.setdefault(worker.service, {}))
        for (brick, bounded), sums in fold.alone(worker.reading, key_of, worker.service, from_ns):
            if bounded:  # bounds cannot be compared
                bounds.add((worker.service, brick))
            else:
                bricks.setdefault((worker.service, brick), []).append(Share(worker.name, *sums))
    sides = {key: tuple(shares) for key, shares in bricks.items()}
    declared = {(service, brick): category for service, of in categories.items() for brick, category in of.items()}
    return Slot(before.moment, after.moment, sides, declared, bounds - sides.keys())


def _measured(reading: Reading, categories: dict[str, str]) -> Callable[[CallPath, int], tuple[str, bool]]:
    name_of = names_in(reading, categories)
    return lambda path, _: (name_of(path.name), path.unit == _reader.UNIT_BOUND)
