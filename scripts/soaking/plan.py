"""What one worker is to do, drawn from the seed and its number."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, replace

from soaking.account import ROWS

REQUEST, WORK, LEFT, KERNEL = "request", "work", "left", "kernel"  # bricks; the last one is only deferred
MEASURED_NS = 7  # what each measurement says
# Of these the operator wants every span in detail: see `Churn`.
DETAILED = "detailed"
SERVICES = ("api", "batch", DETAILED)
_NAMES = 12  # declared ones of a service: fewer than there are workers, so that they come again


@dataclass(frozen=True)
class Plan:
    """What it does.

    Attributes:
        number: which worker it is; of a fork's child its parent's with a letter behind it.
        worker: the name that it declares (BRICKD_WORKER), or "".
        lanes: BRICKD_LANES, which may be too few.
        threads: that record at once, anew in each batch.
        spans: of each thread in a batch.
        defers: in a batch.
        flood: each so many batches it records more than any ring holds; 0: never.
        leaves_open: its threads end with a span open.
        rests_s: between two batches.
        forks: after so many batches; 0: never.
        pauses_s: once it does nothing for so long.
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
        """In a line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, line: str) -> Plan:
        """What `json` said."""
        return cls(**json.loads(line))

    def child(self) -> Plan:
        """What its child does: the same under the same name, and has none."""
        return replace(self, number=self.number + "c", forks=0)


@dataclass(frozen=True)
class Fate:
    """What becomes of a worker.

    Attributes:
        lives_s: so long.
        killed: else it ends by itself, as it is asked to.
        stopped_after_s: SIGSTOP; None: never.
        stopped_s: until SIGCONT, or SIGKILL where it lives no longer than that.
    """

    lives_s: float
    killed: bool
    stopped_after_s: float | None
    stopped_s: float


def plan(seed: int, number: int) -> Plan:
    """Of the worker with this number."""
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
    """Of the worker with this number: four of five live shortly."""
    draw = random.Random(f"fate {seed} {number}")
    lives_s = draw.uniform(0.0, 3.0) if draw.random() < 0.8 else draw.uniform(10.0, 60.0)
    stopped_after_s = draw.uniform(0.0, lives_s) if draw.random() < 0.15 else None
    # Longer than the daemon waits before it takes a worker without a lock for dead, or shortly.
    return Fate(lives_s, draw.random() < 0.5, stopped_after_s, draw.choice([0.05, 0.5, 8.0]))
