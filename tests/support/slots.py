"""Made-up slots of time: workers with given mean times, and random noise from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from brickd.analysis.timing.worker_series import Life, SlotLook, look
from brickd.base.timestamps import Moment
from brickd.model.worker_totals import Share, Slot

SECOND = 1_000_000_000
LENGTH_NS = 10 * SECOND
BEGAN_NS = 1_700_000_000 * SECOND

# Returns the factor of a brick's mean time, from the index of the worker and the index of the slot.
Mean = Callable[[int, int], float]


@dataclass(frozen=True)
class Made:
    """A made-up brick."""

    mean_ns: float
    calls: int = 250
    category: str = "FFN"
    factor: Mean = lambda worker, slot: 1.0
    elements: Callable[[int], int] = lambda worker: 0


BRICKS: Mapping[str, Made] = {
    "forward": Made(200_000),
    "attention": Made(8_000_000),
    "moe_gemm": Made(12_000_000),
    "mlp": Made(6_000_000),
}


@dataclass(frozen=True)
class Fleet:
    """Workers of one service."""

    workers: int = 8
    bricks: Mapping[str, Made] = field(default_factory=lambda: BRICKS)
    noise: float = 0.003
    service: str = "api"

    def lives(self) -> dict[str, Life]:
        """Return all workers, as live workers."""
        return {f"{self.service}/{n}": Life(self.service, f"uuid {n}") for n in range(self.workers)}

    def looks(self, slots: int, seed: int) -> list[SlotLook]:
        """Return the comparisons of this number of slots."""
        noise = random.Random(seed).gauss
        return [look(self.slot(number, noise), self.lives()) for number in range(slots)]

    def slot(self, number: int, noise: Callable[[float, float], float]) -> Slot:
        bricks = {}
        for name, made in self.bricks.items():
            shares = []
            for worker in range(self.workers):
                mean = made.mean_ns * made.factor(worker, number) * max(0.0, 1 + noise(0, self.noise))
                if calls := made.calls:
                    shares.append(Share(f"{self.service}/{worker}", calls, mean * calls, made.elements(worker) * calls))
            bricks[(self.service, name)] = tuple(shares)
        began, ended = (Moment(ns, BEGAN_NS + ns) for ns in (number * LENGTH_NS, (number + 1) * LENGTH_NS))
        categories = {(self.service, name): made.category for name, made in self.bricks.items()}
        return Slot(began, ended, bricks, categories)


def slow(worker: int, percent: float, slots: Sequence[int] = range(1000)) -> Mean:
    """Return the times of a service in which one worker is slower by a percentage in some slots."""
    return lambda each, slot: 1 + percent / 100 * (each == worker and slot in slots)


def with_(name: str, made: Made) -> dict[str, Made]:
    """Return the usual bricks, with one of them changed or added."""
    return {**BRICKS, name: made}
