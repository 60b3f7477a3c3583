"""The C code of the reader when there is no memory: each allocation fails in turn, and no memory leaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import NATIVE

SUPPORT = Path(__file__).parent.parent / "support"

Compile = Callable[..., Path]


def measured(compiled: Compile, use: str) -> dict[str, Any]:
    library = compiled("failing_malloc.so", (NATIVE / "failing_malloc.c",), "-shared", "-fPIC", "-O2")
    environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(SUPPORT)}
    command = [sys.executable, "-P", str(SUPPORT / "out_of_memory.py"), use]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.ci
@pytest.mark.parametrize(
    ("use", "least"), [("fingerprints", 80), ("segment", 2), ("drained", 4), ("refused", 1), ("recorded", 0)]
)
def test_each_allocation_may_fail_without_a_leak(compiled: Compile, use: str, least: int) -> None:
    found = measured(compiled, use)
    assert found["same"]
    assert found["failures"] >= least
    # some allocations may fail without an error: they would only have let a window grow earlier than necessary
    assert found["without_memory"] >= least - 8
    assert found["blocks_kept"] == 0
    assert found["opened_kept"] == 0
    assert found["python_bytes_each"] < 32
