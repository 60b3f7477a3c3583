"""The documents about this machine: `configuration.json` and `environment.json`, and the host in the manifest.

Owns: their keys, which variables are included. Must not know: redaction, archives. Invariants: No variable is included
whose name does not begin with BRICKD_. A fact that cannot be read is null.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from brickd.base import cgroups
from brickd.base.files import read
from brickd.base.paths import runtime
from brickd.client import client
from brickd.client.other_version import installed
from brickd.doctor import clock
from brickd.errors import BrickdError, NoSuchWorker
from brickd.query.orders import Setting
from brickd.query.query import to_query
from brickd.shm import _reader
from brickd.shm.segment_files import prefix

_VARIABLE = "BRICKD_"
_LIMITS = {
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "address_space_bytes": resource.RLIMIT_AS,
    "locked_memory_bytes": resource.RLIMIT_MEMLOCK,
    "core_file_bytes": resource.RLIMIT_CORE,
}
_PACKAGES = ("brickd", "brick-agent", "click", "starlette", "uvicorn", "numpy", "torch")


def configuration(services: Iterable[str], no_daemon: str | None) -> dict[str, Any]:
    """Return the settings of services, the daemon's thresholds, the paths and the limits.

    Args:
        services: the names of the services.
        no_daemon: why no daemon answers; None if one answers.
    """
    here = runtime()
    thresholds, settings, why = None, None, no_daemon
    if no_daemon is None:
        try:
            thresholds = _asked(Setting())["thresholds"]
            settings = [setting for each in services if (setting := _setting(each)) is not None]
        except BrickdError as error:
            why = str(error)
    return {
        "schema_version": 1,
        "services": settings,
        "thresholds": thresholds,
        "why": why,
        "paths": {
            "socket": os.fspath(here.socket),
            "prefix": _prefix(),
            "runtime_directory": os.fspath(here.directory),
            "state_directory": os.fspath(here.state),
            "segments_directory": _reader.DIRECTORY,
        },
        "limits": {name: _limit(number) for name, number in _LIMITS.items()},
    }


def _prefix() -> str | None:
    try:
        return prefix()
    except BrickdError:  # the variable is invalid, as the other documents say
        return None


def _asked(setting: Setting) -> dict[str, Any]:
    """Ask for a setting without changing it."""
    return client.ask("set", to_query(setting), post=True).document()


def _setting(service: str) -> dict[str, Any] | None:
    """Return the setting of a service; None if all of its workers have ended."""
    try:
        document = _asked(Setting(service))
    except NoSuchWorker:
        return None
    return {key: value for key, value in document.items() if key not in ("schema_version", "thresholds")}


def _limit(number: int) -> dict[str, int | None]:
    """Return the soft and the hard limit of this process; None: there is no limit."""
    soft, hard = (None if each == resource.RLIM_INFINITY else each for each in resource.getrlimit(number))
    return {"soft": soft, "hard": hard}


def environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables of brickd, and the versions, limits and clocks that it works with."""
    memory, found = cgroups.observe(), clock.observe(os.uname().machine)
    return {
        "schema_version": 1,
        "variables": [
            {"name": name, "value": value} for name, value in sorted(variables.items()) if name.startswith(_VARIABLE)
        ],
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "packages": {name: version for name in _PACKAGES if (version := installed(name)) is not None},
        "format": _reader.FORMAT,
        "kernel": kernel(),
        "clock": {"current": found.current, "available": list(found.available), "trusted": found.trusted},
        "cgroup": {
            "memory": None if memory is None else {"file": memory.file, "limit_bytes": memory.limit_bytes,
                                                   "used_bytes": memory.used_bytes},
            "processors": cgroups.processors(os.getpid()),
        },
    }  # fmt: skip


def without_values(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment without the values of the variables."""
    return {**document, "variables": [{"name": each["name"], "value": None} for each in document["variables"]]}


def kernel() -> dict[str, str]:
    """Return the name and the version of the kernel, and the architecture."""
    found = os.uname()
    return {"system": found.sysname, "release": found.release, "machine": found.machine}


def host(*, named: bool) -> dict[str, Any]:
    """Return what the manifest says about this machine; its name only if `named`."""
    memory = (read(Path("/proc/meminfo")) or "").partition("MemTotal:")[2].split()[:1]
    return {
        "name": os.uname().nodename if named else None,
        "kernel": kernel(),
        "processors": os.cpu_count(),
        "memory_bytes": int(memory[0]) * 1024 if memory and memory[0].isdecimal() else None,
    }
