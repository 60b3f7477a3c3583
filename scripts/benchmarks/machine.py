"""Facts about the machine that a reader needs in order to judge the numbers."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from brickd.base.processors import here

_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def facts() -> dict[str, object]:
    return {
        **asdict(here()),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "kernel": platform.release(),
        "kernel_clock": _CLOCKSOURCE.read_text().strip() if _CLOCKSOURCE.exists() else "unknown",
    }


def line(of: Mapping[str, object]) -> str:
    """Return the facts as the caption of a picture."""
    return f"{of['cpu_model']}, {of['cpus']} cores; Python {of['python']}, Linux {of['kernel']}."
