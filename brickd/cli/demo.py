"""The verb `demo`.

Owns: four worker processes, started and ended here, and the screens shown meanwhile. Must not know: what the workers
compute. Invariant: however it ends, its workers end with it, and nothing of theirs is left in /dev/shm.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import click

from brickd.cli.asking import Read
from brickd.cli.output import say
from brickd.cli.status import status
from brickd.cli.tree import tree
from brickd.errors import BrickdError
from brickd.files import find, open_file
from brickd.questions.parameter import Number

# Each worker: how it runs, and how many times it does the work of one brick. demo/3 is to be found.
_WORKERS = (("forward", 1), ("threads", 1), ("asyncio", 1), ("forward", 2))
# What is typed at which share of the time.
_TYPED = ((0.25, ("status",)), (1.0, ("status", "tree --min 1")))
_VERBS = {"status": status, "tree": tree}
_PROGRAM = Path(__file__).parent.parent / "demo" / "worker.py"


@click.command()
@click.option("--seconds", type=Read(Number(0.5, 600, "")), default=6.0, show_default=True,
              metavar="SECONDS", help="How long to run.")  # fmt: skip
def demo(seconds: float) -> None:
    """Four workers on this machine, and what they do while they run."""
    if importlib.util.find_spec("brick_agent") is None:
        raise BrickdError("the demo's workers need brick-agent, which is not installed here: pip install ./agent")
    prefix = f"brickd-demo-{uuid.uuid4().hex[:8]}-"
    os.environ["BRICKD_SHM_PREFIX"] = prefix  # of this process and its workers: nobody else's segments are shown
    with _running(prefix) as processes:
        say(f"four workers, {', '.join(face for face, _ in _WORKERS)}; demo/3 does the work of one brick twice")
        _wait_for(prefix, processes)
        began = time.monotonic()
        for share, lines in _TYPED:
            _until(began + share * seconds, processes)
            for line in lines:
                click.echo(f"$ brickd {line}    # after {time.monotonic() - began:.0f} s")
                verb, *words = line.split()
                _VERBS[verb].main(words, standalone_mode=False)
                click.echo()
    say("the workers have ended and removed their segments; instrument your own: see README.md")


@contextlib.contextmanager
def _running(prefix: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    # One thread each for the arithmetic library: four workers share this machine.
    alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        for index, (face, slow_down) in enumerate(_WORKERS):
            environment = os.environ | alone | {"BRICKD_SERVICE": "demo", "BRICKD_WORKER": str(index)}
            command = [sys.executable, str(_PROGRAM), face, str(slow_down)]
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment))
        yield processes
    finally:
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in find(prefix):  # of one that had to be killed
            with open_file(name) as file:
                file.unlink()


def _check(processes: list[subprocess.Popen[bytes]]) -> None:
    for index, process in enumerate(processes):
        if process.poll() is not None:
            raise BrickdError(f"demo/{index} ended early, with status {process.returncode}: see its words above")


def _wait_for(prefix: str, processes: list[subprocess.Popen[bytes]]) -> None:
    """Until all workers record: numpy takes its time to load."""
    deadline = time.monotonic() + 30
    while len(find(prefix)) < len(processes):
        _check(processes)
        if time.monotonic() > deadline:
            raise BrickdError(
                f"{len(find(prefix))} of {len(processes)} workers record after 30 s: do they say why above?"
            )
        time.sleep(0.05)


def _until(moment: float, processes: list[subprocess.Popen[bytes]]) -> None:
    """Let the time pass, before the eyes of whoever looks."""
    steps = max(1, round((moment - time.monotonic()) * 10))
    with click.progressbar(length=steps, label="running", file=sys.stderr, show_eta=False) as bar:
        while time.monotonic() < moment:
            _check(processes)
            time.sleep(0.1)
            bar.update(1)
