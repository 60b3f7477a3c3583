"""Facts on this machine, without which a number that was measured on it says little.

Owns: how they are found. Must not know: what is measured. Invariant: the same machine, as much of it as this process
may use, has the same facts.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Machine:
    """What tells one machine from another.

    Attributes:
        cpu_model: what its processors call themselves.
        cpus: how many of them this process may use.
    """

    cpu_model: str
    cpus: int


def here() -> Machine:
    """This machine."""
    return Machine(_cpu_model(), len(os.sched_getaffinity(0)))


def _cpu_model() -> str:
    for line in _CPUINFO.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Model", "CPU part"}:
            return value.strip()
    return platform.machine()
