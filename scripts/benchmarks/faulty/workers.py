"""The workers of a cell, which execute one command at a time.

This module runs under `brickd run`: `python -m benchmarks.faulty.workers ARCHITECTURE SEED READ,WRITE...`, with the
descriptors of two pipes for each worker.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks.faulty.architectures import ARCHITECTURES, Architecture, answered, model
from benchmarks.faulty.injected import Injected, Injector
from benchmarks.forked import answer, fork, received


def _serve(of: Architecture, whole: Any, commands: int, answers: int) -> None:
    injector, injected = Injector(whole, of, commands), Injected([], "", lambda: None)
    while (command := received(commands)) is not None:
        found: dict[str, Any] = {}
        if command["do"] == "answer":
            began = time.perf_counter()
            found["digest"] = answered(of, whole, command["number"])
            injected.each_request()
            found["seconds"] = time.perf_counter() - began
        elif command["do"] == "inject":
            injected = injector.inject(command["fault"], command["seed"])
            found |= {"scope": injected.scope, "detail": injected.detail}
        else:
            injected.remove()
            injected = Injected([], "", lambda: None)
        answer(answers, found)


def main() -> None:
    architecture = ARCHITECTURES[sys.argv[1]]
    whole = model(architecture, int(sys.argv[2]))
    fork(lambda _, commands, answers: _serve(architecture, whole, commands, answers), sys.argv[3:])


if __name__ == "__main__":
    main()
