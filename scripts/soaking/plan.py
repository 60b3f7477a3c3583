"""The work of one worker, drawn from the seed and the number of the worker."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, replace

from soaking.account import ROWS

# the names of the bricks; the last brick is only deferred
REQUEST, WORK, LEFT, KERNEL = "request", "work", "left", "kernel"
MEASURED_NS = 7  # the duration that each measurement reports, in ns
# `Churn` turns on span detail for all workers of this service.
DETAILED = "detailed"
SERVICES = ("api", "batch", DETAILED)
_NAMES = 12  # the number of declared worker names in a service: fewer than workers, so that names are used again


@dataclass(frozen=True)
class Plan:
    """The work of a worker.

    Attributes:
        number: the worker's number; a fork's child has its parent's number with a letter appended.
        worker: its declared name (BRICKD_WORKER), or "".
        lanes: BRICKD_LANES, which may be too few.
        threads: the number of threads that record at the same time; each batch has new threads.
        spans: the number of spans of each thread in a batch.
        defers: the number of deferred starts in a batch.
        flood: after this number of batches, the worker records more than a ring has room for. If it is 0, this never
            happens.
        leaves_open: whether its threads end with an open span.
        rests_s: the pause between two batches.
        forks: the worker forks after this number of batches. If it is 0, the worker never forks.
        pauses_s: the length of one long pause.
    """

    number: str
    service: str
    worker: str
    lanes: int
    threads: int
    spans: int
    defers: int
    flood: int
    leaves_open: bool
    rests_s: float
    forks: int
    pauses_s: float

    def json(self) -> str:
        """Return the plan as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, line: str) -> Plan:
        """Parse the output of `json`."""
        return cls(**json.loads(line))

    def child(self) -> Plan:
        """Return the plan of the worker's child: the same work under the same name, without a child of its own."""
        return replace(self, number=self.number + "c", forks=0)


@dataclass(frozen=True)
class Fate:
    """The end of a worker.

    Attributes:
        lives_s: its lifetime.
        killed: whether the worker is killed; otherwise it ends by SIGTERM.
        stopped_after_s: when the worker gets SIGSTOP; None if it never does.
        stopped_s: the time until SIGCONT, or until SIGKILL if the lifetime ends earlier.
    """

    lives_s: float
    killed: bool
    stopped_after_s: float | None
    stopped_s: float


def plan(seed: int, number: int) -> Plan:
    """Return the plan of the worker with this number."""
    draw = random.Random(f"plan {seed} {number}")
    return Plan(
        number=str(number),
        service=draw.choice(SERVICES),
        worker=draw.choice(["", str(draw.randrange(_NAMES)), f"0.tp{draw.randrange(_NAMES)}"]),
        lanes=draw.choice([1, 2, 4, 32]),
        threads=draw.choice([1, 1, 2, ROWS]),
        spans=draw.choice([8, 64, 256]),
        defers=draw.choice([0, 0, 4, 32]),
        flood=draw.choice([0, 0, 0, 40]),
        leaves_open=draw.random() < 0.2,
        rests_s=draw.choice([0.05, 0.1, 0.3]),
        forks=draw.choice([0, 0, 0, draw.randrange(1, 20)]),
        pauses_s=draw.choice([0.0] * 7 + [7.0]),
    )


def fate(seed: int, number: str) -> Fate:
    """Return how the worker with this number ends. Four of five workers live for a short time."""
    draw = random.Random(f"fate {seed} {number}")
    lives_s = draw.uniform(0.0, 3.0) if draw.random() < 0.8 else draw.uniform(10.0, 60.0)
    stopped_after_s = draw.uniform(0.0, lives_s) if draw.random() < 0.15 else None
    # A stop is either much shorter or longer than the time after which a daemon declares a worker without a lock dead.
    return Fate(lives_s, draw.random() < 0.5, stopped_after_s, draw.choice([0.05, 0.5, 8.0]))
