"""The folder for files and segments of a run, and the environment of its processes.

At the end of the run, the folder and all segments with its prefix are removed, even if their processes were killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from brickd.shm.segment_files import find

_SCRIPTS = Path(__file__).resolve().parent.parent
SHM = Path("/dev/shm")
_BURIAL_SECONDS, _LOOK_SECONDS = 30, 0.01
# the prefixes of variables that would change the measured tools
_FOREIGN = ("BRICKD", "LTTNG", "OTEL", "PROMETHEUS", "PYTHON")


@dataclass(frozen=True)
class Workplace:
    """The folder of a run, and the environment of its processes."""

    folder: Path
    environment: dict[str, str]

    @property
    def runtime(self) -> Path:
        """Return the runtime directory of the run's daemon and its clients."""
        return Path(self.environment["BRICKD_RUNTIME_DIR"])

    @contextmanager
    def seen_here(self) -> Iterator[None]:
        """Let this process also see the segments and the checkpoint of the run."""
        before = dict(os.environ)
        os.environ |= {name: value for name, value in self.environment.items() if name.startswith("BRICKD")}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before

    def await_burial(self) -> None:
        """Wait until the daemon has noticed the end of all workers and removed their segments."""
        until = time.monotonic() + _BURIAL_SECONDS
        while (left := find(self.environment["BRICKD_SHM_PREFIX"])) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        if left:
            raise RuntimeError(f"{len(left)} segments of workers that ended are still there, the first is {left[0]}")

    def remove_segments(self) -> None:
        """Remove the remaining segments, even if their processes were killed."""
        for file in SHM.glob(self.environment["BRICKD_SHM_PREFIX"] + "*"):
            file.unlink(missing_ok=True)

    def python(
        self,
        *arguments: str,
        under: tuple[str, ...] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
        ends: tuple[int, ...] = (0,),
    ) -> subprocess.CompletedProcess[str]:
        """Run this Python with arguments, under another command if one is given, and return the output.

        `ends`: the exit statuses that mean success.
        """
        done = subprocess.run(
            [*under, sys.executable, *arguments],
            env=self.environment | dict(variables),
            cwd=self.folder,  # Python searches this folder before all installed packages
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in ends:
            wanted = " or ".join(map(str, ends))
            raise RuntimeError(f"{' '.join(arguments)}: exit status {done.returncode}, {wanted} wanted\n{done.stderr}")
        return done

    def ask(self, module: str, *arguments: object, **variables: str) -> Any:
        """Run the `main` of a module of this package in a new process, and return its JSON."""
        return json.loads(self.python("-m", f"benchmarks.{module}", *map(str, arguments), variables=variables).stdout)


@contextmanager
def workplace(what: str = "bench") -> Iterator[Workplace]:
    """Create a workplace for one run."""
    with tempfile.TemporaryDirectory(prefix=f"brickd-{what}-") as name:
        folder = Path(name)
        prometheus = folder / "prometheus"
        prometheus.mkdir()
        prefix = f"bench-brickd-{what}-{os.getpid()}-"
        environment = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        environment |= {
            "BRICKD_RUNTIME_DIR": str(folder / "runtime"),
            "BRICKD_SHM_PREFIX": prefix,
            "BRICKD_STATE_DIR": str(folder / "state"),
            "PROMETHEUS_MULTIPROC_DIR": str(prometheus),
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join((str(_SCRIPTS), name)),
        }
        place = Workplace(folder, environment)
        try:
            yield place
        finally:
            place.remove_segments()


def progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
