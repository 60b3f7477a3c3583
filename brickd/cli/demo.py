"""The verb `demo`.

Owns: the start and end of a daemon and four workers, and the screens in between. Must not know: the computation of the
workers. Invariant: the processes of the demonstration always end with the verb, and leave no files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from brickd.base.paths import runtime
from brickd.cli.diff import diff
from brickd.cli.output import print_message
from brickd.cli.query_options import ParameterType
from brickd.cli.status import status
from brickd.cli.stragglers import stragglers
from brickd.cli.weights import weights
from brickd.errors import BrickdError
from brickd.query.parameters import Duration
from brickd.shm import removed_file
from brickd.shm.segment_files import find, open_file

# The faults of the workers: the screens must name demo/1 and demo/3.
_WORKERS = ("well", "damaged", "well", "slow")
# For each screen: when it is shown (a fraction of the total time), its command, and its reason. A straggler is found
# only after five looks, ten seconds apart.
_TYPED = (
    (0.02, "weights demo", "do all have the same weights?"),
    (0.1, "diff demo", "do all compute the same?"),
    (1.0, "stragglers demo", "who is slow?"),
    (1.0, "status", "all of it"),
)
_VERBS = {"weights": weights, "diff": diff, "stragglers": stragglers, "status": status}
_PATIENCE_SECONDS = 30
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Process = subprocess.Popen[bytes]


@click.command()
@click.option("--seconds", type=ParameterType(Duration(0.5, 600, "")), default="50s", show_default=True,
              metavar="DURATION", help="Run for this time. To find the slow worker, brickd needs 50s.")  # fmt: skip
def demo(seconds: float) -> None:
    """Run a demonstration: four workers, one damaged, one slow.

    Starts a daemon and four replicas of a small transformer, shows what brickd finds, and cleans up.
    """
    if importlib.util.find_spec("brick_agent") is None:
        raise BrickdError(
            "brick-agent is not installed, and the demo's workers need it: pip install ./agent, or brickd[demo]"
        )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_by_signal)
    with _place(), _running() as processes:
        print_message(
            "starting a daemon and four replicas of a transformer: one replica has a flipped bit in a weight, another"
            " replica is slow in one kernel"
        )
        began = time.monotonic()
        for share, line, why in _TYPED:
            _until(began + share * seconds, processes)
            click.echo(f"$ brickd {line}    # {why} {time.monotonic() - began:.0f} s after the workers started")
            verb, *words = line.split()
            _VERBS[verb].main(words, standalone_mode=False)
            click.echo()
    print_message("the workers have ended and removed their segments; to time your own code: pydoc brick_agent")


def _end_by_signal(number: int, _: object) -> None:
    """Exit with the code that shells use for this signal, so that the demonstration cleans up."""
    sys.exit(128 + number)


@contextlib.contextmanager
def _place() -> Iterator[None]:
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
def _running() -> Iterator[list[Process]]:
    """Run workers and a daemon. The workers wait until the daemon runs, so it misses no record."""
    processes: list[Process] = []
    # The math library gets one thread per worker, because four workers share this machine.
    environment = os.environ | dict.fromkeys(_VARIABLES, "1") | {"BRICKD_SERVICE": "demo"}
    try:
        for index, kind in enumerate(_WORKERS):
            environment["BRICKD_WORKER"] = str(index)
            command = [sys.executable, "-P", "-m", "brickd.demo.worker", kind]
            # The process has its own group, so that it does not get the Ctrl-C that ends the demonstration.
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0))
        prefix = os.environ["BRICKD_SHM_PREFIX"]
        _wait(lambda: len(find(prefix)) == len(_WORKERS), processes, "not all workers have started")
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


def _check(processes: Sequence[Process]) -> None:
    for index, process in enumerate(processes):
        if process.poll() is not None:
            who = f"demo/{index}" if process.stdin is not None else "the daemon"
            raise BrickdError(f"{who} ended early with exit status {process.returncode}: see its output above")


def _wait(for_what: Callable[[], bool], processes: Sequence[Process], otherwise: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not for_what():
        _check(processes)
        if time.monotonic() > deadline:
            raise BrickdError(f"after {_PATIENCE_SECONDS} s, {otherwise}: is this machine busy?")
        time.sleep(0.05)


def _until(moment: float, processes: Sequence[Process]) -> None:
    steps = max(1, round((moment - time.monotonic()) * 10))
    with click.progressbar(length=steps, label="running", file=sys.stderr, show_eta=False) as bar:
        while time.monotonic() < moment:
            _check(processes)
            time.sleep(0.1)
            bar.update(1)
