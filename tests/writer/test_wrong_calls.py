"""Wrong calls: each kind writes one line to stderr, is counted (brickd shows the count), and raises in strict mode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import brick_agent
import pytest
from conftest import reading
from faults import Start
from verbs import brickd, document, started

BEGIN = """
brick.init(service="first", worker=0)
p = brick.BrickProfiler.enabled()
p.enable_graph()
"""
# Each row has a call, the line that it writes after "brickd: ", and the kind of loss under which it is counted.
CALLS = {
    "brick.transfer('UP', 64)": ('a direction must be "H2D", "D2H" or "D2D", not \'UP\'', "marks"),
    "brick.brick('')": ("a name must have at least one character, not ''", "names"),
    "brick.init(service='second')": (
        "init must give the service with which this process already records (first), not 'second'",
        "amounts",
    ),
    "brick.init(service='fir')": (
        "init must give the service with which this process already records (first), not 'fir'",
        "amounts",
    ),
    "brick.init('first', worker='0.tp1')": (
        "init must give the worker with which this process already records (0), not '0.tp1'",
        "amounts",
    ),
    "brick.init(worker=4)": (
        "init must give the worker with which this process already records (0), not 4",
        "amounts",
    ),
    "brick.init(lanes=64)": (
        "init must give the lanes with which this process already records (32), not 64",
        "amounts",
    ),
    "brick.init('first', paths=1)": (
        "init must give the paths with which this process already records (8192), not 64",
        "amounts",
    ),
    "brick.init(names=8000)": (
        "init must give the names with which this process already records (4096), not 8000",
        "amounts",
    ),
    "brick.init(sites=64)": (
        "init must give the sites with which this process already records (2048), not 64",
        "amounts",
    ),
    "brick.brick('x').record(5, -1)": (
        "an amount must be an integer from 0 to 2^48, not -1",
        "amounts",
    ),
    "p.start_brick(True)": ("a BrickId must be one of 0 to 14, not True", "amounts"),
    "p.graph_push_scope(7)": ("a scope is a node such as ExecutionNode.Layer(0), not 7", "amounts"),
    "p.graph_pop_scope()": (
        "no scope is open here: a scope must be popped once, by the thread or task that pushed it",
        "amounts",
    ),
}


@pytest.mark.ci
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_writes_one_line_and_is_counted_by_brickd(worker: Start, call: str) -> None:
    line, kind = CALLS[call]
    process = started(worker, f"{BEGIN}for _ in range(3): {call}\npause()\n")
    (shown,) = document("workers")["workers"]
    assert shown["problem"].startswith("3 ")
    (problem,) = document("status")["problems"]
    assert problem["text"] == f"first/0: {shown['problem']}"
    assert f"loss-{kind}: first/0: {shown['problem']}" in brickd("doctor").stdout
    if kind == "amounts":
        assert "wrong arguments 3" in brickd("inspect", "first/0").stdout
    process.go()
    assert process.end() == 0
    assert process.stderr.splitlines()[0].removesuffix(" (BRICKD_STRICT=1 raises an exception)") == f"brickd: {line}"
    assert process.stderr.count("\n") == 1


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_raises_in_strict_mode(worker: Start, call: str) -> None:
    process = worker(f"{BEGIN}try: {call}\nexcept ValueError as error: report(str(error))\n", BRICKD_STRICT="1")
    line, _ = CALLS[call]
    assert process.next_report() == f"brick_agent: {line} (BRICKD_STRICT=1)"


def test_naming_the_same_service_again_is_accepted(worker: Start) -> None:
    process = worker("for name in ('a/b', 'a/b', 'a_b', '', None): brick.init(service=name)\nbrick.init()\n")
    assert (process.end(), process.stderr) == (0, "")


def test_naming_the_same_worker_again_is_accepted(worker: Start) -> None:
    process = worker("for name in ('3.a/b', '3.a_b', '', None): brick.init(worker=name)\nbrick.init()\n")
    assert (process.end(), process.stderr) == (0, "")


def test_giving_the_same_sizes_again_is_accepted(worker: Start) -> None:
    sizes = "lanes=8, paths=1000, names=5000, sites=100"
    process = worker(f"for _ in range(2): brick.init({sizes})\nbrick.init(lanes=0)\n")
    assert (process.end(), process.stderr) == (0, "")


@pytest.mark.parametrize(
    ("first", "present"),
    [("worker='7.tp1'", "7.tp1"), ("worker=12", "12"), ("worker='main'", "main"), ("", "no number")],
)
def test_a_second_init_is_told_the_present_worker(worker: Start, first: str, present: str) -> None:
    process = worker(f"brick.init({first})\nbrick.init(worker=3)\n")
    assert process.end() == 0
    assert f"with which this process already records ({present}), not 3 (" in process.stderr


@pytest.mark.parametrize("argument", ["service", "worker"])
def test_a_name_without_text_is_not_given(worker: Start, argument: str) -> None:
    program = f"for _ in range(2): report(brick.init({argument}='\\udcff'))\n"
    process = worker(program, BRICKD_SERVICE="api", BRICKD_WORKER="3")
    assert (process.next_report(), process.next_report(), process.end(), process.stderr) == (True, True, 0, "")


VALUES = {
    "'x' * 100": "a value of type str",
    "10 ** 5000": "a value of type int",
    "'\\n\\x1b[2J'": r"'\n\x1b[2J'",
    "None": "None",
    "1.5": "1.5",
    "Own()": "a value of type Own",
}


@pytest.mark.parametrize("value", VALUES)
def test_a_wrong_value_is_shown_on_one_line_without_code_of_the_host(worker: Start, value: str) -> None:
    program = f"class Own:\n    def __repr__(self): raise SystemExit('ran')\nbrick.transfer({value}, 64)\n"
    process = worker(program)
    assert process.end() == 0
    (line,) = process.stderr.splitlines()
    assert f", not {VALUES[value]} (" in line


@pytest.mark.parametrize(
    "call",
    [
        "brick.span('').__enter__()",
        pytest.param("brick.BrickProfiler.enabled().start_brick(True)", marks=pytest.mark.ci),
    ],
)
def test_a_wrong_first_call_leaves_the_service_the_name_of_the_program(prefix: str, tmp_path: Path, call: str) -> None:
    program = tmp_path / "server.py"
    program.write_text(f"import brick_agent as brick\n{call}\nprint(flush=True)\ninput()")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-P", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert reading(prefix).service == "server"
        process.communicate("\n")


@pytest.mark.ci
def test_each_public_name_is_listed_before_it_is_loaded() -> None:
    program = """
import sys, rlcompleter, brick_agent
before = set(sys.modules)
names = dir(brick_agent)
print(set(brick_agent.__all__) <= set(names) and names == sorted(names) and set(sys.modules) == before)
complete = rlcompleter.Completer({"brick_agent": brick_agent}).attr_matches
completions = {each.split("(")[0] for each in complete("brick_agent.")}
print({f"brick_agent.{name}" for name in brick_agent.__all__} <= completions)
"""
    result = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True", "True"]
    assert "BrickProfiler" in brick_agent.__all__
