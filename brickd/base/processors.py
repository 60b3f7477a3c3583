"""The processors of this machine: which of them share a core, and which of them this process may use.

Owns: how the kernel is asked for these facts. Must not know: what is measured on the processors. Invariants: If two
machines and their limits are equal, so are the facts. A CPU limit of a control group is converted into a number of
cores.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from brickd.base import cgroups
from brickd.base.files import read

CPUS = "sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Machine:
    """The model of the processors, and the number of cores that this process may use."""

    cpu_model: str
    cpus: int


def here(root: Path = Path("/")) -> Machine:
    """Return a description of this machine."""
    lines = (line.partition(":") for line in (read(root / "proc/cpuinfo") or "").splitlines())
    models = (value.strip() for key, _, value in lines if key.strip() in {"model name", "Model", "CPU part"})
    return Machine(next(models, platform.machine()), len(cores(root)))


def virtual(root: Path = Path("/")) -> bool:
    """Whether this is a virtual machine; False if the kernel does not report it, as on arm64."""
    lines = (line.partition(":") for line in (read(root / "proc/cpuinfo") or "").splitlines())
    return any(key.strip() == "flags" and "hypervisor" in value.split() for key, _, value in lines)


def cores(root: Path = Path("/")) -> list[int]:
    """Return one processor of each allowed core, but no more than the control groups allow."""
    limit = cgroups.processors(os.getpid(), root)
    return chosen(os.sched_getaffinity(0), limit, lambda cpu: neighbours([cpu], root / CPUS))


def chosen(cpus: Iterable[int], limit: float | None, core: Callable[[int], Collection[int]]) -> list[int]:
    """Return one processor of each core, up to the limit. `core` finds all processors on the core of a processor."""
    found: list[int] = []
    for cpu in sorted(cpus):
        if not set(core(cpu)) & set(found):
            found.append(cpu)
    return found if limit is None else found[: max(1, math.ceil(limit))]


def neighbours(cpus: Iterable[int], under: Path = Path("/", CPUS)) -> set[int]:
    """Return all processors that share a core with one of these processors, including these processors."""
    return {*cpus}.union(
        *(listed((read(under / f"cpu{cpu}/topology/thread_siblings_list") or "").strip()) for cpu in cpus)
    )


def online(under: Path = Path("/", CPUS)) -> frozenset[int]:
    """Return all online processors of this machine; empty if the kernel does not report them."""
    return frozenset(listed((read(under / "online") or "").strip()))


def listed(numbers: str) -> Iterator[int]:
    """Yield the numbers in a list that is in the kernel's format.

    >>> list(listed("0-2,8"))
    [0, 1, 2, 8]
    """
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first), int(last or first) + 1)
