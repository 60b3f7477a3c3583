"""One cell. It has its own daemon and fleet, which run for some time without a fault, then with a fault, then again
without it.

Owns: the order of these steps, the traffic, when brickd is queried. Must not know: when a fault counts as found.
Invariants: the daemon, its directories and its segments belong to this cell only; every process ends with the cell.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from benchmarks.asking import Ask, asking
from benchmarks.faulty import frozen, judged
from benchmarks.faulty.cells import UNIQUE, Cell
from benchmarks.faulty.driven import SERVICE, Worker, fleet
from benchmarks.faulty.judged import AFTER, BEFORE, DURING, Look, Truth
from benchmarks.running import running
from benchmarks.workplace import workplace

_NUMBERS = 1 << 24
_REMOVE_SECONDS = 20.0


@dataclass
class _Traffic:
    """Requests for all workers, in any order of turns."""

    workers: Sequence[Worker]
    unique: bool
    random: Random
    rounds: int = 0
    # how many rounds had equal answers from all workers (True), and how many did not (False)
    compared: Counter[bool] = field(default_factory=Counter)
    odd: set[int] = field(default_factory=set)  # workers with an answer that differed from most answers
    seconds: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))

    def round(self, phase: str) -> None:
        """Send one request to each worker that is not busy."""
        base = self.random.randrange(_NUMBERS)
        digests: dict[int, str] = {}
        for number in self.random.sample(range(len(self.workers)), len(self.workers)):
            if not self.workers[number].busy:
                request = base + number * _NUMBERS if self.unique else base
                answer = self.workers[number].ask({"do": "answer", "number": request})
                if answer is not None:
                    digests[number] = answer["digest"]
                    self.seconds[phase, number].append(answer["seconds"])
        self.rounds += 1
        if not self.unique and len(digests) == len(self.workers):
            usual, times = Counter(digests.values()).most_common(1)[0]
            self.compared[times == len(digests)] += 1
            self.odd |= {number for number, digest in digests.items() if digest != usual}

    def times_slower(self, number: int) -> float | None:
        """Return the factor by which a worker's answers were slower with a fault; None if there is nothing to
        compare."""
        before, during = self.seconds[BEFORE, number], self.seconds[DURING, number]
        return statistics.median(during) / statistics.median(before) if before and during else None


class _Cell:
    """A running cell."""

    def __init__(self, cell: Cell, ask: Ask, workers: Sequence[Worker]) -> None:
        random = Random(cell.seed)
        self._ask, self.workers = ask, workers
        self.victim, self.fault_seed = random.randrange(len(workers)), random.getrandbits(32)
        self.traffic = _Traffic(workers, cell.traffic == UNIQUE, random)
        self.looks: list[Look] = []
        self.healthy_s = 0.0

    def status(self) -> dict[str, Any]:
        """The answer of `brickd status` about the service."""
        return self._ask([("status", SERVICE)])[0]

    def settle(self) -> None:
        """Wait until all workers are compared by weights, or until the time limit."""
        until = time.monotonic() + frozen.SETTLED_S
        while time.monotonic() < until:
            self.traffic.round("")
            numerics = self.status().get("numerics") or ()
            if any(each["weights"] and each["weights"]["workers_equal"] == len(self.workers) for each in numerics):
                return
            time.sleep(1 / frozen.ROUNDS_PER_S)

    def stretch(self, phase: str, seconds: float, ends: Callable[[], bool] = lambda: False) -> None:
        """Send requests and query brickd for `seconds`. Stop earlier if `ends` returns true after a query."""
        began = last = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            self.traffic.round(phase)
            if time.monotonic() - last >= frozen.LOOK_S:
                last = time.monotonic()
                document = self.status()
                if "error" in document:
                    raise RuntimeError(f"brickd status: {document['error']}")
                self.looks.append(Look(phase, last - began, document))
                if ends():
                    break
            time.sleep(max(0.0, 1 / frozen.ROUNDS_PER_S - (time.monotonic() - now)))
        if phase != DURING:
            self.healthy_s += time.monotonic() - began

    def names(self) -> dict[int, str]:
        """Return the workers' names by pid."""
        return {each["pid"]: each["name"] for each in self.status()["workers"]}


def tried(cell: Cell, *, quick: bool) -> dict[str, Any]:
    """Run one cell to its end; return its result for the file."""
    began, load = time.monotonic(), os.getloadavg()[0]
    lengths = frozen.QUICK if quick else frozen.FULL
    model_seed = str(cell.seed % _NUMBERS)
    with (
        workplace("verdicts") as place,
        running(place),
        asking(place) as ask,
        fleet(place, ("benchmarks.faulty.workers", cell.architecture, model_seed), {"do": "answer"}) as workers,
    ):
        running_cell = _Cell(cell, ask, workers)
        running_cell.settle()
        if cell.fault == frozen.HEALTHY:
            running_cell.stretch(BEFORE, lengths.healthy_s)
            truth = Truth(cell.fault)
        else:
            running_cell.stretch(BEFORE, lengths.before_s)
            truth = _with_fault(running_cell, cell, lengths)
            running_cell.stretch(AFTER, lengths.after_s)
        verdict = judged.judged(running_cell.looks, truth)
        traffic = running_cell.traffic
    return {
        "cell": cell.key,
        "architecture": cell.architecture,
        "fault": cell.fault,
        "traffic": cell.traffic,
        "seed": cell.seed,
        "worker": truth.worker or None,
        "scope": list(truth.scope),
        "detail": truth.detail,
        "answers_differ": truth.differs,
        "times_slower": traffic.times_slower(running_cell.victim),
        "healthy_s": round(running_cell.healthy_s, 1),
        "rounds": traffic.rounds,
        "seconds": round(time.monotonic() - began, 1),
        "load_1min": load,
        **asdict(verdict),
    }


def _with_fault(running_cell: _Cell, cell: Cell, lengths: frozen.Lengths) -> Truth:
    """Inject the fault, wait until it is found, and remove it; return the truth.

    Raises:
        RuntimeError: the worker does not inject the fault, or answers that must be equal differ.
    """
    victim, wanted = running_cell.workers[running_cell.victim], frozen.WANTED[cell.fault]
    if running_cell.traffic.odd:
        raise RuntimeError(f"{cell.key}: answers differ without a fault")
    name = running_cell.names()[victim.pid]
    told = victim.ask({"do": "inject", "fault": cell.fault, "seed": running_cell.fault_seed}, _REMOVE_SECONDS)
    if told is None:
        raise RuntimeError(f"{cell.key}: no answer to the injection")
    truth = Truth(cell.fault, name, tuple(told["scope"]), told["detail"])

    def over() -> bool:
        found = judged.judged(running_cell.looks, truth)
        return found.named_s is not None and found.right_place is not False

    with _busy_cpu(told["detail"] if cell.fault == "pinned" else None):
        running_cell.stretch(DURING, min(wanted.within_s, lengths.fault_s or wanted.within_s), over)
    if victim.ask({"do": "remove"}, _REMOVE_SECONDS) is None:
        raise RuntimeError(f"{cell.key}: the fault could not be removed")
    differs = running_cell.victim in running_cell.traffic.odd
    running_cell.traffic.odd.clear()
    return Truth(cell.fault, name, truth.scope, truth.detail, differs)


@contextmanager
def _busy_cpu(detail: str | None) -> Iterator[None]:
    """Keep the pinned worker's CPU busy."""
    if detail is None:
        yield
        return
    cpu = int(detail.split()[1])
    code = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()
