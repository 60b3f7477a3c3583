"""The workers of a cell, forked from the process with the model; one command at a time.

As a module, under `brickd run`: `python -m benchmarks.faulty.workers ARCHITECTURE SEED READ,WRITE...` with the two ends
of pipes for each worker. A command and its answer are lines of JSON. A worker ends with its commands.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from benchmarks.faulty.architectures import ARCHITECTURES, Architecture, answered, model
from benchmarks.faulty.injected import Injected, Injector

_LINE_BYTES_MAX = 1 << 16


def _serve(of: Architecture, whole: Any, commands: int, answers: int) -> None:
    injector, injected = Injector(whole, of, commands), Injected([], "", lambda: None)
    while line := os.read(commands, _LINE_BYTES_MAX):  # one command: the next is sent after the answer
        command = json.loads(line.splitlines()[0])
        answer: dict[str, Any] = {"pid": os.getpid()}
        if command["do"] == "answer":
            began = time.perf_counter()
            answer["digest"] = answered(of, whole, command["number"])
            injected.each_request()
            answer["seconds"] = time.perf_counter() - began
        elif command["do"] == "inject":
            injected = injector.inject(command["fault"], command["seed"])
            answer |= {"scope": injected.scope, "detail": injected.detail}
        else:
            injected.remove()
            injected = Injected([], "", lambda: None)
        os.write(answers, json.dumps(answer).encode() + b"\n")


def _forked(work: Callable[[], None], keep: Sequence[int], every: Sequence[int]) -> int:
    child = os.fork()
    if child:
        return child
    for end in set(every) - set(keep):
        os.close(end)
    try:
        work()
        _end(0)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def _end(status: int) -> NoReturn:
    """Run all exit handlers (they close the segment) without freeing torch's objects: 10 s."""
    atexit._run_exitfuncs()
    os._exit(status)


def main() -> None:
    architecture, seed = ARCHITECTURES[sys.argv[1]], int(sys.argv[2])
    pipes = [tuple(map(int, each.split(","))) for each in sys.argv[3:]]
    whole = model(architecture, seed)
    every = [end for ends in pipes for end in ends]
    children = []
    for commands, answers in pipes:

        def work(commands: int = commands, answers: int = answers) -> None:
            _serve(architecture, whole, commands, answers)

        children.append(_forked(work, (commands, answers), every))
    for end in every:
        os.close(end)
    _end(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main()
