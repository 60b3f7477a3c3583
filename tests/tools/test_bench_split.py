"""`scripts/bench evidence`: recordings of clean trials, and the new fleets that are made out of them. No model runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.engine import command, frozen, split
from benchmarks.engine.cells import drawn, settings
from benchmarks.engine.recorded import emptied, one_key, recorded
from benchmarks.faulty.frozen import HEALTHY
from benchmarks.workplace import Workplace
from c_calls import c_calls
from faults import Compile, Start

# ---- the trials


def test_clean_trials_of_an_architecture_serve_one_model_with_all_batches_and_threads() -> None:
    cells = [cell for cell in drawn(7) if cell.fault == HEALTHY]
    served = [settings(cell, 7) for cell in cells]
    assert len({(each.kind, each.seed) for each in served}) == len({each.kind for each in served}) == 4
    assert len({each.traffic for each in served}) == len(served)
    groups = Counter((each.kind, each.threads) for each in served)
    assert len(groups) == 4 * len(frozen.THREADS)
    assert min(groups.values()) > 3
    every = {(each.threads, each.batch) for each in served if each.kind == "mixtral"}
    assert every == {(threads, batch) for threads in frozen.THREADS for batch in frozen.BATCHES}
    other = settings(cells[0], 8)
    assert (other.seed != served[0].seed, other.traffic) == (True, served[0].traffic)


def test_the_clean_trials_of_a_quick_run_are_comparable() -> None:
    served = [settings(cell, 7) for cell in drawn(7, quick=True) if cell.fault == HEALTHY]
    assert len(served) == 2
    assert len({(each.kind, each.seed, each.threads) for each in served}) == 1


def test_a_trial_with_a_fault_has_a_model_of_its_own() -> None:
    served = [settings(cell, 7) for cell in drawn(7) if cell.fault == "eps"]
    assert len({each.seed for each in served}) == len(served)
    assert {each.traffic for each in served} == {None}


# ---- the draw of new fleets


def result(
    folder: Path, trial: int, *, threads: int = 1, kind: str = "mixtral", seconds: float = 600.0
) -> dict[str, Any]:
    file = folder / f"{kind}-{trial:03}.brick"
    file.touch()
    about = {"file": file.name, "seconds": seconds, "workers": [f"fleet/{number}" for number in range(3)]}
    return {"cell": f"{kind}/none/{trial:03}", "kind": kind, "threads": threads, "recording": about}


def test_the_workers_of_a_new_fleet_come_from_three_recordings_of_one_kind_and_as_many_threads(tmp_path: Path) -> None:
    results = [result(tmp_path, 3 * threads + n, threads=threads) for threads in (1, 2) for n in range(3)]
    results += [result(tmp_path, 9 + n, kind="llama_fp32", seconds=60.0) for n in range(3)]
    fleets = split.new_fleets(results, tmp_path, 7, 1e9)
    assert len({each.key for each in fleets}) == len(fleets) == 3 * 27
    threads = {tmp_path / each["recording"]["file"]: each["threads"] for each in results}
    for each in fleets:
        assert len({worker.file for worker in each.workers}) == 3
        assert len({threads[worker.file] for worker in each.workers}) == 1
        assert all(worker.file.name.startswith(each.architecture) for worker in each.workers)
    assert Counter(each.seconds for each in fleets) == {600.0: 54, 60.0: 27}


def test_the_draw_ends_at_the_wanted_hours_and_takes_turns_with_the_groups(tmp_path: Path) -> None:
    results = [result(tmp_path, 4 * threads + n, threads=threads) for threads in (1, 2) for n in range(4)]
    fleets = split.new_fleets(results, tmp_path, 7, 2.0)
    assert len(fleets) == 12
    assert Counter(each.workers[0].trial < "008" for each in fleets) == {True: 6, False: 6}
    assert fleets == split.new_fleets(results, tmp_path, 7, 2.0)
    other = split.new_fleets(results, tmp_path, 8, 2.0)
    assert {each.key for each in fleets} != {each.key for each in other}
    (tmp_path / "mixtral-005.brick").unlink()
    assert all("005" not in each.key for each in split.new_fleets(results, tmp_path, 7, 2.0))


def test_two_recordings_give_new_fleets_and_one_gives_none(tmp_path: Path) -> None:
    results = [result(tmp_path, 0, seconds=600.0), result(tmp_path, 2, seconds=500.0)]
    fleets = split.new_fleets(results, tmp_path, 7, 1e9)
    assert len(fleets) == 18
    assert {len({worker.file for worker in each.workers}) for each in fleets} == {2}
    assert {each.seconds for each in fleets} == {500.0}
    assert split.new_fleets(results[:1], tmp_path, 7, 1e9) == []


# ---- the answers and their row


def answer(**other: Any) -> dict[str, Any]:
    site = {"verdict": "identical", "compared": 40}
    return {"verdict": "identical", "outlier": None, "headlines": ["fleet/1 differs"], "sites": [site]} | other


@pytest.mark.parametrize(
    ("document", "false"),
    [
        (answer(), []),
        (answer(verdict="within"), []),
        (answer(verdict="diverged"), ["fleet/1 differs"]),
        (answer(verdict="routing"), ["fleet/1 differs"]),
        (answer(outlier="fleet/1"), ["fleet/1 differs"]),
        (answer(sites=[{"verdict": "diverged", "compared": 40}]), ["fleet/1 differs"]),
    ],
)
def test_an_outlier_and_each_disagreement_is_a_false_verdict(document: dict[str, Any], false: list[str]) -> None:
    assert split.false_verdicts(document) == false


def compared(**other: Any) -> dict[str, Any]:
    found = {"rows_compared": 40, "sites_compared": 3, "false": [], "why": None, "seconds": 1.5}
    return {"fleet_s": 600.0, **found} | other


def test_the_hours_of_new_fleets_count_if_rows_were_compared() -> None:
    enough = round(frozen.SPLIT_HOURS_MIN * 6)
    nothing = compared(rows_compared=0, why="no rows")
    row = split.row([compared()] * enough + [nothing, {"skipped": "no such file"}], 60)
    assert (row["passed"], row["skipped"], row["fleet_hours"]) == (True, None, frozen.SPLIT_HOURS_MIN)
    assert (row["fleets"], row["unproven"], row["failed"], row["rows_compared"]) == (enough, 1, 1, 40 * enough)
    assert row["false_per_hour_below"] == 3 / frozen.SPLIT_HOURS_MIN
    assert row["note"] == "no rows; no such file"
    wrong = split.row([compared(false=["fleet/1 differs"])], 60)
    assert (wrong["passed"], wrong["skipped"], wrong["false_per_hour_below"]) == (False, None, None)
    short = split.row([compared()] * (enough - 1) + [nothing] * 9, 60)
    assert (short["passed"], short["skipped"]) == (
        None,
        "59.83 fleet-hours out of 60 recordings are too few to judge",
    )


def test_a_false_verdict_of_a_new_fleet_fails_the_run_and_stands_in_a_table_of_its_own() -> None:
    report = command.report([], 7, [compared(false=["fleet/1 differs"])])
    assert not report.passed
    assert "not independent" in report.text()
    assert "fleet/1 differs" in report.text()
    assert command.report([], 7, [compared()]).passed


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (compared(), "40 rows at 3 sites, 0 false verdicts, 1.5 s"),
        (compared(why="no rows"), "unproven: no rows"),
        ({"skipped": "no such file"}, "skipped: no such file"),
    ],
)
def test_progress_is_one_line(of: dict[str, Any], text: str) -> None:
    assert split.line(of) == text


# ---- recordings

SERVING = """
import numpy as np
w.brick_init(None)
kernel, random = name("gemm"), np.random.default_rng(1)
weight, rows = (random.standard_normal(size).astype("f") for size in ((8, 8), (20, 4, 8)))
if FAULTY: weight[:, 3] *= 1.01
pause()
for step, each in enumerate(rows):
    x, y = of_array(each), of_array(each @ weight)
    recorded_rows(kernel, x, y, At(step=ctypes.pointer(c_uint64(step))))
pause()
"""


@pytest.fixture
def recording(worker: Start, compiled: Compile, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that records a worker alone, and returns the result of its trial."""
    place = Workplace(tmp_path, dict(os.environ))
    one_key(place, tmp_path)

    def made(trial: int, *, faulty: bool = False) -> dict[str, Any]:
        given = {"BRICKD_KEY_FILE": place.environment["BRICKD_KEY_FILE"]}
        process = worker(
            f"{c_calls(compiled)}\nFAULTY = {faulty}\n{SERVING}", BRICKD_SERVICE="fleet", BRICKD_WORKER="0", **given
        )
        process.paused()
        of = result(tmp_path, trial)
        with recorded(place, tmp_path / of["recording"]["file"]) as about:
            process.go()
            process.paused()
        process.kill()
        of["recording"] = about | {"workers": ["fleet/0"]}
        return of

    return made


@pytest.mark.ci
def test_new_fleets_of_healthy_workers_have_no_verdict_and_those_with_a_faulty_one_have_a_false_one(
    recording: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    results = [recording(trial, faulty=trial == 3) for trial in range(4)]
    assert all(0 < each["recording"]["seconds"] < 60 and each["recording"]["bytes"] > 0 for each in results)
    fleets = split.new_fleets(results, tmp_path, 7, 1e9)
    answers = {each.key: split.compared(each) for each in fleets}
    assert len(answers) == 4
    for key, found in answers.items():
        assert (found["rows_compared"] > 0, found["sites_compared"]) == (True, 1), found
        if "003" in key:
            assert found["verdict"] == "diverged"
            assert "mixtral-003.brick:fleet/0" in found["false"][0]
        else:
            assert (found["verdict"], found["false"]) == ("identical", [])
    assert split.row([*answers.values()], 4)["false"] == 3


@pytest.mark.ci
def test_an_unreadable_recording_is_no_clean_time(tmp_path: Path) -> None:
    results = [result(tmp_path, trial) for trial in range(3)]
    found = split.compared(split.new_fleets(results, tmp_path, 7, 0.1)[0])
    assert found["skipped"]
    assert split.row([found], 3)["fleet_hours"] == 0


def test_a_new_run_begins_without_recordings_and_without_a_key(tmp_path: Path) -> None:
    place, folder = Workplace(tmp_path, {}), tmp_path / "quick"
    one_key(place, folder)
    key = Path(place.environment["BRICKD_KEY_FILE"])
    assert key.parent == folder
    assert folder.is_dir()
    (folder / "a.brick").touch()
    emptied(folder)
    emptied(folder)
    assert not folder.exists()
