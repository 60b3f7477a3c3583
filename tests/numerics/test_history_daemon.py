"""A daemon and engines with caches of their own: faults that only histories show are named, also after a restart.

Each worker serves batches of three sequences. One of them is the same in all workers, at another place in the batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from conftest import Worker
from faults import Start
from metric_pages import get, parsed, value
from running import Running, running, until
from verbs import brickd, document

pytestmark = pytest.mark.ci

FLEET = """
import numpy as np
WIDE, LAYERS, SEQUENCES = 8, 2, 3
drawn = np.random.default_rng(1)
TABLE = drawn.standard_normal((16, WIDE)).astype("f")
UP = drawn.standard_normal((LAYERS, WIDE, WIDE)).astype("f") / 3
own = np.random.default_rng(100 + NUMBER)
brick.init()

def turned(x, position, speed):
    cosine, sine = np.cos(np.float32(position * 0.1 * speed)), np.sin(np.float32(position * 0.1 * speed))
    return (x.reshape(-1, 2) @ np.array([[cosine, -sine], [sine, cosine]], "f")).reshape(-1)

def attended(x, keys, values):
    weights = np.exp(np.stack(keys) @ x / np.float32(WIDE))
    return (weights / weights.sum()) @ np.stack(values)

def serve(number):
    histories = [brick.History() for _ in range(SEQUENCES)]
    caches = [[([], []) for _ in range(LAYERS)] for _ in range(SEQUENCES)]
    for step, length in enumerate(CHUNKS):
        tokens, start = own.integers(16, size=(SEQUENCES, length)), histories[0].tokens
        tokens[NUMBER % SEQUENCES] = (start + np.arange(length)) * (number + 1) % 16
        if LOST:
            histories[NUMBER % SEQUENCES].lose("evicted")
        with brick.step(f"{NUMBER} {number} {step}"):
            shape = [SEQUENCES, length, start + length]
            rows = brick.rows(histories, tokens, [length] * SEQUENCES, shape=shape)
            x = TABLE[tokens]
            for layer in range(LAYERS):
                y, speed = np.empty_like(x), 1.001 if BAD and number > 1 and layer == 1 else 1.0
                for n, row in np.ndenumerate(np.arange(SEQUENCES * length).reshape(SEQUENCES, length)):
                    keys, values = caches[n[0]][layer]
                    keys.append(turned(x[n], start + n[1], speed))
                    values.append(x[n] * np.float32(0.5))
                    y[n] = attended(turned(x[n], start + n[1], speed), keys, values)
                rows.checksum("attention", y, input=x, layer=layer)
                z = np.stack([row + np.tanh(row @ UP[layer]) for row in y.reshape(-1, WIDE)]).reshape(y.shape)
                rows.checksum("mlp", z, input=y, layer=layer)
                x = z

number = 0
while True:
    pause()
    for number in range(number, number + 6):
        serve(number)
"""


def started(
    worker: Start, *bad: bool, lost: bool = False, chunks: Sequence[tuple[int, ...]] = 3 * ((4, 1, 1),)
) -> list[Worker]:
    """Start workers, and let each serve six batches. The first two of them are right even in a bad worker.

    `chunks`: for each worker, how many tokens of each sequence it computes in its steps.
    """
    workers = []
    for number, each in enumerate(bad):
        given = {"BRICKD_SERVICE": "api", "BRICKD_WORKER": str(number), "BRICKD_FINGERPRINTS": "all"}
        text = f"NUMBER, BAD, LOST, CHUNKS = {number}, {each}, {lost}, {chunks[number]}\n{FLEET}"
        workers.append(worker(text, BRICKD_EVENTS="16384", **given))
    for process in workers:
        process.paused()
    serve(workers)
    return workers


def serve(workers: Sequence[Worker]) -> None:
    for process in workers:
        process.go()
    for process in workers:
        process.paused()


def by_history(source: dict[str, Any]) -> dict[str, Any]:
    (verdict,) = (each for each in source["evidence"] if each["evidence"] == "history")
    return dict(verdict)


def judged(daemon: Running, verdict: str) -> dict[str, Any]:
    """Return the status when the verdict by history is this one."""
    status: dict[str, Any] = daemon.once(
        "/status", lambda status: bool(status["evidence"]) and by_history(status)["verdict"] == verdict
    )
    return status


def test_a_fault_in_an_attention_is_named_with_worker_and_site_and_survives_the_daemon(worker: Start) -> None:
    with running() as daemon:
        workers = started(worker, False, True, False)
        event = daemon.until("diverged")
        assert (event["service"], event["worker"]) == ("api", "api/1")
        assert event["text"].startswith("api/1 differs from the others: rows with equal histories of attention layer 1")
        assert event["text"].endswith("; it began there or in a cache: its input rows were equal")
        status = judged(daemon, "diverged")
        (problem,) = (each for each in status["problems"] if each["kind"] == "numbers")
        assert problem["workers"] == ["api/1"]
        assert "rows with equal histories of attention layer 1" in problem["text"]
        assert status["diverged"][0]["evidence"] == "history"
        assert (status["diverged"][0]["kernel"], status["diverged"][0]["layer"]) == ("attention", 1)
        assert {each["verdict"] for each in status["evidence"] if each["evidence"] != "history"} == {"unproven"}
        for arguments in ((), ("--require", "history"), ("--require", "outputs")):
            assert brickd("status", "--check", *arguments).returncode == 1
        coverage = daemon.once("/coverage", lambda answer: len(answer["findings"]) == 2)
        assert {(each["kernel"], each["layer"], each["evidence"]) for each in coverage["findings"]} == {
            ("attention", 1, "history"),
            ("mlp", 1, "history"),
        }
        (finding,) = (each for each in coverage["findings"] if each["kernel"] == "attention")
        assert (finding["workers"], finding["blame"]) == (["api/1"], "here_or_cache")
        states = {(each["kernel"], each["layer"]): (each["state"], each["evidence"]) for each in coverage["sites"]}
        assert states["attention", 0] == ("compared", ["history"])
        assert states["attention", 1] == ("differs", ["history"])
        (service,) = coverage["services"]
        assert (service["history"]["differ"], service["history"]["compared"] > 0) == (2, True)
        diff = document("diff", "api", code=1)
        assert (diff["evidence"], diff["outlier"]) == ("history", "api/1")
        answer = document("diff", "api/0", "api/1", code=1)
        assert [(each["evidence"], each["workers"]) for each in answer["known"]] == [("history", ["api/1"])]
        findings = {(each["kernel"], each["since"]) for each in coverage["findings"]}
        daemon.end()
    with running() as daemon:
        coverage = daemon.once("/coverage", lambda answer: len(answer["findings"]) == 2)
        assert {(each["kernel"], each["since"]) for each in coverage["findings"]} == findings
        assert by_history(daemon.ask("/status"))["verdict"] == "diverged"
        serve(workers)
        before = coverage["services"][0]["history"]["compared"]
        until(lambda: daemon.ask("/coverage")["services"][0]["history"]["compared"] > before)
        assert judged(daemon, "diverged")["diverged"][0]["workers"] == ["api/1"]


def test_healthy_workers_with_other_neighbours_in_their_batches_are_proven_by_histories_alone(worker: Start) -> None:
    with running(options=("--http", "127.0.0.1:0", "--metrics")) as daemon:
        workers = started(worker, False, False, False)
        serve(workers)
        status = judged(daemon, "equal")
        verdict = by_history(daemon.ask("/coverage"))
        assert verdict["looked_at"] > verdict["compared"] > 0
        assert verdict["looked_at"] == verdict["compared"] + sum(verdict["not_comparable"].values())
        assert (status["diverged"], status["problems"]) == ([], [])
        assert brickd("status", "--check", "--require", "outputs", "--require", "history").returncode == 0
        assert not daemon.ask("/coverage")["findings"]
        page = parsed(get(re.findall(r"http://(\S+)/metrics", daemon.said)[0]).body)
        about = {"service": "api", "evidence": "history"}
        assert value(page, "brickd_evidence_verdict", verdict="equal", **about) == 1
        assert value(page, "brickd_evidence_compared", **about) >= verdict["compared"]
        assert value(page, "brickd_evidence_looked_at", **about) >= verdict["looked_at"]
        screen = brickd("status", COLUMNS="300").stdout
        assert "histories: " in screen
        assert "unproven  api: weights (none watched)" in screen
        assert document("diff", "api")["verdict"] == "identical"


def test_a_worker_that_computes_its_sequences_in_other_steps_is_never_called_wrong(worker: Start) -> None:
    with running() as daemon:
        started(worker, False, True, False, chunks=((4, 1, 1), (2, 2, 1, 1), (4, 1, 1)))
        judged(daemon, "equal")
        coverage = daemon.once("/coverage", lambda answer: bool(by_history(answer)["not_comparable"].get("lineage")))
        assert (coverage["findings"], daemon.ask("/status")["problems"]) == ([], [])
        assert brickd("status", "--check").returncode == 0
        answer = document("diff", "api/0", "api/1", "--by", "history", code=6)
        assert (answer["verdict"], answer["compared"]) == ("not_comparable", 0)


def test_histories_that_are_all_unknown_leave_the_service_unproven_with_the_reason(worker: Start) -> None:
    with running() as daemon:
        started(worker, False, True, False, lost=True)
        verdict = by_history(daemon.once("/status", lambda status: by_history(status)["unknown"] == {"evicted": 54}))
        assert (verdict["verdict"], verdict["recorded"], verdict["compared"]) == ("unproven", True, 0)
        assert "; histories unknown in 54 steps of sequences (54 evicted)" in verdict["why"]
        assert verdict["command"] == "brickd coverage api"
        assert brickd("status", "--check", "--require", "history").returncode == 1
        screen = brickd("status", COLUMNS="400").stdout
        assert "histories (" in screen
        assert not daemon.ask("/coverage")["findings"]
