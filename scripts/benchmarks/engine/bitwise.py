"""Checks whether the engine's replicas serve the same bits with and without brickd, and which rows of replicas are
equal.

Owns: the runs that are compared. Must not know: how rows are compared, faults, verdicts. Invariant: all runs execute
the same program, started with and without `brickd run`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine.frozen import BITWISE_STEPS
from benchmarks.engine.row_table import compared
from benchmarks.engine.scheduler import Settings
from benchmarks.faulty.driven import fleet
from benchmarks.running import running
from benchmarks.workplace import Workplace

_ADVANCE_SECONDS = 300.0
REPLICA = "benchmarks.engine.replica"


def bitwise(place: Workplace, of: Settings) -> dict[str, Any]:
    """Serve the same requests three times, and compare what was served; compare the rows of the first run."""
    plain = _reports(place, of, recorded=False, rows=True)
    again = _reports(place, of, recorded=False)
    with running(place):
        under = _reports(place, of, recorded=True)
    served = [[each["served"] for each in reports] for reports in (plain, again, under)]
    tables = [np.load(_file(place, number)) for number in range(len(plain))]
    return {
        **asdict(of),
        "replicas": len(plain),
        "requests": sum(each["finished"] for each in plain),
        "tokens": sum(each["tokens"] for each in plain),
        "reused": sum(each["reused"] for each in plain),
        "preempted": sum(each["preempted"] for each in plain),
        "different_traffic": len(set(served[0])) == len(plain),
        "equal_again": served[0] == served[1],
        "equal_with_brickd": served[0] == served[2],
        "rows": compared(tables, plain[0]["sites"]),
    }


def _reports(place: Workplace, of: Settings, *, recorded: bool, rows: bool = False) -> Sequence[dict[str, Any]]:
    """Return the reports of all replicas after each has done some steps."""
    server = (REPLICA, json.dumps(asdict(of)))
    with fleet(place, server, {"do": "report"}, threads=of.threads, recorded=recorded) as replicas:
        found = []
        for number, replica in enumerate(replicas):
            file = str(_file(place, number)) if rows else None
            report = replica.ask({"do": "advance", "steps": BITWISE_STEPS, "rows": file}, _ADVANCE_SECONDS)
            if report is None:
                raise RuntimeError(f"replica {number} did not do {BITWISE_STEPS} steps in {_ADVANCE_SECONDS:g} s")
            found.append(report)
    return found


def _file(place: Workplace, number: int) -> Path:
    return place.folder / f"rows-{number}.npy"
