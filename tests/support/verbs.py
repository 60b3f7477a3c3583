"""Runs verbs as a person does, in their own process, while the workers are paused."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from typing import Any

from conftest import Worker
from faults import Start
from forked_processes import forking_parent

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
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return forking_parent().run(arguments, inherited | environment)


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
