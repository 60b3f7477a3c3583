"""Workers that are forked from the process with the model, and execute commands from pipes.

Owns: the forks, their pipes, commands and answers as lines of JSON. Must not know: models, what a command means.
Invariants: a worker ends when its pipe of commands closes; the next command is sent after the answer.
"""

from __future__ import annotations

import atexit
import json
import os
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

_LINE_BYTES_MAX = 1 << 16


def received(commands: int) -> dict[str, Any] | None:
    """Wait for the next command, and return it; None when the pipe is closed."""
    line = os.read(commands, _LINE_BYTES_MAX)
    command: dict[str, Any] | None = json.loads(line.splitlines()[0]) if line else None
    return command


def answer(answers: int, content: dict[str, Any]) -> None:
    """Answer a command."""
    os.write(answers, json.dumps({"pid": os.getpid(), **content}).encode() + b"\n")


def fork(work: Callable[[int, int, int], None], pipes: Sequence[str]) -> NoReturn:
    """Fork a worker for each `READ,WRITE`, and wait until all have ended. Each worker gets its number and these pipe
    ends.
    """
    ends = [(int(read), int(write)) for read, write in (each.split(",") for each in pipes)]
    every = {end for both in ends for end in both}
    children = [_forked(partial(work, number, *own), every - set(own)) for number, own in enumerate(ends)]
    for end in every:
        os.close(end)
    _end(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


def _forked(work: Callable[[], None], foreign: set[int]) -> int:
    child = os.fork()
    if child:
        return child
    for end in foreign:
        os.close(end)
    try:
        work()
        _end(0)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def _end(status: int) -> NoReturn:
    """Run all exit handlers, which close the segment. Do not free torch's objects, because this would take 10 s."""
    atexit._run_exitfuncs()
    os._exit(status)
