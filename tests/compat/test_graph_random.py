"""Random programs: the graph in the process is the same as the graph that brickd shows from the segment."""

from __future__ import annotations

from typing import Any

import pytest
from brick_agent._compat.profiler.graph_nodes import GraphNodes
from brick_agent._compat.profiler.graph_rows import rows_of
from brick_agent._compat.profiler.own_segment import Path
from brick_agent._compat.profiler.stats import BrickStats
from faults import Start
from test_execution_graph import BEGIN
from verbs import brickd, document

PROGRAM = """
import asyncio, random
NAMES = ["RmsNorm", "Qkv", "a", "b", "c", "f"]
@brick.trace("traced", waits=False)
async def work(): await asyncio.sleep(0)
def run(rng, calls):
    timers = []
    for _ in range(calls):
        name, ns = rng.choice(NAMES), rng.choice([0, 5, 100_000, 3_000_000, 70_000_000])
        nodes = [
            lambda: N.Layer(rng.randrange(2)), lambda: N.Brick(name, ns, rng.randrange(9)), lambda: N.Function(name),
            lambda: N.Function(name, "f.py", 3), lambda: N.AsyncTask(name, 3, 2, ns),
            lambda: N.Kernel(name + "_k", None, 4, 5, 0, ns, 2.0, 3.0), lambda: N.Transfer("x", "y", 64, "H2D", ns),
        ]
        call = rng.randrange(17)
        if call < 6: p.graph_push_scope(rng.choice(nodes)())
        elif call < 9: p.graph_is_scope_balanced() or p.graph_pop_scope()
        elif call == 9: p.graph_record_brick(name, ns, rng.randrange(9))
        elif call == 10: p.graph_record_kernel(name + "_k", None, rng.choice([4, None]), 5)
        elif call == 11: p.graph_record_transfer("x", "y", 64, rng.choice(["H2D", "D2H", "D2D"]), rng.choice([5, None]))
        elif call == 12: p.graph_add_dependency(name, rng.choice(NAMES))
        elif call == 13: p.record_elapsed(rng.choice([name, name + "_k", "x→y"]), ns, 3)
        elif call == 14 and len(timers) < 6: timers.append(p.start(name))
        elif call == 15 and timers: p.stop(timers.pop(), 2)
        elif call == 16: asyncio.run(work())
    while not p.graph_is_scope_balanced(): p.graph_pop_scope()
    while timers: p.stop(timers.pop())
p.enable()
run(random.Random(SEED), 60)
graph = p.execution_graph()
report([graph.nodes, graph.critical_path()[1], list(graph.compute_slack().items()), p.graph_to_ascii_tree()])
report([[each.name, each.count, each.self_ns] for each in p.all_brick_stats()])
pause()
"""
SAME = ("kind", "count", "elements", "bytes", "stated", "given", "definitions")


def way(nodes: list[dict[str, Any]], number: int | None) -> tuple[str, ...]:
    """Return the names and kinds of a node and of the nodes around it."""
    if number is None:
        return ()
    return (*way(nodes, nodes[number]["parent"]), f"{nodes[number]['kind']} {nodes[number]['name']}")


def figures(nodes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the values of a node that must be equal in both graphs."""
    found = [
        (
            way(nodes, node["id"]),
            [str(node[key]) for key in SAME],
            None if node["task"] is None else sorted(node["task"].items()),
            node["total_ns"],
        )
        for node in nodes
    ]
    return sorted(found, key=str)


SEEDS = [*range(1, 7), 190, 226, *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(7, 23))]


@pytest.mark.parametrize("seed", SEEDS)
def test_brickd_shows_the_same_graph_as_the_process_of_a_random_program(worker: Start, seed: int) -> None:
    process = worker(PROGRAM.replace("SEED", str(seed)).join((BEGIN, "")), BRICKD_CLOCK="monotonic")
    nodes, length_ns, slack, tree = process.next_report()
    stats = process.next_report()
    process.paused()
    answer = document("tree", "--layers")
    in_brickd = answer["nodes"]
    assert len(nodes) > 10
    assert figures(nodes) == figures(in_brickd)
    assert answer["critical_path"]["length_ns"] == length_ns
    in_process = sorted((way(nodes, number), ns) for number, ns in slack)
    assert in_process == sorted(
        (way(in_brickd, n["id"]), n["slack_ns"]) for n in in_brickd if n["slack_ns"] is not None
    )
    assert brickd("tree", "--plain").stdout == tree
    bricks = [[each["name"], each["count"], each["self_ns"]] for each in document("bricks")["bricks"]]
    assert sorted(stats) == sorted(bricks)
    process.go()
    assert process.end() == 0


AMBIGUOUS = {
    "a need means the larger of two nodes": """
brick.transfer("H2D", 64, src="x", dst="y")
with brick.span("x→y"): pass
p.graph_record_brick("f", 5)
p.graph_add_dependency("x→y", "f")
""",
    "the transfer to the device has the need": """
for direction in ("D2H", "H2D"): p.graph_record_transfer("x", "y", 64, direction)
p.graph_record_brick("f", 5)
p.graph_add_dependency("f", "x→y")
""",
}


@pytest.mark.parametrize("program", AMBIGUOUS)
def test_a_shared_name_means_the_same_node_in_a_process_and_in_brickd(worker: Start, program: str) -> None:
    process = worker(f"{BEGIN}{AMBIGUOUS[program]}\nreport([p.execution_graph().nodes, p.graph_to_dot()])\npause()\n")
    nodes, dot = process.next_report()
    process.paused()
    (arrow,) = (line.split() for line in dot.splitlines() if "DependsOn" in line)
    needed, needs = (nodes[int(end.removeprefix("n"))] for end in (arrow[0], arrow[2]))
    in_brickd = document("tree")["nodes"]
    (one,) = (node for node in in_brickd if node["needs"])
    other = in_brickd[one["needs"][0]["id"]]
    for in_process, brickds in ((needed, other), (needs, one)):
        assert (in_process["kind"], in_process["name"]) == (brickds["kind"], brickds["name"])
        assert (in_process["transfer"] or {}).get("direction") == (brickds["transfer"] or {}).get("direction")
    process.go()
    assert process.end() == 0


def test_a_function_that_was_also_traced_is_defined_once() -> None:
    node, measured = BrickStats("f", count=1), BrickStats("f", count=1, total_ns=5)
    files = [BrickStats("a.py", count=1) for _ in range(2)]
    paths = {1: Path(-1, -1, 13, None, node), 2: Path(1, 3, 11, None, files[0])}
    paths |= {3: Path(-1, -1, 0, None, measured), 4: Path(3, 3, 11, None, files[1])}
    (made,) = GraphNodes(rows_of(paths), layers=True).order
    assert (made.kind, made.definitions) == ("function", {("a.py", 3)})
