"""Workers that never get the same batch are compared by the rows that they share.

Each call of a worker has rows that all workers get, and between these, rows that only this worker gets.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Worker
from faults import Start
from running import Running, running, until
from test_record import recording
from verbs import brickd, document

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

pytestmark = pytest.mark.ci

FLEET = """
import torch
torch.set_num_threads(1)
torch.manual_seed(3)
class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj = (torch.nn.Linear(*size, bias=False) for size in ((32, 64), (64, 32)))
    def forward(self, x): return self.down_proj(torch.relu(self.up_proj(x)))
class Layer(torch.nn.Module):
    def __init__(self): super().__init__(); self.norm, self.mlp = torch.nn.LayerNorm(32), MLP()
    def forward(self, x): return x + self.mlp(self.norm(x))
class Model(torch.nn.Module):
    def __init__(self): super().__init__(); self.layers = torch.nn.ModuleList(Layer() for _ in range(3))
    def forward(self, x):
        for layer in self.layers: x = layer(x)
        return x
model = Model().to(torch.DTYPE).eval()
if BAD: model.layers[1].mlp.down_proj.weight.data[5] *= 1.01
brick.instrument(model, watch_weights=False)
shared = torch.randn(32, 32).to(torch.DTYPE)
torch.manual_seed(100 + NUMBER)
while True:
    pause()
    with torch.inference_mode():
        for _ in range(20):
            own = torch.randn(24 + NUMBER, 32).to(torch.DTYPE)
            model(torch.cat([shared if SHARES else own[:0], own])[None])
"""


def started(worker: Start, *bad: bool, dtype: str = "float32", shares: bool = True) -> list[Worker]:
    """Start workers that have not made a step yet."""
    workers = []
    for number, each in enumerate(bad):
        program = FLEET.replace("DTYPE", dtype)
        values = f"NUMBER, BAD, SHARES = {number}, {each}, {shares}\n"
        given = {"BRICKD_SERVICE": "api", "BRICKD_WORKER": str(number), "BRICKD_FINGERPRINTS": "all"}
        workers.append(worker(values + program, BRICKD_EVENTS="131072", **given))
    for process in workers:
        process.paused()
    return workers


def fleet(worker: Start, *bad: bool, dtype: str = "float32", shares: bool = True) -> list[Worker]:
    """Start workers, and let them make some steps."""
    workers = started(worker, *bad, dtype=dtype, shares=shares)
    steps(workers)
    return workers


def steps(workers: Sequence[Worker]) -> None:
    """Let all workers make some steps at the same time. In each epoch of 5 seconds, they record different rows."""
    for process in workers:
        process.go()
    for process in workers:
        process.paused()


def by_row(daemon: Running) -> dict[str, Any]:
    (verdict,) = [each for each in daemon.ask("/status")["evidence"] if each["evidence"] == "row"]
    return dict(verdict)


SITES = {("layers.*.mlp", 1), ("layers.*.mlp.down_proj", 1)}


def found(daemon: Running, workers: Sequence[Worker]) -> list[dict[str, Any]]:
    """Let the workers continue until brickd has found the difference at both sites."""

    def findings() -> list[dict[str, Any]]:
        steps(workers)
        each_site: list[dict[str, Any]] = daemon.ask("/coverage")["findings"]
        return each_site if {(each["kernel"], each["layer"]) for each in each_site if each["outliers"]} == SITES else []

    return until(findings)


# In bfloat16, rounding could explain each single row, so brickd needs more rows.
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_scaled_channel_is_found_in_the_worker_and_at_the_site_that_has_it(worker: Start, dtype: str) -> None:
    with running() as daemon:
        for each in found(daemon, fleet(worker, False, True, False, dtype=dtype)):
            assert (each["evidence"], each["workers"], each["blame"]) == ("row", ["api/1"], "culprit")
        assert by_row(daemon)["verdict"] == "diverged"
        assert brickd("status", "--check").returncode == 1
        diff = document("diff", "api", code=1)
        assert (diff["evidence"], diff["outlier"], diff["follow"]) == ("row", "api/1", 1)
        assert (diff["first"]["kernel"], diff["first"]["layer"]) == ("layers.*.mlp", 1)


def test_healthy_workers_with_shared_rows_are_proven_by_rows_alone(worker: Start) -> None:
    with running() as daemon:
        fleet(worker, False, False, False)
        until(lambda: by_row(daemon)["verdict"] == "equal")
        assert not daemon.ask("/coverage")["findings"]
        assert brickd("status", "--check", "--require", "outputs", "--require", "row").returncode == 0
        diff = document("diff", "api")
        assert (diff["evidence"], diff["verdict"]) == ("row", "identical")
        assert document("diff", "api", "--by", "input", code=6)["compared"] == 0


def test_workers_without_shared_rows_stay_unproven(worker: Start) -> None:
    with running() as daemon:
        fleet(worker, False, True, False, shares=False)
        until(lambda: by_row(daemon)["looked_at"])
        verdict = by_row(daemon)
        assert (verdict["verdict"], verdict["compared"]) == ("unproven", 0)
        assert verdict["why"].startswith("0 of ")
        assert brickd("status", "--check", "--require", "row").returncode == 1
        assert brickd("diff", "api", "--by", "row").returncode == 6


def test_a_recording_of_rows_has_the_same_outlier(worker: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "run.brick")
    with running() as daemon:
        workers = started(worker, False, True, False)
        with recording("-o", path, "--values") as process:
            found(daemon, workers)
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
    diff = document("diff", f"{path}:api", "--by", "row", code=1)
    assert (diff["outlier"], diff["first"]["kernel"], diff["first"]["layer"]) == ("api/1", "layers.*.mlp", 1)
    assert diff["first"]["relative_error"] > 0


def test_rows_are_compared_without_a_daemon(worker: Start) -> None:
    """Three workers share few rows in some epochs, so it can take several epochs until there is a majority."""
    workers = fleet(worker, False, True, False)
    while json.loads(brickd("diff", "api", "--by", "row", "--json").stdout)["outlier"] is None:
        steps(workers)
    assert document("diff", "api", "--by", "row", code=1)["outlier"] == "api/1"


def unknown(daemon: Running) -> dict[str, int]:
    """The number of sites with unknown rows, keyed by reason."""
    return dict(by_row(daemon)["unknown"])


MIXING = "def forward(self, x): return self.down_proj(torch.relu(self.up_proj(x / x.abs().max())))"


@pytest.mark.parametrize("workers", [2, 3])
def test_an_mlp_that_mixes_the_rows_of_a_batch_gets_no_healthy_worker_named(
    worker: Start, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """The name of this MLP says that it is row-wise. But it scales each row by the largest value of the batch."""
    plain = "def forward(self, x): return self.down_proj(torch.relu(self.up_proj(x)))"
    assert plain in FLEET
    monkeypatch.setattr(sys.modules[__name__], "FLEET", FLEET.replace(plain, MIXING))
    with running() as daemon:
        processes = fleet(worker, *[False] * workers)

        def doubted() -> bool:
            steps(processes)
            return bool(unknown(daemon).keys() & {"unsteady", "unconfirmed"})

        until(doubted)
        assert daemon.ask("/coverage")["findings"] == []
        diff = brickd("diff", "api", "--by", "row", "--json")
        assert (diff.returncode in (0, 6), json.loads(diff.stdout)["outlier"]) == (True, None)
        assert brickd("status", "--check").returncode == 0


def test_models_in_training_mode_stay_unproven_and_each_screen_says_why(
    worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FLEET", FLEET.replace(".eval()", ".train()"))
    with running() as daemon:
        processes = fleet(worker, False, False)

        def known() -> bool:
            steps(processes)
            return unknown(daemon).get("training", 0) >= 12

        until(known)
        verdict = by_row(daemon)
        assert (verdict["verdict"], verdict["looked_at"]) == ("unproven", 0)
        assert "in training mode" in verdict["why"]
        found = daemon.ask("/coverage")
        sites = [each for each in found["sites"] if each["state"] == "unknown"]
        assert {why for each in sites for why in each["unknown"]} >= {"training"}
        assert all(each["compared"] == 0 and not each["evidence"] for each in sites)
        for verb in ("status", "coverage"):
            assert "rows of " in brickd(verb, COLUMNS="400").stdout
            assert "in training mode" in brickd(verb, COLUMNS="400").stdout
        assert "rows unknown: in training mode" in brickd("coverage", COLUMNS="400").stdout
        assert brickd("status", "--check", "--require", "row").returncode == 1
