"""The replicas of the reference engine, forked from the process with the model; they end when their pipes close.

As a module, usually under `brickd run`: `python -m benchmarks.engine.replica SETTINGS READ,WRITE...`, with the settings
as JSON and the two ends of pipes for each replica. It answers each of these commands with a report:

- `report`;
- `run`: serve from now on, at most one step each STEP_S;
- `advance`: do steps without a pause (`rows`: the file for their digests);
- `put_in` and `take_out`: insert and remove a fault;
- `computed`: write all rows so far (`rows`: the file).
"""

from __future__ import annotations

import copy
import json
import select
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.engine.engine import Engine
from benchmarks.engine.faults import EngineFaults
from benchmarks.engine.frozen import STEP_S
from benchmarks.engine.model import built
from benchmarks.engine.rows import Rows
from benchmarks.engine.scheduler import Settings
from benchmarks.faulty.architectures import ARCHITECTURES
from benchmarks.forked import answer, fork, received


class Replica:
    """One replica, which does its steps between commands."""

    def __init__(self, whole: Any, settings: Settings, number: int, commands: int) -> None:
        torch.set_num_threads(settings.threads)
        self._whole, self._rows = whole, Rows(whole)
        self._engine = Engine(whole, settings, number, self._rows.looked)
        self._faults = EngineFaults(whole, ARCHITECTURES[settings.kind], commands, self._engine, number)
        self._runs = False
        self._remove: Callable[[], None] = lambda: None
        self._unnote = self._remove

    def serve(self, commands: int, answers: int) -> None:
        """Serve until no further command comes."""
        began = time.monotonic()
        while True:
            pause = max(0.0, began + STEP_S - time.monotonic()) if self._runs else None
            if select.select([commands], [], [], pause)[0]:
                command = received(commands)
                if command is None:
                    return
                answer(answers, self._obeyed(**command) | self._report())
            else:
                began = time.monotonic()
                self._engine.step()

    def _obeyed(self, do: str, **more: Any) -> dict[str, Any]:
        if do == "run":
            self._runs = True
        elif do == "advance":
            self._advance(more["steps"], more.get("rows"))
        elif do == "put_in":
            right = copy.deepcopy(self._whole)
            fault, self._remove = self._faults.put_in(more["fault"], more["seed"])
            if fault.watched:
                self._unnote = self._rows.noting_changes(fault.site, right.get_submodule(fault.site))
            return {"fault": asdict(fault)}
        elif do == "take_out":
            self._remove()
            self._unnote()
        elif do == "computed":
            np.save(Path(more["rows"]), self._rows.computed())
        return {}

    def _advance(self, steps: int, rows: str | None) -> None:
        if rows is None:
            for _ in range(steps):
                self._engine.step()
            return
        with self._rows.recording():
            for _ in range(steps):
                self._engine.step()
        np.save(Path(rows), self._rows.table())

    def _report(self) -> dict[str, Any]:
        """What was served so far."""
        engine, counts = self._engine, asdict(self._engine.scheduler.counts)
        return {
            "at_s": time.time(),
            "steps": engine.steps,
            "served": engine.served,
            **counts,
            "sites": self._rows.sites,
        }


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    whole = built(settings.kind, settings.seed)

    def work(number: int, commands: int, answers: int) -> None:
        Replica(whole, settings, number, commands).serve(commands, answers)

    fork(work, sys.argv[2:])


if __name__ == "__main__":
    main()
