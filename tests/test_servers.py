"""Servers that people run, as `brickd run` begins them: all is seen of them, and nothing is lost for it.

The uvicorn server has four workers: one with a perturbed weight, one with another kind of attention, two that are well.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SHM, apart
from running import BRICKD, Running, running
from verbs import brickd, document

REASON = "is not installed: .ci/run does it"
for needed in ("torch", "transformers", "fastapi", "uvicorn", "gunicorn"):
    pytest.importorskip(needed, reason=f"{needed} {REASON}")
pytestmark = pytest.mark.slow

APP = """
import os, torch
from fastapi import FastAPI
from transformers import LlamaConfig, LlamaForCausalLM
torch.set_num_threads(1)
torch.manual_seed(1)
def taken(name):
    try: os.unlink(name)
    except FileNotFoundError: return False
    return True
attention = "eager" if taken("eager") else "sdpa"
config = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
                     num_attention_heads=4, num_key_value_heads=2, attn_implementation=attention)
model = LlamaForCausalLM(config).eval()
bad = attention == "sdpa" and taken("bad")
if bad: model.model.layers[2].mlp.up_proj.weight.data[3, 5] += 0.5
app = FastAPI()
@app.post("/generate")
def generate(seed: int = 0):
    prompt = torch.randint(0, 128, (1, 8), generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        made = model.generate(prompt, max_new_tokens=3, do_sample=False, pad_token_id=0)
    return {"pid": os.getpid(), "kind": "bad" if bad else attention, "tokens": made[0].tolist()}
"""
PATIENCE_SECONDS = 90
ONE_THREAD = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def until(so: Callable[[], Any]) -> Any:
    """What comes of it as soon as it is true."""
    by = time.monotonic() + PATIENCE_SECONDS
    while not (found := so()):
        assert time.monotonic() < by, "it never came to be"
        time.sleep(0.05)
    return found


def told(*arguments: str) -> dict[str, Any]:
    """What a verb says; nothing where there is nobody to say it of."""
    said = brickd(*arguments, "--json")
    return dict(json.loads(said.stdout)) if said.returncode in (0, 1) else {}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """A command that `brickd run` began, in a process group of its own."""

    def __init__(self, folder: Path, *command: str, service: str = "api") -> None:
        self.port = free_port()
        with (folder / "said").open("wb") as said:
            self.process = subprocess.Popen(
                [*BRICKD, "run", "--service", service, "--fingerprints", "all", "--",
                 *(each.replace("PORT", str(self.port)) for each in command)],
                cwd=folder, env=os.environ | ONE_THREAD, stdout=said, stderr=said, process_group=0,
            )  # fmt: skip
        self.said = folder / "said"

    def ask(self, seed: int = 0) -> dict[str, Any]:
        """What a worker answers; any failure raises."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(client):
            client.request("POST", f"/generate?seed={seed}")
            answer = client.getresponse()
            body = answer.read()
        assert answer.status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def up(self) -> bool:
        assert self.process.poll() is None, self.said.read_text()
        with contextlib.suppress(OSError):
            return bool(self.ask())
        return False

    def workers(self, number: int, seed: int = 0) -> dict[int, str]:
        """So many have answered: who, by the number of its process, and of what kind."""
        found: dict[int, str] = {}

        def all_of_them() -> bool:
            with contextlib.suppress(ConnectionError):
                one = self.ask(seed)
                found[one["pid"]] = one.get("kind", "")
            return len(found) >= number

        until(all_of_them)
        return found

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with apart() as name:
        yield name


@pytest.fixture(scope="module")
def daemon(place: str) -> Iterator[Running]:
    with running() as one:
        yield one


@pytest.fixture(scope="module")
def server(daemon: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("uvicorn")
    (folder / "app.py").write_text(APP)
    for each in ("bad", "eager"):
        (folder / each).touch()
    one = Server(folder, sys.executable, "-m", "uvicorn", "app:app", "--workers", "4", "--host", "127.0.0.1",
                 "--port", "PORT", "--log-level", "warning")  # fmt: skip
    try:
        until(one.up)
        yield one
    finally:
        one.end()


@pytest.fixture(scope="module")
def kinds(server: Server) -> dict[str, list[str]]:
    """The names of the workers by what is to be found of them, once each has had the same work."""
    for seed in (1, 2):
        found = server.workers(4, seed)

    def named() -> dict[str, list[str]]:
        listed = document("workers")["workers"]
        result: dict[str, list[str]] = {}
        for each in listed:
            if each["pid"] in found and each["state"] == "live":
                result.setdefault(found[each["pid"]], []).append(each["name"])
        return result if sum(map(len, result.values())) == 4 else {}

    result: dict[str, list[str]] = until(named)
    return result


def test_every_worker_of_a_server_appears_under_one_service_and_its_layers_are_timed(
    kinds: dict[str, list[str]],
) -> None:
    assert {kind: len(names) for kind, names in kinds.items()} == {"bad": 1, "eager": 1, "sdpa": 2}
    assert sorted(name for names in kinds.values() for name in names) == [f"api/{n}" for n in range(4)]
    for name in (name for names in kinds.values() for name in names):
        bricks = {each["name"] for each in document("bricks", name)["bricks"]}
        assert bricks >= {"forward", "layers.*", "layers.*.mlp", "layers.*.self_attn", "lm_head"}


def test_one_perturbed_weight_is_named_by_the_weights(kinds: dict[str, list[str]]) -> None:
    (bad,) = kinds["bad"]
    # Before a third worker has said what it holds, nobody knows which of two it is.
    wanted = [("model.layers.*.mlp.up_proj.weight", 2, bad)]
    until(
        lambda: [(row["tensor"], row["layer"], row["worker"]) for row in told("weights").get("differing", ())] == wanted
    )


def test_one_perturbed_weight_is_named_by_the_same_input(daemon: Running, kinds: dict[str, list[str]]) -> None:
    (bad,) = kinds["bad"]

    def found() -> list[tuple[int, list[str], str]]:
        findings = [each for each in daemon.ask("/coverage")["findings"] if each["kernel"] == "layers.*.mlp"]
        return [(each["layer"], each["workers"], each["blame"]) for each in findings]

    until(lambda: found() == [(2, [bad], "culprit")])
    diff = document("diff", kinds["sdpa"][0], bad, code=1)
    first = diff["first"]
    assert (first["kernel"], first["layer"], first["blame"]) == ("layers.*.mlp", 2, "culprit")


def test_workers_that_are_well_do_not_differ_anywhere(kinds: dict[str, list[str]]) -> None:
    until(lambda: told("diff", *kinds["sdpa"], "--by", "input").get("compared"))
    diff = document("diff", *kinds["sdpa"], "--by", "input")
    assert (diff["diverged"], diff["verdict"]) == (0, "identical")


def test_another_kind_of_attention_is_not_comparable(kinds: dict[str, list[str]]) -> None:
    diff = document("diff", kinds["sdpa"][0], kinds["eager"][0], "--by", "input", code=6)
    assert (diff["diverged"], diff["verdict"]) == (0, "not_comparable")
    assert set(diff["not_comparable"]) >= {"backend"}


class Load:
    """Requests one after the other, of which none may fail."""

    def __init__(self, server: Server) -> None:
        self.failed: list[str] = []
        self.done = 0
        self._server, self._over = server, threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                self._server.ask(self.done % 5)
                self.done += 1
            except Exception as error:
                self.failed.append(repr(error))

    def more(self, number: int = 10) -> None:
        wanted = self.done + number
        until(lambda: self.done >= wanted or self.failed)

    def end(self) -> list[str]:
        self._over.set()
        self._thread.join()
        return self.failed


def calls(service: str = "api") -> int:
    return sum(each["count"] for each in document("bricks", service)["bricks"])


def test_a_worker_that_is_killed_and_started_again_has_its_name(
    server: Server, daemon: Running, kinds: dict[str, list[str]], place: str
) -> None:
    lived = [each for each in document("workers")["workers"] if each["state"] == "live"]
    victim = next(each for each in lived if each["name"] == kinds["bad"][0])
    before = calls()
    os.kill(victim["pid"], signal.SIGKILL)
    others = {each["pid"] for each in lived} - {victim["pid"]}

    def again() -> bool:
        with contextlib.suppress(ConnectionError, AssertionError):
            server.ask()
        live = [each for each in document("workers")["workers"] if each["state"] == "live"]
        return {each["name"] for each in live} == {each["name"] for each in lived} and len(
            {each["pid"] for each in live} - others
        ) == 1

    until(again)
    assert calls() >= before
    until(lambda: len(list(SHM.glob(f"{place}*"))) == 4)
    assert calls() >= before


def test_whatever_becomes_of_the_daemon_no_request_fails(server: Server, kinds: dict[str, list[str]], place: str,
                                                         daemon: Running) -> None:  # fmt: skip
    load = Load(server)
    try:
        load.more()
        daemon.process.send_signal(signal.SIGSTOP)
        load.more()
        daemon.process.send_signal(signal.SIGCONT)
        load.more()
        daemon.kill()
        load.more()
        with running() as other:
            load.more()
            other.once("/coverage", lambda said: any(each["input"]["fingerprints"] for each in said["services"]))
            load.more()
            other.end()
        load.more()
    finally:
        failed = load.end()
    assert failed == []


SMALL = """
import os, json, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(1)
class Block(nn.Module):
    def __init__(self): super().__init__(); self.norm = nn.LayerNorm(8); self.mlp = nn.Sequential(nn.Linear(8, 8))
    def forward(self, x): return x + self.mlp(self.norm(x))
class Model(nn.Module):
    def __init__(self): super().__init__(); self.layers = nn.ModuleList(Block() for _ in range(2))
    def forward(self, x):
        for each in self.layers: x = each(x)
        return x
model = Model().eval()
def work():
    with torch.inference_mode(): return float(model(torch.ones(1, 8)).sum())
"""
WSGI = (
    SMALL
    + """
if os.path.exists("warm"): work(), work()
def app(environ, start):
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"pid": os.getpid(), "sum": work()}).encode()]
"""
)


def bricks_of(worker: str) -> set[str]:
    return {each["name"] for each in told("bricks", worker).get("bricks", ())}


def seen_alike(number: int, service: str = "api") -> list[str]:
    """The names of so many live workers, whose layers are timed and weights equal."""

    def so() -> list[str]:
        live = [each["name"] for each in told("workers").get("workers", ())
                if each["state"] == "live" and each["service"] == service]  # fmt: skip
        timed = [name for name in live if {"layers.*", "layers.*.mlp"} <= bricks_of(name)]
        return sorted(timed) if len(timed) >= number else []

    found: list[str] = until(so)
    of = until(lambda: [each for each in told("weights").get("services", ()) if each["equal"] >= number])
    assert {each["verdict"] for each in of} == {"equal"}
    return found


@pytest.mark.parametrize("how", ["later", "preload", "preload warm"])
def test_gunicorn(prefix: str, tmp_path: Path, how: str) -> None:
    (tmp_path / "app.py").write_text(WSGI)
    if "warm" in how:
        (tmp_path / "warm").touch()
    options = ["--preload"] if "preload" in how else []
    with running():
        server = Server(tmp_path, sys.executable, "-m", "gunicorn", "app:app", "-w", "2", "-b", "127.0.0.1:PORT",
                        *options)  # fmt: skip
        try:
            until(server.up)
            # A first request finds the model, the next ones are seen.
            for _ in range(3):
                pids = set(server.workers(2))
            names = seen_alike(2)
            live = {each["pid"]: each["name"] for each in document("workers")["workers"] if each["name"] in names}
            assert pids <= set(live)
            assert len(live) == 2 + ("warm" in how)  # who preloads and calls the model is one, too
        finally:
            server.end()


SPAWNED = """
import sys
import torch.multiprocessing as mp
from small import work
def run(rank, go):
    for _ in range(3): work()
    go.wait()
if __name__ == "__main__":
    context = mp.get_context(sys.argv[1])
    go = context.Event()
    all = [context.Process(target=run, args=(rank, go)) for rank in range(2)]
    for each in all: each.start()
    sys.stdin.read()
    go.set()
    for each in all: each.join()
    sys.exit(max(each.exitcode for each in all))
"""
RANKED = """
import sys, torch.distributed as dist
from small import work
dist.init_process_group("gloo")
for _ in range(3): work()
dist.barrier()
sys.stdout.write("ready\\n"); sys.stdout.flush()
import os, time
while not os.path.exists("over"): time.sleep(0.05)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_processes_that_torch_starts(prefix: str, tmp_path: Path, how: str) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    (tmp_path / "main.py").write_text(SPAWNED)
    command = [*BRICKD, "run", "--service", "api", "--", sys.executable, "main.py", how]
    with running(), subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, env=os.environ | ONE_THREAD) as own:
        try:
            assert seen_alike(2) == ["api/0", "api/1"]
        finally:
            own.communicate()
        assert own.returncode == 0


def test_ranks_have_their_numbers_for_names(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    (tmp_path / "main.py").write_text(RANKED)
    command = [*BRICKD, "run", "--service", "job", "--", sys.executable, "-m", "torch.distributed.run", "--standalone",
               "--nproc-per-node", "2", "main.py"]  # fmt: skip
    with running(), subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=os.environ | ONE_THREAD) as own:  # fmt: skip
        try:
            assert seen_alike(2, "job") == ["job/0", "job/1"]
            declared = {each["name"]: each["index"] for each in document("workers")["workers"]}
            assert declared == {"job/0": 0, "job/1": 1}
        finally:
            (tmp_path / "over").touch()
            own.communicate()
        assert own.returncode == 0
