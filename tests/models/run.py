"""Runs the model checker spin on the models in this folder, for scripts/models and the tests."""

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

# The limits of a search (megabytes, steps, seconds). The largest model needs half of this memory and a tenth of this
# time.
MEMORY, DEPTH, PATIENCE = 1000, 100_000, 300

# Models in which every run ends, so no state may be reached from itself. One kill is enough to show the effect of a
# fault.
ENDING = ("restart", "deferred")
ENDING_KILLS = "-DKILLS=1"

STATES, CYCLES = "-DSAFETY", "-DNP"

HOLDS, VIOLATED, UNFINISHED = "holds", "violated", "unfinished"


class Case(NamedTuple):
    """A model without a fault, or with one deliberate fault."""

    model: str
    mutant: str | None

    @property
    def expected(self) -> str:
        """Return what spin must find. Each mutant must violate the property: otherwise, the property proves little."""
        return HOLDS if self.mutant is None else VIOLATED


class Result(NamedTuple):
    """The result of a run of spin, and its cost."""

    found: str
    states: int
    seconds: float
    output: str


def spin_present() -> bool:
    """Return whether spin can be started on this machine."""
    return shutil.which("spin") is not None


def cases() -> list[Case]:
    """Return every model and its mutants; each MUTANT_ definition in the text of a model is a mutant."""
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
    """Search all states of a case for violations, and for cycles if every run must end.

    The result is `violated` only after a failed assertion or a cycle, and `holds` only after a complete search. After a
    deadlock or at a limit, it is neither.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for source in HERE.glob("*.pml"):  # use plain file names, because spin passes them to a shell
            shutil.copy(source, folder)
        output = _search(case, folder, STATES)
        found, states = _verdict(output), _number(r"(\d+) states, stored", output)
        if found == HOLDS and case.model in ENDING:
            output = _search(case, folder, CYCLES, ENDING_KILLS)
            found = _verdict(output)
    return Result(found, states, time.monotonic() - started, output)
