"""Facts on the machine, without which a number says little."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Model", "CPU part"}:
            return value.strip()
    return platform.machine()


def facts() -> dict[str, object]:
    """What a reader of the numbers wants to know."""
    return {
        "cpu_model": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "kernel": platform.release(),
        "kernel_clock": _CLOCKSOURCE.read_text().strip() if _CLOCKSOURCE.exists() else "unknown",
    }
