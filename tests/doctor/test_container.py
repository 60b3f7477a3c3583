"""A daemon and a server in two containers, as in docs/how-to/containers.md, but without a container runtime.

The two containers share only a /dev/shm of 64 MiB and a user. The containers have separate pid namespaces and no
writable root file system. Root runs verbs from outside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Worker, another_user
from container_isolation import Container
from faults import Start, needs_namespaces
from model_servers import SMALL
from rounds import ROUNDS, STARTS, again, closed, states
from running import Running, running, until
from test_memory import FILLING, GREEDY_SPANS, greedy, group, kills
from verbs import brickd

from brickd.base.paths import runtime
from brickd.shm.segment_files import find

__all__ = ["group"]
pytestmark = [pytest.mark.slow, needs_namespaces]

SERVER, STRANGER = 61001, 61002
MIB = 1 << 20
Serve = Callable[..., Worker]


@pytest.fixture
def shm() -> Iterator[Path]:
    """The /dev/shm of both containers."""
    folder = Path(tempfile.mkdtemp(prefix="brickd-test-shm-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=1777", "shm", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


@pytest.fixture
def serve(worker: Start, shm: Path, prefix: str) -> Serve:
    """`serve(program, **parts)` starts a server in a container with these parts.

    If `by` is given, the command in the container begins with these words.
    """
    another_user(SERVER)  # skips the test if there is no such user

    def start(program: str, service: str = "api", by: Sequence[str] = (), **container: Any) -> Worker:
        given = Container(SERVER, [], os.fspath(shm), **container)
        environment = {"BRICKD_SERVICE": service, "GROUP": given.cgroup}
        return worker(program, before=(*given.before, *by), **environment)

    return start


@pytest.fixture
def daemon(shm: Path, prefix: str) -> Iterator[Running]:
    """Start the daemon in the other container. Its runtime directory is a folder in a volume."""
    directory = runtime().directory
    directory.chmod(0o777)  # the mode that Kubernetes gives to a volume
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BRICKD_RUNTIME_DIR", f"{directory}/own")
        for name in ("BRICKD_STATE_DIR", "XDG_STATE_HOME"):
            patch.delenv(name)
        patch.setenv("HOME", "/")  # container runtimes set this for a user without a name
        daemon_container = Container(SERVER, [], os.fspath(shm), [os.fspath(directory)])
        with running(daemon_container.before) as one:
            yield one


def inside(process: Worker) -> int:
    """Return the pid of a container's first process, as seen from outside."""
    (pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(pid)


@pytest.mark.parametrize("mode", [pytest.param(0o1777, id="Docker"), pytest.param(0o777, id="Kubernetes")])
def test_a_daemon_next_to_a_server_drains_it_and_detects_live_workers(
    daemon: Running, serve: Serve, shm: Path, prefix: str, mode: int
) -> None:
    shm.chmod(mode)
    lives, dies = (serve(f"{ROUNDS}\nreport(os.getpid())\nrounds()") for _ in range(2))
    assert [each.next_report() for each in (lives, dies)] == [1, 1], "each is the first process of its namespace"
    for each in (lives, dies):
        each.next_report()
    closed(daemon, 2 * STARTS)
    workers = daemon.ask("/workers")["workers"]
    assert {(each["state"], each["pid"]) for each in workers} == {("live", 1)}, "as it reports"
    assert {(each["cpu_percent"], each["rss_bytes"]) for each in workers} == {(None, None)}, (
        "the numbers are not those of this container's own process 1"
    )

    os.kill(inside(dies), signal.SIGKILL)
    daemon.until("worker_died")
    again(lives)
    status = closed(daemon, 3 * STARTS)
    assert sorted(states(status).values()) == ["died", "live"]
    assert status["ledger"]["spans"]["summarized"] == 3 * STARTS
    until(lambda: len(list(shm.iterdir())) == 1)

    assert find(prefix) == [], "nothing of the process can be seen from this container"
    asked = brickd("status", "--json")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["source"] == "daemon"
    assert "api/0" in brickd("workers").stdout
    ended = brickd("down")
    assert ended.returncode == 0, ended.stderr
    assert (runtime().checkpoint).stat().st_uid == SERVER
    again(lives)
    assert lives.end() == 0


def test_a_torch_server_started_by_brick_agent_as_pid_1_is_listed(daemon: Running, serve: Serve, shm: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: .ci/run does it")
    source = f"{SMALL}\nreport(os.getpid())\nfor _ in range(3): work()\npause()\nreport(os.getppid())"
    one = serve(source, by=(sys.executable, "-P", "-m", "brick_agent", "--"))
    assert one.next_report() == 1
    one.paused()
    daemon.until("worker_found")
    answer = daemon.once("/weights", lambda answer: any(each["tensors"] for each in answer["services"]))
    assert [each["service"] for each in answer["services"]] == ["api"]
    bricks = {each["name"]: each["count"] for each in daemon.ask("/bricks")["bricks"]}
    assert {"forward": 2, "layers.*": 6, "layers.*.mlp": 6}.items() <= bricks.items()
    assert sum(each.stat().st_blocks * 512 for each in shm.iterdir()) < MIB
    one.go()
    assert (one.next_report(), one.end()) == (0, 0)
    assert one.stderr.endswith("set BRICKD_STATE_DIR (BRICKD_KEY_FILE)\n"), "the user of the container has no home"


def test_a_recording_made_in_a_container_can_be_fetched(daemon: Running, serve: Serve, tmp_path: Path) -> None:
    serve(f"{ROUNDS}\nrounds()").next_report()
    closed(daemon, STARTS)
    recorded = brickd("record", "--duration", "0.01", "-o", f"{tmp_path}/night.brick")
    assert recorded.returncode == 0, recorded.stderr
    shown = json.loads(brickd("status", f"{tmp_path}/night.brick", "--json").stdout)
    assert shown["ledger"]["spans"]["begun"] == STARTS


SIXTEEN = """
import threading
gate = os.pipe()
def work():
    for _ in range(10):
        for n in range(100):
            with brick.span(f"path {n}"): pass
    together.wait()
def child():
    os.close(gate[1])
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    report()
    os.read(gate[0], 1)
    sys.exit(0)
together = threading.Barrier(4)
children = []
for _ in range(16):
    pid = os.fork()
    if pid == 0: child()
    children.append(pid)
pause()
os.close(gate[1])
report([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def test_sixteen_workers_fit_into_the_64_mib_of_a_container(daemon: Running, serve: Serve, shm: Path) -> None:
    one = serve(SIXTEEN)
    assert sorted(str(one.next_report()) for _ in range(17)) == ["None"] * 16 + ["paused"]
    workers = daemon.once("/workers", lambda answer: len(answer["workers"]) == 16)["workers"]
    assert {each["state"] for each in workers} == {"live"}
    spans = daemon.ask("/status")["ledger"]["spans"]
    assert spans["begun"] == spans["summarized"] == 16 * 4 * 1000
    assert [each["lost"] for each in workers] == [0] * 16
    assert {each["lanes"]["used"] for each in workers} == {4}, (
        "only some of the 32 lanes, which together would take 2.5 GiB"
    )
    used = sum(each["memory_bytes"] for each in workers)
    assert used == sum(file.stat().st_blocks * 512 for file in shm.iterdir()) < 64 * MIB
    one.go()
    assert one.next_report() == [0] * 16
    assert one.end() == 0


def logged(daemon: Running, begun: int) -> dict[str, Any]:
    """Return the only worker.

    Before that, check that all its spans are counted, although some could not be recorded.
    """
    (entry,) = daemon.ask("/workers")["workers"]
    spans = entry["ledger"]["spans"]
    assert spans["begun"] == spans["summarized"]
    assert spans["begun"] + spans["no_lane"] == begun
    return dict(entry)


def test_a_full_memory_cgroup_kills_no_process_and_losses_are_reported(
    daemon: Running, serve: Serve, group: Path
) -> None:
    one = serve(f"brick.init()\n{FILLING}\nfill(4 << 20)\n{greedy(30)}", cgroup=os.fspath(group))
    one.paused()
    daemon.until("worker_found")
    assert logged(daemon, 30 * GREEDY_SPANS)["problem"] is not None
    assert kills(group) == 0
    one.go()
    assert one.end() == 5
    assert one.stderr == ""


def test_a_full_dev_shm_kills_no_process_and_losses_are_reported(daemon: Running, serve: Serve, shm: Path) -> None:
    one = serve("brick.init()\npause()\n" + greedy(30))
    one.paused()
    with (shm / "foreign").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 61 * MIB)
    one.go()
    one.paused()
    daemon.until("worker_found")
    assert logged(daemon, 30 * GREEDY_SPANS)["problem"] is not None
    one.go()
    assert one.end() == 5
    assert one.stderr == ""


# ---- `brickd doctor` if a step of a recipe was omitted


def examined(container: Container) -> dict[str, tuple[str, str, str | None]]:
    """Return the state, the value and the fix of each finding in a pod's container that runs brickd."""
    command = [*container.before, sys.executable, "-P", "-m", "brickd", "doctor", "--json"]
    environment = os.environ | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    return {each["name"]: (each["state"], each["seen"], each["fix"]) for each in json.loads(done.stdout)["findings"]}


def test_doctor_names_the_option_that_shares_a_containers_dev_shm(serve: Serve) -> None:
    serve(f"{ROUNDS}\nrounds()").next_report()
    state, seen, fix = examined(Container(SERVER))["shm-namespace"]
    assert (state, seen.startswith("no segment and no worker here, in kubernetes")) == ("advice", True)
    assert fix is not None
    assert "mountPath: /dev/shm" in fix


def test_doctor_names_the_owner_of_another_users_segments(serve: Serve, shm: Path) -> None:
    serve(f"{ROUNDS}\nrounds()").next_report()
    state, seen, _ = examined(Container(STRANGER, [], os.fspath(shm)))["segments-foreign"]
    assert state == "ok"
    assert f"#{SERVER} has 1; this user has none" in seen
    assert f"securityContext: {{runAsUser: {SERVER}}}" in seen


def test_doctor_finds_nothing_wrong_where_the_recipe_was_followed(daemon: Running, serve: Serve, shm: Path) -> None:
    serve(f"{ROUNDS}\nrounds()").next_report()
    closed(daemon, STARTS)
    shm.chmod(0o777)  # the mode that Kubernetes gives to a volume
    found = examined(Container(SERVER, [], os.fspath(shm)))
    assert [name for name, (state, _, _) in found.items() if state == "broken"] == []
    assert found["daemon"][:2] == ("ok", "a process of another pid namespace answers")
    assert found["pid-namespace"][:2] == ("ok", "api/0: in another pid namespace")
    assert found["shm-access"][0] == "ok"


def test_a_nearly_full_dev_shm_is_reported(serve: Serve, shm: Path) -> None:
    serve(f"{ROUNDS}\nrounds()").next_report()

    def room(free: int) -> tuple[str, str, str | None]:
        with (shm / "others").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize - free)
            return examined(Container(SERVER, [], os.fspath(shm)))["shm-room"]

    assert room(21 * MIB)[0] == "ok"
    assert room(18 * MIB)[0] == "advice"
    state, seen, fix = room(MIB // 4)
    assert (state, seen.split(",")[0]) == ("broken", "0.2 MiB of 64 MiB free")
    assert fix is not None
    assert "sizeLimit: 1Gi" in fix
