"""Random programs: what a process shows of its own graph is what brickd shows of the segment."""

from __future__ import annotations

from typing import Any

import pytest
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
        elif call == 13: p.record_elapsed(name, ns, 3)
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
    """The names and kinds of a node and of those around it."""
    if number is None:
        return ()
    return (*way(nodes, nodes[number]["parent"]), f"{nodes[number]['kind']} {nodes[number]['name']}")


def figures(nodes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What both must have of each node."""
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


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_process_and_brickd_show_the_same_of_a_random_program(worker: Start, seed: int) -> None:
    process = worker(PROGRAM.replace("SEED", str(seed)).join((BEGIN, "")), BRICKD_CLOCK="monotonic")
    nodes, length_ns, slack, tree = process.next_report()
    stats = process.next_report()
    process.paused()
    answer = document("tree", "--layers")
    theirs = answer["nodes"]
    assert len(nodes) > 10
    assert figures(nodes) == figures(theirs)
    assert answer["critical_path"]["length_ns"] == length_ns
    ours = sorted((way(nodes, number), ns) for number, ns in slack)
    assert ours == sorted((way(theirs, n["id"]), n["slack_ns"]) for n in theirs if n["slack_ns"] is not None)
    assert brickd("tree", "--plain").stdout == tree
    bricks = [[each["name"], each["count"], each["self_ns"]] for each in document("bricks")["bricks"]]
    assert sorted(stats) == sorted(bricks)
    process.go()
    assert process.end() == 0
