"""`scripts/bench divergence`: what it knows about a fault, when a run is valid, and how it tries to find tokens in
recordings.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fingerprints
import numpy as np
import pytest
from benchmarks import recovery, trials, verdicts
from benchmarks.damage import (
    Change,
    Fault,
    Kind,
    OperatorFault,
    WeightFault,
    drawn_for_a_weight,
    drawn_for_an_operator,
)
from benchmarks.recovery import Recorded
from benchmarks.replicas import MOMENTS, SEED, SIZE, Report, Service, replicas
from benchmarks.running import running
from benchmarks.trials import Trial, Wanted
from benchmarks.verdicts import Verdict
from benchmarks.workplace import workplace

from brickd.demo.transformer import OperatorCall, drawn
from brickd.shm.segment_files import find

PLACE = OperatorCall("mlp.down", 1, 2, 17)
OPERATOR = OperatorFault(1, PLACE, Change(Kind.ZERO, 1, 0), SIZE.heads)
WEIGHT = WeightFault(2, "layers.1.mlp.down.weight", Change(Kind.FLIP, 1, 5))
ELSEWHERE = [PLACE._replace(**other) for other in ({"kernel": "mlp.gate"}, {"layer": 0}, {"step": 1}, {"position": 16})]


def trial(fault: Fault | None, verdict: Verdict, *, struck: bool = True, error: float = 0.0) -> Trial:
    return Trial(Service("s", 3, (), fault=fault), struck, error, verdict)


def judged(*tried: Trial, comparisons: int = 0) -> dict[str, Any]:
    return trials.row("case", tried, Wanted(99.9, 99, comparisons), 7, lambda each: each.localised)


DIVERGED = Verdict(True, PLACE, 1e-3, 100, "diverged")
EQUAL = Verdict(False, None, None, 100, "identical")


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_a_damaged_operator_is_localized_by_kernel_layer_step_and_position(elsewhere: OperatorCall) -> None:
    assert trial(OPERATOR, DIVERGED).localised
    assert not trial(OPERATOR, DIVERGED._replace(first=elsewhere)).localised
    assert not trial(OPERATOR, EQUAL).localised


def test_a_damaged_weight_is_localized_by_worker_and_tensor() -> None:
    assert trial(WEIGHT, DIVERGED._replace(first=("s/2", WEIGHT.tensor))).localised
    assert not trial(WEIGHT, DIVERGED._replace(first=("s/1", WEIGHT.tensor))).localised
    assert not trial(WEIGHT, DIVERGED._replace(first=("s/2", "layers.0.mlp.down.weight"))).localised


def test_an_error_must_be_within_a_factor_of_two() -> None:
    reported = [
        trial(OPERATOR, DIVERGED._replace(error=error), error=1e-3) for error in (4e-4, 5e-4, 2e-3, 2.1e-3, None)
    ]
    assert [each.estimated for each in reported] == [False, True, True, False, False]


def test_one_misplacement_in_a_hundred_passes_but_no_miss_or_false_alarm() -> None:
    good, healthy = trial(OPERATOR, DIVERGED), trial(None, EQUAL)
    found = judged(*[good] * 100, *[healthy] * 100)
    assert [found[key] for key in ("runs", "found", "localised", "clean_runs", "false_alarms", "comparisons")] == [
        100, 100, 100, 100, 0, 10_000,
    ]  # fmt: skip
    assert found["passed"] is True
    assert judged(*[good] * 99, trial(OPERATOR, DIVERGED._replace(first=None)), healthy)["passed"] is True
    assert judged(*[good] * 98, *[trial(OPERATOR, DIVERGED._replace(first=None))] * 2)["passed"] is False
    assert judged(*[good] * 99, trial(OPERATOR, EQUAL), healthy)["passed"] is False
    assert judged(*[good] * 100, trial(None, DIVERGED))["passed"] is False


def test_too_few_comparisons_never_pass() -> None:
    tried = [trial(OPERATOR, DIVERGED), trial(None, EQUAL)]
    assert judged(*tried, comparisons=100)["passed"] is True
    few = judged(*tried, comparisons=101)
    assert (few["passed"], few["note"]) == (False, "too few comparisons to say anything")
    assert judged(trial(None, EQUAL))["passed"] is False


def test_damage_without_an_effect_is_reported_and_not_counted() -> None:
    found = judged(trial(OPERATOR, DIVERGED), trial(OPERATOR, EQUAL, struck=False), trial(None, EQUAL))
    assert (found["runs"], found["passed"]) == (1, True)
    assert found["note"] == "1 more whose damage changed nothing at its planned place"


def test_damage_that_cannot_be_localized_must_only_be_detected() -> None:
    def found(verdict: Verdict) -> dict[str, Any]:
        tried = [trial(OPERATOR, DIVERGED), trial(OPERATOR, verdict, error=float("nan")), trial(None, EQUAL)]
        return trials.row(
            "case", tried, Wanted(99, 99, 0), 7, lambda each: each.localised, lambda each: trials.measurable(each, 0)
        )

    outcome = found(DIVERGED._replace(first=None))
    assert [outcome[key] for key in ("runs", "found", "localisable", "localised", "passed")] == [2, 2, 1, 1, True]
    missed = found(EQUAL)
    assert [missed[key] for key in ("runs", "found", "localisable", "localised", "passed")] == [2, 1, 1, 1, False]
    assert missed["note"] == "s: zeroed row of worker 1 in mlp.down 1 2 17: identical"


def test_failures_are_reported_with_the_truth() -> None:
    missed = trial(OPERATOR, DIVERGED._replace(first=ELSEWHERE[0]), error=2.5e-3)
    assert judged(missed)["note"] == (
        "s: zeroed row of worker 1 in mlp.down 1 2 17: diverged at mlp.gate 1 2 17, error 0.001 for 0.0025"
    )
    assert judged(trial(None, DIVERGED))["note"] == "s: nothing wrong, diverged at mlp.down 1 2 17"


def test_runs_come_in_a_seeded_order_and_half_of_them_are_healthy() -> None:
    def fault(chance: random.Random) -> Fault:
        return drawn_for_an_operator(chance, 2, SIZE, MOMENTS)

    made = trials.drawn_trials("x", 50, 3, fault, workers=2, prompts=2)
    kinds = [each.service.fault is None for each in made]
    assert (len(kinds), sum(kinds), len(set(kinds[:50]))) == (100, 50, 2)
    assert made == trials.drawn_trials("x", 50, 3, fault, workers=2, prompts=2)
    assert len({each.service.name for each in made}) == 100
    assert len({each.service.prompts for each in made}) == 100
    assert [len(each) for each in trials.batches(made, 32)] == [32, 32, 32, 4]


@pytest.mark.parametrize(("error", "fit"), [(1e-6, True), (9e-7, False), (float("nan"), False), (float("inf"), False)])
def test_an_error_invisible_in_a_sketch_is_left_out(error: float, fit: bool) -> None:
    assert trials.measurable(trial(OPERATOR, EQUAL, error=error), 1e-6) is fit
    assert trials.measurable(trial(None, EQUAL), 1e-6)


def test_the_answer_of_diff_is_parsed() -> None:
    first = {"kernel": "mlp.down", "layer": 1, "step": "0000000000000002", "position": 17, "relative_error": 1e-3}
    document = {"verdict": "diverged", "compared": 100, "first": first}
    assert verdicts.kernels(document) == DIVERGED
    assert verdicts.kernels(document | {"verdict": "identical", "first": None}) == EQUAL
    assert verdicts.kernels(document | {"verdict": "within"}).differs is False
    for unknown in ("incomplete", "not_comparable"):
        assert verdicts.kernels(document | {"verdict": unknown}).differs is None
    assert verdicts.kernels({"error": "no such worker"}) == Verdict(None, text="no such worker")
    without = verdicts.kernels(document | {"first": first | {"kernel": "norm", "layer": None}})
    assert without.first == OperatorCall("norm", -1, 2, 17)


def of_weights(*rows: dict[str, Any], verdict: str = "differ", count: int | None = None) -> Verdict:
    document = {
        "verdict": verdict,
        "services": [{"compared": 27}],
        "differing_count": len(rows) if count is None else count,
        "differing": list(rows),
    }
    return verdicts.weights(document)


def test_the_answer_of_weights_is_parsed() -> None:
    tensor = {"tensor": "layers.*.mlp.down.weight", "layer": 1, "expert": None}
    odd = {**tensor, "why": "outlier", "worker": "s/2", "relative_error": 1e-3}
    assert of_weights(odd) == Verdict(True, ("s/2", WEIGHT.tensor), 1e-3, 27, "differ")
    whole = of_weights(odd | {"tensor": "norm.weight", "layer": None, "relative_error": None})
    assert whole == Verdict(True, ("s/2", "norm.weight"), None, 27, "differ")
    assert of_weights(verdict="equal") == Verdict(False, None, None, 27, "equal")
    assert of_weights(verdict="nothing").differs is None
    assert verdicts.weights({"error": "no such worker"}) == Verdict(None, text="no such worker")


def test_weight_damage_without_a_single_outlier_has_no_place() -> None:
    odd = {"tensor": "norm", "layer": None, "expert": None, "why": "outlier", "worker": "s/2", "relative_error": 1e-3}
    assert of_weights(odd | {"why": "disagree"}) == Verdict(True, None, None, 27, "differ")
    assert of_weights(odd, odd | {"worker": "s/1"}).first is None
    assert of_weights(odd, count=1_001).first is None


# ---- brickd's verdicts -------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_answers_for_damaged_and_healthy_workers_are_parsed() -> None:
    prompt, strike = (tuple(range(16)),), WeightFault(1, WEIGHT.tensor, Change(Kind.SCALE, 1, 0))
    services = [
        Service("healthy", 3, prompt),
        Service("weight", 3, (), fault=strike),
        Service("operator", 2, prompt, fault=replace(OPERATOR)),
    ]
    with workplace() as place, running(place) as daemon, replicas(place, services) as outcome:
        daemon.until(lambda: daemon.status()["ledger"]["events"]["in_ring"] == 0, "checksums are not fetched")
        weights = verdicts.of_weights(place, ["healthy", "weight", "nobody"])
        by_input = verdicts.of_kernels(place, ["healthy", "operator", "nobody"], "--by", "input")
        (by_run,) = verdicts.of_kernels(place, ["operator"], "--by", "run", "--rtol", "0")
    names = drawn(SIZE, SEED)
    assert [(each.differs, each.first, each.comparisons) for each in weights] == [
        (False, None, len(names)),
        (True, ("weight/1", strike.tensor), len(names)),
        (None, None, 0),
    ]
    assert [(each.differs, each.first) for each in by_input] == [(False, None), (True, PLACE), (None, None)]
    assert (by_run.differs, by_run.first) == (True, PLACE)
    (report,) = (each for each in outcome if each[:2] == ("operator", 1))
    assert trial(OPERATOR, by_run, error=report.error).estimated


# ---- the replicas ------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_replicas_answer_report_being_struck_and_leave_no_file() -> None:
    prompt = (tuple(range(16)),)
    weight = drawn_for_a_weight(random.Random(1), 1, drawn(SIZE, SEED))
    services = [
        Service("healthy", 2, prompt),
        Service("operator", 2, prompt, fault=replace(OPERATOR, place=PLACE)),
        Service("weight", 1, prompt, fault=weight),
        Service("never", 1, prompt, fault=replace(OPERATOR, worker=0, place=PLACE._replace(step=99))),
    ]
    with workplace() as place:
        with replicas(place, services) as outcome:
            assert len(find(place.environment["BRICKD_SHM_PREFIX"])) == 6
        assert find(place.environment["BRICKD_SHM_PREFIX"]) == []
    by_name = {each[:2]: each for each in outcome}
    assert {name for name, each in by_name.items() if each.struck} == {("operator", 1), ("weight", 0)}
    one, other = by_name["healthy", 0], by_name["healthy", 1]
    assert one.tokens == other.tokens == by_name["operator", 0].tokens == by_name["never", 0].tokens
    assert len(one.tokens) == 5
    assert 0 < by_name["operator", 1].error <= 1
    assert trial(OPERATOR, EQUAL).outcome([Report("s", 1, True, 0.5, [])], DIVERGED) == trial(
        OPERATOR, DIVERGED, error=0.5
    )


# ---- tokens from recordings --------------------------------------------------------------------------------------


def recorded(vocabulary: int, key: int) -> Recorded:
    """Return a record for each token. With another key, everything except the statistics is different."""
    keyed, plain = np.random.default_rng(key), np.random.default_rng(1)
    return Recorded(
        keyed.integers(0, 2**64, (vocabulary, 3), np.uint64),
        keyed.standard_normal((vocabulary, 32)),
        np.hstack([plain.standard_normal((vocabulary, 6)), np.full((vocabulary, 2), 0.25)]),
    )


def asked(of: Recorded, tokens: list[int]) -> Recorded:
    return Recorded(of.checksums[tokens], of.sketches[tokens], of.statistics[tokens])


@pytest.mark.ci
def test_key_attacks_need_a_known_key_and_statistics_attacks_do_not() -> None:
    tokens = [int(token) for token in np.random.default_rng(2).integers(0, 256, 1024)]
    right = {
        (attack.__name__, key): int((attack(asked(recorded(256, 7), tokens), recorded(256, key)) == tokens).sum())
        for attack in (recovery.by_checksums, recovery.by_sketches, recovery.by_statistics)
        for key in (7, 8)
    }
    assert [name for name, found in right.items() if found == 1024] == [
        ("by_checksums", 7), ("by_sketches", 7), ("by_statistics", 7), ("by_statistics", 8),
    ]  # fmt: skip
    assert all(recovery.at_chance(found, 1024, 256) for found in right.values() if found < 1024)


@pytest.mark.ci
def test_norms_of_sketches_reveal_tokens_despite_another_key() -> None:
    def row(token: int, key: int) -> tuple[list[float], list[float]]:
        tensors = np.random.default_rng(token).standard_normal((48, 64)) * (1 + token % 7)
        tensors *= np.random.default_rng(100 + token).uniform(0.5, 2, (48, 1))
        sketches = [float(place) for each in tensors for place in fingerprints.sketch(each, key)]
        return sketches, [number for each in tensors for number in (0.0, float(np.linalg.norm(each)), 0, 0, 0, 0)]

    def of(tokens: Sequence[int], key: int, kept: bool = True) -> Recorded:
        sketches, statistics = map(np.array, zip(*(row(token, key) for token in tokens), strict=True))
        return Recorded(np.zeros((len(tokens), 48), np.uint64), sketches * kept, statistics)

    tokens = [int(token) for token in np.random.default_rng(2).integers(0, 64, 32)]
    assert (recovery.by_norms(of(tokens, 7), of(range(64), 8)) == tokens).sum() == 32
    assert recovery.by_norms(of(tokens, 7, kept=False), of(range(64), 8)).tolist() == [0] * 32


@pytest.mark.ci
def test_the_sketch_of_a_small_tensor_reveals_it_despite_any_key() -> None:
    embeddings = drawn(SIZE, SEED)["embed_tokens.weight"].astype(np.float64)

    def sketched(*tokens: int, key: int, off: float = 0.0) -> Recorded:
        first = [fingerprints.sketch(embeddings[token], key).astype(np.float32) + off for token in tokens]
        sketches = np.hstack([np.zeros((len(tokens), 16)), np.array(first, np.float64)])
        return Recorded(np.zeros((len(tokens), 2), np.uint64), sketches, np.zeros((len(tokens), 12)))

    for key in (7, 2**63 + 1):
        assert recovery.by_any_key(sketched(3, 77, 255, key=key), sketched(0, key=1)).tolist() == [3, 77, 255]
    assert (recovery.by_any_key(sketched(3, 77, 255, key=7, off=1e-3), sketched(0, key=1)) != [3, 77, 255]).all()


def test_checksum_frequencies_reveal_tokens_of_known_frequency() -> None:
    asked = [9] * 5 + [4] * 3 + [6] * 2 + [1]
    checksums = np.array([[0, hash((token, "any"))] for token in asked], np.int64).astype(np.uint64)
    seen = Recorded(checksums, np.zeros((11, 32)), np.zeros((11, 12)))
    assert recovery.by_frequency(seen, [9, 4, 6, 1]).tolist() == asked


def test_the_chance_level_is_that_of_guessing() -> None:
    assert recovery.at_chance(13, 1024, 256)
    assert not recovery.at_chance(14, 1024, 256)
    assert recovery.at_chance(0, 1024, 256)


def test_each_row_has_all_recorded_facts_of_a_request() -> None:
    def tensor(checksum: int, number: float) -> dict[str, Any]:
        statistics = dict.fromkeys(("mean", "l2", "min", "max"), number)
        return {"checksum": checksum, "places": (number,) * 16} | statistics

    events = [
        {
            "step": step,
            "tensors": [tensor(10 * step, 1.0), tensor(10 * step + 1, 2.0)],
            "output": {"fnv1a": 3 << 32 | 4},
        }
        for step in (0, 1)
    ]
    found = Recorded.of(events, 2)
    assert found.checksums.tolist() == [[0, 1], [10, 11]]
    assert found.sketches.shape == (2, 32)
    assert found.statistics[1].tolist() == [1, 1, 1, 1, 3, 4, 2, 2, 2, 2, 0, 0]
    left_out = dict.fromkeys(("mean", "l2", "min", "max")) | {"checksum": 1, "places": (0.0,) * 16}
    assert Recorded.of([{"step": 1, "tensors": [left_out], "output": {"fnv1a": None}}], 1).statistics.tolist() == [
        [0.0] * 6
    ]


@pytest.mark.nightly
def test_tokens_are_revealed_only_by_recordings_with_values() -> None:
    with workplace() as place:
        rows = {row["case"]: row for row in recovery.recovery(place, quick=True, seed=1).rows}
        assert find(place.environment["BRICKD_SHM_PREFIX"]) == []
    assert {case: row["passed"] for case, row in rows.items() if row["goal"] and not row["passed"]} == {}
    assert (len(rows), sum(row["goal"] == "at chance" for row in rows.values())) == (17, 10)
