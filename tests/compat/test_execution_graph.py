"""The execution graph in the process: the programs of the old profiler's book print the output of the book, and brickd
shows the same.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from faults import Start
from verbs import brickd, document, started

BEGIN = """
N, B = brick.ExecutionNode, brick.BrickId
p = brick.BrickProfiler()
p.enable_graph()
"""
# In the book, each brick is timed first. Then the brick is recorded in the graph, and after it its kernel.
BOOK = [
    ("RmsNorm", 50_000, "rmsnorm_kernel", 16, 1024),
    ("QkvProjection", 200_000, "batched_q4k_gemv", 32, 4096),
    ("AttentionScore", 150_000, "incremental_attention", 8, 2048),
    ("GateProjection", 300_000, "batched_q6k_gemv", 64, 8192),
]
FORWARD = f"""
def forward(layers):
    for index in range(layers):
        p.graph_push_scope(N.Layer(index))
        for name, ns, kernel, grid, shared in {BOOK!r}:
            timer = p.start_brick(B[name])
            p.stop_brick(timer, 4096)
            p.graph_record_brick(B[name], ns, 4096)
            p.graph_record_kernel(kernel, 0xDEADBEEF, (grid, 1, 1), (256, 1, 1), shared)
        p.graph_pop_scope()
"""
LAYER = """\
├── RmsNorm  50.0µs (4096 elem)
│   └── rmsnorm_kernel  <<<16,256,1>>> smem=1024B
├── QkvProjection  200.0µs (4096 elem)
│   └── batched_q4k_gemv  <<<32,256,1>>> smem=4096B
├── AttentionScore  150.0µs (4096 elem)
│   └── incremental_attention  <<<8,256,1>>> smem=2048B
└── GateProjection  300.0µs (4096 elem)
    └── batched_q6k_gemv  <<<64,256,1>>> smem=8192B
"""
ONE = f"Layer 0\n{LAYER}"
TWO = "Execution Graph\n├── Layer 0\n" + "".join(f"│   {line}\n" for line in LAYER.splitlines()) + "└── Layer 1\n"
TWO += "".join(f"    {line}\n" for line in LAYER.splitlines())
CRITICAL = (
    f"Critical Path: 0.70ms (3 nodes)\n{'─' * 50}\n"
    "┌ RmsNorm (100.0µs)\n│ QkvProjection (200.0µs)\n└ GateProjection (400.0µs)\n\n"
    "Parallelization Opportunities (high slack):\n  AttentionScore slack=100.0µs\n"
)


def reported(worker: Start, program: str) -> Any:
    process = worker(BEGIN + program)
    answer = process.next_report()
    assert process.end() == 0, process.stderr
    return answer


@pytest.mark.ci
@pytest.mark.parametrize(("layers", "tree"), [(1, ONE), pytest.param(2, TWO, marks=pytest.mark.ci)])
@pytest.mark.parametrize("enabled", [True, False])
def test_the_books_program_writes_the_books_tree(worker: Start, layers: int, tree: str, enabled: bool) -> None:
    enable = "p.enable()\n" if enabled else ""
    assert reported(worker, FORWARD + enable + f"forward({layers})\nreport(p.graph_to_ascii_tree())") == tree


def test_brickd_prints_the_same_plain_tree(worker: Start) -> None:
    process = started(worker, BEGIN + FORWARD + "p.enable()\nforward(2)\npause()")
    plain = brickd("tree", "--plain")
    assert (plain.stdout, plain.stderr) == (TWO, "")
    process.go()


def test_each_brick_of_the_books_program_counts_once_with_its_measured_time(worker: Start) -> None:
    program = (
        FORWARD
        + """
p.enable()
forward(1)
report([[each.name, each.count, each.total_elements, each.total_ns] for each in p.all_brick_stats()])
pause()
"""
    )
    process = worker(BEGIN + program)
    stats = process.next_report()
    process.paused()
    assert sorted(each[:3] for each in stats) == sorted([name, 1, 4096] for name, *_ in BOOK)
    nodes = {node["name"]: node for node in document("tree", "--layers")["nodes"]}
    for name, _, _, measured_ns in stats:
        assert (nodes[name]["count"], nodes[name]["elements"]) == (1, 4096)
        assert abs(nodes[name]["total_ns"] - measured_ns) <= 1
    for name, ns, kernel, *_ in BOOK:
        assert nodes[kernel]["parent"] == nodes[name]["id"]
        assert nodes[name]["stated"] == {"count": 1, "total_ns": ns, "elements": 4096}
    shown = {each["name"]: each["count"] for each in document("bricks")["bricks"]}
    assert shown == {name: 1 for name, *_ in BOOK}
    process.go()


@pytest.mark.parametrize("setting", ["", "p.enable(); p.set_sync_mode('None')", "p.enable()"])
def test_a_graph_changes_no_statistics(worker: Start, setting: str) -> None:
    program = """
p.graph_push_scope(N.Layer(0))
p.graph_record_brick("x3", 1000, 5)
p.graph_push_scope(N.Brick("given", timing_ns=2000)); p.graph_pop_scope()
p.graph_push_scope(N.Brick("open", elements=7)); p.graph_pop_scope()
p.graph_push_scope(N.Kernel("k", None, 1, 1, timing_ns=500)); p.graph_pop_scope()
p.graph_record_transfer("a", "b", 64, "H2D", 70)
p.graph_push_scope(N.Function("f", "f.py", 1)); p.graph_pop_scope()
p.graph_push_scope(N.AsyncTask("t", 3, 2, 10)); p.graph_pop_scope()
p.graph_pop_scope()
report([p.total_ns(), p.total_tokens(), [each.name for each in p.all_brick_stats()], p.stats("x3") is None])
"""
    assert reported(worker, setting + program) == [0, 0, [], True]


def test_a_span_inside_a_node_belongs_to_the_span_around_it(worker: Start) -> None:
    program = """
p.enable()
with brick.span("outer"):
    p.graph_push_scope(N.Function("f", "f.py", 1))
    with brick.span("inner"): pass
    p.graph_pop_scope()
stats = {each.name: each for each in p.all_brick_stats()}
report([sorted(stats), stats["outer"].total_ns - stats["outer"].self_ns - stats["inner"].total_ns])
pause()
"""
    process = worker(BEGIN + program)
    names, rest = process.next_report()
    process.paused()
    assert names == ["inner", "outer"]
    assert abs(rest) <= 1
    bricks = {each["name"]: each for each in document("bricks")["bricks"]}
    assert abs(bricks["outer"]["total_ns"] - bricks["outer"]["self_ns"] - bricks["inner"]["total_ns"]) <= 2
    nodes = document("tree")["nodes"]
    assert [(node["kind"], node["name"], node["depth"]) for node in nodes] == [
        ("brick", "outer", 0),
        ("function", "f", 1),
        ("brick", "inner", 2),
    ]
    assert abs(sum(node["self_ns"] for node in nodes) - nodes[0]["total_ns"]) <= 2, "each moment counts once"
    process.go()


def test_a_recorded_time_inside_a_node_reduces_the_span_around_it(worker: Start) -> None:
    program = """
with brick.span("outer"):
    p.graph_push_scope(N.Function("f", "f.py", 1))
    brick.brick("given").record(1_000_000_000)
    p.graph_pop_scope()
pause()
"""
    process = started(worker, BEGIN + program)
    bricks = {each["name"]: each["self_ns"] for each in document("bricks")["bricks"]}
    assert bricks == {"given": 1_000_000_000, "outer": 0}
    process.go()


def test_a_stated_time_inside_a_span_reduces_its_self_time(worker: Start) -> None:
    process = started(worker, BEGIN + "with brick.span('outer'): p.graph_record_brick('x', 1_000_000_000)\npause()")
    answer = document("tree")
    assert [(node["name"], node["self_ns"]) for node in answer["nodes"]] == [("outer", 0), ("x", 1_000_000_000)]
    assert answer["recorded_ns"] == 1_000_000_000
    process.go()


def test_a_timed_kernel_is_part_of_the_brick_that_launched_it(worker: Start) -> None:
    program = """
p.graph_push_scope(N.Layer(0))
p.graph_push_scope(N.Brick(B.QkvProjection, 200_000))
p.graph_push_scope(N.Kernel("timed", None, 4, 32, timing_ns=180_000)); p.graph_pop_scope()
p.graph_pop_scope()
p.graph_record_brick("x3", 100_000)
p.graph_push_scope(N.Kernel("x3_kernel", None, 4, 32, timing_ns=90_000)); p.graph_pop_scope()
p.graph_pop_scope()
pause()
"""
    process = started(worker, BEGIN + program)
    answer = document("tree", "--layers")
    assert [(node["name"], node["parent"], node["total_ns"], node["self_ns"]) for node in answer["nodes"]] == [
        ("Layer 0", None, 300_000, 0),
        ("QkvProjection", 0, 200_000, 20_000),
        ("timed", 1, 180_000, 180_000),
        ("x3", 0, 100_000, 10_000),
        ("x3_kernel", 3, 90_000, 90_000),
    ]
    assert answer["recorded_ns"] == answer["critical_path"]["length_ns"] == 300_000
    process.go()


def test_functions_and_tasks_keep_their_numbers(worker: Start) -> None:
    program = """
p.graph_push_scope(N.Function("decode", "server.py", 42)); p.graph_pop_scope()
p.graph_push_scope(N.AsyncTask("t", 7, 3, 5000)); p.graph_pop_scope()
report(p.graph_to_ascii_tree())
pause()
"""
    process = worker(BEGIN + program)
    tree = process.next_report()
    process.paused()
    assert "─ decode (server.py:42)  " in tree
    assert tree.endswith("└── t  7 polls, 3 yields  5.0µs\n")
    nodes = {node["name"]: node for node in document("tree")["nodes"]}
    assert nodes["decode"]["kind"] == "function"
    assert nodes["decode"]["definitions"] == [{"file": "server.py", "line": 42}]
    assert (nodes["t"]["kind"], nodes["t"]["total_ns"]) == ("task", 5000)
    assert (nodes["t"]["task"]["polls"], nodes["t"]["task"]["yields"]) == (7, 3)
    process.go()


def test_a_function_node_needs_no_file(worker: Start) -> None:
    program = """
p.graph_push_scope(N.Function("decode")); p.graph_pop_scope()
graph = p.execution_graph()
report([repr(graph), graph.nodes[0]["kind"], graph.nodes[0]["definitions"], graph.to_ascii_tree().split()[0]])
pause()
"""
    process = worker(BEGIN + program)
    unknown = [{"file": None, "line": None}]
    assert process.next_report() == ["ExecutionGraph(1 node)", "function", unknown, "decode"]
    process.paused()
    (node,) = document("tree")["nodes"]
    assert (node["kind"], node["definitions"]) == ("function", unknown)
    assert brickd("tree", "--plain").stdout.split()[0] == "decode"
    assert brickd("tree").stdout.splitlines()[1].endswith("  decode")
    process.go()


PARALLEL = """
for name, ns, need in (
    ("RmsNorm", 100_000, None), ("Qkv", 200_000, "RmsNorm"), ("AttentionScore", 300_000, "Qkv"),
    ("Gate", 400_000, "Qkv"),
):
    p.graph_record_brick(name, ns)
    if need is not None: p.graph_add_dependency(need, name)
"""


def test_the_critical_path_is_that_of_the_book(worker: Start) -> None:
    summary, path, slack, names = reported(
        worker,
        PARALLEL
        + """
names = [node["name"] for node in p.execution_graph().nodes]
report([p.critical_path_summary(), p.critical_path(), list(p.compute_slack().items()), names])
""",
    )
    assert summary == CRITICAL
    assert [[names[number] for number in path[0]], path[1]] == [["RmsNorm", "QkvProjection", "GateProjection"], 700_000]
    assert {names[number]: ns for number, ns in slack} == {
        **{"RmsNorm": 0, "QkvProjection": 0, "AttentionScore": 100_000, "GateProjection": 0}
    }


MIXED = """
p.enable()
with brick.layer(3), brick.span("forward"):
    timer = p.start_brick(0); p.stop_brick(timer, 5)
    p.graph_record_brick(0, 70_000, 5)
    brick.kernel("gemm", 4, 32, elapsed_ns=900)
    brick.transfer("H2D", 64, src="a", dst="b", elapsed_ns=40)
    p.graph_push_scope(N.Brick("mlp"))
    with brick.span("mlp"): brick.kernel("k")
    p.graph_pop_scope()
p.graph_push_scope(N.Brick("drawn", timing_ns=1_000_000))
with brick.span("measured"): pass
p.graph_pop_scope()
p.graph_add_dependency("forward", "drawn")
"""


@pytest.mark.parametrize(
    "program", [FORWARD + "forward(2)", *(pytest.param(each, marks=pytest.mark.ci) for each in (PARALLEL, MIXED))]
)
def test_brickd_shows_the_same_nodes_and_critical_path(worker: Start, program: str) -> None:
    report = """
report([p.execution_graph().nodes, p.critical_path(), list(p.compute_slack().items())])
pause()
"""
    process = worker(BEGIN + program + report)
    nodes, (path, length_ns), slack = process.next_report()
    process.paused()
    answer = document("tree", "--layers")
    in_brickd = answer["nodes"]

    def place(all_nodes: list[dict[str, Any]], number: int | None) -> tuple[str, ...]:
        if number is None:
            return ()
        node = all_nodes[number]
        return (*place(all_nodes, node["parent"]), f"{node['kind']} {node['name']}")

    assert sorted(place(nodes, node["id"]) for node in nodes) == sorted(
        place(in_brickd, node["id"]) for node in in_brickd
    )
    assert {place(in_brickd, n["id"]): n["slack_ns"] for n in in_brickd if n["slack_ns"] is not None} == pytest.approx(
        {place(nodes, number): ns for number, ns in slack}, abs=4
    )
    assert abs(answer["critical_path"]["length_ns"] - length_ns) <= 4
    steps = [place(in_brickd, step["id"]) for step in answer["critical_path"]["steps"] if step["own_ns"]]
    assert sorted(steps) == sorted(place(nodes, number) for number in path)
    process.go()


def test_the_distance_to_the_roofline_is_that_of_the_seed(worker: Start) -> None:
    program = """
kernels = ("memory", 50.0, 42.0), ("compute", 1000.0, 20.75), ("over", 50.0, 99.0), ("none", None, None)
for name, intensity, tflops in kernels:
    p.graph_push_scope(N.Kernel(name, None, 128, 256, 16384, 150_000, intensity, tflops)); p.graph_pop_scope()
graph = p.execution_graph()
report({graph.nodes[number]["name"]: distance for number, distance in graph.roofline_distance(83.0, 1008.0).items()})
"""
    distances = reported(worker, program)
    assert set(distances) == {"memory", "compute", "over"}
    assert math.isclose(distances["memory"], 1 - 42.0 / 50.4, abs_tol=1e-6)
    assert math.isclose(distances["compute"], 0.75, abs_tol=1e-6)
    assert distances["over"] == 0


BAD_PEAKS = {
    "0, 1008": "peak_tflops must be a finite number above 0, not 0",
    "-1.5, 1008": "peak_tflops must be a finite number above 0, not -1.5",
    "float('nan'), 1008": "peak_tflops must be a finite number above 0, not nan",
    "'83', 1008": "peak_tflops must be a finite number above 0, not '83'",
    "83, None": "bandwidth_gb_s must be a finite number above 0, not None",
    "83, float('inf')": "bandwidth_gb_s must be a finite number above 0, not inf",
}


@pytest.mark.parametrize("peaks", BAD_PEAKS)
def test_peaks_that_are_not_numbers_above_0_are_refused(worker: Start, peaks: str) -> None:
    program = f"""
p.graph_push_scope(N.Kernel("k", None, 128, 256, 16384, 150_000, 50.0, 42.0)); p.graph_pop_scope()
try: p.execution_graph().roofline_distance({peaks})
except ValueError as error: raised = str(error)
report([raised, p.roofline_distance({peaks}), p.roofline_distance({peaks})])
"""
    process = worker(BEGIN + program)
    assert process.next_report() == [BAD_PEAKS[peaks], {}, {}]
    assert process.end() == 0
    assert process.stderr == f"brickd: {BAD_PEAKS[peaks]}\n", "the message is printed once"


def test_a_scope_that_raises_when_it_is_cleared_keeps_nothing_open(worker: Start, prefix: str) -> None:
    program = """
os.environ["BRICKD_STRICT"] = "1"
p.graph_push_scope(N.Brick("outer", 5))
with brick.span("span"): p.graph_push_scope(N.Brick("abandoned", 5))
try: p.graph_clear(); raise SystemExit("accepted")
except RuntimeError: pass
report([p.graph_is_scope_balanced(), p.execution_graph().nodes])
p.graph_record_brick("next", 5)
report(p.graph_to_ascii_tree())
"""
    process = worker(BEGIN + program)
    assert process.next_report() == [True, []]
    assert process.next_report() == "next  0.0µs\n"
    assert process.end() == 0


def test_a_cleared_graph_starts_again_and_keeps_the_segment(worker: Start) -> None:
    program = """
p.graph_record_brick("old", 5)
p.graph_push_scope(N.Brick("open"))
p.graph_clear()
p.graph_record_brick("new", 5)
report(p.graph_to_ascii_tree())
pause()
"""
    process = worker(BEGIN + program)
    assert process.next_report() == "new  0.0µs\n"
    process.paused()
    assert sorted(node["name"] for node in document("tree")["nodes"]) == ["new", "old", "open"]
    process.go()


def test_a_hostile_name_is_escaped_in_dot_and_in_the_tree(worker: Start) -> None:
    hostile = 'a"]; evil [label="b\n\x1b[2J\\'
    program = f"p.graph_record_brick({hostile!r}, 5)\nreport([p.graph_to_ascii_tree(), p.graph_to_dot()])"
    tree, dot = reported(worker, program)
    assert tree.count("\n") == 1
    assert all(line.isprintable() for line in [*tree.splitlines(), *dot.splitlines()])
    assert '\\"]; evil [label=\\"b' in dot
    assert dot.startswith("digraph ExecutionGraph {")


def test_plain_excludes_other_formats() -> None:
    for other in (["--dot"], ["--critical"], ["--json"], ["--column", "cv"]):
        refused = brickd("tree", "--plain", *other)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--plain contradicts" in refused.stderr
