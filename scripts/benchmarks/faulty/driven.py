"""The workers of a cell. They get commands over pipes, and take turns, so that each of them has a processor when it
works.

Owns: the processes, their pipes, which workers do not answer. Must not know: brickd's verdicts, faults. Invariant:
every wait has a limit.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.faulty.frozen import SAMPLING, WORKERS
from benchmarks.workplace import Workplace

SERVICE = "fleet"
_START_SECONDS, _ANSWER_SECONDS, _END_SECONDS = 120.0, 4.0, 30.0
_LINE_BYTES_MAX = 1 << 16
# On a busy machine, torch's threads would spin while they wait for each other: a step of 10 ms would take seconds.
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"}


class Worker:
    """One worker, seen from the parent."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self.pid = 0
        self._owed = 0  # the number of answers that have not arrived yet
        self._rest = b""

    @property
    def busy(self) -> bool:
        """Whether the worker still executes a command."""
        self._collect(0)
        return self._owed > 0

    def ask(self, command: dict[str, Any], seconds: float = _ANSWER_SECONDS) -> dict[str, Any] | None:
        """Send a command; return the answer, or None after the time limit."""
        self._owed += 1
        os.write(self._commands, json.dumps(command).encode() + b"\n")
        found = self._collect(seconds)
        return found if self._owed == 0 else None

    def _collect(self, seconds: float) -> dict[str, Any] | None:
        """Wait for all pending answers, at most `seconds` for each. Return the last answer that came.

        Raises:
            RuntimeError: the worker has ended.
        """
        last = None
        while self._owed and select.select([self._answers], [], [], seconds)[0]:
            read = os.read(self._answers, _LINE_BYTES_MAX)
            if not read:
                raise RuntimeError(f"the worker with PID {self.pid} has ended")
            *lines, self._rest = (self._rest + read).split(b"\n")
            self._owed -= len(lines)
            last = json.loads(lines[-1]) if lines else last
        if last is not None:
            self.pid = last["pid"]
        return last

    def close(self) -> None:
        """Close the pipes, which ends the worker."""
        os.close(self._commands)
        os.close(self._answers)


@contextmanager
def fleet(
    place: Workplace, server: Sequence[str], first: dict[str, Any], *, threads: int = 1, recorded: bool = True
) -> Iterator[Sequence[Worker]]:
    """Start the workers of one service; yield them when each has answered its first command with its `number`.

    `server`: the module that forks the workers, and its arguments before the pipes. `recorded`: whether the server is
    started under `brickd run`.
    """
    workers, theirs, count = [], [], str(threads)
    for _ in range(WORKERS):
        (read_command, command), (answer, write_answer) = os.pipe(), os.pipe()
        workers.append(Worker(command, answer))
        theirs.append((read_command, write_answer))
    arguments = [*server, *(f"{read},{write}" for read, write in theirs)]
    under = ("-m", "brickd", "run", "--service", SERVICE, "--fingerprints", SAMPLING, "--", sys.executable)
    process = subprocess.Popen(
        [sys.executable, *(under if recorded else ()), "-m", *arguments],
        env=place.environment | _ENVIRONMENT | {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count},
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        pass_fds=[end for ends in theirs for end in ends],
    )
    for ends in theirs:
        for end in ends:
            os.close(end)
    with process:
        try:
            for number, worker in enumerate(workers):
                if worker.ask({**first, "number": number}, _START_SECONDS) is None:
                    raise RuntimeError(f"no worker of {' '.join(server)} answers within {_START_SECONDS:g} s")
            yield workers
        finally:
            for worker in workers:
                worker.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
