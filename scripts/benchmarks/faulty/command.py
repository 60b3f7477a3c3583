"""`scripts/bench verdicts`: inject and remove faults in fleets of real architectures.

Each cell is a fleet of three workers under its own daemon. Only this program knows the injected fault. Finished cells
are saved in build/verdicts, so `--resume` continues an interrupted run with its seed.
"""

from __future__ import annotations

import importlib.util
import secrets
import statistics
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import machine
from benchmarks.faulty import frozen
from benchmarks.faulty.cells import Cell, FinishedCells, drawn
from benchmarks.jobs import in_processes
from benchmarks.report import Report, Table
from benchmarks.workplace import Workplace, progress

HELP = "fleets of real models with injected and removed faults: found, worker, place, time, false alarms, unproven"

KEPT = Path(__file__).resolve().parents[3] / "build" / "verdicts"
_WANTED = ("torch", "transformers")
_SHOWN = 3  # the most texts that a row shows
_Cell = TypeVar("_Cell", bound=Cell)


def run(place: Workplace, quick: bool, seed: int | None = None, resume: bool = False, only: str = "*") -> Report:
    """Run all unfinished cells, one after the other."""
    if (why := not_installed()) is not None:
        return Report("verdicts", machine.facts(), [Table("verdicts", "Faults", [_skipped(why)])])
    finished = opened(KEPT, seed, quick=quick, resume=resume, limits=frozen.table(), has="times_slower")
    cells = drawn(finished.seed, quick=quick, only=only)
    if not cells:
        raise SystemExit(f"--only {only}: no cell has such a name; one is {drawn(0, quick=quick)[0].key}")
    return report(finish(cells, finished, partial(_tried, quick=quick), line), finished.seed)


def not_installed() -> str | None:
    """Return why no model can run on this machine, or None."""
    missing = [name for name in _WANTED if importlib.util.find_spec(name) is None]
    return f"no {' and '.join(missing)} in .venv: .venv/bin/pip install {' '.join(missing)}" if missing else None


def opened(
    folder: Path, seed: int | None, *, quick: bool, resume: bool, limits: Mapping[str, Any], has: str
) -> FinishedCells:
    """Begin or continue the file of finished cells in a folder."""
    file = folder / ("quick.jsonl" if quick else "full.jsonl")
    if resume:
        try:
            finished = FinishedCells.resumed(file, seed, quick=quick, limits=limits, has=has)
        except RuntimeError as error:
            raise SystemExit(str(error)) from None
    else:
        chosen = secrets.randbits(32) if seed is None else seed
        finished = FinishedCells.begun(file, chosen, quick=quick, limits=limits)
    progress(f"seed {finished.seed}; finished cells are kept in {file}")
    return finished


def finish(
    cells: Sequence[_Cell],
    finished: FinishedCells,
    tried: Callable[[_Cell], dict[str, Any]],
    line: Callable[[Mapping[str, Any]], str],
    jobs: int = 1,
) -> list[dict[str, Any]]:
    """Return the results of all cells; run unfinished ones, `jobs` at a time. `line` formats a result as a line of
    progress.
    """
    results = {cell.key: finished.results[cell.key] for cell in cells if cell.key in finished.results}
    for result in results.values():
        progress(f"{result['cell']}: {line(result)}")
    with closing(_run([cell for cell in cells if cell.key not in results], tried, jobs)) as found:
        for result in found:
            finished.add(result)
            results[result["cell"]] = result
            progress(f"{len(results)} of {len(cells)}: {result['cell']}: {line(result)}")
    return [results[cell.key] for cell in cells]


def _run(cells: Sequence[_Cell], tried: Callable[[_Cell], dict[str, Any]], jobs: int) -> Generator[dict[str, Any]]:
    """Yield the results of cells as they finish; with several jobs, each cell runs in its own process."""
    calls = [partial(_begun, tried, cell) for cell in cells]
    return (call() for call in calls) if jobs == 1 else in_processes(calls, jobs)


def _begun(tried: Callable[[_Cell], dict[str, Any]], cell: _Cell) -> dict[str, Any]:
    progress(cell.key)
    return tried(cell)


def _tried(cell: Cell, *, quick: bool) -> dict[str, Any]:
    from benchmarks.faulty.trial import tried

    try:
        return tried(cell, quick=quick)
    except (RuntimeError, OSError) as error:
        named = {"architecture": cell.architecture, "fault": cell.fault, "traffic": cell.traffic, "seed": cell.seed}
        return {"cell": cell.key, **named, "skipped": str(error)}


def line(result: Mapping[str, Any]) -> str:
    """Format a result as one line of progress."""
    if result.get("skipped"):
        return f"skipped: {result['skipped']}"
    named, wrong = result["named_s"], [*result["false_before"], *result["wrong_during"], *result["false_after"]]
    words = [outcome(result)]
    if named is not None:
        place = {True: "right place", False: "wrong place", None: "no place"}[result["right_place"]]
        words.append(f"after {named:.0f} s, {place}: {result['text']}")
    if wrong:
        words.append(f"FALSE: {'; '.join(wrong)}")
    return ", ".join(words)


def outcome(result: Mapping[str, Any]) -> str:
    """Return the outcome: named, found, unproven or missed; without a fault: quiet, unproven or silent.

    `found`: brickd reported the fault, but not the right worker. `silent`: brickd compared nothing, and did not report
    that.
    """
    if result["named_s"] is not None:
        return "named"
    if result["found_s"] is not None:
        return "found"
    if result["compared"] == 0 and result["unproven"]:
        return "unproven"
    if result["fault"] != frozen.HEALTHY:
        return "missed"
    return "quiet" if result["compared"] else "silent"


def report(results: Sequence[Mapping[str, Any]], seed: int) -> Report:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for each in results:
        groups[each["fault"], each["architecture"], each["traffic"]].append(each)
    rows = [row(groups[key]) for key in sorted(groups)]
    title = f"Faults injected into one of {frozen.WORKERS} workers and removed; seed {seed}"
    quiet = "Healthy stretches: before a fault, after it, and without a fault"
    return Report(
        "verdicts",
        machine.facts() | {"brickd": version("brickd"), "seed": seed},
        [Table("verdicts", title, rows), Table("healthy", quiet, [healthy(results)])],
    )


def _skipped(why: str, **case: Any) -> dict[str, Any]:
    return {"case": "all", **case, "goal": "named", "passed": None, "note": "", "skipped": why}


def row(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table's row that sums up all results with this fault, architecture and kind of traffic."""
    one = results[0]
    tried = [each for each in results if not each.get("skipped")]
    count = len(tried)
    named = [each["named_s"] for each in tried if each["named_s"] is not None]
    places = [each["right_place"] for each in tried if each["right_place"] is not None]
    wrong = {name: sum(len(each[name]) for each in tried) for name in ("false_before", "wrong_during", "false_after")}
    outcomes = [outcome(each) for each in tried]
    faulty = one["fault"] != frozen.HEALTHY
    good = {"named", "unproven"} if faulty else {"quiet", "unproven"}
    passed = all(each in good for each in outcomes) and not any(wrong.values()) and all(places)
    return {
        "case": f"{one['fault']}, {one['architecture']}, {one['traffic']}",
        "fault": one["fault"],
        "architecture": one["architecture"],
        "traffic": one["traffic"],
        "runs": count,
        "found": sum(each["found_s"] is not None for each in tried) if faulty else None,
        "right_worker": len(named) if faulty else None,
        "right_place": sum(places) if places else None,
        "seconds_to_name_median": statistics.median(named) if named else None,
        "seconds_to_name_max": max(named, default=None),
        **wrong,
        "compared_by_input": sum(each["compared"] for each in tried),
        "unproven": outcomes.count("unproven"),
        "goal": "named or unproven, nothing false" if faulty else "quiet or unproven",
        "passed": passed if tried else None,
        "note": "; ".join(remarks(tried)),
        "skipped": None if tried else one["skipped"],
    }


def remarks(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the notes below the tables."""
    found = []
    for each in results:
        if (word := outcome(each)) in ("missed", "found", "silent"):
            truth = f" ({each['detail']} in {', '.join(each['scope'][:1]) or each['worker']})" if each["worker"] else ""
            times = each["times_slower"]
            found.append(f"{word}{truth}{f', answers took {times:.2f} times as long' if times else ''}")
        if each["right_place"] is False:
            found.append(f"place {each['scope'][0] if each['scope'] else each['detail']}: {each['text']}")
        for name in ("false_before", "wrong_during", "false_after"):
            found += [f"{name.replace('_', ' ')}: {text}" for text in each[name][:_SHOWN]]
    return found


def healthy(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row that sums up all time without a fault. It passes or fails only if that time is long enough."""
    tried = [each for each in results if not each.get("skipped")]
    minutes = sum(each["healthy_s"] for each in tried) / 60
    numeric, stragglers = (sum(each[name] for each in tried) for name in ("false_numeric", "false_stragglers"))
    every = sum(len(each["false_before"]) + len(each["false_after"]) for each in tried)
    bad = numeric > frozen.FALSE_NUMERIC_MAX or stragglers > frozen.FALSE_STRAGGLERS_MAX
    short = minutes < frozen.HEALTHY_MINUTES_MIN
    return {
        "case": "healthy fleets",
        "fleet_minutes": minutes,
        "false_numeric": numeric,
        "false_stragglers": stragglers,
        "false_others": every - numeric - stragglers,
        "other_problems": sum(len(each["other_problems"]) for each in tried),
        "goal": f"0 numeric, <= {frozen.FALSE_STRAGGLERS_MAX} straggler in >= {frozen.HEALTHY_MINUTES_MIN:g} minutes",
        "passed": False if bad else None if short else True,
        "note": "; ".join(sorted({text for each in tried for text in each["other_problems"]})[:_SHOWN]),
        "skipped": f"{minutes:.1f} healthy fleet-minutes are too few to judge" if short and not bad else None,
    }
