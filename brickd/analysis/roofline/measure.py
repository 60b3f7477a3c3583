"""How much this machine computes and reads in a second: a program that measures one device.

Owns: what is measured, and by what. Must not know: where peaks are kept, screens. Invariants: a figure is
the best of several rounds, each of which was measured, never one that was worked out; of threads that run together it
is what all moved from the first one's begin to the last one's end; what cannot be measured is told with the reason.

FLOP/s are those of numpy's matrix product, that is of the BLAS behind it: what a good kernel reaches here, not what the
processor's data sheet says. Bandwidths are measured by `_peaks`, in C: numpy's own copy takes longer to call than
L1 takes to give what it holds. It is a program because a BLAS asks how many processors it may use once, as it is
loaded: the process of one core is bound to one before.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from brickd.analysis.roofline import _peaks
from brickd.analysis.roofline.peaks import MEMORY, Bandwidth, Skipped
from brickd.analysis.roofline.working_sets import PAGE, WorkingSet, caches, room, working_sets

_TYPES = ("float32", "float64")
_GPU_TYPES = ("float64", "float32", "tf32", "bfloat16", "float16")
_GPU_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly to measure; `caches`: the size of memory's working set, in last caches."""

    matrix: int = 2048
    gpu_matrix: int = 8192
    rounds: int = 5
    round_ns: int = 100_000_000
    caches: int = 4


QUICK = Plan(matrix=1024, gpu_matrix=4096, rounds=2, round_ns=20_000_000, caches=2)


class Begun(NamedTuple):
    """The device of all lines that follow."""

    name: str
    by: str


class Next(NamedTuple):
    """The measurement that begins."""

    what: str


class Flops(NamedTuple):
    """A peak of computing."""

    type: str
    per_second: float


Line = Begun | Next | Flops | Bandwidth | Skipped
_KINDS: dict[str, type[Line]] = {each.__name__: each for each in (Begun, Next, Flops, Bandwidth, Skipped)}


def encode(line: Line) -> str:
    """A line of this program's output."""
    return json.dumps([type(line).__name__, *line])


def decode(line: str) -> Line:
    """Parse a line of this program's output."""
    kind, *values = json.loads(line)
    return _KINDS[kind](*values)


def processors(name: str, cpus: Collection[int], plan: Plan, levels: Iterable[WorkingSet | Skipped]) -> Iterator[Line]:
    """Measure processors together."""
    yield Begun(name, _library())
    for kind in _TYPES:
        yield Next(kind)
        yield Flops(kind, max(_product(plan.matrix, kind) for _ in range(plan.rounds)))
    for each in levels:
        if isinstance(each, Skipped):
            yield each
            continue
        yield Next(each.level)
        try:
            yield Bandwidth(each.level, bandwidth(each.size_bytes, cpus, plan), each.size_bytes * len(cpus))
        except OSError as error:  # the memory is not to be had
            yield Skipped(each.level, str(error))


def bandwidth(size_bytes: int, cpus: Collection[int], plan: Plan) -> float:
    """The bytes per second that threads read, one on each processor with its own working set.

    Raises:
        OSError: not enough memory.
    """
    together = threading.Barrier(len(cpus))

    def reads(cpu: int) -> list[tuple[int, int, int]]:
        try:
            os.sched_setaffinity(0, {cpu})  # of this thread
            buffer = mmap.mmap(-1, size_bytes)
            with contextlib.suppress(OSError):  # a kernel without them
                buffer.madvise(mmap.MADV_HUGEPAGE)
            for offset in range(0, size_bytes, PAGE):
                buffer[offset] = 1
            rounds = []
            for _ in range(plan.rounds):
                together.wait()
                rounds.append(_peaks.reads(buffer, plan.round_ns))
        except BaseException:
            together.abort()
            raise
        return rounds

    with ThreadPoolExecutor(len(cpus)) as threads:
        ended = [threads.submit(reads, cpu) for cpu in cpus]
    for error in [each.exception() for each in ended]:
        if error is not None and not isinstance(error, threading.BrokenBarrierError):
            raise error
    return max(_rate(parts) for parts in zip(*(each.result() for each in ended), strict=True))


def _rate(parts: Collection[tuple[int, int, int]]) -> float:
    begun, ended = min(part[1] for part in parts), max(part[2] for part in parts)
    return sum(part[0] for part in parts) / (ended - begun) * 1e9


def _library() -> str:
    import numpy

    blas = numpy.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"numpy {numpy.__version__} with {blas.get('name', 'an unnamed BLAS')} {blas.get('version', '')}".rstrip()


def _product(size: int, kind: str) -> float:
    import numpy

    a = numpy.full((size, size), 0.5, kind)
    b, into = a.copy(), numpy.empty_like(a)
    numpy.matmul(a, b, out=into)
    begun = time.perf_counter()
    numpy.matmul(a, b, out=into)
    return 2 * size**3 / (time.perf_counter() - begun)


def gpus(plan: Plan) -> Iterator[Line]:
    """Measure each GPU that torch sees."""
    try:
        import torch
    except ImportError:
        yield Skipped("gpu", "no torch in the Python that brickd runs in: install it there, or give the peaks")
        return
    if not torch.cuda.is_available():
        yield Skipped("gpu", f"torch {torch.__version__} sees no GPU")
        return
    for index in range(torch.cuda.device_count()):
        yield Begun(f"gpu{index}", f"{torch.cuda.get_device_name(index)}, torch {torch.__version__}")
        with torch.cuda.device(index):
            for kind in _GPU_TYPES:
                yield Next(kind)
                try:
                    yield Flops(kind, _gpu_product(plan, kind))
                except RuntimeError as error:  # no memory, or no such type
                    yield Skipped(kind, str(error).partition("\n")[0])
            yield Next(MEMORY)
            try:
                yield Bandwidth(MEMORY, _gpu_copy(plan), 2 * _GPU_BYTES)
            except RuntimeError as error:
                yield Skipped(MEMORY, str(error).partition("\n")[0])


def _gpu_product(plan: Plan, kind: str) -> float:
    import torch

    size = plan.gpu_matrix
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    a = torch.full((size, size), 0.5, dtype=getattr(torch, "float32" if kind == "tf32" else kind), device="cuda")
    b, into = a.clone(), torch.empty_like(a)
    return 2 * size**3 / min(_gpu_seconds(plan, lambda: torch.matmul(a, b, out=into)))


def _gpu_copy(plan: Plan) -> float:
    """Read and written bytes together."""
    import torch

    source = torch.zeros(_GPU_BYTES, dtype=torch.uint8, device="cuda")
    into = torch.empty_like(source)
    return 2 * _GPU_BYTES / min(_gpu_seconds(plan, lambda: into.copy_(source)))


def _gpu_seconds(plan: Plan, work: Callable[[], object]) -> Iterator[float]:
    import torch

    work()
    for _ in range(plan.rounds):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        work()
        ended.record()
        ended.synchronize()
        yield begun.elapsed_time(ended) / 1e3


def measured(what: str, plan: Plan) -> Iterator[Line]:
    """Measure "core", "machine" or "gpu"."""
    if what == "gpu":
        yield from gpus(plan)
        return
    cpus = sorted(os.sched_getaffinity(0))
    if what == "core":
        cpus = cpus[-1:]
        os.sched_setaffinity(0, cpus)
    yield from processors(what, cpus, plan, working_sets(caches(cpus[-1]), cpus, plan.caches, room()))


if __name__ == "__main__":
    for each in measured(sys.argv[1], QUICK if sys.argv[2:] == ["quick"] else Plan()):
        print(encode(each), flush=True)
