"""One trial. It has its own daemon, and three replicas with different traffic. They run for some time without a fault,
then with a fault, then again without it.

Owns: the order of these steps, when brickd is queried, the result. Must not know: how a problem is judged, how a fault
is put in. Invariants: daemon and replicas belong to this trial only; truth comes from the replicas, never from brickd.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np

from benchmarks.asking import Ask, asking
from benchmarks.engine import frozen
from benchmarks.engine.bitwise import REPLICA, bitwise
from benchmarks.engine.cells import BITWISE, dtype, settings
from benchmarks.engine.recorded import one_key, recorded
from benchmarks.engine.row_table import known_elsewhere
from benchmarks.faulty import judged
from benchmarks.faulty.cells import Cell
from benchmarks.faulty.driven import SERVICE, Worker, fleet
from benchmarks.faulty.frozen import HEALTHY, LOOK_S, NUMERIC, SETTLED_S, Wanted
from benchmarks.faulty.judged import AFTER, BEFORE, DURING, Look, Site, Truth
from benchmarks.running import running
from benchmarks.workplace import Workplace, workplace
from brickd.query.queries import EvidenceName

ROW = "row"
COMPARES_ROWS = ROW in get_args(EvidenceName)  # false in older versions of brickd, which do not compare rows
_OBEY_SECONDS, _LOOK_SECONDS = 20.0, 0.5


def tried(cell: Cell, *, quick: bool, seed: int, recordings: Path) -> dict[str, Any]:
    """Run one trial to its end; return its result for the file. A trial without a fault is recorded into a folder."""
    began, load, of = time.monotonic(), os.getloadavg()[0], settings(cell, seed)
    about = {"cell": cell.key, "fault": cell.fault, "dtype": dtype(cell.architecture), "load_1min": load}
    with workplace("evidence") as place:
        if cell.fault == BITWISE:
            found = bitwise(place, of)
        else:
            server = (REPLICA, json.dumps(asdict(of)))
            one_key(place, recordings)
            with (
                running(place),
                asking(place) as ask,
                fleet(place, server, {"do": "report"}, threads=of.threads) as replicas,
            ):
                trial = _Trial(cell, ask, replicas, recordings)
                found = asdict(of) | trial.result(place, frozen.QUICK if quick else frozen.FULL)
    return about | found | {"seed": cell.seed, "seconds": round(time.monotonic() - began, 1)}


class _Trial:
    """A running trial."""

    def __init__(self, cell: Cell, ask: Ask, replicas: Sequence[Worker], recordings: Path) -> None:
        self._cell, self._ask, self._replicas, self._recordings = cell, ask, replicas, recordings
        self._looks: list[Look] = []
        self._names: dict[int, str] = {}
        self._clean_s = 0.0

    def result(self, place: Workplace, lengths: frozen.Lengths) -> dict[str, Any]:
        """Run the trial; return what was found, and the truth."""
        for replica in self._replicas:
            _obeyed(replica, "run")
        self._names = self._listed()
        truth, rows = Truth(self._cell.fault), dict[str, Any]()
        if self._cell.fault == HEALTHY:
            with recorded(place, self._recordings / f"{self._cell.architecture}-{self._cell.traffic}.brick") as about:
                self._stretch(BEFORE, lengths.clean_s)
            rows = {"recording": about | {"workers": sorted(self._names.values())}}
        else:
            self._stretch(BEFORE, lengths.before_s)
            truth, rows = self._with_fault(place, lengths)
            self._stretch(AFTER, lengths.after_s)
        reports = [_obeyed(replica, "report") for replica in self._replicas]
        return {**self._judged(truth), **rows, **_served(reports), "clean_s": round(self._clean_s, 1)}

    def _with_fault(self, place: Workplace, lengths: frozen.Lengths) -> tuple[Truth, dict[str, Any]]:
        """Put the fault in, wait until its worker is named, and take it out; return the truth."""
        random = Random(self._cell.seed)
        victim, seed = random.randrange(len(self._replicas)), random.getrandbits(32)
        replica, name = self._replicas[victim], self._names[self._replicas[victim].pid]
        fault = _obeyed(replica, "put_in", fault=self._cell.fault, seed=seed)["fault"]
        wanted = Wanted(lengths.within_s, NUMERIC)
        truth = Truth(self._cell.fault, name, tuple(fault["watched"]), fault["detail"], wanted=wanted)
        self._stretch(DURING, lengths.within_s, lambda: named_by_rows(self._looks, truth) is not None)
        removed = _obeyed(replica, "take_out")
        fault |= {"worker": name, "removed_step": removed["steps"], "removed_at_s": removed["at_s"]}
        return truth, {"truth": fault, **self._coverage(truth), **self._comparable(place.folder, fault)}

    def _comparable(self, folder: Path, fault: dict[str, Any]) -> dict[str, int]:
        """Count the rows that the fault changed, and how many of these have a history or a lineage that another replica
        also had.
        """
        tables = []
        for number, replica in enumerate(self._replicas):
            file = folder / f"computed-{number}.npy"
            _obeyed(replica, "computed", rows=str(file))
            tables.append(np.load(file))
        mine = tables.pop(fault["replica"])
        mine = mine[(mine["step"] > fault["step"]) & (mine["step"] <= fault["removed_step"]) & mine["changed"]]
        return {
            "faulty_rows": len(mine),
            "equal_history_rows": known_elsewhere(mine, tables, lineage=False),
            "equal_lineage_rows": known_elsewhere(mine, tables, lineage=True),
        }

    def _stretch(self, phase: str, seconds: float, ends: Callable[[], bool] = lambda: False) -> None:
        """Query brickd for `seconds`. Stop earlier if `ends` returns true after a query."""
        began = time.monotonic()
        while True:
            at_s = time.monotonic() - began
            self._looks.append(Look(phase, at_s, self._status()))
            if at_s >= seconds or ends():
                break
            time.sleep(max(0.0, began + min(at_s + LOOK_S, seconds) - time.monotonic()))
        if phase != DURING:
            self._clean_s += time.monotonic() - began

    def _status(self) -> dict[str, Any]:
        """Return the answer of `brickd status`, reduced to problems about numbers, with what `diff --by row` finds."""
        questions = [("status", SERVICE), *([("diff", SERVICE, "--by", ROW)] if COMPARES_ROWS else [])]
        document, *diffs = self._ask(questions)
        if "error" in document:
            raise RuntimeError(f"brickd status: {document['error']}")
        document["problems"] = [each for each in document["problems"] if judged.kind(each) in NUMERIC]
        return with_rows(document, diffs[0]) if diffs else document

    def _listed(self) -> dict[int, str]:
        """Wait until brickd lists all replicas; return their names by PID.

        Raises:
            RuntimeError: brickd does not list them in time.
        """
        wanted, until = {replica.pid for replica in self._replicas}, time.monotonic() + SETTLED_S
        while True:
            workers = self._ask([("status",)])[0].get("workers", ())
            names = {each["pid"]: each["name"] for each in workers if each["service"] == SERVICE}
            if wanted <= names.keys():
                return names
            if time.monotonic() > until:
                raise RuntimeError(f"brickd lists {len(names)} replicas after {SETTLED_S:g} s, expected {len(wanted)}")
            time.sleep(_LOOK_SECONDS)

    def _coverage(self, truth: Truth) -> dict[str, bool]:
        """Return whether brickd watches a row-wise module that contains the fault, and whether it compared no rows
        there.
        """
        every = self._ask([("coverage", SERVICE)])[0].get("sites", ())
        sites = [each for each in every if judged.exactly(Site(each["kernel"], each["layer"]), truth.scope)]
        return {"watched": bool(sites), "site_unproven": not any(ROW in each["evidence"] for each in sites)}

    def _judged(self, truth: Truth) -> dict[str, Any]:
        verdict, named = judged.judged(self._looks, truth), named_by_rows(self._looks, truth)
        last = [look.status for look in self._looks if look.phase != AFTER][-1]
        (rows,) = [each for each in last["evidence"] if each["evidence"] == ROW]
        return {
            "worker": truth.worker or None,
            "named_s": None if named is None else named[0],
            "place": None if named is None else str(named[1]),
            "exact": None if named is None else judged.exactly(named[1], truth.scope),
            "any_evidence_s": verdict.named_s,
            "text": verdict.text,
            "kinds": verdict.kinds,
            "false": [*verdict.false_before, *verdict.wrong_during, *verdict.false_after],
            "row_verdict": rows["verdict"],
            "row_why": rows["why"],
            "rows_looked_at": rows["looked_at"],
            "rows_compared": rows["compared"],
        }


def with_rows(status: dict[str, Any], diff: dict[str, Any]) -> dict[str, Any]:
    """Return the status with what `diff --by row` found: its outlier becomes one more problem."""
    outlier, first = diff.get("outlier"), diff.get("first")
    if outlier is None or first is None:
        return status
    place = Site(first["kernel"], first["layer"])
    problem = {"kind": "numbers", "workers": [outlier], "text": f"diff --by row: {outlier} at {place}"}
    return status | {"problems": [problem, *status["problems"]], ROW: (outlier, place)}


def named_by_rows(looks: Sequence[Look], truth: Truth) -> tuple[float, Site] | None:
    """Return when the rows first named the worker with the fault, and the place; None if they never did."""
    for look in looks:
        outlier, place = look.status.get(ROW) or ("", None)
        if look.phase == DURING and outlier == truth.worker and place is not None:
            return look.at_s, place
    return None


def _obeyed(replica: Worker, do: str, **more: Any) -> dict[str, Any]:
    """Give a command to a replica, and return its report.

    Raises:
        RuntimeError: the replica did not obey.
    """
    report = replica.ask({"do": do, **more}, _OBEY_SECONDS)
    if report is None:
        raise RuntimeError(f"the replica with PID {replica.pid} did not answer to {do} within {_OBEY_SECONDS:g} s")
    return report


def _served(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = ("steps", "finished", "tokens", "reused", "preempted")
    return {name: sum(each[name] for each in reports) for name in names}
