"""New fleets of three workers out of the recordings of clean trials, and what `brickd diff --by row` says about them.

Owns: which workers form a new fleet, the question, the result and its row. Must not know: models, how a recording is
made. Invariants: the same seed and the same recordings give the same fleets; the workers of a new fleet served the same
weights with the same number of threads; two of them are from one recording only if there are fewer than three; a
recorded fleet is never a new one. If nothing was compared in a fleet, its time does not count.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.engine import frozen
from benchmarks.engine.cells import dtype
from benchmarks.faulty.cells import Cell
from benchmarks.faulty.frozen import WORKERS
from brickd.errors import BrickdError
from brickd.query.queries import DiffQuery
from brickd.views import diff_operands

SPLIT = "split"
DIFFER = ("diverged", "routing")
_SHOWN = 3


@dataclass(frozen=True)
class Recorded:
    """A worker in a recording of a trial; `trial` is the last part of the trial's key."""

    file: Path
    worker: str
    trial: str
    seconds: float

    @property
    def operand(self) -> str:
        """The worker as an argument of `brickd diff`."""
        return f"{self.file}:{self.worker}"


@dataclass(frozen=True)
class NewFleet(Cell):
    """Three recorded workers that never ran together; the part `traffic` of the key names them."""

    workers: tuple[Recorded, ...] = ()

    @property
    def seconds(self) -> float:
        """The time that all workers were recorded."""
        return min(each.seconds for each in self.workers)


def new_fleets(results: Sequence[Mapping[str, Any]], folder: Path, seed: int, hours: float) -> list[NewFleet]:
    """Draw new fleets, in equal parts from all groups of comparable recordings, until their time is `hours`."""
    groups: dict[tuple[str, int], list[list[Recorded]]] = defaultdict(list)
    for each in results:
        if (about := each.get("recording")) and (folder / about["file"]).exists():
            trial = each["cell"].rpartition("/")[2]
            members = [Recorded(folder / about["file"], name, trial, about["seconds"]) for name in about["workers"]]
            groups[each["kind"], each["threads"]].append(members)
    draws = [_drawn(*key, groups[key], seed) for key in sorted(groups)]
    found, left = [], hours * 3600
    for fleet in itertools.chain.from_iterable(itertools.zip_longest(*draws)):
        if left <= 0:
            break
        if fleet is not None:
            found.append(fleet)
            left -= fleet.seconds
    return found


def _drawn(kind: str, threads: int, recordings: Sequence[Sequence[Recorded]], seed: int) -> Iterator[NewFleet]:
    """Yield all new fleets of a group, in a random order."""
    wanted = min(WORKERS, len(recordings))
    every = itertools.combinations(itertools.chain.from_iterable(recordings), WORKERS)
    fleets = [workers for workers in every if len({each.file for each in workers}) == wanted > 1]
    Random(f"{seed} {SPLIT} {kind} {threads}").shuffle(fleets)
    for workers in fleets:
        named = "+".join(f"{each.trial}:{each.worker.rpartition('/')[2]}" for each in workers)
        yield NewFleet(kind, SPLIT, named, seed, workers)


def compared(fleet: NewFleet) -> dict[str, Any]:
    """Compare the workers of a new fleet as `brickd diff --by row` does; return the result for the file."""
    began, worked = time.monotonic(), time.process_time()
    about = {"cell": fleet.key, "fault": SPLIT, "dtype": dtype(fleet.architecture), "fleet_s": fleet.seconds}
    try:
        query = DiffQuery(names=tuple(each.operand for each in fleet.workers), by="row")
        document = diff_operands.find(query).document
    except (BrickdError, OSError) as error:
        return about | {"skipped": str(error)}
    return {
        **about,
        "verdict": document["verdict"],
        "rows_compared": document["compared"],
        "sites_compared": sum(each["compared"] > 0 for each in document["sites"]),
        "false": false_verdicts(document),
        "why": next(iter(document["reasons"]), None) if document["verdict"] == "not_comparable" else None,
        "processor_s": round(time.process_time() - worked, 2),
        "seconds": round(time.monotonic() - began, 2),
    }


def false_verdicts(document: Mapping[str, Any]) -> list[str]:
    """Return the headline of an answer that names an outlier, or workers or sites that disagree."""
    differ = [each for each in document["sites"] if each["verdict"] in DIFFER]
    if document["outlier"] is None and document["verdict"] not in DIFFER and not differ:
        return []
    return [document["headlines"][0]]


def line(result: Mapping[str, Any]) -> str:
    """One line about a result, as progress."""
    if result.get("skipped"):
        return f"skipped: {result['skipped']}"
    if result["why"] is not None:
        return f"unproven: {result['why']}"
    words = f"{result['rows_compared']} rows at {result['sites_compared']} sites, {len(result['false'])} false verdicts"
    return f"{words}, {result['seconds']:.1f} s"


def row(results: Sequence[Mapping[str, Any]], recordings: int) -> dict[str, Any]:
    """Return the row that sums up all new fleets. It has a verdict only if their time is long enough."""
    tried = [each for each in results if not each.get("skipped")]
    proven = [each for each in tried if each["rows_compared"]]
    hours = sum(each["fleet_s"] for each in proven) / 3600
    false = [text for each in tried for text in each["false"]]
    short = hours < frozen.SPLIT_HOURS_MIN
    others = [each.get("skipped") or each["why"] for each in results]
    return {
        "case": "clean, split anew",
        "recordings": recordings,
        "fleets": len(proven),
        "fleet_hours": hours,
        "false": len(false),
        # If the fleets were independent, the true rate would be below this with a probability of 95 %.
        "false_per_hour_below": 3 / hours if hours and not false else None,
        "rows_compared": sum(each["rows_compared"] for each in proven),
        "sites_median": statistics.median(each["sites_compared"] for each in proven) if proven else None,
        "unproven": len(tried) - len(proven),
        "failed": len(results) - len(tried),
        "goal": f"{frozen.FALSE_MAX} false in >= {frozen.SPLIT_HOURS_MIN:g} hours",
        "passed": False if len(false) > frozen.FALSE_MAX else None if short else True,
        "note": "; ".join([*false, *filter(None, others)][:_SHOWN]),
        "skipped": f"{hours:.2f} fleet-hours out of {recordings} recordings are too few to judge"
        if short and not false
        else None,
    }
