"""Servers that `brickd run` starts, requests that must not fail, and functions that wait."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from running import BRICKD
from verbs import brickd, document

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
PATIENCE_SECONDS = 240  # next to thirty busy processes, a server starts in 110 s
ONE_THREAD = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def until(so: Callable[[], Any]) -> Any:
    """Call a function until its result is true; return the result."""
    by = time.monotonic() + PATIENCE_SECONDS
    while not (found := so()):
        assert time.monotonic() < by, "the condition did not become true in time"
        time.sleep(0.05)
    return found


def asked(*arguments: str) -> dict[str, Any]:
    """Return the answer of a verb; {} if there are no workers."""
    reported = brickd(*arguments, "--json")
    return dict(json.loads(reported.stdout)) if reported.returncode in (0, 1) else {}


def spans() -> dict[str, tuple[str, int]]:
    """Return the name and the number of summarized spans of each worker, keyed by uuid."""
    listed = document("workers")["workers"]
    return {each["uuid"]: (each["name"], each["ledger"]["spans"]["summarized"]) for each in listed}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """A command started by `brickd run`, in its own process group."""

    def __init__(self, folder: Path, *command: str, service: str = "api") -> None:
        self.port = free_port()
        with (folder / "output").open("wb") as reported:
            self.process = subprocess.Popen(
                [*BRICKD, "run", "--service", service, "--fingerprints", "all", "--",
                 *(each.replace("PORT", str(self.port)) for each in command)],
                cwd=folder, env=os.environ | ONE_THREAD, stdout=reported, stderr=reported, process_group=0,
            )  # fmt: skip
        self.output_file = folder / "output"

    def ask(self, seed: int = 0) -> dict[str, Any]:
        """Return the answer of a worker; raise if the request fails."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(client):
            client.request("POST", f"/generate?seed={seed}")
            answer = client.getresponse()
            body = answer.read()
        assert answer.status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def up(self) -> bool:
        assert self.process.poll() is None, self.output_file.read_text()
        with contextlib.suppress(OSError):
            return bool(self.ask())
        return False

    def workers(self, number: int, seed: int = 0) -> dict[int, str]:
        """Send requests until `number` workers have answered; return the kind of each worker, keyed by pid."""
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


class Load:
    """Sends requests one after the other; none of them may fail."""

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
