"""An earlier brickd with the current brick-agent, and the reverse: upgrading either one loses no count, and no verb
crashes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from earlier import MINOR, Earlier, built
from running import running, until
from verbs import brickd, document

from brickd.base.paths import runtime
from brickd.shm import _reader

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800), pytest.mark.usefixtures("prefix")]

VERBS = (
    "status",
    "status --check",
    "workers",
    "bricks",
    "tree --layers",
    "hang",
    "stragglers",
    "weights api",
    "diff api",
    "coverage",
    "events",
    "source",
    "set api",
    "silence",
    "inspect api/0",
    "notify test",
    "doctor",
)
STEPS = 200  # the event ring has room for the checksums of three times this number of steps
SPANS = 2 * STEPS
RECORDS = """
import sys
import brick_agent as brick
brick.init(service="api", worker=int(sys.argv[1]))
gemm = brick.brick("gemm", "ffn")
print("begun", flush=True)
for line in sys.stdin:
    for n in range(int(line)):
        with brick.step(n), gemm:
            pass
        brick.checksum("gemm", bytearray(64), layer=0, input=bytearray(64))
    print(line, end="", flush=True)
"""


@pytest.fixture(scope="module")
def earlier() -> Earlier:
    return built()


class Recording:
    """A live worker that records on demand, with the earlier or the current agent."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said("begun")

    def said(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{line}\n"

    def spans(self, steps: int) -> None:
        """Record this number of steps, with two spans each."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.said(str(steps))

    def end(self) -> None:
        """End cleanly."""
        assert self.process.communicate()[1] == ""
        assert self.process.returncode == 0


@pytest.fixture
def worker(earlier: Earlier) -> Iterator[Callable[[int, bool], Recording]]:
    """Starts a worker with this index, with the earlier or the current agent."""
    begun: list[subprocess.Popen[str]] = []

    def start(number: int, ours: bool) -> Recording:
        pipe = subprocess.PIPE
        command = ["-c", RECORDS, str(number)]
        process = (
            subprocess.Popen([sys.executable, "-P", *command], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
            if ours
            else earlier.start(*command)
        )
        begun.append(process)
        return Recording(process)

    yield start
    for process in begun:
        with process:
            process.kill()


Start = Callable[[int, bool], Recording]


@contextmanager
def earlier_daemon(earlier: Earlier) -> Iterator[None]:
    """Run a daemon of the earlier brickd, and end it as an upgrade would."""
    assert earlier.brickd("up", "-d").returncode == 0
    try:
        yield
    finally:
        assert earlier.brickd("down").returncode == 0


def summarized(answer: dict[str, Any]) -> int:
    count: int = answer["ledger"]["spans"]["summarized"]
    return count


def counts(spans: int) -> Callable[[Any], bool]:
    """Check that an answer has this number of spans."""
    return lambda answer: summarized(answer) == spans


# ---- a CLI and a daemon


def test_each_verb_works_with_an_earlier_daemon_or_asks_for_a_restart(earlier: Earlier, worker: Start) -> None:
    worker(0, True).spans(10)
    with earlier_daemon(earlier):
        until(lambda: document("bricks")["source"] == "daemon")
        answered = {verb: brickd(*verb.split()) for verb in VERBS}
        status = json.loads(brickd("status", "--json").stdout)
    for verb, ended in answered.items():
        assert "Traceback" not in ended.stderr, verb
        assert ended.returncode in (0, 1, 6) or "(restart the daemon with this version: " in ended.stderr, ended
    worked = {verb for verb, ended in answered.items() if ended.returncode == 0}
    assert {"bricks", "tree --layers", "events", "source", "inspect api/0", "set api"} <= worked
    assert "its answer has no key 'silenced'" in answered["status"].stderr
    assert (status["source"], summarized(status)) == ("daemon", 20)


def test_each_verb_of_an_earlier_cli_works_with_our_daemon(earlier: Earlier, worker: Start) -> None:
    worker(0, True).spans(10)
    with running() as daemon:
        daemon.until("worker_found")
        answered = {verb: earlier.brickd(*verb.split()) for verb in VERBS if verb not in ("silence", "notify test")}
        status = json.loads(earlier.brickd("status", "--json").stdout)
    assert {verb: ended.stderr for verb, ended in answered.items() if "Traceback" in ended.stderr} == {}
    assert {verb for verb, ended in answered.items() if ended.returncode not in (0, 1, 6)} == set()
    assert (status["source"], summarized(status)) == ("daemon", 20)


# ---- a worker and a daemon


@pytest.mark.parametrize("ours", [False, True], ids=["an earlier agent", "our agent"])
def test_a_live_worker_loses_nothing_while_its_daemon_is_upgraded(earlier: Earlier, worker: Start, ours: bool) -> None:
    live = worker(0, ours)
    live.spans(STEPS)
    with earlier_daemon(earlier):
        until(lambda: summarized(json.loads(earlier.brickd("status", "--json").stdout)) == SPANS)
        live.spans(STEPS)
    live.spans(STEPS)
    with running() as daemon:
        daemon.once("/status", counts(3 * SPANS))
        live.spans(STEPS)
        (entry,) = daemon.once("/workers", lambda answer: summarized(answer["workers"][0]) == 4 * SPANS)["workers"]
        assert (entry["state"], entry["problem"]) == ("live", None)
        assert document("inspect", "api/0")["header"]["minor"] == (int(_reader.FORMAT.split(".")[1]) if ours else MINOR)
        live.end()
        daemon.until("worker_ended")
        status = daemon.once("/status", counts(4 * SPANS))
    assert (status["ledger"]["spans"]["rejected"], status["ledger"]["spans"]["removed"]) == (0, 0)


@pytest.mark.parametrize("ours", [False, True], ids=["an earlier agent", "our agent"])
def test_workers_before_and_after_an_upgrade_are_counted(worker: Start, ours: bool) -> None:
    since = 0
    with running() as daemon:
        for number, kind in enumerate((ours, not ours)):
            live = worker(number, kind)
            live.spans(STEPS)
            # a worker that no daemon drains would remove its segment at its end
            since = daemon.until("worker_found", since)["number"]
            live.end()
        ended = daemon.once("/workers", lambda answer: [each["state"] for each in answer["workers"]] == ["ended"] * 2)
    assert [(summarized(each), each["ledger"]["events"]["dropped"]) for each in ended["workers"]] == [(SPANS, {})] * 2


@pytest.mark.parametrize("kind", ["an earlier daemon", "our daemon"])
def test_our_agent_and_an_earlier_one_record_side_by_side(earlier: Earlier, worker: Start, kind: str) -> None:
    workers = [worker(number, bool(number)) for number in range(2)]
    ours = kind == "our daemon"
    with running() if ours else earlier_daemon(earlier):
        for live in workers:
            live.spans(100)
        ask = brickd if ours else earlier.brickd
        until(lambda: json.loads(ask("status", "--json").stdout)["source"] == "daemon")
        answer = until(lambda: [found for found in [json.loads(ask("workers", "--json").stdout)]
                                if [summarized(each) for each in found["workers"]] == [200, 200]])[0]  # fmt: skip
        assert [each["state"] for each in answer["workers"]] == ["live", "live"]


# ---- files


def test_an_earlier_daemon_uses_our_checkpoint_or_leaves_it_unchanged(earlier: Earlier, worker: Start) -> None:
    live = worker(0, True)
    live.spans(10)
    with running() as daemon:
        daemon.until("worker_found")
        live.end()
        daemon.until("worker_ended")
    before = runtime().checkpoint.read_bytes()
    started = earlier.brickd("up", "-d")
    if started.returncode == 0:
        assert summarized(json.loads(earlier.brickd("status", "--json").stdout)) == 20
        assert earlier.brickd("down").returncode == 0
    else:
        assert "start the brickd that wrote it" in started.stderr
        assert runtime().checkpoint.read_bytes() == before


@pytest.mark.parametrize("ours", [False, True], ids=["an earlier recording", "our recording"])
def test_each_version_reads_or_refuses_a_recording_of_the_other(
    earlier: Earlier, worker: Start, tmp_path: Path, ours: bool
) -> None:
    worker(0, True).spans(10)
    file = str(tmp_path / "recording")
    writes, reads = (brickd, earlier.brickd) if ours else (earlier.brickd, brickd)
    written = writes("record", "--duration", "0.2", "-o", file)
    assert written.returncode == 0, written.stderr
    (recording,) = tmp_path.iterdir()
    read = reads("status", "--json", str(recording))
    assert "Traceback" not in read.stderr
    if read.returncode == 0:
        assert summarized(json.loads(read.stdout)) == 20
    else:
        assert "use the brickd that wrote it" in read.stderr
