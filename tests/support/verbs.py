"""Runs verbs as a person does, while the workers are paused.

A verb that only reads runs in the process of the test. This takes a quarter of the processor time of a forked process,
half of which is spent on copies of pages. `test_cli_skeleton.py` and `test_completion.py` run verbs as commands.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any, TextIO

import pytest
from conftest import Worker
from faults import Start
from forked_processes import forking_parent

from brickd.cli import main

# Verbs that handle signals, or that start or end other processes, so that they need their own.
_OWN_PROCESS = frozenset(("bundle", "calibrate", "demo", "down", "record", "run", "up"))
# variables that only the verb reads
_INHERITED = frozenset(("COLUMNS", "NO_COLOR", "_BRICKD_COMPLETE", "COMP_WORDS", "COMP_CWORD"))

SPANS = """
norm, gemm = brick.brick("norm", "norm"), brick.brick("gemm", "ffn")
for _ in range(100):
    with norm(elements=2, bytes=8):
        with gemm: pass
pause()
"""

# A worker with more threads than lanes, and with more names than its table holds.
LOSING = """
brick.init(lanes=1, names=64)
import threading
for number in range(100):
    with brick.span(f"n{number}"): pass
thread = threading.Thread(target=lambda: brick.brick("b").start()); thread.start(); thread.join()
pause()
"""


def brickd(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a verb with an unlimited screen width, unless COLUMNS is given."""
    only_checks = arguments[:1] == ("bundle",) and "--check" in arguments
    if (only_checks or _OWN_PROCESS.isdisjoint(arguments[:1])) and _INHERITED.issuperset(environment):
        return _here(arguments, environment)
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return forking_parent().run(arguments, inherited | environment)


def _here(arguments: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a verb in this process, with its own environment, arguments, input and output."""
    with pytest.MonkeyPatch.context() as patch, open(os.devnull) as stdin, _file() as stdout, _file() as stderr:
        for name in ("NO_COLOR", "COLUMNS"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr("sys.argv", ["brickd", *arguments])
        for name, file in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            patch.setattr(f"sys.{name}", file)
        code = main()
        text = []
        for file in (stdout, stderr):
            file.flush()
            text.append(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode())
    return subprocess.CompletedProcess(arguments, code, *text)


def _file() -> TextIO:
    return os.fdopen(os.memfd_create("output"), "w")


def document(*arguments: str, code: int = 0) -> dict[str, Any]:
    """Return the JSON of a verb."""
    result = brickd(*arguments, "--json")
    assert result.returncode == code, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def sheet(*arguments: str) -> list[dict[str, str]]:
    """Return the CSV of a verb."""
    return list(csv.DictReader(io.StringIO(brickd(*arguments, "-o", "csv").stdout)))


def started(worker: Start, program: str = SPANS, **environment: str) -> Worker:
    """Start a worker, and return it at its first pause."""
    process = worker(program, **environment)
    process.paused()
    return process
