"""A program that measures how much the processors or GPUs compute and read per second.

Owns: the list of measurements, how the time is divided. Must not know: where peaks are stored, screens. Invariants: A
rate is the best of many measured rounds, and is never calculated. An impossible measurement is reported with the
reason. No measurement begins after the deadline.

The FLOP/s of a processor are measured with multiply-adds in registers, once per instruction set: no kernel that uses
the same instructions is faster. The FLOP/s of a GPU are measured with torch's matrix product. The measurement is a
separate program, because it binds its threads to processors, and because it can be killed if a driver hangs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from brickd.analysis.roofline import _peaks
from brickd.analysis.roofline.peaks import MEMORY, Bandwidth, Skipped
from brickd.analysis.roofline.rounds import ProcessorUse, Round, Rounds, Work, rounds
from brickd.analysis.roofline.working_sets import (
    PAGE,
    CpuCache,
    WorkingSet,
    caches,
    room,
    working_sets,
)
from brickd.base.processors import cores, neighbours, online

_TYPES = {"float32": 4, "float64": 8}
_GPU_TYPES = ("float64", "float32", "tf32", "bfloat16", "float16")
_LATE = "no time was left"
_GPU_BYTES = 1 << 30
_GPU_MATRIX = 8192
# The working set for measuring memory, as a multiple of the last cache.
_CACHES = 4


class Plan(NamedTuple):
    """When a measurement ends: after `enough` undisturbed rounds per rate, or at `until_ns` of CLOCK_MONOTONIC."""

    enough: int
    until_ns: int

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic_ns() >= self.until_ns

    def shared_by(self, figures: int) -> Plan:
        """Return the plan for the next rate, given that `figures` rates share the time that is left."""
        now = time.monotonic_ns()
        return Plan(self.enough, now + (self.until_ns - now) // figures)


class Begun(NamedTuple):
    """The device that all following lines describe."""

    name: str
    by: str


class Next(NamedTuple):
    """The measurement that now begins."""

    what: str


class Flops(NamedTuple):
    """The peak FLOP/s of a type of number."""

    type: str
    per_second: float


Line = Begun | Next | Flops | Bandwidth | Rounds | Skipped
_KINDS: dict[str, type[Line]] = {each.__name__: each for each in (Begun, Next, Flops, Bandwidth, Rounds, Skipped)}


def encode(line: Line) -> str:
    """Encode a line of this program's output."""
    return json.dumps([type(line).__name__, *line])


def decode(line: str) -> Line:
    """Parse a line of this program's output."""
    kind, *values = json.loads(line)
    return _KINDS[kind](*values)


def processors(
    name: str, cpus: Sequence[int], plan: Plan, levels: Sequence[WorkingSet | Skipped], found: Sequence[CpuCache]
) -> Iterator[Line]:
    """Measure these processors together."""
    sets, before = _peaks.sets()[:2], ProcessorUse.now()
    yield Begun(name, " and ".join(sets))
    left = len(_TYPES) + len(levels)
    for kind, size in _TYPES.items():
        part, left = plan.shared_by(left), left - 1
        if plan.is_over:
            yield Skipped(kind, _LATE)
            continue
        yield Next(kind)
        tried = [computing(of, size, cpus, part.shared_by(len(sets) - number)) for number, of in enumerate(sets)]
        yield from _figure(kind, fastest(tried), before, shared=_shared(neighbours(cpus), cpus))
    for level in levels:
        part, left = plan.shared_by(left), left - 1
        if isinstance(level, Skipped) or plan.is_over:
            yield level if isinstance(level, Skipped) else Skipped(level.level, _LATE)
            continue
        yield Next(level.level)
        users = next((cache.cpus for cache in found if cache.level == level.level), online())
        try:
            reached = reading(level.size_bytes, cpus, part)
        except OSError as error:  # not enough memory
            yield Skipped(level.level, str(error))
            continue
        size_bytes = level.size_bytes * len(cpus)
        yield from _figure(level.level, reached, before, shared=_shared(users, cpus), size_bytes=size_bytes)


def fastest(tried: Iterable[Sequence[Round]]) -> Sequence[Round]:
    """Return the rounds of the fastest instruction set. Rounds of other instruction sets do not confirm its rate."""
    return max(tried, key=lambda found: max((each.per_second for each in found), default=0.0))


def _shared(users: Collection[int], cpus: Sequence[int]) -> bool:
    """Whether other processors share the unit, cache or memory; True if that is unknown."""
    return not users or not set(users) <= set(cpus)


def _figure(
    of: str, found: Sequence[Round], before: ProcessorUse, *, shared: bool, size_bytes: int | None = None
) -> Iterator[Line]:
    if not found:
        yield Skipped(of, "because of other work, the processors never worked at the same time")
        return
    best = Rounds.best(of, found, shared=shared, others_processors=ProcessorUse.now().others_processors(before))
    yield best
    yield Flops(of, best.per_second) if size_bytes is None else Bandwidth(of, best.per_second, size_bytes)


def computing(instructions: str, number_bytes: int, cpus: Sequence[int], plan: Plan) -> list[Round]:
    """Measure rounds of multiply-adds."""
    work = functools.partial(_peaks.madds, instructions, number_bytes)
    return rounds(cpus, lambda: work, until_ns=plan.until_ns, enough=plan.enough)


def reading(size_bytes: int, cpus: Sequence[int], plan: Plan) -> list[Round]:
    """Measure rounds in which each thread repeatedly reads its working set.

    Raises:
        OSError: there is not enough memory.
    """

    def prepare() -> Work:
        buffer, offset = mmap.mmap(-1, size_bytes), 0
        with contextlib.suppress(OSError):  # a kernel without huge pages
            buffer.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, size_bytes, PAGE):
            buffer[page] = 1

        def work(until_ns: int) -> list[tuple[int, int, int, int, int]]:
            nonlocal offset
            parts, offset = _peaks.reads(buffer, offset, until_ns)
            return parts

        return work

    return rounds(cpus, prepare, until_ns=plan.until_ns, enough=plan.enough)


def gpus(plan: Plan) -> Iterator[Line]:
    """Measure each GPU that torch sees."""
    import torch

    if not torch.cuda.is_available():
        yield Skipped("gpu", f"torch {torch.__version__} sees no GPU")
        return
    count = torch.cuda.device_count()
    left = count * (len(_GPU_TYPES) + 1)
    for index in range(count):
        yield Begun(f"gpu{index}", torch.cuda.get_device_name(index))
        before = ProcessorUse.now()
        with torch.cuda.device(index):
            for kind in (*_GPU_TYPES, MEMORY):
                part, left = plan.shared_by(left), left - 1
                if plan.is_over:
                    yield Skipped(kind, _LATE)
                    continue
                yield Next(kind)
                try:
                    amount, work = _gpu_copy() if kind == MEMORY else _gpu_product(kind)
                    size_bytes = amount if kind == MEMORY else None
                    reached = _gpu_rounds(amount, work, part)
                    yield from _figure(kind, reached, before, shared=True, size_bytes=size_bytes)
                except RuntimeError as error:  # no memory, or an unsupported type
                    yield Skipped(kind, str(error).partition("\n")[0])


def _gpu_product(kind: str) -> tuple[int, Callable[[], object]]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    numbers = getattr(torch, "float32" if kind == "tf32" else kind)
    a = torch.full((_GPU_MATRIX, _GPU_MATRIX), 0.5, dtype=numbers, device="cuda")
    b, into = a.clone(), torch.empty_like(a)
    return 2 * _GPU_MATRIX**3, lambda: torch.matmul(a, b, out=into)


def _gpu_copy() -> tuple[int, Callable[[], object]]:
    """A copy on the GPU; its amount counts both the read and the written bytes."""
    import torch

    source = torch.zeros(_GPU_BYTES, dtype=torch.uint8, device="cuda")
    into = torch.empty_like(source)
    return 2 * _GPU_BYTES, lambda: into.copy_(source)


def _gpu_rounds(amount: int, work: Callable[[], object], plan: Plan) -> list[Round]:
    """Measure rounds of a GPU. Other processes on a GPU are not visible, so all rounds count as disturbed."""
    import torch

    work()
    found: list[Round] = []
    while not found or (len(found) < plan.enough and time.monotonic_ns() < plan.until_ns):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        work()
        ended.record()
        ended.synchronize()
        found.append(Round(amount / begun.elapsed_time(ended) * 1e3, "unseen"))
    return found


def measured(what: str, plan: Plan) -> Iterator[Line]:
    """Measure the "processors" (first one core, then all cores) or the "gpus"."""
    if what == "gpus":
        yield from gpus(plan)
        return
    together = cores()
    # A round of one core is undisturbed if the processor of that core is undisturbed. A round of all cores is
    # undisturbed if all processors are undisturbed.
    for name, cpus, part in (("core", [_idlest()], plan.shared_by(3)), ("machine", together, plan)):
        if name == "machine" and len(cpus) == 1:
            continue
        found = caches(cpus[-1])
        yield from processors(name, cpus, part, list(working_sets(found, cpus, _CACHES, room())), found)


def _idlest() -> int:
    """Return the processor on which this program runs. The kernel chose it because it was idle."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        cpu = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[36])
        if cpu in os.sched_getaffinity(0):
            return cpu
    return max(os.sched_getaffinity(0))


if __name__ == "__main__":
    for each in measured(sys.argv[1], Plan(int(sys.argv[2]), int(sys.argv[3]))):
        print(encode(each), flush=True)
