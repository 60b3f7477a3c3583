"""Does brickd name the slow or pinned worker, and no other worker, on busy processors?

Each run is a service of four processes that answer requests at random times. In one kind of run, a worker takes twice
as long in one brick. In the other kinds, one worker takes 20 % longer in this brick, one worker may use only one
processor, or no worker is slow. The services of a batch share the processors with `load` processes that only compute.
Other work on this machine adds to the load. Therefore the report also has the load that was measured.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.fleet import started
from benchmarks.goals import Goal
from benchmarks.peers import needs
from benchmarks.report import Table
from benchmarks.running import Running
from benchmarks.workplace import Workplace, progress

Kind = Literal["2 x slow", "20 % slow", "pinned", "nobody slow"]
LOADS = 5, 25, 40
WORKERS = 4
BRICK = "gemm"  # the brick in which one worker is slow
WITHIN_SECONDS, LATE_SECONDS = 60.0, 10.0

_PER_MILLE: dict[Kind, int] = {"2 x slow": 1_000, "20 % slow": 200, "pinned": 0, "nobody slow": 0}
_GOALS: dict[tuple[Kind, int], Goal] = {
    ("2 x slow", 5): Goal(95, at_least=True),
    ("2 x slow", 25): Goal(95, at_least=True),
    ("2 x slow", 40): Goal(95, at_least=True),
    ("20 % slow", 5): Goal(90, at_least=True),
}
_FALSE = Goal(1)
_PINNED_CPU = min(os.sched_getaffinity(0))
_ON_PINNED = 4  # busy processes on the processor of pinned workers
_AGENT = Path(__file__).resolve().parents[2] / "agent"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-pthread")
_LOOK_SECONDS = 2.0
_SEED = 2027


@dataclass
class Run:
    """A service, and what brickd reported about it.

    Attributes:
        slow: the index of the slow or pinned worker.
        named_s: the time from the start of the service until brickd named this worker with the right brick.
        wrong: the reports that named another worker or another brick.
    """

    service: str
    kind: Kind
    slow: int
    seed: int
    named_s: float | None = None
    wrong: set[str] = field(default_factory=set)
    began: float = 0.0

    @property
    def named(self) -> bool:
        return self.named_s is not None and self.named_s <= WITHIN_SECONDS

    def note(self, worker: str, brick: str, now: float) -> None:
        """Record that a worker was named. If the brick is empty, the worker is waiting for a processor."""
        right = {"pinned": "", "nobody slow": None}.get(self.kind, BRICK)
        if (worker, brick) != (f"{self.service}/{self.slow}", right):
            self.wrong.add(f"{worker} in {brick}" if brick else f"{worker} waits")
        elif self.named_s is None:
            self.named_s = now - self.began


def table(place: Workplace, daemon: Running, runs: int) -> Table:
    """Watch `runs` services of each kind at each load. One service of each kind runs at a time."""
    rows = []
    for load in LOADS:
        planned = plan(load, runs)
        loads: list[float] = []
        for number in range(runs):
            progress(f"load {load}: {number} of {runs} services of each kind were watched")
            batch = planned[number * len(get_args(Kind)) :][: len(get_args(Kind))]
            loads.append(_watch(place, daemon, batch, load))
        rows += [row([each for each in planned if each.kind == kind], kind, load, loads) for kind in get_args(Kind)]
    title = f"{WORKERS} workers that compute beside busy processes, named within {WITHIN_SECONDS:g} s"
    return Table("contended", title, rows)


def plan(load: int, runs: int) -> list[Run]:
    """Return `runs` services of each kind, in alternating order."""
    chance = random.Random(f"{_SEED} {load}")
    return [
        Run(f"load-{load}-{number}-{place}", kind, chance.randrange(WORKERS), chance.randrange(1 << 30))
        for number in range(runs)
        for place, kind in enumerate(get_args(Kind))
    ]


def _watch(place: Workplace, daemon: Running, batch: Sequence[Run], load: int) -> float:
    """Run the services of a batch next to busy processes; return the machine's load at the end."""
    by_service = {each.service: each for each in batch}
    with ExitStack() as stack:
        stack.enter_context(_busy(load))
        for each in batch:
            stack.enter_context(_service(place, each))()
            each.began = time.monotonic()
        while time.monotonic() < batch[-1].began + WITHIN_SECONDS + LATE_SECONDS:
            time.sleep(_LOOK_SECONDS)
            for service, worker, brick in daemon.named():
                if service in by_service:
                    by_service[service].note(worker, brick, time.monotonic())
        return os.getloadavg()[0]


@contextmanager
def _busy(load: int) -> Iterator[None]:
    """Run `load` busy processes that may use all processors, and some more that use only the processor of pinned
    workers.
    """
    loop = ("sh", "-c", "while :; do :; done")
    pinned = ("taskset", "-c", str(_PINNED_CPU), *loop)
    processes = [subprocess.Popen(command) for command in (*[loop] * load, *[pinned] * _ON_PINNED)]
    try:
        yield
    finally:
        for each in processes:
            each.kill()
        for each in processes:
            each.wait()


@contextmanager
def _service(place: Workplace, run: Run) -> Iterator[Callable[[], None]]:
    """Prepare the workers of a run; yield a function that makes them begin."""
    gcc = needs.tool("gcc", "Debian: gcc")
    sources = (Path(__file__).with_suffix(".c"), *sorted((_AGENT / "src").glob("[wf]*/*.c")))
    command: tuple[str | Path, ...] = (gcc, *_FLAGS, f"-I{_AGENT / 'include'}", *sources, "-lm")
    program = str(needs.compiled(place.folder / "contended", command))
    cpu = _PINNED_CPU if run.kind == "pinned" else -1
    arguments = (str(WORKERS), str(run.seed), str(run.slow), str(_PER_MILLE[run.kind]), str(cpu))
    with started(place, (program, run.service, *arguments), WORKERS) as stdin:

        def begin() -> None:
            stdin.write(b".")
            stdin.flush()

        yield begin


def row(runs: Sequence[Run], kind: Kind, load: int, loads: Sequence[float]) -> dict[str, Any]:
    """Return the row of all runs of a kind."""
    named, wrong = sum(run.named for run in runs), sum(bool(run.wrong) for run in runs)
    seconds = [run.named_s for run in runs if run.named_s is not None]
    goal = _GOALS.get((kind, load))
    good = _FALSE.met(100 * wrong / len(runs)) and (goal is None or goal.met(100 * named / len(runs)))
    return {
        "case": f"{kind}, load {load}",
        "runs": len(runs),
        "load_measured": round(statistics.median(loads), 1),
        "named": None if kind == "nobody slow" else named,
        "wrong": wrong,
        "seconds_to_name_median": statistics.median(seconds) if seconds else None,
        "seed": _SEED,
        "goal": f"wrong {_FALSE} %" if goal is None else f"named {goal} %, wrong {_FALSE} %",
        "passed": good,
        "note": "; ".join(_remarks(runs)),
        "skipped": None,
    }


def _remarks(runs: Iterable[Run]) -> Iterator[str]:
    for run in runs:
        if run.wrong:
            yield f"{run.service}: {', '.join(sorted(run.wrong))} named"
        if run.kind != "nobody slow" and not run.named:
            yield f"{run.service}: {run.slow} not named" if run.named_s is None else f"{run.service}: {run.slow} late"
