"""The transformer of the demo computes correctly, records its work, and gives the same results for the same seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from conftest import readings
from faults import Start
from recorded import summaries
from replicas import MODEL, MOMENTS, RUNS, SMALL, STEPS, replicas

from brickd.demo.transformer import rotated
from brickd.shm.segment import open_segment


@pytest.mark.ci
def test_replicas_of_one_seed_record_the_same_and_of_another_do_not(worker: Start, prefix: str) -> None:
    reported, recorded = replicas(
        worker, prefix, *(f"report(report_of(Model(size, drawn(size, {seed}))))" for seed in (7, 7, 8))
    )
    assert reported[0] == reported[1] != reported[2]
    assert recorded[0] == recorded[1]
    assert [each[:4] for each in recorded[0]] == [(*run, *moment) for moment in MOMENTS for run in RUNS]
    assert len({each.output for each in recorded[0]}) == len(recorded[0])
    others = [one.kernel for one, other in zip(recorded[0], recorded[2], strict=True) if one.output != other.output]
    assert len(others) == len(recorded[0])


def test_each_operator_is_timed_in_its_layer_and_category(worker: Start, prefix: str) -> None:
    process = worker(MODEL + "report_of(Model(size, drawn(size, 1)))\npause()")
    process.paused()
    (of,) = readings(prefix)
    counts = Counter[str]()
    for path, row in summaries(of).items():
        counts[path[-1]] += row["count"]
    layers = {f"{kernel}[{layer}]": STEPS for kernel, layer in RUNS if layer >= 0}
    whole = dict.fromkeys(("embedding", "norm", "lm_head", "sampling"), STEPS)
    assert counts == layers | whole | {"prefill": 1, "decode": STEPS - 1}
    with open_segment(of.file) as segment:
        off = {of.name(site[0]) for site in segment.read().sites if site is not None and site.off}
    assert off == {"embedding", "lm_head", "sampling"}
    process.go()
    assert process.end() == 0


@pytest.mark.ci
def test_tokens_are_the_most_likely_or_drawn_by_a_seed(worker: Start) -> None:
    process = worker(
        MODEL + "m = Model(size, drawn(size, 1)); report([report_of(m, seed=s) for s in (None, None, 1, 1, 2)])"
    )
    greedy, again, one, same, other = process.next_report()
    assert greedy == again
    assert one == same != other
    assert process.end() == 0


def test_the_cache_equals_that_of_a_full_prefill(worker: Start) -> None:
    process = worker(
        MODEL
        + """
last = []
def watched(place, compute, inputs):
    out = compute(*inputs)
    if place.kernel == "norm":
        last.append(out)
    return out
model = Model(size, drawn(size, 1), watched)
cache = RequestCache(size)
for at in range(6):
    model.forward(np.array([at]), cache, at)
model.forward(np.arange(6), RequestCache(size), 6)
report([float(np.abs(last[5] - last[6]).max()), float(np.abs(last[5]).max())])
"""
    )
    error, largest = process.next_report()
    assert 0 < error < 1e-5 < largest
    assert process.end() == 0


def test_rotary_embeddings_depend_on_the_distance_of_two_rows_only() -> None:
    random = np.random.default_rng(1)
    one, other = random.standard_normal((2, 1, 16)).astype("f")

    def dot(at: int, far: int) -> float:
        return float((rotated(one, np.array([at])) * rotated(other, np.array([at + far]))).sum())

    assert dot(0, 3) == pytest.approx(dot(40, 3), abs=1e-5)
    assert dot(0, 3) != pytest.approx(dot(0, 4), abs=1e-3)


@pytest.mark.ci
def test_a_full_context_ends_the_answer(worker: Start) -> None:
    process = worker(MODEL + "report(len(list(Model(size, drawn(size, 1)).generate(range(10)))))")
    assert process.next_report() == 1 + (SMALL.context - 10)
    assert process.end() == 0
