"""Real servers under `brickd run`: all their work is recorded, and nothing is lost.

The uvicorn server has four workers: one with a changed weight, one with another kind of attention, and two correct
workers.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_servers import APP, ONE_THREAD, PATIENCE_SECONDS, SMALL, Server, asked, spans, until
from running import BRICKD, Running, running
from sandbox import apart
from verbs import document

from brickd.shm.segment_files import find

REASON = "is not installed: .ci/run does it"
for needed in ("torch", "transformers", "fastapi", "uvicorn", "gunicorn"):
    pytest.importorskip(needed, reason=f"{needed} {REASON}")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    with apart() as name:
        yield name


@pytest.fixture
def prefix() -> Iterator[str]:
    """Return a prefix for a test that starts its own daemon, next to the daemon of this module."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module")
def daemon(isolated: str) -> Iterator[Running]:
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
    """Return the names of the workers, keyed by kind, after each worker has done the same work."""
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


def test_every_worker_of_a_server_is_in_one_service_with_timed_layers(
    kinds: dict[str, list[str]],
) -> None:
    assert {kind: len(names) for kind, names in kinds.items()} == {"bad": 1, "eager": 1, "sdpa": 2}
    assert sorted(name for names in kinds.values() for name in names) == [f"api/{n}" for n in range(4)]
    for name in (name for names in kinds.values() for name in names):
        bricks = {each["name"] for each in document("bricks", name)["bricks"]}
        assert bricks >= {"forward", "layers.*", "layers.*.mlp", "layers.*.self_attn", "lm_head"}


def test_evidence_by_weights_names_one_perturbed_weight(kinds: dict[str, list[str]]) -> None:
    (bad,) = kinds["bad"]
    # As long as only two workers have recorded their weights, brickd cannot know which of them is wrong.
    wanted = [("model.layers.*.mlp.up_proj.weight", 2, bad)]
    until(
        lambda: (
            [(row["tensor"], row["layer"], row["worker"]) for row in asked("weights").get("differing", ())] == wanted
        )
    )


def test_evidence_by_input_names_one_perturbed_weight(daemon: Running, kinds: dict[str, list[str]]) -> None:
    (bad,) = kinds["bad"]

    def found() -> list[tuple[int, list[str], str]]:
        findings = [each for each in daemon.ask("/coverage")["findings"] if each["kernel"] == "layers.*.mlp"]
        findings = [each for each in findings if each["evidence"] == "input"]
        return [(each["layer"], each["workers"], each["blame"]) for each in findings]

    until(lambda: found() == [(2, [bad], "culprit")])
    diff = document("diff", kinds["sdpa"][0], bad, code=1)
    first = diff["first"]
    assert (first["kernel"], first["layer"], first["blame"]) == ("layers.*.mlp", 2, "culprit")


def test_healthy_workers_do_not_differ(kinds: dict[str, list[str]]) -> None:
    until(lambda: asked("diff", *kinds["sdpa"], "--by", "input").get("compared"))
    diff = document("diff", *kinds["sdpa"], "--by", "input")
    assert (diff["diverged"], diff["verdict"]) == (0, "identical")


def test_another_kind_of_attention_is_not_comparable(kinds: dict[str, list[str]]) -> None:
    diff = document("diff", kinds["sdpa"][0], kinds["eager"][0], "--by", "input", code=6)
    assert (diff["diverged"], diff["verdict"]) == (0, "not_comparable")
    assert set(diff["not_comparable"]) >= {"backend"}


def restarted(server: Server, victim: str, prefix: str) -> None:
    """Kill a worker; check that its successor gets its name, that no counts are lost, and that no file stays behind."""
    before = spans()
    live = [each for each in document("workers")["workers"] if each["state"] == "live"]
    (dead,) = (each for each in live if each["name"] == victim)
    others = {each["uuid"] for each in live} - {dead["uuid"]}
    os.kill(dead["pid"], signal.SIGKILL)

    def again() -> bool:
        with contextlib.suppress(ConnectionError, http.client.HTTPException, AssertionError):
            server.ask()
        now = [each for each in document("workers")["workers"] if each["state"] == "live"]
        return dead["uuid"] not in {each["uuid"] for each in now} and len(now) == len(live)

    until(again)
    after = spans()
    (come,) = {uuid for uuid, (name, _) in after.items() if name == victim}
    assert come not in before
    assert after[dead["uuid"]][0] == f"{victim}~{dead['uuid'][:6]}"
    assert {uuid: after[uuid][0] for uuid in others} == {uuid: before[uuid][0] for uuid in others}
    assert all(after[uuid][1] >= number for uuid, (_, number) in before.items())
    until(lambda: len(find(prefix)) == len(live))
    assert spans()[dead["uuid"]] == after[dead["uuid"]], "the removed segment's totals are kept"


def test_a_killed_and_restarted_worker_keeps_its_name(
    server: Server, daemon: Running, kinds: dict[str, list[str]], isolated: str
) -> None:
    restarted(server, kinds["bad"][0], isolated)


WSGI = (
    SMALL
    + """
if os.path.exists("warm"): work(), work()
def app(environ, start):
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"pid": os.getpid(), "sum": work()}).encode()]
"""
)
ASGI = (
    SMALL
    + """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps({"pid": os.getpid(), "sum": work()}).encode()})
"""
)
UVICORN_WORKER = "uvicorn_worker" if importlib.util.find_spec("uvicorn_worker") else "uvicorn.workers"
GUNICORN = {
    "later": (WSGI, ()),
    "preload": (WSGI, ("--preload",)),
    "preload warm": (WSGI, ("--preload",)),
    "uvicorn": (ASGI, ("-k", f"{UVICORN_WORKER}.UvicornWorker")),
}


def bricks_of(worker: str) -> set[str]:
    return {each["name"] for each in asked("bricks", worker).get("bricks", ())}


def seen_alike(number: int, service: str = "api") -> list[str]:
    """Wait until `number` live workers time their layers and have equal weights; return their names."""

    def so() -> list[str]:
        live = [each["name"] for each in asked("workers").get("workers", ())
                if each["state"] == "live" and each["service"] == service]  # fmt: skip
        timed = [name for name in live if {"layers.*", "layers.*.mlp"} <= bricks_of(name)]
        return sorted(timed) if len(timed) >= number else []

    found: list[str] = until(so)
    of = until(lambda: [each for each in asked("weights").get("services", ()) if each["equal"] >= number])
    assert {each["verdict"] for each in of} == {"equal"}
    return found


@pytest.mark.parametrize("how", GUNICORN)
def test_gunicorn_workers_are_recorded(prefix: str, tmp_path: Path, how: str) -> None:
    source, options = GUNICORN[how]
    (tmp_path / "app.py").write_text(source)
    if "warm" in how:
        (tmp_path / "warm").touch()
    with running():
        server = Server(tmp_path, sys.executable, "-m", "gunicorn", "app:app", "-w", "2", "-b", "127.0.0.1:PORT",
                        *options)  # fmt: skip
        try:
            until(server.up)
            # brickd finds the model in the first request, and records the model in the next requests.
            for _ in range(3):
                pids = set(server.workers(2))
            names = seen_alike(2)
            live = {each["pid"]: each["name"] for each in document("workers")["workers"] if each["name"] in names}
            assert pids <= set(live)
            assert len(live) == 2 + ("warm" in how)  # the process that preloads and calls the model is also a worker
            restarted(server, live[min(pids)], prefix)
            server.process.terminate()
            assert server.process.wait(PATIENCE_SECONDS) == 0
            until(lambda: not any(each["state"] == "live" for each in document("workers")["workers"]))
            states = [each["state"] for each in document("workers")["workers"]]
            assert sorted(states) == ["died", *["ended"] * len(live)], "one worker was killed; the others shut down"
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


@pytest.mark.parametrize("how", ["spawn", "fork", "forkserver"])
def test_processes_started_by_torch_are_recorded(prefix: str, tmp_path: Path, how: str) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    (tmp_path / "main.py").write_text(SPAWNED)
    command = [*BRICKD, "run", "--service", "api", "--", sys.executable, "main.py", how]
    with running(), subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, env=os.environ | ONE_THREAD) as own:
        try:
            assert seen_alike(2) == ["api/0", "api/1"]
        finally:
            own.communicate()
        assert own.returncode == 0


def test_ranks_are_named_by_their_numbers(prefix: str, tmp_path: Path) -> None:
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
