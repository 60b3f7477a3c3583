"""`scripts/bench evidence`: how it draws trials, how it judges them, and its tables. No model runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.engine import command, frozen
from benchmarks.engine.cells import BITWISE, DENSE, EXPERTS, drawn, dtype, settings
from benchmarks.engine.row_table import ROW, Table, compared, known_elsewhere
from benchmarks.engine.trial import named_by_rows, with_rows
from benchmarks.faulty.frozen import HEALTHY
from benchmarks.faulty.judged import BEFORE, DURING, Look, Site, Truth, exactly
from benchmarks.workplace import Workplace

# ---- the draw of trials


def test_each_fault_has_enough_trials_of_each_dtype() -> None:
    cells = drawn(1)
    assert len({cell.key for cell in cells}) == len(cells)
    counts = Counter((cell.fault, dtype(cell.architecture)) for cell in cells)
    for each in frozen.DTYPES:
        assert {counts[fault, each] for fault in (*frozen.FAULTS, *frozen.LATER)} == {frozen.RUNS}
        assert counts[BITWISE, each] == frozen.BITWISE_RUNS
    swapped = {cell.architecture for cell in cells if cell.fault == "swapped_expert"}
    assert swapped == set(EXPERTS.values())
    assert {cell.architecture for cell in cells if cell.fault == "eps"} == {*DENSE.values(), *EXPERTS.values()}


def test_a_full_run_has_enough_clean_hours() -> None:
    clean = sum(cell.fault == HEALTHY for cell in drawn(1))
    assert clean * frozen.FULL.clean_s / 3600 >= frozen.CLEAN_HOURS_MIN


@pytest.mark.ci
def test_a_seed_draws_the_same_trials_and_settings_and_a_part_of_them() -> None:
    whole = {cell.key: cell for cell in drawn(3)}
    assert [*whole.values()] == drawn(3)
    assert {cell.seed for cell in drawn(4)}.isdisjoint(cell.seed for cell in whole.values())
    assert all(whole[cell.key] == cell for cell in drawn(3, quick=True))
    assert [cell.key for cell in drawn(3, only="mixtral/eps/007")] == ["mixtral/eps/007"]
    assert all(settings(cell, 3) == settings(whole[cell.key], 3) for cell in drawn(3, quick=True))


def test_trials_have_all_batches_threads_and_system_prompts() -> None:
    found = [settings(cell, 1) for cell in drawn(1)]
    assert {each.batch for each in found} == set(frozen.BATCHES)
    assert {each.threads for each in found} == set(frozen.THREADS)
    assert {each.system for each in found} == {0, 20, 300}


# ---- judgement

TRUTH = Truth("late_channel", "fleet/1", ("model.layers.2.mlp", "model.layers.2.mlp.up_proj"))


@pytest.mark.parametrize(
    ("place", "exact"),
    [
        (Site("layers.*.mlp", 2), True),
        (Site("layers.*.mlp.up_proj", 2), True),
        (Site("layers.*.mlp", 1), False),
        (Site("layers.*", 2), False),
        (Site("layers.*.mlp.down_proj", 2), False),
        (Site("lm_head", None), False),
    ],
)
def test_only_the_module_of_the_fault_and_row_wise_ones_around_it_are_exact(place: Site, exact: bool) -> None:
    assert exactly(place, TRUTH.scope) == exact


def diff(outlier: str | None, kernel: str = "layers.*.mlp", layer: int | None = 2) -> dict[str, Any]:
    return {"outlier": outlier, "first": {"kernel": kernel, "layer": layer} if outlier else None}


def test_the_outlier_of_a_diff_is_a_problem_and_its_first_difference_the_place() -> None:
    plain: dict[str, Any] = {"problems": []}
    status = with_rows(plain, diff("fleet/1"))
    assert [(each["kind"], each["workers"]) for each in status["problems"]] == [("numbers", ["fleet/1"])]
    assert named_by_rows([Look(DURING, 4.0, status)], TRUTH) == (4.0, Site("layers.*.mlp", 2))
    assert with_rows(plain, diff(None)) == plain
    # an answer that names no outlier, because only two workers disagree
    assert with_rows(plain, diff("fleet/1") | {"outlier": None}) == plain
    assert with_rows(plain, {"error": "nothing is recorded"}) == plain


def test_rows_name_a_worker_from_the_first_time_during_its_fault() -> None:
    early, named, other = (
        with_rows({"problems": []}, diff(worker, layer=layer))
        for worker, layer in (("fleet/1", 1), ("fleet/1", 2), ("fleet/2", 3))
    )
    looks = [Look(BEFORE, 4.0, early), Look(DURING, 2.0, other), Look(DURING, 4.0, named), Look(DURING, 6.0, early)]
    assert named_by_rows(looks, TRUTH) == (4.0, Site("layers.*.mlp", 2))
    assert named_by_rows(looks[:2], TRUTH) is None
    assert named_by_rows([Look(DURING, 4.0, {"problems": []})], Truth(HEALTHY)) is None


# ---- the report


def result(**other: Any) -> dict[str, Any]:
    truth = {"site": "model.layers.2.mlp.up_proj", "detail": "channel 3 × 1.01"}
    return {
        "cell": "llama_fp32/late_channel/000",
        "fault": "late_channel",
        "dtype": "fp32",
        "watched": True,
        "site_unproven": False,
        "named_s": 12.0,
        "any_evidence_s": 12.0,
        "exact": True,
        "place": "layers.*.mlp layer 2",
        "text": "fleet/1 differs",
        "false": [],
        "row_verdict": "diverged",
        "row_why": None,
        "rows_compared": 40,
        "faulty_rows": 90,
        "equal_history_rows": 40,
        "equal_lineage_rows": 30,
        "clean_s": 30.0,
        "truth": truth,
    } | other


UNPROVEN = {"named_s": None, "exact": None, "row_verdict": "unproven", "row_why": "not available in this version"}
MISSED = {"named_s": None, "exact": None, "row_verdict": "equal"}


@pytest.mark.parametrize(
    ("results", "passed"),
    [
        ([result()] * 20, True),
        ([result()] * 19 + [result(**MISSED)], True),
        ([result()] * 18 + [result(**MISSED)] * 2, False),
        ([result()] * 18 + [result(**UNPROVEN)] * 2, False),
        ([result()] * 18 + [result(exact=False)] * 2, False),
        ([result()] * 19 + [result(false=["fleet/0 differs"])], False),
        ([result()] * 19 + [result(watched=False, **UNPROVEN)], True),
        ([result()] * 19 + [result(watched=False, **MISSED)], False),
        ([result(**UNPROVEN)] * 20, None),
        ([result(**UNPROVEN)] * 19 + [result(**UNPROVEN, false=["fleet/0 differs"])], False),
        ([result(watched=False, **UNPROVEN)] * 20, None),
        ([result(watched=False, **MISSED)] * 20, False),
        ([result(watched=False, site_unproven=True, **MISSED)] * 20, None),
        ([result()] * 19 + [result(equal_history_rows=0, **MISSED)], True),
        ([result()] * 19 + [result(equal_history_rows=0, **MISSED)] * 9, True),
    ],
)
def test_a_fault_must_be_found_at_its_site_where_a_site_covers_it_else_be_unproven(
    results: list[dict[str, Any]], passed: bool | None
) -> None:
    row = command.row(results)
    assert row["passed"] is passed
    assert (row["skipped"] is not None) == (passed is None)
    assert row["runs"] == len(results)


def test_the_row_of_a_fault_counts_each_outcome() -> None:
    elsewhere = result(watched=False, named_s=30.0)
    row = command.row([result(), result(named_s=20.0, exact=False), result(**MISSED), result(**UNPROVEN), elsewhere])
    names = ("covered", "found", "seconds_max", "site_exact", "unproven", "missed", "false")
    assert [row[name] for name in names] == [4, 2, 20.0, 1, 1, 1, 0]
    assert row["note"].startswith("missed: channel 3 × 1.01 in model.layers.2.mlp.up_proj; site model.layers.2.mlp")


def test_clean_time_is_judged_if_it_is_long_enough() -> None:
    hours = frozen.CLEAN_HOURS_MIN * 3600
    assert command.clean([result(clean_s=hours)])["passed"] is True
    assert command.clean([result(clean_s=hours)])["false_per_hour_below"] == 3 / frozen.CLEAN_HOURS_MIN
    assert command.clean([result(clean_s=hours - 1)])["passed"] is None
    assert command.clean([result(clean_s=1, false=["fleet/0 differs"])])["passed"] is False


def bits(**other: Any) -> dict[str, Any]:
    names = ("threads", "system", "batch", "chunk", "replicas", "requests", "tokens", "reused", "preempted")
    same = dict.fromkeys(("different_traffic", "equal_again", "equal_with_brickd"), True)
    rows = [{"case": "equal history", "keys": 5}]
    return (
        {"cell": f"llama_fp32/{BITWISE}/000", "fault": BITWISE, "dtype": "fp32", "rows": rows}
        | dict.fromkeys(names, 1)
        | same
        | other
    )


@pytest.mark.parametrize("wrong", ["different_traffic", "equal_again", "equal_with_brickd"])
def test_other_bits_fail_the_run(wrong: str) -> None:
    assert command.report([bits()], 7).passed
    assert not command.report([bits(**{wrong: False})], 7).passed


def test_the_report_has_tables_for_people_and_json() -> None:
    failed = {"cell": "mixtral/eps/000", "fault": "eps", "skipped": "no answer"}
    report = command.report([result(), bits(), failed], 7)
    document = json.loads(report.json())
    assert document["machine"]["seed"] == 7
    assert [len(document[key]["rows"]) for key in ("evidence", "clean", "bits", "rows", "failed")] == [1] * 5
    assert "late_channel, fp32" in report.text()
    assert "no answer" in report.text()


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (result(), "found after 12 s, exact site; model.layers.2.mlp.up_proj: channel 3 × 1.01, 0 false verdicts"),
        (result(**UNPROVEN), "unproven; model.layers.2.mlp.up_proj: channel 3 × 1.01, 0 false verdicts"),
        (result(fault=HEALTHY), "0 false verdicts"),
        (bits(equal_with_brickd=False), "1 requests, OTHER BITS with brickd"),
        ({"skipped": "no answer"}, "skipped: no answer"),
    ],
)
def test_progress_is_one_line(of: dict[str, Any], text: str) -> None:
    assert command.line(of) == text


def test_a_run_without_torch_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    report = command.run(Workplace(tmp_path, {}), quick=True)
    assert "pip install torch transformers" in report.text()
    assert report.passed


# ---- rows of several replicas


def table(*rows: tuple[int, int, int, int, int]) -> Table:
    """Return the rows of a site. Each row has its input, its output, the number of rows in its call, its history and
    its shapes.
    """
    found = np.zeros(len(rows), ROW)
    for number, (given, output, called, history, shapes) in enumerate(rows):
        found[number] = (0, 0, 0, called, 0, True, history, 0, 0, shapes, given, output)
    return found


def counted(*tables: Table) -> dict[str, tuple[int, int, int]]:
    return {each["case"]: (each["keys"], each["keys_equal"], each["outlier_keys"]) for each in compared(tables, ["a"])}


def test_only_keys_of_several_replicas_are_compared() -> None:
    assert counted(table((1, 5, 8, 1, 1), (1, 6, 8, 1, 1)), table((2, 7, 8, 2, 1)))["equal input row"] == (0, 0, 0)
    assert counted(table((1, 5, 8, 1, 1)), table((1, 5, 8, 2, 1)))["equal input row"] == (1, 1, 0)


def test_a_value_that_no_other_replica_has_is_an_outlier_unless_the_key_tells_it_apart() -> None:
    found = counted(table((1, 5, 8, 1, 1), (1, 6, 4, 1, 1)), table((1, 5, 8, 2, 2)))
    assert found["equal input row"] == (1, 0, 1)
    assert found["equal input row, calls of as many rows"] == (1, 1, 0)


def test_the_outlier_share_is_of_the_worst_replica_and_site() -> None:
    mine = table(*((given, given + 10 * (given < 2), 8, 1, 1) for given in range(4)), (9, 9, 8, 1, 1))
    others = [table(*((given, given, 8, 1, 1) for given in range(4))) for _ in range(2)]
    assert [each["outlier_share"] for each in compared([mine, *others], ["a"])[:2]] == [0.5, 0.5]
    elsewhere = [each.copy() for each in others]
    for each in elsewhere:
        each["site"] = 1
    both = [np.concatenate(pair) for pair in zip([mine, *others], [elsewhere[0], *elsewhere], strict=True)]
    assert compared(both, ["a", "b"])[0]["outlier_share"] == 0.5
    few = table((0, 10, 8, 1, 1), (1, 1, 8, 1, 1))
    assert compared([few, others[0][:2]], ["a"])[0]["outlier_share"] == 0.0


def test_rows_are_known_elsewhere_with_the_same_history_and_if_wanted_lineage() -> None:
    mine = table((1, 5, 8, 1, 1), (1, 5, 8, 2, 1), (1, 5, 8, 3, 1))
    others = [table((9, 9, 9, 1, 1)), table((9, 9, 9, 2, 1), (9, 9, 9, 3, 2))]
    assert known_elsewhere(mine, others, lineage=True) == 2
    assert known_elsewhere(mine, others, lineage=False) == 3
