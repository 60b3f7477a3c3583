"""A healthy fleet under live traffic: `diff` raises no alarm, and shows what it compared.

Three uvicorn workers have the same model and the same system prompt. Every request is unique, and batches have 1 to 4
requests. So in decode steps, two workers often get the same last token, but never have the same cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from model_servers import Server, asked, until
from running import running
from sandbox import apart
from verbs import brickd, document

REASON = "is not installed: .ci/run does it"
for needed in ("torch", "transformers", "fastapi", "uvicorn"):
    pytest.importorskip(needed, reason=f"{needed} {REASON}")
pytestmark = pytest.mark.slow

WORKERS = 3
REQUESTS = 90
SEED_MAX = 10_000
APP = """
import os, threading, torch
from fastapi import FastAPI
from transformers import LlamaConfig, LlamaForCausalLM
torch.set_num_threads(1)
torch.manual_seed(1)
config = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
                     num_attention_heads=4, num_key_value_heads=2)
model = LlamaForCausalLM(config).eval()
system = torch.randint(0, 128, (1, 12), generator=torch.Generator().manual_seed(0))
app, one_at_a_time = FastAPI(), threading.Lock()
@app.post("/generate")
def generate(seed: int = 0):
    rows = seed % 4 + 1
    own = torch.randint(0, 128, (rows, 6), generator=torch.Generator().manual_seed(seed))
    prompt = torch.cat([system.expand(rows, -1), own], 1)
    with one_at_a_time, torch.inference_mode():
        made = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)
    return {"pid": os.getpid(), "tokens": made.tolist()}
"""


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    with apart() as name:
        yield name


@pytest.fixture(scope="module")
def server(isolated: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("uvicorn")
    (folder / "app.py").write_text(APP)
    with pytest.MonkeyPatch.context() as patch, running():
        patch.setenv("BRICKD_EVENTS", "65536")  # so large that no event is lost, even if the daemon reads late
        one = Server(folder, sys.executable, "-m", "uvicorn", "app:app", "--workers", str(WORKERS), "--host",
                     "127.0.0.1", "--port", "PORT", "--log-level", "warning")  # fmt: skip
        try:
            until(one.up)
            found: set[int] = set()
            for seed in range(1, SEED_MAX):
                found.add(one.ask(seed)["pid"])
                if len(found) == WORKERS and seed >= REQUESTS:
                    break
            yield one
        finally:
            one.end()


def test_a_healthy_fleet_with_unique_requests_has_equal_rows_and_histories_and_no_compared_tensor(
    server: Server,
) -> None:
    until(lambda: asked("weights").get("services", [{}])[0].get("equal") == WORKERS)
    until(lambda: not any(worker["ledger"]["events"]["in_ring"] for worker in document("workers")["workers"]))
    answer = document("diff", "api")
    assert (answer["evidence"], answer["diverged"]) == ("row", 0)
    proofs = {each["evidence"]: each["verdict"] for each in answer["evidence_classes"]}
    assert proofs == {"weights": "equal", "input": "unproven", "row": "equal", "history": "equal"}
    ended = brickd("diff", "api")
    assert (ended.returncode, ended.stderr) == (0, "")
    outputs = document("diff", "api", "--by", "input", code=6)["outputs"]
    assert (outputs["compared"], outputs["fingerprints"] > 1_000) == (0, True)
    assert brickd("status", "--check").returncode == 0


def test_by_run_steps_that_share_only_their_last_token_are_not_paired(server: Server) -> None:
    shared = document("diff", "api", "--by", "input", code=6)["not_comparable"]
    assert shared["stateful"] > 0, "the workers get the same token, but have different caches"
    answer = document("diff", "api", "--by", "run", code=6)
    assert (answer["compared"], answer["diverged"], answer["not_comparable"]) == (0, 0, {})
    assert answer["coverage"]["steps"]["shared"] == 0


def test_by_run_steps_of_equal_requests_are_paired_and_equal(server: Server) -> None:
    server.workers(WORKERS, seed=SEED_MAX)
    steps = 8  # one step for the prompt, and one for each token except the last

    def attention() -> list[int]:
        sites = asked("diff", "api", "--by", "run").get("sites", ())
        return [site["identical"] for site in sites if site["kernel"] == "layers.*.self_attn"]

    until(lambda: attention() and min(attention()) >= steps * (WORKERS - 1))
    answer = document("diff", "api", "--by", "run")
    assert (answer["verdict"], answer["diverged"], len(attention())) == ("identical", 0, 4)
