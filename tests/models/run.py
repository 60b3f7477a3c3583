"""Runs spin on the models of this folder, for scripts/models and the tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
MODELS = ("ring", "summary", "tail", "restart", "deferred", "reopen", "removed", "twin")
SPIN_MISSING = "spin is missing: apt-get install spin"

# Megabytes, steps and seconds; the largest model needs about half of the first and a tenth of the last.
MEMORY, DEPTH, PATIENCE = 1000, 100_000, 300

# Models in which every run ends: no state may be reached from itself. One kill is enough to see the effect.
ENDING = ("restart", "deferred")
ENDING_KILLS = "-DKILLS=1"

STATES, CYCLES = "-DSAFETY", "-DNP"

HOLDS, VIOLATED, UNFINISHED = "holds", "violated", "unfinished"


class Case(NamedTuple):
    """A model, or the model with one deliberate fault."""

    model: str
    mutant: str | None

    @property
    def expected(self) -> str:
        """What spin must find: a property that no mutant violates proves little."""
        return HOLDS if self.mutant is None else VIOLATED


class Result(NamedTuple):
    """The result of spin, and its cost."""

    found: str
    states: int
    seconds: float
    output: str


def spin_present() -> bool:
    """Whether spin can be started here."""
    return shutil.which("spin") is not None


def cases() -> list[Case]:
    """Every model and its mutants: each MUTANT_ define in its text."""
    found = []
    for model in MODELS:
        text = (HERE / f"{model}.pml").read_text(encoding="utf-8")
        mutants = sorted(set(re.findall(r"\bMUTANT_(\w+)", text)))
        found += [Case(model, None), *(Case(model, mutant) for mutant in mutants)]
    return found


def _command(folder: str, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _number(pattern: str, output: str) -> int:
    match = re.search(pattern, output)
    return int(match[1]) if match else 0


def _search(case: Case, folder: str, kind: str, *define: str) -> str:
    mutant = () if case.mutant is None else (f"-DMUTANT_{case.mutant}",)
    _command(folder, "spin", "-a", *mutant, *define, f"{case.model}.pml")
    _command(folder, "gcc", "-O1", "-w", kind, f"-DMEMLIM={MEMORY}", "-o", "pan", "pan.c")
    return _command(folder, "./pan", f"-m{DEPTH}", *(["-l"] if kind == CYCLES else []))


def _verdict(output: str) -> str:
    if "assertion violated" in output or "non-progress cycle (" in output:
        return VIOLATED
    complete = "errors: 0" in output and "not completed" not in output and "too small" not in output
    return HOLDS if complete else UNFINISHED


def check(case: Case) -> Result:
    """Search all states of a case for violations, and for cycles if it must end.

    Only a broken assertion or a cycle counts as violated, and only a complete search as
    holds; a deadlock or a reached bound is neither.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for source in HERE.glob("*.pml"):  # plain file names, because spin passes them to a shell
            shutil.copy(source, folder)
        output = _search(case, folder, STATES)
        found, states = _verdict(output), _number(r"(\d+) states, stored", output)
        if found == HOLDS and case.model in ENDING:
            output = _search(case, folder, CYCLES, ENDING_KILLS)
            found = _verdict(output)
    return Result(found, states, time.monotonic() - started, output)
