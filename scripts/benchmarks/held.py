"""The daemon's memory for many workers, and the time of a `brickd status` that queries it."""

from __future__ import annotations

from typing import Any

from benchmarks import cli
from benchmarks.fleet import fleet
from benchmarks.goals import Goal
from benchmarks.report import Table
from benchmarks.running import Running, running
from benchmarks.workplace import Workplace, progress

_MB = 1_000_000
_GOAL_MB = Goal(120)
_STATUS = cli.COMMANDS[0]


def held(place: Workplace, rounds: int) -> list[Table]:
    """Return two tables, of memory and of times. Each has a row for live workers only, and one with as many dead
    workers.
    """
    workers, bricks = cli.WORKERS, cli.BRICKS
    memory, walls = [], []
    with running(place) as daemon:
        for dead in (0, workers):
            case = f"{workers} workers x {bricks} bricks" + (f", {dead} dead ones kept" if dead else "")
            progress(case)
            with fleet(place, workers, bricks):
                daemon.drains(workers)
                walls += [{"case": case} | row for row in cli.walls(place, (_STATUS,), rounds)]
                memory.append(_memory(case, daemon))  # measure memory after the queries, because they also take memory
            daemon.settled()
    return [
        Table("memory", "Memory of the daemon and its checkpoint", memory),
        Table("wall", f"Wall time of new processes that query the daemon, {rounds} rounds", walls),
    ]


def _memory(case: str, daemon: Running) -> dict[str, Any]:
    resident, checkpoint = daemon.resident_bytes() / _MB, daemon.checkpoint_bytes() / _MB
    return {
        "case": case,
        "resident_mb": resident,
        "checkpoint_mb": checkpoint,
        "sum_mb": resident + checkpoint,
        "goal": f"{_GOAL_MB} MB",
        "passed": _GOAL_MB.met(resident + checkpoint),
    }
