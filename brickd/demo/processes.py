"""The processes of the demonstration: four workers and a daemon, with their own prefix and directories.

Owns: their start and end, the files they need. Must not know: what the screens show, the computation of the workers.
Invariants: all processes end with the context that started them, and no segment and no file remains. Nothing of the
user is touched: prefix and directories are the demonstration's own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from brickd.base.paths import runtime
from brickd.errors import BrickdError
from brickd.shm import removed_file
from brickd.shm.segment_files import find, open_file

# The faults of the workers: brickd must name demo/1 and demo/3.
KINDS = ("well", "damaged", "well", "slow")
_PATIENCE_SECONDS = 30
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Process = subprocess.Popen[bytes]


@contextlib.contextmanager
def place() -> Iterator[None]:
    """Use a separate prefix and separate directories."""
    with tempfile.TemporaryDirectory(prefix="brickd-demo-") as directory:
        os.environ["BRICKD_SHM_PREFIX"] = prefix = f"demo-brickd-{uuid.uuid4().hex[:8]}-"
        os.environ["BRICKD_RUNTIME_DIR"] = os.environ["BRICKD_STATE_DIR"] = directory
        for name in ("BRICKD_SOCKET", "BRICKD_KEY_FILE", "BRICKD_GROUP"):
            os.environ.pop(name, None)
        try:
            yield
        finally:
            for name in find(prefix):  # segments that killed workers left
                with open_file(name) as file:
                    file.unlink()
            Path(removed_file.path(prefix)).unlink(missing_ok=True)


@contextlib.contextmanager
def running() -> Iterator[list[Process]]:
    """Run workers and a daemon. The workers wait until the daemon runs, so it misses no record."""
    processes: list[Process] = []
    # The math library gets one thread per worker, because four workers share this machine.
    environment = os.environ | dict.fromkeys(_VARIABLES, "1") | {"BRICKD_SERVICE": "demo"}
    try:
        for index, kind in enumerate(KINDS):
            environment["BRICKD_WORKER"] = str(index)
            command = [sys.executable, "-P", "-m", "brickd.demo.worker", kind]
            # The process has its own group, so that it does not get the Ctrl-C that ends the demonstration.
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0))
        prefix = os.environ["BRICKD_SHM_PREFIX"]
        _wait(lambda: len(find(prefix)) == len(KINDS), processes, "not all workers have started")
        with Path(runtime().directory, "log").open("wb") as log:
            daemon = [sys.executable, "-P", "-m", "brickd", "up"]
            processes.append(subprocess.Popen(daemon, stdout=log, stderr=log, process_group=0))
        _wait(runtime().socket.exists, processes, "the daemon does not answer")
        for process in processes[:-1]:
            assert process.stdin is not None
            os.write(process.stdin.fileno(), b".")
        yield processes
    finally:
        for process in processes:
            _end(process)


def _end(process: Process) -> None:
    """End a worker by closing its input. The daemon has no input, so terminate it."""
    if process.stdin is None:
        process.terminate()
    else:
        process.stdin.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check(processes: Sequence[Process]) -> None:
    """Raise BrickdError if one of the processes has ended."""
    for index, process in enumerate(processes):
        if process.poll() is not None:
            ended = f"demo/{index}" if process.stdin is not None else "the daemon"
            raise BrickdError(f"{ended} ended early with exit status {process.returncode}: see its output above")


def _wait(for_what: Callable[[], bool], processes: Sequence[Process], otherwise: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not for_what():
        check(processes)
        if time.monotonic() > deadline:
            raise BrickdError(f"after {_PATIENCE_SECONDS} s, {otherwise}: is this machine busy?")
        time.sleep(0.05)
