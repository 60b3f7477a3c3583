"""An LTTng session daemon for one run. The parent starts it before any timed process.

The daemon's files are in the folder of the run, but some have a fixed path: its run directory, if it runs as root, and
one or two pages of shared memory. The files that the daemon creates are removed at the end of the run. If this process
is killed, the kernel ends the daemon.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.lttng import HOME, LOG, TOOLS
from benchmarks.workplace import SHM, Workplace

_ROOT_RUN = Path("/run/lttng")
_PATIENCE_S = 15


@contextmanager
def daemon(place: Workplace) -> Iterator[dict[str, str]]:
    """Yield the environment variables that tell an application where the daemon is; {} if it could not be started."""
    if any(shutil.which(tool) is None for tool in TOOLS):
        yield {}
        return
    home = place.folder / "lttng"
    applications = home / ".lttng" / "lttng-ust-sock-8"
    applications.parent.mkdir(parents=True)
    variables = {HOME: str(home)}
    pages, had_run = set(_pages()), _ROOT_RUN.exists()
    with (place.folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "lttng-sessiond", "--no-kernel", f"--apps-sock={applications}"],
            env=place.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield variables if _ready(process, applications, place.environment | variables) else {}
    finally:
        _end(process)
        for page in set(_pages()) - pages:
            page.unlink(missing_ok=True)
        if not had_run:
            with contextlib.suppress(OSError):
                _ROOT_RUN.rmdir()


def _pages() -> Iterator[Path]:
    return (file for file in SHM.glob("lttng-ust-wait-*") if file.stat().st_uid == os.getuid())


def _ready(process: subprocess.Popen[bytes], applications: Path, environment: Mapping[str, str]) -> bool:
    ask = ["lttng", "--no-sessiond", "list"]
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        if (
            applications.exists()
            and subprocess.run(ask, env=environment, capture_output=True, check=False).returncode == 0
        ):
            return True
        time.sleep(0.05)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
