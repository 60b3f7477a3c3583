"""Faults in the model of the replicas: each fault is at its stated place, and nothing differs before that place."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from benchmarks.damage import OF_OPERATORS, OF_WEIGHTS, Change, Kind, WeightFault, changed, drawn_for_a_weight
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from replicas import MODEL, MOMENTS, PROMPT, SMALL, replicas

from brickd.demo.transformer import drawn

pytestmark = pytest.mark.ci  # these tests check a script, not brickd

# ---- faults of operators -----------------------------------------------------------------------------------------

FAULTS = "from random import Random\nfrom benchmarks.damage import *\n"
TRIED = """
def run(operate):
    seen = []
    def watched(place, compute, inputs):
        before = [each.tobytes() for each in inputs]
        out = operate(place, compute, inputs)
        assert before == [each.tobytes() for each in inputs]
        seen.append((place, before, out.tobytes()))
        return out
    report_of(Model(size, weights, watched))
    return seen
weights = drawn(size, 1)
clean = run(as_it_should)
def tried(fault):
    wrong = run(fault)
    # The first operator that differs; zip ends with the shorter run.
    at, one, other = next((at, a, b) for at, (a, b) in enumerate(zip(clean, wrong)) if a != b)
    return [one[0], one[:2] == other[:2], one[2] != other[2], fault.place, fault.born, fault.error]
"""


@pytest.mark.parametrize("kind", OF_OPERATORS)
def test_an_operator_fault_begins_at_its_stated_place_and_not_earlier(worker: Start, kind: Kind) -> None:
    program = f"""
random = Random(5)
found = []
while len(found) < 8:
    fault = drawn_for_an_operator(random, 2, size, {MOMENTS})
    if fault.change.kind == {str(kind)!r}:
        found.append(tried(fault))
report(found)
"""
    process = worker(MODEL + FAULTS + TRIED + program)
    for first, same_inputs, other_output, place, born, error in process.next_report():
        assert (first, same_inputs, other_output) == (place, True, True)
        assert born == place
        assert error > 0 or kind == Kind.NAN
    assert (process.end(), process.stderr) == (0, "")


def test_an_error_is_relative_to_the_values_of_worker_0(worker: Start) -> None:
    program = f"""
def error(worker):
    fault = OperatorFault(worker, OperatorCall("mlp.down", 1, 0, 0), Change(Kind.ZERO, 3, 0), size.heads)
    both = []
    def watched(place, compute, inputs):
        out = fault(place, compute, inputs)
        if place == fault.place:
            both.append([float(np.linalg.norm(each.astype("d"))) for each in (out, compute(*inputs))])
        return out
    next(Model(size, weights, watched).generate(range({PROMPT})))
    return [fault.error, *both[0]]
report([error(0), error(1)])
"""
    process = worker(MODEL + FAULTS + TRIED + program)
    (of_wrong, wrong, right), (of_right, _, _) = process.next_report()
    assert of_wrong == pytest.approx((right**2 - wrong**2) ** 0.5 / wrong, rel=1e-6)
    assert of_right == pytest.approx((right**2 - wrong**2) ** 0.5 / right, rel=1e-6)
    assert process.end() == 0


def test_a_particle_strikes_once_and_a_mistake_repeatedly(worker: Start) -> None:
    program = f"""
def struck(kind):
    fault = OperatorFault(0, OperatorCall("mlp.down", 1, 1, {PROMPT}), Change(kind, 3, 2), size.heads)
    ran = []
    model = Model(size, weights, lambda place, compute, inputs: ran.append(
        (place.step, fault(place, compute, inputs).tobytes() != compute(*inputs).tobytes())) or compute(*inputs))
    report_of(model)
    return sorted(step for step, wrong in ran if wrong)
report([struck(kind) for kind in (Kind.FLIP, Kind.NAN, Kind.SCALE, Kind.ZERO)])
"""
    process = worker(MODEL + FAULTS + TRIED + program)
    assert process.next_report() == [[1], [1], [1, 2], [1, 2]]
    assert (process.end(), process.stderr) == (0, "")


@pytest.mark.parametrize("kind", [Kind.FLIP, Kind.SHIFT, Kind.DROP])
def test_a_fault_is_recorded_as_another_output_for_equal_inputs(worker: Start, prefix: str, kind: Kind) -> None:
    kernel = {Kind.FLIP: "attn.scores", Kind.SHIFT: "attn.rotary", Kind.DROP: "mlp.add"}[kind]
    place = (kernel, 1, 1, PROMPT)
    fault = f"OperatorFault(1, OperatorCall(*{place}), Change(Kind({str(kind)!r}), 9, 0), size.heads)"
    _, (healthy, damaged) = replicas(
        worker,
        prefix,
        *(f"{FAULTS}report(report_of(Model(size, drawn(size, 1), {operate})))" for operate in ("as_it_should", fault)),
    )
    at = [each[:4] for each in healthy].index(place)
    assert healthy[:at] == damaged[:at]
    assert healthy[at].inputs == damaged[at].inputs
    assert healthy[at].output != damaged[at].output
    assert healthy[at + 1].inputs != damaged[at + 1].inputs


# ---- faults of weights -------------------------------------------------------------------------------------------

WEIGHTS = drawn(SMALL, 1)


def copied() -> dict[str, np.ndarray[Any, Any]]:
    return {name: weight.copy() for name, weight in WEIGHTS.items()}


def damaged(weights: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
    return [name for name, weight in weights.items() if weight.tobytes() != WEIGHTS[name].tobytes()]


def test_weights_are_determined_by_their_seed() -> None:
    assert damaged(drawn(SMALL, 1)) == []
    assert damaged(drawn(SMALL, 2)) == list(WEIGHTS)
    assert {"embed_tokens.weight", "layers.1.mlp.down.weight", "norm.weight", "lm_head.weight"} <= set(WEIGHTS)
    assert {weight.dtype for weight in WEIGHTS.values()} == {np.dtype("f")}


@given(st.integers(0, 2**64))
def test_a_weight_fault_affects_only_the_tensor_that_it_names(seed: int) -> None:
    weights = copied()
    fault = drawn_for_a_weight(Random(seed), 2, weights)
    assert fault.strike(weights, SMALL)
    assert damaged(weights) == [fault.tensor]
    assert fault == drawn_for_a_weight(Random(seed), 2, WEIGHTS)


@pytest.mark.parametrize("bit", range(32))
def test_a_flipped_bit_is_one_bit_at_its_position(bit: int) -> None:
    x = WEIGHTS["lm_head.weight"]
    different = changed(x, Change(Kind.FLIP, 4, bit), 4).view("u4") ^ x.view("u4")
    assert sorted(np.unique(different)) == [0, 1 << bit]
    assert np.count_nonzero(different) == 1


@pytest.mark.parametrize("kind", OF_WEIGHTS)
def test_the_damaged_share_of_a_weight_is_as_stated(kind: Kind) -> None:
    weights = copied()
    assert WeightFault(0, "layers.0.attn.qkv.weight", Change(kind, 2, 31)).strike(weights, SMALL)
    x, y = (of["layers.0.attn.qkv.weight"] for of in (WEIGHTS, weights))
    rows, columns = np.nonzero(x.view("u4") != y.view("u4"))
    head = SMALL.width // SMALL.heads
    found = {Kind.FLIP: (1, 1), Kind.SCALE: (32, 1), Kind.ZERO: (1, 96), Kind.NAN: (1, 96), Kind.SWAP: (32, 2 * head)}
    assert (len(set(rows)), len(set(columns))) == found[kind]
    if kind == Kind.SWAP:  # the damage swaps the heads of whole queries
        assert max(columns) < SMALL.width
        assert sorted(map(tuple, x.T)) == sorted(map(tuple, y.T))
