"""One brick over the last slots: the work of each worker, and how far it differs from the others.

Owns: which standing of a worker counts, the rows of a brick. Must not know: who is named for it. Invariants: a worker
that ran longer and took no longer does not stand out; of two processes with the same name only the last one counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from brickd.analysis.timing.findings import WorkerRow
from brickd.analysis.timing.stats import ROWS_MIN, THRESHOLD, Field, Standing, median
from brickd.analysis.timing.worker_series import COLLECTIVE, Beside, Key, Stretch

_EXPONENT_MAX = 100.0

Evidence = Literal["judged", "few_workers", "few_samples"]


@dataclass(frozen=True, slots=True)
class Total:
    """The work of one worker in a brick, in all slots that count."""

    calls: int
    self_ns: float
    elements: int
    usual_sum_ns: float

    @property
    def mean_ns(self) -> float:
        """The mean self time of a usual call."""
        return self.usual_sum_ns / self.calls

    @property
    def elements_per_call(self) -> float:
        """The mean number of elements of a call."""
        return self.elements / self.calls


@dataclass(frozen=True, slots=True)
class ComparedBrick:
    """A brick, and the workers in it.

    Attributes:
        key: its service and name.
        field: the workers that can be compared.
        ran: the same, by the part of the time in which they ran.
        median_ns: of the means of all.
    """

    key: Key
    category: str
    totals: Mapping[str, Total]
    field: Field
    ran: Field
    median_ns: float

    @property
    def collective(self) -> bool:
        """Whether its time is spent waiting for the others."""
        return self.category.casefold() == COLLECTIVE

    @property
    def evidence(self) -> Evidence:
        """Whether it was judged, or why not."""
        if self.field.excess:
            return "judged"
        return "few_workers" if len(self.totals) < ROWS_MIN else "few_samples"

    def standing(self, worker: str, least: float) -> Standing:
        """How far a worker stands out by its times; on a busy host by the time in which it ran, if only that shows it.

        What it ran longer is longer on the wall, too, by half at least and as far as that is known within two errors:
        else another thread of its process runs.
        """
        standing = self.field.standing(worker)
        if standing.score >= least or worker not in self.ran.excess:
            return standing
        ran = self.ran.standing(worker)
        error = standing.excess / standing.score if standing.score else 0.0
        return ran if ran.score >= least and standing.excess + 2 * error >= ran.excess / 2 else standing

    def row(self, worker: str, least: float = THRESHOLD) -> WorkerRow:
        """A worker's row."""
        total = self.totals[worker]
        if worker not in self.field.excess:
            return WorkerRow(worker, total.mean_ns, total.calls, total.elements_per_call)
        standing = self.standing(worker, least)
        excess = 100 * (standing.excess if self.collective else math.expm1(min(standing.excess, _EXPONENT_MAX)))
        return WorkerRow(worker, total.mean_ns, total.calls, total.elements_per_call, excess, standing.score)

    def rows(self) -> tuple[WorkerRow, ...]:
        """The rows of all workers: the ones that stand out most first, unknown ones last."""
        rows = map(self.row, self.totals)
        return tuple(sorted(rows, key=lambda row: (-math.inf if row.score is None else -row.score, row.worker)))


def brick(stretch: Stretch, key: Key) -> ComparedBrick:
    """One brick of a stretch."""
    sides = stretch.sides(key)
    totals: dict[str, Total] = {}
    for worker, row in sides.items():
        present = [side for side in row if side is not None]
        if calls := sum(side.calls for side in present):
            self_ns, elements = sum(side.self_ns for side in present), sum(side.elements for side in present)
            totals[worker] = Total(calls, self_ns, elements, sum(side.usual_sum_ns for side in present))
    values = {worker: _apart(sides[worker], "apart") for worker in sorted(totals)}
    ran = {worker: _apart(sides[worker], "ran") for worker in sorted(totals)}
    middle = median([total.mean_ns for total in totals.values()]) if totals else 0.0
    return ComparedBrick(key, stretch.category(key), totals, Field(values), Field(ran), middle)


def _apart(sides: Sequence[Beside | None], by: Literal["apart", "ran"]) -> list[float | None]:
    """The distance in each slot; one with less than half the usual calls says too little."""
    usual = median([side.calls for side in sides if side is not None])
    return [None if side is None or side.calls < usual / 2 else getattr(side, by) for side in sides]
