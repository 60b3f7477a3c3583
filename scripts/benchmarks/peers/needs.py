"""What another tool (peer) requires: a package, a command, or a compiled file. If something is missing, the row of the
peer says so.

This module installs nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

BENCH = "extra `bench` in pyproject.toml"


class AbsentError(Exception):
    """This machine lacks something that a peer needs; the text names it, and where to get it."""


def package(name: str, whence: str) -> Any:
    """Import a module as an untyped object, because the type checker may run without the peer."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise AbsentError(f"{name} does not load: {error}") from error
        raise AbsentError(f"{error.name} not found" + _from(whence)) from error
    except (ImportError, OSError) as error:
        raise AbsentError(f"{name} does not load: {error}") from error


def tool(name: str, whence: str = "") -> str:
    """Return the path of a command."""
    found = shutil.which(name)
    if found is None:
        raise AbsentError(f"{name} not found" + _from(whence))
    return found


def _from(whence: str) -> str:
    return f" ({whence})" if whence else ""


def compiled(target: Path, command: Sequence[str | Path], whence: str = "") -> Path:
    """Run a command that writes `target`, unless `target` exists."""
    if not target.exists():
        done = subprocess.run([*command, "-o", target], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            output = next((line for line in done.stderr.splitlines() if "error" in line), f"status {done.returncode}")
            raise AbsentError(f"{Path(command[0]).name} failed: {output}" + _from(whence))
    return target


def library(target: Path, command: Sequence[str | Path], whence: str = "") -> ctypes.CDLL:
    """Load the shared object that the command writes to `target`."""
    return ctypes.CDLL(str(compiled(target, command, whence)))


def loop(function: Any) -> Callable[[int], object]:
    """Return a function of a library that takes a count."""
    function.argtypes = [ctypes.c_uint64]
    function.restype = None
    return cast(Callable[[int], object], function)
