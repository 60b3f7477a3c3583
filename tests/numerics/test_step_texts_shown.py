"""Where the text of a step is shown: live, with a daemon, in recordings, in Python; and that a terminal is safe."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from faults import Start
from running import running
from test_record import recording
from verbs import brickd, document

import brickd as brickd_package
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.query.queries import step_number
from brickd.shm.sites import WorkerNames

HOSTILE = "req-\x1b[31m"
ENGINE = """
from array import array
brick.init()
pause()
for step in ("req-1", 17, "req-\\x1b[31m"):
    with brick.step(step, kind="decode"):
        brick.checksum("mlp", array("f", [bad * (step != 17)]), input=array("f", [len(str(step))]))
pause()
"""
STEPS = {step_number("req-1"): "req-1", 17: None, step_number(HOSTILE): HOSTILE}


def engines(worker: Start) -> list[Any]:
    processes = [worker(f"bad = {n}\n{ENGINE}", BRICKD_WORKER=str(n), BRICKD_SERVICE="api") for n in range(2)]
    for process in processes:
        process.paused()
    return processes


def finished(processes: list[Any]) -> None:
    for process in processes:
        process.go()
        process.paused()


def shown(entries: Any) -> dict[int, str | None]:
    return {int(each["step"], 16): each["step_text"] for each in entries if each["step"] is not None}


def test_the_rings_of_live_workers_have_the_texts(worker: Start) -> None:
    finished(engines(worker))
    first = document("diff", "api", code=1)["first"]
    assert [first[side]["step_text"] for side in "ab"] == [first["step_text"]] * 2 == ["req-1"] * 2
    assert ", step req-1, position 0" in brickd("diff", "api").stdout
    (lane,) = document("inspect", "api/1")["lanes"]
    assert shown(lane["events"]) == STEPS
    assert [each["step_text"] for each in lane["events"] if each["kind"] == "step_text"] == ["req-1", HOSTILE]
    screen = brickd("inspect", "api/1").stdout
    assert "req-1" in screen
    assert ("req-\\x1b[31m" in screen, "\x1b[31m" in screen) == (True, False)


def test_a_service_without_workers_has_no_texts() -> None:
    numerics = Numerics()
    numerics.producer("u", "api", lambda: WorkerNames((), ()), "").name_steps([b"req-1"])
    assert numerics.step_texts.document() == {"api": ["req-1"]}
    numerics.forget(["u"])
    assert numerics.step_texts.document() == {}


@pytest.mark.ci
def test_a_daemon_keeps_the_texts(worker: Start) -> None:
    with running() as daemon:
        processes = engines(worker)
        finished(processes)
        daemon.until("diverged")
        (finding,) = document("coverage", "api")["findings"]
        first = document("diff", "api", code=1)["first"]
        fingerprints = brickd_package.live().fingerprints().document["fingerprints"]
    assert {finding["first"][side]["step_text"] for side in ("against", "other")} <= {"req-1", HOSTILE}
    assert first["step_text"] == "req-1"
    assert shown(fingerprints) == STEPS


@pytest.mark.parametrize("redacted", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_a_recording_has_the_texts_unless_it_is_redacted(worker: Start, tmp_path: Path, redacted: bool) -> None:
    file = str(tmp_path / "run.brick")
    processes = engines(worker)
    with recording("-o", file, "--spans", *["--redact"][:redacted]) as recorder:
        finished(processes)
        recorder.send_signal(signal.SIGINT)
        recorder.communicate()
        assert recorder.returncode == 0
    first = document("diff", file, "api", code=1)["first"]
    spans = document("spans", file)["spans"]
    steps = json.loads(json.dumps(brickd_package.open(file).steps().document["steps"]))
    events = [event for lane in document("inspect", file, "api/1")["lanes"] for event in lane["events"]]
    if redacted:
        assert {each["step_text"] for each in (first, *spans, *steps, *events)} == {None}
        assert b"req-" not in Path(file).read_bytes()
    else:
        assert first["step_text"] == "req-1"
        assert shown(spans) == shown(steps) == shown(events) == STEPS
        assert "req-\\x1b[31m" in brickd("spans", file).stdout
    assert document("diff", file, "api", code=1)["coverage"]["lost"] == 0
