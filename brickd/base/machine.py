"""This machine: its processors, and the small files in which the kernel describes it.

Owns: how such a file is read. Must not know: what is measured, what a file means. Invariants: equal machines and equal
rights to use their processors give equal facts; a missing or unreadable file is None, never an error.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Machine:
    """The model of the processors, and the number that this process may use."""

    cpu_model: str
    cpus: int


def here() -> Machine:
    """This machine."""
    lines = (line.partition(":") for line in _CPUINFO.read_text().splitlines())
    models = (value.strip() for key, _, value in lines if key.strip() in {"model name", "Model", "CPU part"})
    return Machine(next(models, platform.machine()), len(os.sched_getaffinity(0)))


def read(path: Path, most: int = 1 << 16) -> str | None:
    """Read the text of a file, `most` bytes at most."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Read a file that contains only a number."""
    text = (read(path) or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
