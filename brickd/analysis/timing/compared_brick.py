"""One brick over the last slots: the work of each worker, and how far the worker is from the others.

Owns: which score of a worker counts, the rows of a brick. Must not know: which worker is named. Invariants: A worker
with more processor time but normal call times does not stand out. Of several processes with the same name, only the
last one counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as of_dataclass
from typing import Literal, NamedTuple

from brickd.analysis.timing.findings import WorkerRow
from brickd.analysis.timing.stats import ROWS_MIN, THRESHOLD, Field, Standing, median
from brickd.analysis.timing.worker_series import COLLECTIVE, Key, SlotSide, Stretch

_EXPONENT_MAX = 100.0

Evidence = Literal["judged", "few_workers", "few_samples"]


@dataclass(frozen=True, slots=True)
class Total:
    """The work of one worker in one brick, over all slots that count."""

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


class Ran(NamedTuple):
    """A worker's processor time in a brick, on the assumption that this brick causes the worker's whole excess.

    Attributes:
        standing: how far the worker stands out by its processor time per call.
        most: the largest likely excess.
        here: whether the call times of all bricks show that this brick causes the excess.
    """

    standing: Standing
    most: float
    here: bool = False


@dataclass(frozen=True, slots=True)
class ComparedBrick:
    """A brick, and the workers in it.

    Attributes:
        key: the service and the name of the brick.
        field: the workers that can be compared.
        median_ns: the median of the mean call times of all workers.
        ran: the processor time of each worker whose processor time is known.
    """

    key: Key
    category: str
    totals: Mapping[str, Total]
    field: Field
    median_ns: float
    ran: Mapping[str, Ran] = of_dataclass(default_factory=dict)

    @property
    def collective(self) -> bool:
        """Whether the brick is a collective, whose time is mostly spent waiting for other workers."""
        return self.category.casefold() == COLLECTIVE

    @property
    def evidence(self) -> Evidence:
        """Return "judged", or why the workers were not compared in this brick."""
        if self.field.excess:
            return "judged"
        return "few_workers" if len(self.totals) < ROWS_MIN else "few_samples"

    def standing(self, worker: str, least: float) -> Standing:
        """Return how far a worker stands out.

        If processor time shows that it is slow, this is by processor time; otherwise it is by call times.
        """
        ran = self.ran.get(worker)
        return ran.standing if ran is not None and self.by_processor(worker, least) else self.field.standing(worker)

    def by_processor(self, worker: str, least: float) -> bool:
        """Whether processor time shows that a worker is slow here."""
        ran = self.ran.get(worker)
        return ran is not None and ran.here and ran.standing.score >= least

    def row(self, worker: str, least: float = THRESHOLD) -> WorkerRow:
        """Return the row of a worker."""
        total = self.totals[worker]
        if worker not in self.field.excess:
            return WorkerRow(worker, total.mean_ns, total.calls, total.elements_per_call)
        standing = self.standing(worker, least)
        excess = 100 * (standing.excess if self.collective else math.expm1(min(standing.excess, _EXPONENT_MAX)))
        return WorkerRow(worker, total.mean_ns, total.calls, total.elements_per_call, excess, standing.score)

    def rows(self) -> tuple[WorkerRow, ...]:
        """Return the rows of all workers, the highest score first; workers without a score come last."""
        rows = map(self.row, self.totals)
        return tuple(sorted(rows, key=lambda row: (-math.inf if row.score is None else -row.score, row.worker)))


def brick(stretch: Stretch, key: Key) -> ComparedBrick:
    """Return what the workers did in one brick over a stretch of slots."""
    sides = stretch.sides(key)
    totals: dict[str, Total] = {}
    for worker, row in sides.items():
        present = [side for side in row if side is not None]
        if calls := sum(side.calls for side in present):
            self_ns, elements = sum(side.self_ns for side in present), sum(side.elements for side in present)
            totals[worker] = Total(calls, self_ns, elements, sum(side.usual_sum_ns for side in present))
    values = {worker: _apart(sides[worker]) for worker in sorted(totals)}
    middle = median([total.mean_ns for total in totals.values()]) if totals else 0.0
    return ComparedBrick(key, stretch.category(key), totals, Field(values), middle)


def _apart(sides: Sequence[SlotSide | None]) -> list[float | None]:
    """For each slot, return how far a worker is from the others.

    This is None for a slot with less than half of the usual number of calls.
    """
    usual = median([side.calls for side in sides if side is not None])
    return [None if side is None or side.calls < usual / 2 else side.apart for side in sides]
