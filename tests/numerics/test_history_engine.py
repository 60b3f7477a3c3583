"""`brickd diff --by history` of an engine that keeps its own cache, with faults that no row-wise kernel shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faults import Start
from history_engine import program
from test_diff import recorded
from verbs import brickd, document

ENVIRONMENT = {"BRICKD_SERVICE": "api", "BRICKD_FINGERPRINTS": "all", "BRICKD_EVENTS": "16384"}
# What makes a history say too little about a cache.
UNKNOWN = (
    *("evicted", "reordered", "edited", "quantized", "dynamic_int8", "capacity"),
    *("packed", "image", "encoder", "drafts", "tree"),
)


def served(worker: Start, *calls: tuple[str, bool], bad: int, workers: int) -> None:
    for number in range(workers):
        text = program(number, *calls, bad=number == bad)
        worker(text, BRICKD_WORKER=str(number), **ENVIRONMENT).paused()


def by_history(answer: dict[str, Any]) -> dict[str, Any]:
    (found,) = (each for each in answer["evidence_classes"] if each["evidence"] == "history")
    return dict(found)


@pytest.mark.ci
@pytest.mark.parametrize("fault", ["rotary", "mask", "cached_value"])
def test_a_fault_in_or_before_an_attention_is_found_at_its_site(worker: Start, fault: str) -> None:
    served(worker, (fault, False), bad=1, workers=3)
    for by in ((), ("--by", "history")):
        answer = document("diff", "api", *by, code=1)
        first = answer["first"]
        assert (answer["evidence"], answer["verdict"], answer["outlier"]) == ("history", "diverged", "api/1")
        assert (first["kernel"], first["layer"], first["blame"]) == (f"{fault}.attention", 1, "here_or_cache")
        assert first["position"] == 4  # the first token that was computed with the fault
        assert answer["follow"] == 1  # the MLP of this layer; the MLP was right
    (seen,) = document("inspect", "api/1")["lanes"]
    checks = [each["checked"] for each in seen["events"] if each["checked"] is not None]
    assert {each["position"] for each in checks} <= set(range(8))
    assert len({each["history"] for each in checks}) == len({each["position"] for each in checks})
    assert {each["valid_rows"] for each in checks} == {None}
    text = brickd("diff", "api", "--by", "history").stdout
    assert "api/1 differs from 2 that agree" in text
    assert "token 4 of a sequence" in text


@pytest.mark.ci
def test_healthy_workers_are_identical_although_their_batches_differ(worker: Start) -> None:
    served(worker, ("mask", False), bad=-1, workers=3)
    answer = document("diff", "api", "--by", "history")
    assert (answer["verdict"], answer["compared"]) == ("identical", 2 * 8 * 4)
    assert (by_history(answer)["verdict"], by_history(answer)["compared"]) == ("equal", 2 * 8 * 4)


@pytest.mark.ci
@pytest.mark.parametrize("how", [(), ("--redact",)])
def test_a_recording_is_compared_by_history_without_its_values(
    worker: Start, tmp_path: Path, how: tuple[str, ...]
) -> None:
    processes = []
    for number in range(3):
        text = f"pause()\n{program(number, ('rotary', False), bad=number == 1)}"
        processes.append(worker(text, BRICKD_WORKER=str(number), **ENVIRONMENT))
        processes[-1].paused()
    file = str(tmp_path / "all.brick")
    recorded(file, *processes, arguments=how)
    answer = document("diff", file, "--by", "history", code=1)
    assert (answer["outlier"].rpartition("/")[2], answer["first"]["kernel"]) == ("1", "rotary.attention")
    assert (answer["first"]["position"] == 4) == (how == ())
    coverage = document("coverage", file)
    assert by_history({"evidence_classes": coverage["evidence"]})["verdict"] == "diverged"
    named = {(each["kernel"], each["layer"], tuple(each["outliers"])) for each in coverage["findings"]}
    assert named == {(f"rotary.{kernel}", 1, (answer["outlier"],)) for kernel in ("attention", "mlp")}


def test_an_engine_whose_histories_are_all_unknown_records_this_class_and_proves_nothing(worker: Start) -> None:
    text = program(0, ("beam", True), bad=True).replace("number_of_step == 1", "number_of_step == 0")
    worker(text, BRICKD_WORKER="0", **ENVIRONMENT).paused()
    (found,) = (each for each in document("status")["evidence"] if each["evidence"] == "history")
    assert (found["verdict"], found["recorded"], found["looked_at"]) == ("unproven", True, 0)
    assert found["unknown"] == {"beam": 5}
    assert found["why"] == "no rows with a history; histories unknown in 5 steps of sequences (5 beam)"
    assert "histories (no rows with a history; histories unknown" in brickd("status").stdout
    (service,) = document("coverage")["services"]
    assert service["history"] == {"rows": 0, "compared": 0, "differ": 0, "unknown": {"beam": 5}}
    assert "histories unknown in 5 steps of sequences" in brickd("coverage").stdout


@pytest.mark.ci
def test_a_comparison_of_unknown_histories_would_be_wrong_so_their_steps_are_only_counted(worker: Start) -> None:
    served(worker, *((name, told) for name in UNKNOWN for told in (False, True)), bad=1, workers=2)
    answer = document("diff", "api", "--by", "history", code=1)
    verdicts: dict[str, set[str | None]] = {}
    compared = dict[str, int]()
    for each in answer["sites"]:
        verdicts.setdefault(each["kernel"], set()).add(each["verdict"])
        compared[each["kernel"]] = compared.get(each["kernel"], 0) + each["compared"]
    for name in UNKNOWN:
        assert "diverged" in verdicts[f"{name}.attention"], f"{name} of a healthy worker would be called a fault"
        assert verdicts[f"{name}.told"] == {None}
        assert compared[f"{name}.told"] == 2 * 4, "the step before"
    assert by_history(answer)["unknown"] == dict.fromkeys(UNKNOWN, 4)
    (status,) = (each for each in document("status")["evidence"] if each["evidence"] == "history")
    assert (status["verdict"], status["unknown"]) == ("unproven", dict.fromkeys(UNKNOWN, 4))
    assert status["why"].startswith("no daemon compares them; histories unknown in 44 steps of sequences (4 ")
    assert status["command"] == "brickd up -d"
