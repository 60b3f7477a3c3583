"""The launches, transfers and needs of real workers in `brickd tree`."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import Worker
from faults import Start
from made_up_workers import HOSTILE
from running import running
from verbs import brickd, document, sheet, started

BOOK = """
with brick.layer(0), brick.span("RmsNorm", category="norm", elements=4096):
    brick.kernel("rmsnorm_kernel", grid=16, block=256, shared_mem=1024)
pause()
"""
# Names with characters that DOT or a terminal could interpret.
NAMES = [
    HOSTILE,
    'a"]; evil [label="b',
    "new\nline\\",
    "\\N \\G \\L \\l \\r \\n",
    "&lt; &#65; <b>bold</b>",
    "}\x00\x07 \u202e \u2028",
    "模型 é",
    "--> x -- y",
]
ALL = f"""
for name in {NAMES!r}:
    for _ in range(2):
        with brick.span(name, category=name):
            brick.kernel(name, 4, 32)
            brick.transfer("H2D", 8, src=name, dst=name)
            brick.needs(name)
    file = name.replace("\\0", "")
    exec(compile("@brick.trace(name)\\ndef function(): pass\\nfunction()", file, "exec"))
pause()
"""


def right(screen: str) -> list[str]:
    """Return the tree without the figures to its left and the lines below it."""
    lines = screen.splitlines()
    begins = lines[0].index("BRICK")
    return [line[begins:] for line in lines[1:] if line[begins - 2 : begins] == "  "]


def test_the_documented_calls_make_the_documented_tree(worker: Start) -> None:
    started(worker, BOOK)
    assert right(brickd("tree", "--layers").stdout) == [
        "Layer 0",
        "`-- RmsNorm  (4,096 elem)",
        "    `-- rmsnorm_kernel  <<<16,256,1>>> smem=1024B",
    ]
    answer = document("tree", "--layers")
    assert [(node["kind"], node["parent"], node["layer"]) for node in answer["nodes"]] == [
        ("layer", None, 0),
        ("brick", 0, 0),
        ("kernel", 1, 0),
    ]
    assert answer["nodes"][2]["kernel"] == {
        "launches": 1,
        "timed": 0,
        "shapes": [
            {
                "text": "<<<16,256,1>>> smem=1024B",
                "launches": 1,
                "grid": [16, 1, 1],
                "block": [256, 1, 1],
                "shared_bytes": 1024,
                "source_hash": None,
            }
        ],
        "hidden_shapes": 0,
        "hidden_launches": 0,
        "launches_without_shape": 0,
    }


# The calls that the documentation of the old tool shows, for an open scope and for an ended scope.
SEEDS = {
    "a brick and its kernel behind it": "graph_record_brick(brick.BrickId.RmsNorm, 50_000, 4096)",
    "a scope that is timed": "graph_push_scope(brick.ExecutionNode.Brick(brick.BrickId.RmsNorm, elements=4096))",
    "a scope that was timed": "graph_push_scope(brick.ExecutionNode.Brick(0, timing_ns=50_000, elements=4096))",
}


@pytest.mark.parametrize("way", SEEDS)
def test_the_seeds_own_calls_make_the_documented_tree(worker: Start, way: str) -> None:
    program = f"""
    profiler = brick.BrickProfiler()
    profiler.enable_graph()
    profiler.graph_push_scope(brick.ExecutionNode.Layer(0))
    profiler.{SEEDS[way]}
    profiler.graph_record_kernel("rmsnorm_kernel", 0xCAFE, (16, 1, 1), (256, 1, 1), 1024)
    while profiler.graph_pop_scope(): pass
    pause()
    """
    started(worker, program)
    assert right(brickd("tree", "--layers").stdout) == [
        "Layer 0",
        "`-- RmsNorm  (4,096 elem)",
        "    `-- rmsnorm_kernel  <<<16,256,1>>> smem=1024B @000000000000cafe",
    ]


@pytest.mark.ci
def test_kernels_are_merged_over_workers_layers_and_shapes(worker: Start) -> None:
    program = """
    for n in range(10):
        for layer in range(2):
            with brick.layer(layer), brick.span("mlp"):
                brick.kernel("gemm", (16, 4), (32, 8), flops=2e6, bytes=4000, elapsed_ns=1000)
                if n == 0: brick.kernel("gemm", 8, 32)
    pause()
    """
    for _ in range(2):
        started(worker, program, BRICKD_SERVICE="api")
    (node,) = [node for node in document("tree")["nodes"] if node["kind"] == "kernel"]
    assert (node["kernel"]["launches"], node["kernel"]["timed"], node["layers"], node["given"]) == (44, 40, 2, True)
    assert [(each["text"], each["launches"]) for each in node["kernel"]["shapes"]] == [
        ("<<<16x4,32,8>>> smem=0B", 40),
        ("<<<8,32,1>>> smem=0B", 4),
    ]
    assert (node["total_ns"], node["flops_per_second"], node["flops_per_byte"]) == (40_000, 2e12, 500.0)
    screen = brickd("tree").stdout
    assert (
        "gemm  <<<16x4,32,8>>> smem=0B 40×, <<<8,32,1>>> smem=0B 4×  2.0TFLOP/s  500 FLOP/byte  (40 of 44 timed)"
        in screen
    )
    assert screen.splitlines()[-1] == "slowest kernel: gemm in mlp, 40.0 µs in 40 of 44 launches"


def test_transfers_are_shown_below_the_span_that_made_them(worker: Start) -> None:
    program = """
    with brick.span("decode"):
        brick.transfer("H2D", 4096, src="tokens", dst="gpu0", elapsed_ns=500)
        brick.transfer("D2H", 4096, src="gpu0", dst="tokens")
        brick.transfer("D2D", 16, src="gpu0", dst="gpu0")
        brick.transfer("H2D", 0, src="tokens", dst="gpu0")
    pause()
    """
    started(worker, program)
    nodes = document("tree")["nodes"]
    assert [(node["name"], node["total_ns"], node["bytes"]) for node in nodes[1:]] == [
        ("tokens→gpu0", 500, 4096),
        ("gpu0→gpu0", None, 16),
        ("gpu0→tokens", None, 4096),
    ]
    assert nodes[1]["transfer"] == {
        "direction": "H2D",
        "from": "tokens",
        "to": "gpu0",
        "transfers": 2,
        "timed": 1,
        "moved_bytes": 4096,
        "returned": 0,
        "returned_bytes": 0,
    }
    lines = brickd("tree").stdout.splitlines()
    assert lines[-1] == "tokens→gpu0→tokens in decode: 4.0K, 1 of 1 returned"
    assert any(line.endswith("`-- D2H gpu0→tokens  4.0K, 1 of 1 returned") for line in lines)


def test_unbalanced_scopes_lose_no_launch(worker: Start) -> None:
    program = """
    a, b = brick.brick("a"), brick.brick("b")
    brick.kernel("alone", 1, 1)
    one = a.start()
    b.start()
    brick.kernel("k", 1, 1)
    a.stop(one)                # b is abandoned
    a.stop(one)
    b.stop()
    brick.kernel("k", 1, 1)
    a.start()
    brick.kernel("k", 1, 1)
    pause()
    """
    started(worker, program)
    nodes = document("tree")["nodes"]
    assert sum(node["kernel"]["launches"] for node in nodes if node["kernel"]) == 4


@pytest.mark.ci
def test_a_recording_has_the_same_graph(worker: Start, tmp_path: Path) -> None:
    process = started(worker, ALL, BRICKD_CLOCK="monotonic")
    live = document("tree")
    recorded = brickd("record", "--duration", "0.05", "-o", str(tmp_path / "run.brick"))
    assert recorded.returncode == 0, recorded.stderr
    answer = document("tree", str(tmp_path / "run.brick"))
    assert answer["nodes"] == live["nodes"]
    process.go()


def late(worker: Start) -> Worker:
    launches = "with brick.span('norm'):\n    brick.kernel('k', {0}, 32)\n    brick.needs('x')"
    return started(
        worker, "\n".join([launches.format(1), launches.format(1), "pause()", launches.format(2), "pause()"])
    )


@pytest.mark.ci
def test_a_window_counts_the_launches_in_it(worker: Start) -> None:
    process = late(worker)
    with running() as daemon:
        daemon.until("worker_found")
        process.go()
        process.paused()
        for over, launches, shapes in (("start", 3, [1, 2]), ("60s", 1, [2])):
            (node,) = [node for node in document("tree", "--over", over)["nodes"] if node["kernel"]]
            assert node["kernel"]["launches"] == launches
            assert sorted(each["grid"][0] for each in node["kernel"]["shapes"]) == shapes


# ---- DOT


def labels(dot: str) -> Iterator[str]:
    """Return the label of each node as Graphviz reads it, with line breaks."""
    for quoted in re.findall(r'^  \w+ \[label="((?:[^"\\]|\\.)*)", ', dot, re.MULTILINE):
        plain = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), quoted)
        assert set(re.findall(r"\\(.)", quoted)) <= {"n", '"', "\\"}, "labels contain only escapes that Graphviz knows"
        yield html.unescape(plain)


def statements(dot: str) -> set[str]:
    """Return the different statements of a graph, without strings and numbers."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "S", dot)
    return {re.sub(r"(n|left)\d+", "n", line).strip() for line in bare.splitlines()}


@pytest.mark.ci
def test_a_hostile_name_is_text_in_the_picture(worker: Start) -> None:
    started(worker, ALL)
    reported = brickd("tree", "--dot")
    assert (reported.returncode, reported.stderr) == (0, "")
    assert all(line.isprintable() for line in reported.stdout.splitlines())
    assert statements(reported.stdout) <= {
        "digraph brickd {",
        "graph [rankdir=S, ranksep=0.4, nodesep=0.15];",
        "node [fontname=S, fontsize=11, style=S];",
        "edge [fontname=S, fontsize=9];",
        "n [label=S, shape=S, fillcolor=S];",
        "n [label=S, shape=S, fillcolor=S, penwidth=3, color=S];",
        "n -> n [label=S, style=S, color=S];",
        "n -> n [label=S, style=S, color=S, constraint=false];",
        "}",
    }
    first = {label.split("\n")[0] for label in labels(reported.stdout)}
    assert {"new\\nline\\", "\\N \\G \\L \\l \\r \\n", "&lt; &#65; <b>bold</b>", "模型 é"} <= first
    nodes = document("tree")["nodes"]
    assert len(list(labels(reported.stdout))) == len(nodes) == 3 * len(NAMES)


@pytest.mark.skipif(shutil.which("dot") is None, reason="no Graphviz here")
def test_graphviz_draws_each_name_unchanged(worker: Start) -> None:
    started(worker, ALL)
    drawn = subprocess.run(
        ["dot", "-Tsvg"], input=brickd("tree", "--dot").stdout, capture_output=True, text=True, check=True
    )
    assert drawn.stderr == ""
    texts = {each.text for each in ElementTree.fromstring(drawn.stdout).iter("{http://www.w3.org/2000/svg}text")}
    assert {"new\\nline\\", "\\N \\G \\L \\l \\r \\n", "&lt; &#65; <b>bold</b>", "模型 é"} <= texts


FUNCTIONS = """
@brick.trace("function")
def function(): pass

@brick.trace("task", waits=False)
async def task(): await asyncio.sleep(0)
"""


@pytest.mark.ci
def test_each_kind_of_node_and_edge_looks_different(worker: Start) -> None:
    program = f"""
import asyncio
with brick.layer(1), brick.span("brick"):
    brick.kernel("k"); brick.transfer("H2D", 1); brick.needs("function")
exec(compile({FUNCTIONS!r}, "app.py", "exec"))
function()
asyncio.run(task())
pause()
"""
    started(worker, program)
    nodes = document("tree", "--layers")["nodes"]
    reported = brickd("tree", "--dot", "--layers").stdout
    looks = {
        node["kind"]: re.search(rf"^  n{node['id']} \[.*(shape=.*?, fillcolor=\S*?)[\],]", reported, re.M)
        for node in nodes
    }
    assert set(looks) == {"layer", "brick", "kernel", "transfer", "function", "task"}
    assert len({found[1] for found in looks.values() if found}) == len(looks)
    assert sorted(re.findall(r'-> n\d+ \[label="(\w+)"', reported)) == ["launches", "moves", "needs"]
    screen = brickd("tree").stdout
    assert "function (app.py:2)\n" in screen
    assert "task (app.py:5)  2 polls, 1 yield\n" in screen


def test_a_picture_is_limited_like_its_tree(worker: Start) -> None:
    started(worker, 'with brick.span("a"), brick.span("b"):\n    brick.kernel("k")\npause()')
    reported = brickd("tree", "--dot", "--depth", "1").stdout
    assert [label.split("\n")[0] for label in labels(reported)] == ["a", "…2 more"]


def test_contradicting_formats_are_refused() -> None:
    for other in (["--json"], ["-o", "csv"], ["--critical"]):
        refused = brickd("tree", "--dot", *other)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--dot contradicts" in refused.stderr


def test_without_workers_there_is_no_critical_path_and_an_empty_picture(prefix: str) -> None:
    assert brickd("tree", "--critical").stdout == brickd("tree").stdout
    assert list(labels(brickd("tree", "--dot").stdout)) == []


# ---- the critical path


def test_a_parent_and_its_children_count_once_and_dependencies_order_them(worker: Start) -> None:
    program = """
    with brick.span("forward"):
        for name, needed in (("norm", None), ("attention", "norm"), ("mlp", "attention")):
            with brick.span(name):
                if needed: brick.needs(needed)
    pause()
    """
    started(worker, program)
    answer = document("tree")
    path = answer["critical_path"]
    assert path["length_ns"] == pytest.approx(answer["recorded_ns"], abs=4)
    names = [step["name"] for step in path["steps"]]
    assert names.index("norm") < names.index("attention") < names.index("mlp")
    assert sum(step["own_ns"] for step in path["steps"]) == pytest.approx(path["length_ns"], abs=4)
    assert brickd("tree", "--critical").stdout.startswith("critical path: ")
    assert "slack_ns" in sheet("tree", "--critical")[0]


def test_cyclic_dependencies_are_named(worker: Start) -> None:
    program = """
    for name, needed in (("a", "b"), ("b", "a"), ("c", "c")):
        with brick.span(name): brick.needs(needed)
    pause()
    """
    started(worker, program)
    found: list[list[dict[str, Any]]] = document("tree")["critical_path"]["cycles"]
    assert sorted(sorted(each["name"] for each in circle) for circle in found) == [["a", "b"], ["c"]]


@pytest.mark.ci
def test_more_kinds_of_launches_than_the_limit_are_merged(worker: Start) -> None:
    program = """
    with brick.span("norm"):
        for n in range(1, 5001):
            brick.kernel("one", grid=n, block=32)
            brick.kernel(f"kernel {n}", grid=1, block=32)
    pause()
    """
    for _ in range(2):
        started(worker, program, BRICKD_SERVICE="api", BRICKD_PATHS="4096")
    answer = document("tree")
    one = next(node for node in answer["nodes"] if node["name"] == "one")["kernel"]
    assert one["launches"] == 10_000
    assert len(one["shapes"]) == 64
    assert one["hidden_shapes"] > 0
    assert len(answer["nodes"]) < 1024
    reported = sum(each["launches"] for each in one["shapes"])
    assert reported + one["hidden_launches"] + one["launches_without_shape"] == one["launches"]
    ledgers = [document("inspect", name)["ledger"]["marks"] for name in ("api/0", "api/1")]
    refused = sum(ledger["refused"] for ledger in ledgers)
    assert answer["refused_marks"] == refused > 0
    assert (
        f"because their workers had no room to count them: {refused:,} launches, transfers and needs  brickd doctor"
        in brickd("tree").stdout
    )
    wanted = f"marks     wanted {ledgers[0]['wanted']:,}  refused {ledgers[0]['refused']:,}"
    assert wanted in brickd("inspect", "api/0").stdout.splitlines()
