"""`scripts/bench verdicts`: how it draws cells, how it judges them, how it resumes a run. No model runs."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from benchmarks.asking import asking
from benchmarks.damage import flipped
from benchmarks.faulty import command, frozen, judged
from benchmarks.faulty.cells import ARCHITECTURES, EQUAL, UNIQUE, Cell, FinishedCells, drawn
from benchmarks.faulty.driven import Worker
from benchmarks.faulty.judged import AFTER, BEFORE, DURING, Look, Site, Truth, Verdict, within
from benchmarks.workplace import Workplace, workplace
from hypothesis import given
from hypothesis import strategies as st

# ---- the draw of cells


def test_the_same_seed_draws_the_same_cells_and_another_seed_others() -> None:
    assert drawn(1) == drawn(1)
    assert [cell.key for cell in drawn(1)] != [cell.key for cell in drawn(2)]
    assert {cell.key: cell.seed for cell in drawn(1)}.items().isdisjoint({c.key: c.seed for c in drawn(2)}.items())


def test_a_part_of_a_run_draws_the_same_as_the_whole_run() -> None:
    whole = {cell.key: cell for cell in drawn(3)}
    part = drawn(3, only="vit/*/equal")
    assert {cell.key for cell in part} == {key for key in whole if key.startswith("vit/") and key.endswith("/equal")}
    assert all(whole[cell.key] == cell for cell in part)
    assert all(whole[cell.key] == cell for cell in drawn(3, quick=True))


def test_each_architecture_has_each_fault_and_both_kinds_of_healthy_traffic() -> None:
    cells = drawn(1)
    assert len({cell.key for cell in cells}) == len(cells)
    found = {(cell.architecture, cell.fault, cell.traffic) for cell in cells}
    # an int8 model cannot have these two faults (torch's quantized operators refuse NaN), so it has others instead
    packed = {"weight_bit": "int8_weight", "rare_nan": "eps"}
    for architecture in ARCHITECTURES:
        for fault in frozen.WANTED.keys() - {"int8_weight", "leak"}:
            mine = packed.get(fault, fault) if architecture == "llama_int8" else fault
            assert (architecture, mine, EQUAL) in found
        assert {(architecture, frozen.HEALTHY, traffic) for traffic in (EQUAL, UNIQUE)} <= found
    assert sum(cell.fault == "leak" for cell in cells) == 1
    assert [cell.architecture for cell in cells if cell.fault == "int8_weight"] == ["llama_int8"]


def test_a_full_run_has_enough_healthy_minutes_to_be_judged() -> None:
    full = frozen.FULL
    healthy_s = sum(
        full.healthy_s if cell.fault == frozen.HEALTHY else full.before_s + full.after_s for cell in drawn(1)
    )
    assert healthy_s / 60 > frozen.HEALTHY_MINUTES_MIN


# ---- judgement

EPS = Truth("eps", "api/1", ("model.layers.2.input_layernorm",))
DIFFERS = "{} differs from the others since 12:00: layers.* layer 2, relative error 2e-3; its inputs were equal"
DISAGREE = "api/0 and api/1 disagree since 12:00: layers.* layer 2"
SLOW = "{} slow since 12:00: layers.*.mlp +100 %, costs 200 ms/s"


def status(*problems: str | dict[str, Any], **other: Any) -> dict[str, Any]:
    listed = [{"text": each, "command": ""} if isinstance(each, str) else {"command": "", **each} for each in problems]
    names = [{"name": f"api/{number}"} for number in range(3)]
    return {"problems": listed, "workers": names} | dict.fromkeys(("stragglers", "numerics")) | other


def seen(truth: Truth, *looks: tuple[str, float, dict[str, Any]]) -> Verdict:
    return judged.judged([Look(*each) for each in looks], truth)


def numerics(compared: int, evidence: str | None = None) -> dict[str, Any]:
    reported = {} if evidence is None else {"evidence": [{"evidence": "input", "verdict": evidence}]}
    return {"numerics": [{"input": {"compared": compared}, "weights": None}], **reported}


def test_a_fault_is_found_when_a_problem_first_names_its_worker() -> None:
    here = {"outliers": {"api/1": 3}, "kernel": "layers.*", "layer": 2}
    verdict = seen(
        EPS,
        (BEFORE, 2.0, status()),
        (DURING, 2.0, status()),
        (DURING, 4.0, status(DIFFERS.format("api/1"), diverged=[here])),
        (DURING, 6.0, status(DIFFERS.format("api/1"), diverged=[here])),
    )
    assert (verdict.found_s, verdict.named_s, verdict.kinds, verdict.right_place) == (4.0, 4.0, ["numbers"], True)
    assert not verdict.false_before + verdict.wrong_during + verdict.false_after


@pytest.mark.parametrize("elsewhere", [{"layer": 1}, {"kernel": "layers.*.mlp"}, {"kernel": "lm_head", "layer": None}])
def test_another_place_in_the_right_worker_is_wrong(elsewhere: dict[str, Any]) -> None:
    there = {"outliers": {"api/1": 3}, "kernel": "layers.*", "layer": 2} | elsewhere
    text = f"api/1 differs from the others since 12:00: {there['kernel']} layer {there['layer']}"
    verdict = seen(EPS, (DURING, 4.0, status(text, diverged=[there])))
    assert (verdict.named_s, verdict.right_place) == (4.0, False)


def test_two_disagreeing_workers_are_found_but_none_is_named() -> None:
    verdict = seen(EPS, (DURING, 4.0, status(DISAGREE)), (DURING, 9.0, status(DIFFERS.format("api/1"))))
    assert (verdict.found_s, verdict.named_s) == (4.0, 9.0)
    assert verdict.wrong_during == [DISAGREE]
    assert seen(EPS, (DURING, 4.0, status(DISAGREE))).named_s is None


@pytest.mark.parametrize(("text", "kind"), [(DIFFERS, "numeric"), (SLOW, "straggler")])
@pytest.mark.parametrize("phase", [BEFORE, DURING, AFTER])
def test_an_alarm_about_a_healthy_worker_is_false_in_each_phase(phase: str, text: str, kind: str) -> None:
    reported = text.format("api/2")
    verdict = seen(EPS, (phase, 1.0, status(reported)), (phase, 3.0, status(reported)))
    false = {BEFORE: verdict.false_before, DURING: verdict.wrong_during, AFTER: verdict.false_after}
    assert false == {each: [reported] if each == phase else [] for each in false}
    healthy = phase != DURING
    assert (verdict.false_numeric, verdict.false_stragglers) == (
        healthy * (kind == "numeric"),
        healthy * (kind != "numeric"),
    )
    assert verdict.found_s is None


def test_an_alarm_about_the_faulty_worker_is_false_before_or_beyond_its_fault() -> None:
    early = seen(EPS, (BEFORE, 1.0, status(DIFFERS.format("api/1"))))
    other = seen(EPS, (DURING, 1.0, status(SLOW.format("api/1"))))
    assert (len(early.false_before), early.false_numeric) == (1, 1)
    assert (len(other.wrong_during), other.named_s) == (1, None)


def test_a_fault_first_reported_after_its_removal_is_neither_found_nor_false() -> None:
    verdict = seen(EPS, (DURING, 4.0, status()), (AFTER, 2.0, status(DIFFERS.format("api/1"))))
    assert (verdict.found_s, verdict.false_after) == (None, [])


def test_a_true_consequence_of_a_fault_is_neither_found_nor_false() -> None:
    verdict = seen(Truth("stuck", "api/1", ("model.layers.2.mlp",)), (DURING, 4.0, status(SLOW.format("api/1"))))
    assert (verdict.found_s, verdict.wrong_during) == (None, [])


def test_only_the_first_named_place_counts() -> None:
    wrong, right = ({"outliers": {"api/1": 3}, "kernel": "layers.*", "layer": layer} for layer in (1, 2))
    text = "api/1 differs from the others since 12:00: layers.* layer 1 (and at 1 more site)"
    assert seen(EPS, (DURING, 4.0, status(text, diverged=[wrong, right]))).right_place is False


def test_comparisons_count_until_the_fault_is_removed() -> None:
    looks = [(phase, 1.0, status(**numerics(n, "unproven"))) for n, phase in enumerate((BEFORE, DURING, AFTER))]
    assert (seen(EPS, *looks).compared, seen(EPS, *looks).unproven) == (1, True)
    other = status(evidence=[{"evidence": "row", "verdict": "unproven"}, {"evidence": "input", "verdict": "equal"}])
    assert seen(EPS, (BEFORE, 1.0, other)).unproven is False


def test_a_report_that_outlasts_the_fault_is_not_false() -> None:
    reported = status(DIFFERS.format("api/1"))
    verdict = seen(EPS, (DURING, 4.0, reported), (AFTER, 2.0, reported))
    assert (verdict.false_after, verdict.false_numeric) == ([], 0)


def test_nan_is_found_by_its_word() -> None:
    truth = Truth("rare_nan", "api/1", ("model.layers.2.mlp",))
    assert seen(truth, (DURING, 1.0, status(DIFFERS.format("api/1")))).named_s is None
    reported = "api/1 differs from the others since 12:00: layers.*.mlp layer 2, NaN or infinite"
    assert seen(truth, (DURING, 1.0, status(reported))).named_s == 1.0


@pytest.mark.parametrize(
    ("place", "right"), [("layers.*.mlp layer 2", True), ("layers.*.mlp layer 1", False), ("layers.*.mlp", False)]
)
def test_the_place_of_nan_is_in_its_text(place: str, right: bool) -> None:
    text = f"api/1 computes NaN at {place} since 12:00, 3 times; the inputs contain none"
    reported = {"kind": "nan", "workers": ["api/1"], "text": text}
    assert (
        seen(Truth("rare_nan", "api/1", ("model.layers.2.mlp",)), (DURING, 1.0, status(reported))).right_place is right
    )


@pytest.mark.parametrize(
    ("place", "right"), [("layers.*.mlp (layer 2)", True), ("layers.*.mlp (layer 1)", False), ("lm_head", False)]
)
def test_the_place_of_a_stuck_worker_is_in_its_text(place: str, right: bool) -> None:
    text = f"api/1 is stuck in {place} for 31 s; this brick has a p99 of 2 ms"
    verdict = seen(Truth("stuck", "api/1", ("model.layers.2.mlp",)), (DURING, 40.0, status(text)))
    assert (verdict.named_s, verdict.kinds, verdict.right_place) == (40.0, ["stuck"], right)


def test_a_slow_operator_is_found_with_its_brick() -> None:
    truth = Truth("slow_2x", "api/0", ("model.layers.0.mlp", "model.layers.1.mlp"))
    slow = [{"worker": "api/0", "brick": "layers.*.mlp"}]
    assert seen(truth, (DURING, 1.0, status(SLOW.format("api/0"), stragglers=slow))).right_place
    elsewhere = [{"worker": "api/0", "brick": "layers.*.self_attn"}]
    reported = "api/0 slow since 12:00: layers.*.self_attn +100 %, costs 1 s/s"
    assert seen(truth, (DURING, 1.0, status(reported, stragglers=elsewhere))).right_place is False


@pytest.mark.parametrize(("where", "right"), [("", False), ("; it may use CPU 1 alone", True), ("; CPU 11", False)])
def test_a_pinned_worker_is_explained_by_its_processor(where: str, right: bool) -> None:
    text = f"api/0 waits for a processor 31 % of its time (median of all: 2 %){where}"
    verdict = seen(Truth("pinned", "api/0", detail="CPU 1"), (DURING, 1.0, status(text)))
    assert (verdict.named_s, verdict.right_place) == (1.0, right)


def test_kind_and_workers_of_a_problem_override_its_text() -> None:
    reported = {"kind": "weights", "workers": ["api/1"], "text": "unlike api/2, slow since"}
    assert judged.alarms(status(reported)) == [("weights", ("api/1",), "unlike api/2, slow since")]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("weights: api/1 differs from the others: model.layers.*.mlp.up_proj.weight layer 2", "weights"),
        (DIFFERS.format("api/1"), "numbers"),
        (DISAGREE, "numbers"),
        ("api/1 contradicts itself since 12:00: layers.*", "numbers"),
        (SLOW.format("api/1"), "straggler"),
        ("api/1 waits for a processor 31 % of its time; it shares CPU 3 with PID 4711", "straggler"),
        ("api/1 died; the totals are kept", "other"),
    ],
)
def test_the_kind_of_a_problem_without_one_is_parsed_from_its_text(text: str, kind: str) -> None:
    assert judged.kind({"text": text}) == kind


def test_other_problems_are_listed_once_and_are_not_alarms() -> None:
    died = "api/1 died; the totals are kept"
    verdict = seen(EPS, (BEFORE, 1.0, status(died)), (DURING, 1.0, status(died)))
    assert (verdict.other_problems, verdict.false_before, verdict.found_s) == ([died], [], None)


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (Site("layers.*.mlp", 2), True),  # this place is the nearest enclosing part of the model
        (Site("model.layers.*.mlp.up_proj.weight", 2), True),
        (Site("layers.*", 2), True),
        (Site("layers.*.mlp", None), True),
        (Site("layers.*.mlp", 1), False),
        (Site("layers.*.self_attn", 2), False),
        (Site("layers", None), False),
        (Site("lm_head", None), False),
    ],
)
def test_a_place_is_right_from_the_layer_around_a_fault_to_its_parts(found: Site, right: bool) -> None:
    assert within(found, ["model.layers.2.mlp.up_proj.weight"]) is right


# ---- outcomes


@pytest.mark.parametrize(
    ("fault", "compared", "reported", "word"),
    [
        (frozen.HEALTHY, 9, "equal", "quiet"),
        (frozen.HEALTHY, 0, "unproven", "unproven"),
        (frozen.HEALTHY, 0, "equal", "silent"),
        (frozen.HEALTHY, 0, None, "silent"),
        ("eps", 0, "unproven", "unproven"),
        ("eps", 0, None, "missed"),
        ("eps", 9, "unproven", "missed"),
        ("eps", 9, "equal", "missed"),
    ],
)
def test_without_comparisons_a_cell_passes_if_reported_as_unproven(
    fault: str, compared: int, reported: str | None, word: str
) -> None:
    found = result(fault=fault, looks=[Look(BEFORE, 1.0, status(**numerics(compared, reported)))])
    assert command.outcome(found) == word
    assert command.row([found])["passed"] is (word in ("quiet", "unproven"))


def result(
    *, fault: str = "eps", healthy_s: float = 60.0, looks: list[Look] | None = None, **other: Any
) -> dict[str, Any]:
    verdict = vars(judged.judged(looks or [], Truth(fault, "api/1", ("model.layers.2.mlp",))))
    cell = {"cell": f"vit/{fault}/equal", "fault": fault, "architecture": "vit", "traffic": EQUAL, "seed": 1}
    truth = {"worker": "api/1", "scope": ["model.layers.2.mlp"], "detail": "eps 1e-6", "healthy_s": healthy_s}
    truth["times_slower"] = 1.0
    return {**cell, **truth, **verdict, **other}


NAMED: dict[str, Any] = {"found_s": 3.0, "named_s": 4.0, "right_place": True, "compared": 9}


@pytest.mark.parametrize(
    ("wrong", "passed"),
    [
        ({}, True),
        ({"right_place": False}, False),
        ({"right_place": None}, True),
        ({"named_s": None}, False),
        ({"false_before": ["x"]}, False),
        ({"wrong_during": ["x"]}, False),
        ({"false_after": ["x"]}, False),
    ],
)
def test_a_row_passes_if_only_the_right_worker_and_place_are_named(wrong: dict[str, Any], passed: bool) -> None:
    row = command.row([result(**NAMED), result(**NAMED | wrong)])
    assert row["passed"] is passed
    assert (row["runs"], row["found"]) == (2, 2)
    assert bool(row["note"]) is not passed


@pytest.mark.parametrize(
    ("minutes", "numeric", "stragglers", "passed"),
    [(60, 0, 0, True), (60, 0, 1, True), (60, 0, 2, False), (60, 1, 0, False), (59, 0, 1, None), (1, 1, 0, False)],
)
def test_healthy_minutes_are_judged_if_sufficient_and_false_alarms_always(
    minutes: float, numeric: int, stragglers: int, passed: bool | None
) -> None:
    one = result(healthy_s=30 * minutes, false_numeric=numeric, false_stragglers=stragglers)
    other = result(healthy_s=30 * minutes)
    row = command.healthy([one, other, {"skipped": "no model"}])
    assert (row["passed"], row["fleet_minutes"]) == (passed, minutes)
    assert (row["skipped"] is None) is (passed is not None)


def test_a_report_has_the_seed_and_a_row_for_each_fault_and_architecture() -> None:
    found = command.report([result(**NAMED), result(fault="stuck", skipped="no model"), result(fault="none")], 7)
    document = json.loads(found.json())
    assert (document["machine"]["seed"], document["machine"]["brickd"]) == (7, version("brickd"))
    assert [row["fault"] for row in document["verdicts"]["rows"]] == ["eps", "none", "stuck"]
    assert "seed 7" in found.text()


# ---- resumed runs

CELLS = drawn(5, quick=True)


def finished(cells: list[Cell], into: FinishedCells, ran: list[str]) -> list[str]:
    def tried(cell: Cell) -> dict[str, Any]:
        ran.append(cell.key)
        return result() | {"cell": cell.key}

    return [each["cell"] for each in command.finish(cells, into, tried, command.line)]


def begun(file: Path, seed: int) -> FinishedCells:
    return FinishedCells.begun(file, seed, quick=True, limits=frozen.table())


def resumed(file: Path, seed: int | None, *, quick: bool = True) -> FinishedCells:
    return FinishedCells.resumed(file, seed, quick=quick, limits=frozen.table(), has="times_slower")


def test_a_resumed_run_continues_with_the_same_seed(tmp_path: Path) -> None:
    ran: list[str] = []
    keys = [cell.key for cell in CELLS]
    finished(CELLS[:1], begun(tmp_path / "kept", 5), ran)
    again = resumed(tmp_path / "kept", None)
    assert again.seed == 5
    assert finished(CELLS, again, ran) == keys
    assert ran == keys
    assert finished(CELLS, resumed(tmp_path / "kept", 5), ran) == keys
    assert ran == keys


def test_a_cell_with_a_truncated_result_runs_again(tmp_path: Path) -> None:
    file, ran = tmp_path / "kept", list[str]()
    finished(CELLS[:2], begun(file, 5), ran)
    file.write_bytes(file.read_bytes()[:-9])
    finished(CELLS[:2], resumed(file, None), ran)
    assert ran == [CELLS[0].key, CELLS[1].key, CELLS[1].key]
    assert len(file.read_text().splitlines()) == 3


def test_a_skipped_cell_runs_again(tmp_path: Path) -> None:
    kept = begun(tmp_path / "kept", 5)
    command.finish(CELLS[:1], kept, lambda cell: {"cell": cell.key, "skipped": "no answer"}, command.line)
    ran: list[str] = []
    finished(CELLS[:1], resumed(tmp_path / "kept", None), ran)
    assert ran == [CELLS[0].key]


def by_process(cell: Cell) -> dict[str, Any]:
    return result() | {"cell": cell.key, "pid": os.getpid()}


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.ci)])
def test_several_jobs_run_each_cell_in_its_own_process(jobs: int, tmp_path: Path) -> None:
    kept = begun(tmp_path / "kept", 5)
    found = command.finish(CELLS, kept, by_process, command.line, jobs)
    assert [each["cell"] for each in found] == [cell.key for cell in CELLS]
    pids = {each["pid"] for each in found}
    assert pids == {os.getpid()} if jobs == 1 else os.getpid() not in pids and len(pids) == len(CELLS)
    assert resumed(tmp_path / "kept", 5).results.keys() == {cell.key for cell in CELLS}


def interrupted(cell: Cell) -> dict[str, Any]:
    """Be interrupted in the first cell, and wait in all others."""
    if cell == CELLS[0]:
        raise KeyboardInterrupt
    signal.pause()
    return result()


@pytest.mark.ci
def test_an_interrupted_run_ends_the_cells_of_all_jobs(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a job ended with exit status 1"):
        command.finish(CELLS, begun(tmp_path / "kept", 5), interrupted, command.line, 2)
    assert not multiprocessing.active_children()


def test_a_file_of_another_run_or_with_other_limits_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept"
    with pytest.raises(RuntimeError, match="does not exist"):
        resumed(file, None)
    begun(file, 5)
    with pytest.raises(RuntimeError, match="is of seed 5 with --quick"):
        resumed(file, 6)
    with pytest.raises(RuntimeError, match="is of seed 5 with --quick"):
        resumed(file, None, quick=False)
    monkeypatch.setattr(frozen, "NAN_CALLS", 21)
    with pytest.raises(RuntimeError, match="other limits"):
        resumed(file, None)


@pytest.mark.parametrize(("made_by", "called"), [("0.9.9", "0.9.9"), (None, "(version not known)")])
def test_a_file_of_another_version_is_refused_with_both_versions(
    tmp_path: Path, made_by: str | None, called: str
) -> None:
    file = tmp_path / "kept"
    begun(file, 5)
    head = json.loads(file.read_text())
    assert head.pop("brickd") == version("brickd")
    file.write_text(json.dumps(head | ({} if made_by is None else {"brickd": made_by})) + "\n")
    with pytest.raises(RuntimeError) as refused:
        resumed(file, None)
    assert str(refused.value) == f"{file} is of brickd {called}, this is {version('brickd')}: run without --resume"


def test_an_incomplete_result_is_refused_with_its_cell(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    old = result() | {"cell": "vit/eps/equal"}
    begun(file, 5).add({name: value for name, value in old.items() if name != "times_slower"})
    with pytest.raises(RuntimeError, match="the result of vit/eps/equal has no times_slower: run without --resume"):
        resumed(file, None)


def test_a_run_that_cannot_be_resumed_ends_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "KEPT", tmp_path)
    monkeypatch.setattr(command, "_WANTED", ())
    with pytest.raises(SystemExit, match=r"full\.jsonl does not exist: nothing to resume"):
        command.run(cast(Workplace, None), quick=False, resume=True)


# ---- the fleet


def test_late_answers_of_a_busy_worker_are_not_taken_for_others() -> None:
    (commands, sent), (answers, replies) = os.pipe(), os.pipe()
    worker = Worker(sent, answers)
    os.write(replies, b'{"pid": 7}\n')
    assert worker.ask({"do": "answer"}) == {"pid": 7}
    assert worker.ask({"do": "answer"}, 0) is None
    assert worker.busy
    os.write(replies, b'{"pid": 7, "digest": "late"}\n{"pid": 7, "digest"')
    assert worker.ask({"do": "remove"}, 0) is None
    assert worker.busy
    os.write(replies, b': "own"}\n')
    assert not worker.busy
    assert os.read(commands, 1 << 12).count(b"\n") == 3
    os.close(replies)
    with pytest.raises(RuntimeError, match="PID 7 has ended"):
        worker.ask({"do": "answer"})
    worker.close()
    os.close(commands)


@given(st.sampled_from(("int8", "uint16", "int32", "float32")), st.integers(0, 4), st.integers(0, 7))
def test_a_flipped_bit_is_one_bit_and_flips_back(kind: str, index: int, bit: int) -> None:
    array = np.arange(5).astype(kind)
    before = array.tobytes()
    flipped(array, index, bit)
    assert sum((a ^ b).bit_count() for a, b in zip(before, array.tobytes(), strict=True)) == 1
    flipped(array, index, bit)
    assert array.tobytes() == before


@pytest.mark.ci
def test_one_process_answers_many_queries() -> None:
    with workplace() as place, asking(place) as ask:
        assert [each["problems"] for each in ask([("status",)])] == [[]]
        assert [*ask([("stragglers",), ("workers",)])[0]] == ["error"]
