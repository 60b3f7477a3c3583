"""Replicas that add in two different orders cause no alarm, and a real fault is found in replicas of either order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from conftest import Worker
from faults import Start
from running import running
from verbs import brickd, document, started

from brickd.base.paths import runtime

# Workers that add matrix products in one of two orders (as a whole, or as the sum of parts); one worker is damaged.
PROGRAM = """
import numpy as np
rng = np.random.default_rng(SEED)
w = rng.standard_normal((256, 1024), dtype="f")
def product(x, w):
    if not PARTS:
        return x @ w
    total = x[:, :32] @ w[:32]
    for n in range(32, 256, 32):
        total = total + x[:, n : n + 32] @ w[n : n + 32]
    return total
def damaged(y):
    if DAMAGE == "bit":
        y.reshape(-1).view("u2" if y.dtype == "f2" else "u4")[7] ^= 1 << (13 if y.dtype == "f2" else 20)
    if DAMAGE == "lowest bit":
        y.reshape(-1).view("u2" if y.dtype == "f2" else "u4")[7] ^= 1
    if DAMAGE == "row":
        y[1] = 0
    if DAMAGE == "channel":
        y[:, 5] *= y.dtype.type(1.05)
    if DAMAGE == "nan":
        y[2, 3] = np.nan
    return y
for content in range(12):
    for name, dtype, rows, columns in (("linear", "f4", 4, 96), ("half", "f2", 64, 1024)):
        x = rng.standard_normal((rows, 256), dtype="f")
        y = product(x, w[:, :columns]).astype(dtype)
        brick.checksum(name, damaged(y) if content == 7 else y, input=x, layer=2, position=content)
pause()
"""
SEED = 20


def replicas(start: Start, parts: Sequence[bool], bad: int | None = None, damage: str = "none") -> list[Worker]:
    key = str(runtime().directory / "key")
    return [
        started(
            start,
            f"SEED, PARTS, DAMAGE = {SEED}, {each}, {damage if number == bad else 'none'!r}\n{PROGRAM}",
            BRICKD_SERVICE="api",
            BRICKD_WORKER=str(number),
            BRICKD_KEY_FILE=key,
        )
        for number, each in enumerate(parts)
    ]


def coverage_when(daemon: Any, workers: int, findings: int = 0) -> dict[str, Any]:
    """Return the daemon's answer when it has read everything and has this number of findings."""

    def whole(answer: dict[str, Any]) -> bool:
        fingerprints = [each["input"]["fingerprints"] for each in answer["services"]]
        return fingerprints == [workers * 24] and len(answer["findings"]) >= findings

    answer: dict[str, Any] = daemon.once("/coverage", whole)
    return answer


@pytest.mark.parametrize(
    "parts",
    [
        (False, True),
        pytest.param((False, False, True), marks=pytest.mark.ci),
        pytest.param((False, True, False, True), marks=pytest.mark.ci),
    ],
)
def test_replicas_with_another_order_of_summation_are_within_without_alarm(
    worker: Start, prefix: str, parts: Sequence[bool]
) -> None:
    replicas(worker, parts)
    answer = document("diff", "api")
    assert (answer["verdict"], answer["evidence"], answer["diverged"]) == ("within", "input", 0)
    assert answer["within"] == 24 * (sum(parts) if parts[0] == parts[-1] or len(parts) < 4 else 2)
    assert answer["headlines"][0].startswith("by input: of several numeric classes, api/0")
    classes = [[f"api/{n}" for n, each in enumerate(parts) if each is which] for which in (False, True)]
    apart = document("coverage", "api")
    with running() as daemon:
        reported = coverage_when(daemon, len(parts))
        events = [event["kind"] for event in document("events")["events"]]
        line = next(line for line in brickd("status").stdout.splitlines() if line.startswith("numerics"))
        screen = brickd("coverage").stdout
    for each in (apart, reported):
        assert [(site["state"], site["numeric_classes"]) for site in each["sites"]] == [("compared", classes)] * 2
        assert (each["findings"], each["services"][0]["input"]["numeric_classes"]) == ([], 2)
    assert "diverged" not in events
    assert "0 sites differ, 2 numeric classes" in line
    names = " | ".join(", ".join(each) for each in classes)
    assert f"in 2 numeric classes: {names}: half, linear" in screen or f"{names}: linear, half" in screen


@pytest.mark.ci
@pytest.mark.parametrize(
    "damage", ["bit", *(pytest.param(damage, marks=pytest.mark.ci) for damage in ("row", "channel", "nan"))]
)
def test_a_fault_in_a_replica_of_another_class_is_found_and_named(worker: Start, prefix: str, damage: str) -> None:
    replicas(worker, (False, False, True), bad=2, damage=damage)
    answer = document("diff", "api", code=1)
    assert (answer["outlier"], answer["diverged"], answer["within"]) == ("api/2", 2, 22)
    assert (answer["first"]["kernel"], answer["first"]["layer"], answer["first"]["position"]) == ("linear", 2, 7)
    with running() as daemon:
        findings = coverage_when(daemon, 3, 2)["findings"]
    assert [(each["kernel"], each["workers"]) for each in findings] == [("linear", ["api/2"]), ("half", ["api/2"])]


@pytest.mark.ci
def test_the_lowest_bit_of_one_element_is_found_within_a_class(worker: Start, prefix: str) -> None:
    replicas(worker, (False, False, True, True, True), bad=3, damage="lowest bit")
    answer = document("diff", "api", code=1)
    assert (answer["outlier"], answer["diverged"], answer["first"]["position"]) == ("api/3", 2, 7)
    assert "api/3 differs from 2 that agree" in answer["headlines"][0]
    with running() as daemon:
        findings = coverage_when(daemon, 5, 2)["findings"]
    assert {each["kernel"]: each["workers"] for each in findings} == {"linear": ["api/3"], "half": ["api/3"]}
