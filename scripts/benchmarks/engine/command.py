"""`scripts/bench evidence`: faults in replicas that never get the same batch, and what brickd proves about them.

Each trial is a fleet of three engines under its own daemon, with unique requests behind a chat template. Finished
trials are saved in build/evidence, so `--resume` continues an interrupted run with its seed. Trials without a fault are
also recorded; afterwards, workers of different recordings are compared as new fleets.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.engine import frozen, split
from benchmarks.engine.cells import BITWISE, drawn
from benchmarks.engine.recorded import emptied
from benchmarks.faulty.cells import Cell
from benchmarks.faulty.command import finish, not_installed, opened
from benchmarks.faulty.frozen import HEALTHY
from benchmarks.report import Report, Table
from benchmarks.workplace import Workplace, progress

HELP = "engines with unique traffic, injected and removed faults: found, exact site, time, false verdicts, unproven"

KEPT = Path(__file__).resolve().parents[3] / "build" / "evidence"
_SHOWN = 3  # texts of a row
_ROWS = ("faulty_rows", "equal_history_rows", "equal_lineage_rows")


def run(
    place: Workplace, quick: bool, seed: int | None = None, resume: bool = False, only: str = "*", jobs: int = 1
) -> Report:
    """Run all unfinished trials, then compare all new fleets out of their recordings, `jobs` at a time."""
    if (why := not_installed()) is not None:
        row = {"case": "all", "goal": "found", "passed": None, "skipped": why}
        return Report("evidence", machine.facts(), [Table("evidence", "Faults", [row])])
    finished = opened(KEPT, seed, quick=quick, resume=resume, limits=frozen.table(), has="dtype")
    cells = drawn(finished.seed, quick=quick, only=only)
    if not cells:
        raise SystemExit(f"--only {only}: no trial has such a name; one is {drawn(0, quick=quick)[0].key}")
    recordings = KEPT / ("quick" if quick else "full")
    if not resume:
        emptied(recordings)
    tried = partial(_tried, quick=quick, seed=finished.seed, recordings=recordings)
    results = finish(cells, finished, tried, line, jobs)
    hours = (frozen.QUICK if quick else frozen.FULL).split_hours
    fleets = split.new_fleets(results, recordings, finished.seed, hours)
    return report(results, finished.seed, finish(fleets, finished, split.compared, split.line, jobs))


def _tried(cell: Cell, *, quick: bool, seed: int, recordings: Path) -> dict[str, Any]:
    from benchmarks.engine.trial import tried

    try:
        return tried(cell, quick=quick, seed=seed, recordings=recordings)
    except (RuntimeError, OSError) as error:
        progress(f"{cell.key}: {error}")
        return {"cell": cell.key, "fault": cell.fault, "skipped": str(error)}


def outcome(result: Mapping[str, Any]) -> str:
    """Return the outcome of a trial with a fault: found (by the comparison of rows), unproven or missed."""
    if result["named_s"] is not None:
        return "found"
    return "unproven" if result["row_verdict"] == "unproven" or result["site_unproven"] else "missed"


def line(result: Mapping[str, Any]) -> str:
    """One line about a result, as progress."""
    if result.get("skipped"):
        return f"skipped: {result['skipped']}"
    if result["fault"] == BITWISE:
        same = {True: "equal bits", False: "OTHER BITS"}[result["equal_with_brickd"]]
        return f"{result['requests']} requests, {same} with brickd"
    words = [f"{len(result['false'])} false verdicts"]
    if result["fault"] != HEALTHY:
        place = {True: ", exact site", False: f", wrong site {result['place']}", None: ""}[result["exact"]]
        after = "" if result["named_s"] is None else f" after {result['named_s']:.0f} s{place}"
        words.insert(0, f"{outcome(result)}{after}; {result['truth']['site']}: {result['truth']['detail']}")
    return ", ".join(words)


def report(results: Sequence[Mapping[str, Any]], seed: int, fleets: Sequence[Mapping[str, Any]] = ()) -> Report:
    """The tables of all results, and of the new fleets out of recordings."""
    tried = [each for each in results if not each.get("skipped")]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for each in tried:
        if each["fault"] not in (HEALTHY, BITWISE):
            groups[each["fault"], each["dtype"]].append(each)
    bits = [each for each in tried if each["fault"] == BITWISE]
    live = [each for each in tried if each["fault"] != BITWISE]
    tables = [
        Table("evidence", f"Faults in one of three engines; seed {seed}", [row(groups[key]) for key in sorted(groups)]),
        Table("clean", "Clean time: before and after faults, and without", [clean(live)] if live else []),
        Table(
            "split",
            "Recordings of clean trials, split anew into fleets (a recording is in many fleets: these hours are not"
            " independent)",
            [split.row(fleets, sum("recording" in each for each in tried))] if fleets else [],
        ),
        Table("bits", "What is served, in three runs", [_bits(each) for each in bits]),
        Table("rows", "Rows that several engines have, without brickd", [each for one in bits for each in _rows(one)]),
    ]
    failed = [each for each in results if each.get("skipped")]
    if failed:
        tables.append(Table("failed", "Trials that could not be finished", [_failed(each) for each in failed]))
    return Report("evidence", machine.facts() | {"brickd": version("brickd"), "seed": seed}, tables)


def row(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row that sums up all trials with one fault and one dtype.

    A trial is covered if brickd watches the site of the fault, and if the fault changed a row whose history also
    occurred in another engine.
    """
    one = results[0]
    covered = [each for each in results if each["watched"] and each["equal_history_rows"]]
    found = [each for each in covered if outcome(each) == "found"]
    exact = sum(each["exact"] is True for each in found)
    other = [outcome(each) for each in results if not each["watched"]]
    words = [outcome(each) for each in covered]
    false = sum(len(each["false"]) for each in results)
    seconds = [each["named_s"] for each in found]
    unproven = words.count("unproven") == len(covered)  # this is also true if no trial is covered
    why = f"unproven: {one['row_why']}" if covered else "no watched row-wise site covers it"
    good = len(found) >= frozen.FOUND_MIN * len(covered) and exact >= frozen.EXACT_MIN * len(found)
    bad = false > frozen.FALSE_MAX or "missed" in other
    return {
        "case": f"{one['fault']}, {one['dtype']}",
        "runs": len(results),
        "watched": sum(each["watched"] for each in results),
        "covered": len(covered),
        "found": len(found),
        "by_any_evidence": sum(each["any_evidence_s"] is not None for each in covered),
        "seconds_median": statistics.median(seconds) if seconds else None,
        "seconds_max": max(seconds, default=None),
        "site_exact": exact,
        "false": false,
        "unproven": words.count("unproven") + other.count("unproven"),
        "missed": words.count("missed") + other.count("missed"),
        **{f"{name}_median": statistics.median(each[name] for each in results) for name in _ROWS},
        "goal": f"covered: >= {frozen.FOUND_MIN:.0%} found in {frozen.WITHIN_S:g} s, >= {frozen.EXACT_MIN:.0%} exact",
        "passed": False if bad else None if unproven else good,
        "note": "; ".join(remarks(results)),
        "skipped": why if unproven and not bad else None,
    }


def remarks(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes on the faults that were missed, the sites that are not exact, and the verdicts that are false."""
    found = [f"missed: {each['truth']['detail']} in {each['truth']['site']}" for each in results if _missed(each)]
    found += [f"site {each['truth']['site']}: {each['place']}" for each in results if each["exact"] is False]
    return found[:_SHOWN] + [f"false: {text}" for each in results for text in each["false"]][:_SHOWN]


def _missed(result: Mapping[str, Any]) -> bool:
    return outcome(result) == "missed"


def clean(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row that sums up all time without a fault. It has a verdict only if that time is long enough."""
    hours = sum(each["clean_s"] for each in results) / 3600
    false = sum(len(each["false"]) for each in results)
    short = hours < frozen.CLEAN_HOURS_MIN
    return {
        "case": "clean",
        "fleets": len(results),
        "fleet_hours": hours,
        "false": false,
        # With a probability of 95 %, the true rate is below this.
        "false_per_hour_below": 3 / hours if hours and not false else None,
        "rows_compared": sum(each["rows_compared"] for each in results),
        "unproven": sum(each["row_verdict"] == "unproven" for each in results),
        "goal": f"{frozen.FALSE_MAX} false in >= {frozen.CLEAN_HOURS_MIN:g} hours",
        "passed": False if false > frozen.FALSE_MAX else None if short else True,
        "note": "; ".join([text for each in results for text in each["false"]][:_SHOWN]),
        "skipped": f"{hours:.2f} clean fleet-hours are too few to judge" if short and not false else None,
    }


def _bits(result: Mapping[str, Any]) -> dict[str, Any]:
    names = ("threads", "system", "batch", "chunk", "replicas", "requests", "tokens", "reused", "preempted")
    same = ("different_traffic", "equal_again", "equal_with_brickd")
    return {
        "case": result["cell"],
        **{name: result[name] for name in (*names, *same)},
        "goal": "equal bits",
        "passed": all(result[name] for name in same),
    }


def _rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows without a goal. They show the truth by which the verdicts are judged."""
    return [
        {**each, "case": f"{result['cell']}: {each['case']}", "goal": None, "passed": None} for each in result["rows"]
    ]


def _failed(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"case": result["cell"], "goal": "finished", "passed": None, "skipped": result["skipped"]}
