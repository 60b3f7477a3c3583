"""`brickd canary`: definitions, and runs in workers whose engine is a few lines of Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from faults import Start
from running import running
from serving import Daemon
from verbs import brickd, document, started

from brickd.base.paths import runtime

# Runs the ordered canaries through `computed`, which stands for a model.
ENGINE = """
from brick_agent._torch.canary.orders import obey_orders
from brick_agent._torch.canary.result import CanaryResult, CanarySite
def run(name, tokens, forced, chunk):
    sites = (CanarySite("embed", None, str(tokens), str(forced)), CanarySite("mlp", 1, computed, str(chunk)))
    return CanaryResult(name, "done", None, "input", "model", context, sites, 3, 0.002, 0.001)
brick.init()
obey_orders(run, lambda: False)
pause()
"""


@pytest.fixture
def greeting(tmp_path: Path) -> str:
    path = tmp_path / "greeting.json"
    path.write_text(json.dumps({"tokens": [5, 6], "forced": [7]}))
    assert brickd("canary", "add", "greeting", str(path)).returncode == 0
    return str(path)


def engines(worker: Start, *computed: str, context: str = "c") -> None:
    for number, each in enumerate(computed):
        started(
            worker,
            f"computed, context = {each!r}, {context!r}\n{ENGINE}",
            BRICKD_SERVICE="api",
            BRICKD_WORKER=str(number),
        )


def test_definitions_are_added_listed_and_removed(greeting: str) -> None:
    assert brickd("canary", "ls").stdout == "greeting: 2 tokens, 1 forced token\n"
    assert document("canary", "ls")["canaries"] == [{"canary": "greeting", "tokens": 2, "forced": 1, "chunk": 1}]
    assert brickd("canary", "rm", "greeting").stdout == ""
    assert brickd("canary", "ls").stdout == "no canary is defined (brickd canary add NAME FILE)\n"
    gone = brickd("canary", "rm", "greeting")
    assert (gone.returncode, "no canary greeting" in gone.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "greeting"), "wrong words after canary add: greeting, expected NAME FILE"),
        (("rm",), "wrong words after canary rm: none, expected NAME"),
        (("ls", "greeting"), "wrong words after canary ls: greeting, expected none"),
        (("ls", "--canary", "greeting"), "--canary contradicts ls"),
        (("add", "greeting", "/missing"), "/missing: No such file"),
        (("add", "a b", "/dev/null"), "expected a name of"),
        (("add", "greeting", "/dev/null"), "canary greeting: "),
    ],
)
def test_wrong_words_are_refused(arguments: tuple[str, ...], reason: str) -> None:
    result = brickd("canary", *arguments)
    assert (result.returncode, reason in result.stderr) == (2, True), result.stderr


def test_a_broken_file_is_reported_and_the_others_are_listed(greeting: str) -> None:
    (runtime().canaries / "other.json").write_text("{}")
    listed = brickd("canary", "ls")
    assert listed.stdout == "greeting: 2 tokens, 1 forced token\n"
    assert "other.json" in listed.stderr


def test_a_run_needs_a_daemon(greeting: str) -> None:
    assert brickd("canary", "run").returncode == 3


def test_workers_that_compute_the_same_are_equal_and_one_that_does_not_is_named(worker: Start, greeting: str) -> None:
    engines(worker, "a", "a", "x")
    with running():
        assert brickd("canary", "run", "api/0", "api/1").stdout == (
            "equal: each worker computed the same as the others of its service\n"
            "api/0: greeting: equal at 2 sites (3 slices, 2 ms in all, the longest 1.0 ms)\n"
            "api/1: greeting: equal at 2 sites (3 slices, 2 ms in all, the longest 1.0 ms)\n"
        )
        found = document("canary", "run", "api", code=1)
        assert (found["schema_version"], found["verdict"], found["over"], found["ignored"]) == (1, "differ", True, 0)
        assert [(each["worker"], each["verdict"]) for each in found["results"]] == [
            *(("api/0", "equal"), ("api/1", "equal"), ("api/2", "differs"))
        ]
        assert found["results"][2]["first"] == {"kernel": "mlp", "layer": 1, "part": "prompt"}
        lines = brickd("canary", "run", "api").stdout.splitlines()
        assert lines[0] == "differ: a worker computed something else"
        assert lines[3] == "api/2: greeting: differs first at mlp (layer 1), in the prompt"
        assert [each["worker"] for each in document("canary", "run", "api/2", code=6)["results"]] == ["api/2"]
        unknown = brickd("canary", "run", "--canary", "greetin")
        assert (unknown.returncode, "no canary greetin" in unknown.stderr) == (2, True)
        assert brickd("canary", "run", "nobody").returncode == 4


def test_a_lone_worker_is_unproven_and_never_equal(worker: Start, greeting: str) -> None:
    engines(worker, "a")
    with running():
        result = brickd("canary", "run")
    assert (result.returncode, result.stdout.splitlines()) == (
        6,
        [
            "unproven: not each worker could be compared",
            "api/0: greeting: not compared: no other worker has a result",
        ],
    )


def test_a_worker_that_takes_no_orders_is_named(worker: Start, greeting: str) -> None:
    engines(worker, "a", "a")
    started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="9")
    with running():
        result = brickd("canary", "run")
    assert result.returncode == 6
    silent = "silent: it does not answer: call brick.canaries(model, orders=True) in the program"
    assert result.stdout.splitlines()[3] == f"api/9: greeting: not compared: {silent}"


def test_without_a_definition_a_run_is_refused(worker: Start) -> None:
    engines(worker, "a")
    with running():
        result = brickd("canary", "run")
    assert (result.returncode, "no canary is defined" in result.stderr) == (2, True)


def test_a_definition_that_changed_after_the_order_is_refused(worker: Start, greeting: str) -> None:
    engines(worker, "a", "a")
    with running() as daemon:
        number = daemon.ask("/canary/run", b"")["round"]
        brickd("canary", "rm", "greeting")
        found = daemon.once(f"/canary?round={number}", lambda seen: seen["over"])
    assert {each["end"] for each in found["results"]} <= {"done", "refused"}
    assert "definition: no file of this user in" in found["results"][-1]["why"]


def test_the_api_shows_a_round_and_refuses_an_unknown_one(daemon: Daemon) -> None:
    unproven = brickd("canary", "run")
    assert (unproven.returncode, unproven.stdout) == (6, "unproven: not each worker could be compared\n")
