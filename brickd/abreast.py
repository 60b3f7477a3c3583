"""The workers of a service side by side in one brick, over the last slots.

Owns: which slots of a worker count, what it did in all of them, how far it stands apart. Must not know: who is named
for that. Invariant: what another process did under the same name is not its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from brickd.beside import COLLECTIVE, Beside, Key, Look
from brickd.findings import Row
from brickd.standing import ROWS_MIN, Field, median

_EXPONENT_MAX = 100.0

Evidence = Literal["judged", "few_workers", "few_samples"]


@dataclass(frozen=True, slots=True)
class Total:
    """What a worker did in a brick, in all slots that count."""

    calls: int
    self_ns: float
    elements: int

    @property
    def mean_ns(self) -> float:
        """Of a call."""
        return self.self_ns / self.calls

    @property
    def elements_per_call(self) -> float:
        """As it says."""
        return self.elements / self.calls


class Stretch:
    """The slots that are judged together.

    Attributes:
        looks: at each, the oldest first.
        workers: who lives now, by service.
        left: by service and reason, how many bricks were in all slots left out.
        length_ns: how long they are together.
    """

    def __init__(self, looks: Sequence[Look]) -> None:
        self.looks = looks
        self._lives = looks[-1].lives if looks else {}
        # Small it may be in one slot and not in another; whether it is judged at all is as it was said last.
        left = {key: look.left.get(key) for look in looks for key in (*look.left, *look.bricks)}
        seen = {key for look in looks for key in look.bricks if left[key] != "unjudged"}
        self._keys: dict[str, list[Key]] = {}
        for key in sorted(seen):
            self._keys.setdefault(key[0], []).append(key)
        self.left = Counter((key[0], why) for key, why in left.items() if key not in seen)
        self.workers: dict[str, list[str]] = {}
        self._begins: dict[str, int] = {}
        for worker, life in self._lives.items():
            self.workers.setdefault(life.service, []).append(worker)
            others = (slot for slot, look in enumerate(looks) if look.lives.get(worker) != life)
            self._begins[worker] = max(others, default=-1) + 1
        self.length_ns = sum(look.slot.length_ns for look in looks)

    def keys(self, service: str) -> list[Key]:
        """The bricks of a service that anybody did something in."""
        return self._keys.get(service, [])

    def sides(self, key: Key) -> dict[str, list[Beside | None]]:
        """Slot by slot what each worker that lives now did in a brick."""
        found: dict[str, list[Beside | None]] = {}
        for slot, look in enumerate(self.looks):
            for worker, beside in look.bricks.get(key, {}).items():
                if slot >= self._begins.get(worker, len(self.looks)):
                    found.setdefault(worker, [None] * len(self.looks))[slot] = beside
        return found

    def category(self, key: Key) -> str:
        """What it is a brick of, as it was said last."""
        said = (look.slot.categories[key] for look in reversed(self.looks) if key in look.slot.categories)
        return next(said, "other")

    def lived_ns(self, worker: str) -> int:
        """How long the slots are together that count for a worker."""
        return sum(look.slot.length_ns for look in self.looks[self._begins[worker] :])


@dataclass(frozen=True, slots=True)
class Brick:
    """A brick, and the workers in it.

    Attributes:
        key: its service and name.
        category: what it is a brick of.
        totals: of each worker.
        field: those of them that can be compared.
        median_ns: of the means of all.
    """

    key: Key
    category: str
    totals: Mapping[str, Total]
    field: Field
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

    def row(self, worker: str) -> Row:
        """A worker's row."""
        total = self.totals[worker]
        if worker not in self.field.excess:
            return Row(worker, total.mean_ns, total.calls, total.elements_per_call)
        standing = self.field.standing(worker)
        excess = 100 * (standing.excess if self.collective else math.expm1(min(standing.excess, _EXPONENT_MAX)))
        return Row(worker, total.mean_ns, total.calls, total.elements_per_call, excess, standing.score)

    def rows(self) -> tuple[Row, ...]:
        """Those of all: first who stands out most, last of whom too little is known."""
        rows = map(self.row, self.totals)
        return tuple(sorted(rows, key=lambda row: (-math.inf if row.score is None else -row.score, row.worker)))


def brick(stretch: Stretch, key: Key) -> Brick:
    """One brick of a stretch."""
    sides = stretch.sides(key)
    totals = {worker: _total(side for side in row if side is not None) for worker, row in sides.items()}
    totals = {worker: total for worker, total in totals.items() if total.calls}
    values = {worker: _apart(sides[worker]) for worker in sorted(totals)}
    middle = median([total.mean_ns for total in totals.values()]) if totals else 0.0
    return Brick(key, stretch.category(key), totals, Field(values), middle)


def _apart(sides: Sequence[Beside | None]) -> list[float | None]:
    """Slot by slot how far it is apart; a slot in which it did less than half as much as usual says too little."""
    usual = median([side.calls for side in sides if side is not None])
    return [None if side is None or side.calls < usual / 2 else side.apart for side in sides]


def _total(sides: Iterable[Beside]) -> Total:
    calls, self_ns, elements = 0, 0.0, 0
    for side in sides:
        calls, self_ns, elements = calls + side.calls, self_ns + side.self_ns, elements + side.elements
    return Total(calls, self_ns, elements)
