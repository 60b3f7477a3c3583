"""Compile control.c, with the flags of the agent and the clock that it selected."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

_SOURCE = Path(__file__).with_name("control.c")


def compile_control(folder: Path, clock: int) -> None:
    """Compile the modules `control_clock` and `control_empty` into a folder."""
    for name, kind in (("control_clock", clock), ("control_empty", 0)):
        target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
        defined = (f"-DCONTROL_NAME={name}", f"-DCONTROL_CLOCK={kind}")
        flags = (
            "-std=c11",
            "-D_GNU_SOURCE",
            "-DNDEBUG",
            "-fwrapv",
            "-O2",
            "-flto",
            "-fvisibility=hidden",
            "-fPIC",
            "-shared",
        )
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run(["gcc", *flags, *defined, include, str(_SOURCE), "-o", str(target)], check=True)
