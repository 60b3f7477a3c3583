"""`scripts/bench cli`: the time of `brickd` in new processes, with 64 workers of 256 bricks."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.fleet import SERVICE, fleet
from benchmarks.goals import Goal
from benchmarks.report import Report, Table
from benchmarks.workplace import Workplace, progress

HELP = "brickd status and one TAB with 64 workers of 256 bricks: wall time of a fresh process"

WORKERS, BRICKS = 64, 256
_BRICKD = str(Path(sys.executable).with_name("brickd"))
_TAB = {"_BRICKD_COMPLETE": "bash_complete", "COMP_WORDS": f"brickd status {SERVICE[0]}", "COMP_CWORD": "2"}


def _anything(_: str) -> str:
    return ""


@dataclass(frozen=True)
class Command:
    """A command and the check of its output. `problem` returns what is wrong with the output, or "" if nothing is."""

    name: str
    arguments: Sequence[str]
    goal: Goal | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    problem: Callable[[str], str] = _anything


def names_a_worker(answer: str) -> str:
    """Check that a completion lists the name of a worker."""
    if any(line.startswith(f"plain,{SERVICE}/") for line in answer.splitlines()):
        return ""
    return f"no worker's name in the answer, expected plain,{SERVICE}/…: {' '.join(answer.split())[:60]!r}"


def counts_all(answer: str) -> str:
    """Check that a status counts all workers and bricks."""
    live = f"{WORKERS} live"
    return "" if live in answer else f"expected {live!r}: {answer[:60]!r}"


COMMANDS = (
    Command("brickd status", (_BRICKD, "status"), Goal(150), problem=counts_all),
    Command("TAB after `brickd status a`", (_BRICKD,), Goal(150), _TAB, problem=names_a_worker),
    Command("python -c 'import click'", (sys.executable, "-c", "import click")),
    Command("python -c pass", (sys.executable, "-c", "pass")),
)


def run(place: Workplace, quick: bool) -> Report:
    rounds = 20 if quick else 60
    progress(f"{WORKERS} workers, {BRICKS} bricks each")
    with fleet(place, WORKERS, BRICKS):
        rows = walls(place, COMMANDS, rounds)
    title = f"Wall time with {WORKERS} workers x {BRICKS} bricks, {rounds} rounds"
    return Report("cli", machine.facts(), [Table("wall", title, rows)])


def walls(place: Workplace, commands: Sequence[Command], rounds: int) -> list[dict[str, Any]]:
    """Return one row for each command. Each round runs every command once, in random order."""
    times: dict[str, list[float]] = {command.name: [] for command in commands}
    problems: dict[str, str] = {}
    environment = {key: value for key, value in place.environment.items() if not key.startswith("PYTHON")}
    shuffled = list(commands)
    shuffle = random.Random(0).shuffle
    progress(f"brickd in fresh processes, {rounds} rounds")
    for _ in range(rounds):
        shuffle(shuffled)
        for command in shuffled:
            ms, problem = _once(command, environment | dict(command.variables))
            times[command.name].append(ms)
            if problem:
                problems[command.name] = problem
    return [_row(command, times[command.name], problems.get(command.name, "")) for command in commands]


def _once(command: Command, environment: Mapping[str, str]) -> tuple[float, str]:
    began = time.perf_counter_ns()
    done = subprocess.run(command.arguments, env=environment, capture_output=True, text=True, check=False)
    ms = (time.perf_counter_ns() - began) / 1e6
    if done.returncode != 0:
        return ms, f"exit status {done.returncode}, expected 0: {done.stderr[:200]!r}"
    return ms, command.problem(done.stdout)


def _row(command: Command, times: Sequence[float], problem: str) -> dict[str, Any]:
    least, median = min(times), statistics.median(times)
    passed = None if command.goal is None else not problem and command.goal.met(least, median)
    return {
        "command": command.name,
        "ms_min": least,
        "ms_median": median,
        "goal": None if command.goal is None else f"{command.goal} ms",
        "passed": passed,
        "note": problem,
    }
