"""Runs the tests of each mutant.

Owns: which tests a mutant gets, their time limit, and the meaning of their exit status. Must not know: how mutants are
made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

COLLECT_SECONDS = 3.0  # how long pytest takes until the first test runs
FIRST_SECONDS = 3.0  # the first part has tests that take this long together
BUDGET_SECONDS = 60.0  # the tests of one mutant take this long together, without a mutant
_SLOWER = 4.0
_PATIENCE_SECONDS = 30.0
_FAILED, _NO_TESTS = 1, 5
_THOSE = ("-m", "not slow and not nightly")  # the fast tests, and the tests marked `ci`
_UNNAMED = f"pytest ended with {_FAILED}"


class End(StrEnum):
    """The outcome of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNREACHED = "unreached"  # the mutant survived, because no test reaches it


@dataclass
class Known:
    """The results of the tests without a mutant.

    Attributes:
        seconds: the time of each test that passes.
        reaching: for each mutant, the tests that reach it.
        failed: the tests that fail even without a mutant.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    reaching: dict[int, list[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def of(self, number: int, file: str) -> list[str]:
        """Return the tests for a mutant that fit into the budget. Tests that are named like its module come first."""
        words = _words(file)

        def rank(test: str) -> tuple[int, float]:
            return -len(words & _words(test.partition("::")[0])), self.seconds[test]

        spent, chosen = 0.0, list[str]()
        for test in sorted(self.reaching.get(number, ()), key=rank):
            if spent + self.seconds[test] <= BUDGET_SECONDS or not chosen:
                spent += self.seconds[test]
                chosen.append(test)
        return chosen

    def parts(self, chosen: Sequence[str]) -> Iterator[dict[str, float]]:
        """Yield the tests in parts of growing size, because to collect all of them takes longer than to find the first
        one that fails.
        """
        spent, end, part = 0.0, FIRST_SECONDS, dict[str, float]()
        for test in chosen:
            part[test] = self.seconds[test]
            spent += self.seconds[test]
            if spent >= end:
                yield part
                end, part = 4 * end, {}
        if part:
            yield part


def _words(file: str) -> set[str]:
    return set(Path(file).stem.split("_")) - {"brick", "test", ""}


@dataclass(frozen=True)
class Trial:
    """A mutant and its outcome.

    Attributes:
        end: the outcome.
        tests: the largest number of tests that ran with the mutant.
        reaching: the number of tests that reach the mutant.
        by: the test that failed.
    """

    end: End
    tests: int
    reaching: int
    by: str = ""


def isolated(command: Iterable[str | Path]) -> list[str]:
    """Return a command that runs with its own /dev/shm and process namespace, if the user may create these."""
    own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # The shell must not use exec: the test would then be process 1, and a worker is never process 1.
    mount = 'mount -t tmpfs -o size=1g,mode=1777 brickd-mutants /dev/shm && "$@"; exit $?'
    line = [*map(str, command)]
    if shutil.which("unshare") and subprocess.run([*own, "true"], capture_output=True, check=False).returncode == 0:
        return [*own, "sh", "-c", mount, "sh", *line]
    return line


def _environment(python: Path, **more: str) -> dict[str, str]:
    return os.environ | {"TESTS_PROFILE": "landing", "PATH": f"{python.parent}:{os.environ['PATH']}", **more}


def measure(tree: Path, python: Path, count: int, processes: int, files: Sequence[str] = ()) -> Known:
    """Run the fast tests, in these files or in all, without a mutant."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", "-p", "no:cacheprovider", "-p", "mutation.reached", *_THOSE]
        command = isolated([python, "-P", "-m", "pytest", *options, *files])
        more = {"MUTANTS_FOLDER": folder, "MUTANTS_COUNT": str(count), "PYTHONPATH": str(tree / "scripts")}

        def run(share: int) -> str:
            environment = _environment(python, **more, MUTANTS_SHARE=f"{share}/{processes}")
            done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
            return f"{done.stdout[-2000:]}{done.stderr[-2000:]}"

        with ThreadPoolExecutor(processes) as pool:
            printed = list(pool.map(run, range(processes)))
        found: dict[str, dict[str, object]] = {}
        for each in Path(folder).glob("*.json"):
            found |= json.loads(each.read_text())
    tests = tests_of(found)
    if not tests.seconds:
        raise RuntimeError(f"no test passes without a mutant:\n{printed[0]}")
    return tests


def tests_of(found: Mapping[str, Mapping[str, object]]) -> Known:
    """Return the results of the plugin."""
    tests = Known()
    for name, outcome in found.items():
        reached, seconds = outcome["reached"], outcome["seconds"]
        assert isinstance(reached, list)
        assert isinstance(seconds, float)
        if not outcome["passed"]:
            tests.failed.append(name)
            continue
        tests.seconds[name] = seconds
        for number in reached:
            tests.reaching.setdefault(number, []).append(name)
    return tests


def attempt(tree: Path, python: Path, tests: Known, number: int, file: str) -> Trial:
    """Run the tests for one mutant until one fails."""
    chosen, reaching = tests.of(number, file), len(tests.reaching.get(number, ()))
    if not chosen:
        return Trial(End.UNREACHED, 0, 0)
    by = next(filter(None, (_sure_killer(tree, python, part, number) for part in tests.parts(chosen))), None)
    return Trial(End.SURVIVED if by is None else End.KILLED, len(chosen), reaching, by or "")


def _sure_killer(tree: Path, python: Path, part: Mapping[str, float], number: int) -> str | None:
    """Do what `_killer` does. Try once more if pytest reported a failure, but no test was named and nothing crashed."""
    by = _killer(tree, python, part, number)
    return _killer(tree, python, part, number) if by == _UNNAMED else by


def _killer(tree: Path, python: Path, part: Mapping[str, float], number: int) -> str | None:
    """Return the first test that fails with a mutant, or how the tests ended; None if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "tests"
        names.write_text("\n".join(part))
        options = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no", *_THOSE]
        command = isolated([python, "-P", "-m", "pytest", *options, f"@{names}"])
        environment = _environment(python, MUTANT_CHOSEN=str(number), TMPDIR=folder)
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, check=False,
                timeout=_PATIENCE_SECONDS + COLLECT_SECONDS + _SLOWER * sum(part.values()),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "did not end"
    if done.returncode == 0:
        return None
    if done.returncode == _NO_TESTS:
        raise RuntimeError(f"no test ran for mutant {number}: {done.stdout}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else f"pytest ended with {done.returncode}"
