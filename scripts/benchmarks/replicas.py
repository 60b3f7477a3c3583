"""Services of forked replicas of a small transformer; at most one replica has a fault.

`python -m benchmarks.replicas PLAN REPORTS` forks the workers of the services in the file PLAN, lets a few work at a
time, and prints how many have finished. Then the program writes the result of each worker into the file REPORTS. The
workers run until stdin closes.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.damage import Fault, OperatorFault, WeightFault
from benchmarks.fleet import started
from benchmarks.parts import in_parts
from benchmarks.workplace import Workplace
from brickd.demo.transformer import Array, Model, Size, as_it_should, drawn

if TYPE_CHECKING:
    from brickd.shm import _reader

SIZE = Size(layers=4, width=64, heads=4, hidden=160, vocabulary=256, context=64)
SEED = 1  # the seed of the weights, which all services share
PROMPT, STEPS = 16, 5
MOMENTS = [(0, 0), *((step, PROMPT - 1 + step) for step in range(1, STEPS))]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_STEP_SLOTS = 512  # the most slots that one step needs
_LOOK_SECONDS = 0.002


@dataclass(frozen=True)
class Service:
    """Replicas that get the same prompts.

    Attributes:
        name: the name of the service.
        workers: their number.
        prompts: the prompts of each worker, one after the other.
        steps: the number of steps for each answer.
        fault: the fault of one worker.
        split: the workers that add up each matrix product in several parts.
    """

    name: str
    workers: int
    prompts: tuple[tuple[int, ...], ...]
    steps: int = STEPS
    fault: Fault | None = None
    split: frozenset[int] = frozenset()


class Report(NamedTuple):
    """The result of a worker.

    Attributes:
        service: its service.
        worker: its number.
        struck: true if its fault changed a bit, and if the first change was at the planned place.
        error: the error of the operator there, divided by the norm of worker 0's tensor.
        tokens: its answers.
    """

    service: str
    worker: int
    struck: bool
    error: float
    tokens: Sequence[int]


@contextmanager
def replicas(place: Workplace, services: Sequence[Service]) -> Iterator[list[Report]]:
    """Run the workers of some services; yield when all have finished, and keep them alive."""
    plan, reports = place.folder / "plan", place.folder / "reports"
    plan.write_bytes(pickle.dumps(list(services)))
    reports.write_bytes(b"")
    workers = sum(service.workers for service in services)
    place.environment.update(_ONE_THREAD)
    with started(place, (sys.executable, "-m", "benchmarks.replicas", str(plan), str(reports)), workers):
        yield read(reports.read_bytes())


def read(content: bytes) -> list[Report]:
    """Return the reports in the file, by service and worker."""
    return sorted((Report(*json.loads(line)) for line in content.splitlines()), key=lambda report: report[:2])


class _Files(NamedTuple):
    """The pipes of the children. A worker takes a byte from `turns` before it works, and returns it afterwards."""

    turns: int
    taken: int
    reports: int
    done: int


class _Room:
    """Wait until the event ring has room for a step, so that nothing is lost."""

    def __init__(self, segment: _reader.SegmentCopier) -> None:
        self._segment = segment
        slots = segment.header()["event_slots"]
        self._most = slots - slots // 8 - _STEP_SLOTS  # an eighth of the ring is reserved for other records

    def wait(self) -> None:
        while self._waiting() > self._most:
            time.sleep(_LOOK_SECONDS)

    def _waiting(self) -> int:
        ((_, lane, consumer),) = self._segment.lanes()
        return lane["event_head"] - consumer["event"][0]


def _work(service: Service, worker: int, weights: dict[str, Array]) -> Report:
    import brick_agent as brick
    from brick_agent import _core

    from brickd.shm import _reader

    if not brick.init(service.name, worker):
        raise RuntimeError("no segment could be opened: see the line that brick_agent wrote")
    fault = service.fault if service.fault is not None and service.fault.worker == worker else None
    struck = isinstance(fault, WeightFault) and fault.strike(weights, SIZE)
    brick.weights(weights)
    model = Model(
        SIZE,
        in_parts(weights) if worker in service.split else weights,
        fault if isinstance(fault, OperatorFault) else as_it_should,
    )
    room = _Room(_reader.SegmentCopier(_core._segment_fd()))
    tokens = []
    for number, prompt in enumerate(service.prompts):
        for token in islice(model.generate(prompt, step=number * service.steps), service.steps):
            tokens.append(token)
            room.wait()
    if isinstance(fault, OperatorFault):
        struck = fault.born == fault.place
    error = fault.error if isinstance(fault, OperatorFault) else 0.0
    return Report(service.name, worker, struck, error, tokens[-STEPS:])


def _child(service: Service, worker: int, weights: dict[str, Array], files: _Files) -> None:
    """Run one worker, from its turn to the end of the run."""
    import brick_agent as brick

    os.read(files.turns, 1)
    try:
        report = _work(service, worker, weights)
        os.write(files.reports, json.dumps(report).encode() + b"\n")
        os.write(files.done, b".")
    finally:
        os.write(files.taken, b".")
        os.close(files.done)
    os.read(0, 1)
    brick.shutdown()


def main() -> None:
    """Fork the workers, and wait for them."""
    with open(sys.argv[1], "rb") as plan:
        services: list[Service] = pickle.load(plan)
    weights = drawn(SIZE, SEED)
    ready, done = os.pipe()
    turns, taken = os.pipe()
    files = _Files(turns, taken, os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND), done)
    os.write(taken, b"." * len(os.sched_getaffinity(0)))
    children = []
    for service in services:
        for worker in range(service.workers):
            child = os.fork()
            if child == 0:
                os.close(ready)
                try:
                    _child(service, worker, weights, files)
                except BaseException:
                    traceback.print_exc()
                os._exit(0)  # skip the interpreter's exit, which takes longer than all of the work
            children.append(child)
    os.close(done)
    with open(ready, "rb") as pipe:
        finished = len(pipe.read())  # returns when every worker has closed its end of the pipe
    print(finished, flush=True)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
