"""scripts/nightly: each step runs once per seed, even after interruptions."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT

pytestmark = pytest.mark.ci  # these tests check a script, not brickd

SCRIPT = ROOT / "scripts" / "nightly"


@pytest.fixture
def nightly() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("nightly", str(SCRIPT))
    spec = importlib.util.spec_from_loader("nightly", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def statuses(results: list[dict[str, Any]]) -> dict[str, int]:
    return {each["step"]: each["exit_status"] for each in results}


def test_a_failed_step_is_kept_and_the_others_run(nightly: ModuleType, tmp_path: Path) -> None:
    steps = {"one": shell("echo said; echo told >&2"), "two": shell("exit 3"), "three": shell("true")}
    results = nightly.night(steps, tmp_path, 7, [])
    assert statuses(results) == {"one": 0, "two": 3, "three": 0}
    assert (tmp_path / "one.log").read_text() == "said\ntold\n"
    assert nightly.kept(tmp_path) == {each["step"]: each for each in results}


def test_a_finished_step_runs_again_only_if_named(nightly: ModuleType, tmp_path: Path) -> None:
    steps = {name: shell(f"echo {name} >> {tmp_path}/ran; test -e {tmp_path}/well") for name in ("one", "two")}
    nightly.night(steps, tmp_path, 7, ["one"])
    assert statuses(nightly.night(steps, tmp_path, 7, [])) == {"one": 1, "two": 1}
    assert (tmp_path / "ran").read_text().split() == ["one", "two"]
    (tmp_path / "well").touch()
    assert statuses(nightly.night(steps, tmp_path, 7, ["two"])) == {"two": 0}
    assert statuses(nightly.night(steps, tmp_path, 7, [])) == {"one": 1, "two": 0}, "the last status of a step counts"
    assert (tmp_path / "ran").read_text().split() == ["one", "two", "two"]


INTERRUPTED = """
import importlib.machinery, sys
from pathlib import Path

script, folder = sys.argv[1:]
nightly = importlib.machinery.SourceFileLoader("nightly", script).load_module()
waits = ["sh", "-c", f"echo > {folder}/begun; exec cat {folder}/never"]
nightly.night({"one": ["true"], "two": waits}, Path(folder), 7, [])
"""


def test_an_interrupted_step_runs_again(nightly: ModuleType, tmp_path: Path) -> None:
    for name in ("begun", "never"):
        os.mkfifo(tmp_path / name)
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTED, str(SCRIPT), str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        assert (tmp_path / "begun").read_text() == "\n"
        os.killpg(run.pid, signal.SIGINT)  # SIGINT is the signal of Ctrl-C
    assert run.returncode == -signal.SIGINT
    assert nightly.kept(tmp_path).keys() == {"one"}


def test_tests_get_the_seed(nightly: ModuleType, tmp_path: Path) -> None:
    nightly.night({"one": shell("echo $TESTS_SEED")}, tmp_path, 4711, [])
    assert (tmp_path / "one.log").read_text() == "4711\n"


def test_the_steps_are_scripts_of_this_repository(nightly: ModuleType) -> None:
    assert all(os.access(ROOT / "scripts" / name, os.X_OK) for name, *_ in nightly.STEPS.values())


def test_a_known_failure_of_a_seed_is_reported_and_fails_the_run(tmp_path: Path, nightly: ModuleType) -> None:
    (tmp_path / "7").mkdir()
    ended = [{"step": step, "exit_status": 0, "seconds": 1.0} for step in nightly.STEPS]

    def reported() -> tuple[int, Any]:
        (tmp_path / "7" / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in ended))
        command = [sys.executable, str(SCRIPT), "--seed", "7", "--keep", str(tmp_path), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    assert reported() == (0, {"schema_version": 1, "seed": 7, "steps": ended})
    ended[1]["exit_status"] = 1
    assert reported()[0] == 1


def test_an_unknown_step_is_refused() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "lunch"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'lunch' is not a step; the steps are: examples, slow" in done.stderr
