"""The reference engine of `scripts/bench evidence` computes what its model computes; its records of rows are true."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for needed in ("torch", "transformers"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: .ci/run does it")

import torch  # noqa: E402
from benchmarks.engine import command, split  # noqa: E402
from benchmarks.engine.bitwise import REPLICA  # noqa: E402
from benchmarks.engine.cells import BITWISE  # noqa: E402
from benchmarks.engine.engine import Engine  # noqa: E402
from benchmarks.engine.faults import EngineFaults  # noqa: E402
from benchmarks.engine.model import KINDS, built, row_wise  # noqa: E402
from benchmarks.engine.recorded import one_key, recorded  # noqa: E402
from benchmarks.engine.row_table import compared  # noqa: E402
from benchmarks.engine.rows import Rows  # noqa: E402
from benchmarks.engine.scheduler import Generation, Settings, Shape, Slice  # noqa: E402
from benchmarks.engine.trial import tried  # noqa: E402
from benchmarks.faulty.architectures import ARCHITECTURES  # noqa: E402
from benchmarks.faulty.cells import Cell  # noqa: E402
from benchmarks.faulty.driven import fleet  # noqa: E402
from benchmarks.faulty.frozen import HEALTHY, WORKERS  # noqa: E402
from benchmarks.running import running  # noqa: E402
from benchmarks.workplace import workplace  # noqa: E402

STEPS = 80


def settings(kind: str = "llama_fp32") -> Settings:
    return Settings(kind, 7, system=20, batch=4, chunk=16)


class Seen:
    """All texts that an engine generates."""

    def __init__(self) -> None:
        self.generations: dict[int, Generation] = {}

    def looked(self, _: int, slices: Sequence[Slice], shape: Shape) -> None:
        self.generations |= {each.generation.request.number: each.generation for each in slices}


def whole_logits(model: Any, tokens: Sequence[int]) -> Any:
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["llama_fp32", "mixtral"])
def test_chunks_reuse_and_preemption_give_the_logits_of_the_whole_prompt(kind: str) -> None:
    model, seen = built(kind, 7), Seen()
    engine = Engine(model, Settings(kind, 7, batch=8, chunk=16, load=0.8), 0, seen.looked)
    for _ in range(STEPS):
        engine.step()
    counts = engine.scheduler.counts
    assert counts.reused > 0
    assert counts.preempted > 0
    assert counts.finished > 5
    checked = 0
    for generation in list(seen.generations.values())[:8]:
        answer = generation.tokens[len(generation.request.prompt) :]
        logits = whole_logits(model, generation.tokens)
        for position, token in enumerate(answer, len(generation.request.prompt)):
            chance = torch.Generator().manual_seed(generation.request.seed + position)
            noise = -torch.rand(logits[0].shape, generator=chance).log().neg().log()
            assert int((logits[position - 1] + noise).argmax()) == token
            checked += 1
    assert checked > 50


def served(replica: int) -> str:
    engine = Engine(built("llama_fp32", 7), settings(), replica)
    for _ in range(STEPS):
        engine.step()
    return engine.served


@pytest.mark.ci
def test_the_same_seed_and_replica_serve_the_same_bits_and_others_differ() -> None:
    assert served(0) == served(0)
    assert len({served(replica) for replica in range(3)}) == 3


def table(of: Settings, replica: int, fault: str = "", seed: int = 0) -> tuple[Any, Any]:
    """Return the rows of some steps, and the true effect of the fault that the replica has during these steps."""
    model = built(of.kind, of.seed)
    rows = Rows(model)
    engine = Engine(model, of, replica, rows.looked)
    for _ in range(10):
        engine.step()
    faults = EngineFaults(model, ARCHITECTURES[of.kind], 0, engine, replica)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    frequencies = model.model.rotary_emb.inv_freq.clone()
    truth, remove = faults.put_in(fault, seed) if fault else (None, lambda: None)
    with rows.recording():
        for _ in range(STEPS):
            engine.step()
    remove()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model.model.rotary_emb.inv_freq, frequencies)
    assert rows.sites == [name for name, _ in model.named_modules() if row_wise(name)]
    return rows, truth


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS])
def test_rows_with_equal_inputs_in_calls_of_as_many_rows_are_equal_in_all_replicas(kind: str) -> None:
    tables = [table(settings(kind), replica)[0] for replica in range(3)]
    by_key = {each["case"]: each for each in compared([rows.table() for rows in tables], tables[0].sites)}
    for case in ("equal input row, calls of as many rows", "equal history, lineage with shapes"):
        found = by_key[case]
        assert found["keys_equal"] == found["keys"] > 100
        assert found["outlier_keys"] == 0


@functools.cache
def healthy(kind: str) -> list[Any]:
    return [table(settings(kind), replica)[0].table() for replica in (1, 2)]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["llama_fp32", "mixtral_bf16"])
@pytest.mark.parametrize("fault", ["late_channel", "one_weight", "eps", "swapped_expert"])
def test_a_fault_changes_rows_with_equal_inputs_only_at_its_site(kind: str, fault: str) -> None:
    if fault == "swapped_expert" and kind == "llama_fp32":
        pytest.skip("it has no experts")
    exposed = 0
    for seed in range(3):
        faulty, truth = table(settings(kind), 0, fault, seed)
        wrong = outside(faulty.table(), healthy(kind))
        assert {faulty.sites[site] for site in wrong} <= set(truth.watched)
        assert truth.site == truth.watched[-1]
        exposed += bool(wrong)
    assert exposed >= 2


def outside(table: Any, others: Sequence[Any]) -> set[int]:
    """Return the sites at which this table has an output that no other table has.

    Only outputs with the same input, from calls with the same number of rows, are compared.
    """
    known: dict[tuple[int, ...], set[int]] = {}
    for each in np.concatenate(others):
        known.setdefault((each["site"], each["called"], each["input"]), set()).add(each["output"])
    return {
        int(each["site"])
        for each in table
        if each["output"] not in known.get((each["site"], each["called"], each["input"]), {each["output"]})
    }


@pytest.mark.ci
def test_rows_that_a_fault_changes_are_noted_until_it_is_enough() -> None:
    model = built("mixtral", 7)
    rows = Rows(model)
    engine = Engine(model, settings("mixtral"), 0, rows.looked)
    right = copy.deepcopy(model)
    experts = model.model.layers[1].mlp.experts
    routed: list[Any] = []
    hook = experts.register_forward_pre_hook(lambda _, given: routed.append(given[1]))
    experts.down_proj.data[0] *= 2
    stop = rows.noting_changes("model.layers.1.mlp.experts", right.model.layers[1].mlp.experts)
    for _ in range(20):
        engine.step()
    hook.remove()
    noted = rows.computed()
    unchanged = sum(0 not in tokens for each in routed for tokens in each.tolist())
    assert 0 < len(noted) - noted["changed"].sum() <= unchanged  # some of these rows are padding
    assert noted["changed"].any()
    stop()
    for _ in range(5):
        engine.step()
    assert rows.computed()[len(noted) :]["changed"].all()
    assert set(rows.computed()["step"].tolist()) <= set(range(1, 26))


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["rotary", "cached_value"])
def test_a_fault_of_attention_changes_what_is_served(fault: str) -> None:
    clean, (faulty, truth) = table(settings(), 0)[0].table(), table(settings(), 0, fault, 1)
    changed = clean["output"] != faulty.table()["output"]
    assert changed.any()
    assert truth.watched == ()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("llama_fp32", "late_channel"),
        ("mixtral_bf16", "swapped_expert"),
        ("llama_fp32", HEALTHY),
        ("llama_bf16", BITWISE),
    ],
)
def test_a_trial_runs_three_replicas_under_a_daemon_to_its_end(kind: str, fault: str, tmp_path: Path) -> None:
    found = tried(Cell(kind, fault, "000", 5), quick=True, seed=5, recordings=tmp_path)
    report = command.report([found], 5)
    if fault == BITWISE:
        assert report.passed
        assert found["replicas"] == 3
        assert min(each["sites"] for each in found["rows"]) > 0
        return
    assert found["finished"] > 0
    assert found["false"] == []
    assert found["row_verdict"] in ("unproven", "equal", "diverged")
    if fault == HEALTHY:
        assert found["recording"]["bytes"] > 0
        assert len(found["recording"]["workers"]) == 3
    else:
        assert found["truth"]["removed_step"] > found["truth"]["step"] > 0
        assert found["worker"] == found["truth"]["worker"]
        assert found["faulty_rows"] >= found["equal_history_rows"] >= found["equal_lineage_rows"]
        assert found["faulty_rows"] > 0


def recorded_trial(folder: Path, trial: int, fault: str = "") -> tuple[dict[str, Any], str]:
    """Record replicas during some steps, the first one with a fault; return the trial's result and the first name."""
    of = replace(settings(), traffic=trial, batch=(4, 8, 16)[trial])
    server = (REPLICA, json.dumps(asdict(of)))
    with workplace("evidence") as place:
        one_key(place, folder)
        with running(place) as daemon, fleet(place, server, {"do": "report"}) as replicas:
            for replica in replicas:  # brickd lists a replica from its first call of the model
                assert replica.ask({"do": "advance", "steps": STEPS}, 300.0) is not None

            def names() -> dict[int, str]:
                every = {each["pid"]: each["name"] for each in daemon.status()["workers"]}
                return {replica.pid: every[replica.pid] for replica in replicas if replica.pid in every}

            daemon.until(lambda: len(names()) == WORKERS, "the replicas are not listed")
            with recorded(place, folder / f"llama_fp32-{trial:03}.brick") as about:
                if fault:
                    assert replicas[0].ask({"do": "put_in", "fault": fault, "seed": 1}, 60.0) is not None
                for replica in replicas:
                    assert replica.ask({"do": "advance", "steps": 4 * STEPS}, 300.0) is not None
            result = {"cell": f"llama_fp32/none/{trial:03}", "kind": "llama_fp32", "threads": 1}
            return result | {"recording": about | {"workers": [*names().values()]}}, names()[replicas[0].pid]


@pytest.mark.nightly
def test_a_recorded_replica_with_a_fault_gives_false_verdicts_and_healthy_ones_give_none(tmp_path: Path) -> None:
    found = [recorded_trial(tmp_path, trial, "late_channel" if trial == 2 else "") for trial in range(3)]
    fleets = split.new_fleets([result for result, _ in found], tmp_path, 5, 1e9)
    assert len(fleets) == WORKERS**3
    faulty = [each for each in fleets if ("002", found[2][1]) in {(one.trial, one.worker) for one in each.workers}]
    answers = {each.key: split.compared(each) for each in fleets}
    wrong = {key for key, answer in answers.items() if answer["false"]}
    assert wrong
    assert wrong <= {each.key for each in faulty}
    assert all(answer["rows_compared"] for answer in answers.values())
