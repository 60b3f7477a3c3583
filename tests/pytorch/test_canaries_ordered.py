"""Canaries of torch models that a daemon orders.

These tests are skipped if torch is not installed.
"""

from __future__ import annotations

import pytest
from faults import Start
from running import running
from test_canaries_served import MODEL
from verbs import brickd, document, started

from brickd.model.canary_definitions import CanaryFiles

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

SERVED = f"""{MODEL}
found = brick.canaries(model, share=1, orders=True)
with torch.inference_mode(): model(ids)
if damaged: model.layers[1].mlp.weight.data[2, 3] += 1
pause()
"""


def servers(worker: Start, *damaged: bool, program: str = SERVED) -> None:
    for number, each in enumerate(damaged):
        started(worker, f"damaged = {each}\n{program}", BRICKD_SERVICE="api", BRICKD_WORKER=str(number))


@pytest.fixture(autouse=True)
def _greeting(prefix: str) -> None:
    CanaryFiles().add("greeting", b'{"tokens": [1, 2, 3], "forced": [4]}')


@pytest.mark.ci
def test_a_damaged_weight_is_named_with_its_worker_and_its_site(worker: Start) -> None:
    servers(worker, False, True, False)
    with running():
        found = document("canary", "run", "api", code=1)
    assert [each["verdict"] for each in found["results"]] == ["equal", "differs", "equal"]
    assert found["results"][1]["first"] == {"kernel": "layers.*.mlp", "layer": 1, "part": "prompt"}


@pytest.mark.ci
def test_equal_models_are_equal_and_a_second_run_too(worker: Start) -> None:
    servers(worker, False, False)
    with running():
        for _ in range(2):
            assert brickd("canary", "run").returncode == 0


@pytest.mark.ci
def test_a_model_without_orders_or_without_its_gates_does_not_answer(worker: Start) -> None:
    without = SERVED.replace(", orders=True", "").replace("pause()", "brick.init(); pause()")
    ended = SERVED.replace("pause()", "brick.uninstrument(model); import time; time.sleep(1); pause()")
    servers(worker, False, program=without)
    started(worker, f"damaged = False\n{ended}", BRICKD_SERVICE="gone", BRICKD_WORKER="0")
    with running():
        found = document("canary", "run", code=6)
    assert [each["end"] for each in found["results"]] == ["silent", "silent"]


def test_orders_go_to_the_model_of_the_last_call_in_one_thread(worker: Start) -> None:
    process = worker(
        f"""{MODEL}
import threading
def watchers(): return [each.name for each in threading.enumerate()].count("brickd canary orders")
found = brick.canaries(model)
reported = [watchers()]
brick.canaries(model, orders=True) is found and brick.canaries(model, orders=True)
reported.append(watchers())
other = Model().eval()
brick.canaries(other, orders=True)
while watchers() > 1: threading.Event().wait(0.01)
report(reported)
"""
    )
    assert process.next_report() == [0, 1]
