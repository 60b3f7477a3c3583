"""Mistakes of a host in its use of the graph: nothing is counted twice, nothing stays open, and nothing grows without
limit.
"""

from __future__ import annotations

from typing import Any

import pytest
from conftest import reading
from faults import Start
from recorded import summaries
from test_execution_graph import BEGIN
from test_marks import marks, recorded
from verbs import brickd, document

from brickd.cli.plain_tree import plain_tree

POPPED_BY_OTHERS = {
    "a task": """
import asyncio
async def other(): return p.graph_pop_scope()
async def main():
    p.graph_push_scope(N.Function("f"))
    return [await asyncio.create_task(other()), p.graph_pop_scope()]
popped = asyncio.run(main())
""",
    "a thread of its task": """
import asyncio
async def main():
    p.graph_push_scope(N.Function("f"))
    return [await asyncio.to_thread(p.graph_pop_scope), p.graph_pop_scope()]
popped = asyncio.run(main())
""",
    "a copy of its context": """
import contextvars
first = contextvars.copy_context()
first.run(p.graph_push_scope, N.Function("f"))
second = first.copy()
popped = [second.run(p.graph_pop_scope), first.run(p.graph_pop_scope)]
""",
    "a context at the address of one that has ended": """
import contextvars
def push(): return p.graph_push_scope(N.Function("f")) and contextvars.copy_context()
first = contextvars.copy_context()
inherited, popped, address, others = first.run(push), first.run(p.graph_pop_scope), id(first), []
del first
while id(second := inherited.copy()) != address: others.append(second)
popped = [second.run(p.graph_pop_scope), popped]
""",
    "a child": """
p.graph_push_scope(N.Function("f"))
child = os.fork()
if child == 0: os._exit(p.graph_pop_scope() is not None)
popped = [None if os.waitpid(child, 0)[1] == 0 else "f", p.graph_pop_scope()]
""",
    "a signal handler in the middle of the first pop": """
from brick_agent._compat.profiler.scopes import Scope
scope = Scope(p, "f")
scope.begin(brick.brick("f"), timed=True)
popped = [scope.end(), scope.end() or scope.name]
""",
}


@pytest.mark.parametrize("other", POPPED_BY_OTHERS)
def test_a_scope_popped_by_another_thread_or_task_ends_once(worker: Start, prefix: str, other: str) -> None:
    process = worker(f"{BEGIN}{POPPED_BY_OTHERS[other]}\nreport([popped, p.execution_graph().nodes])\npause()\n")
    popped, nodes = process.next_report()
    process.paused()
    assert popped == [None, "f"]
    assert [(node["name"], node["stated"]["count"]) for node in nodes] == [("f", 1)]
    process.go()
    assert process.end() == 0


def test_a_kernel_in_a_new_task_is_not_launched_by_another_tasks_brick(worker: Start, prefix: str) -> None:
    program = """
import asyncio
async def other(): p.graph_record_kernel("k", None, None, None)
async def main():
    p.graph_push_scope(N.Layer(0))
    p.graph_record_brick("gemm", 5)
    await asyncio.create_task(other())
    p.graph_pop_scope()
asyncio.run(main())
"""
    assert marks(recorded(worker, prefix, BEGIN + program)) == {("gemm@0:node",): 1, ("k:launched",): 1}


REFUSED_IN_STRICT_MODE = [
    "N.Function('f', 'a.py', 'x')",
    "N.AsyncTask('f', -1, 2)",
    "N.Kernel('f', 0, -1, 2)",
    "N.Kernel('f', 0, 1, 2, timing_ns=-5)",
    "N.Transfer('a', 'b', -1, 'H2D')",
    "N.Brick('f', -5)",
]


@pytest.mark.parametrize("node", REFUSED_IN_STRICT_MODE)
def test_a_node_that_raises_in_strict_mode_leaves_no_scope_open(worker: Start, prefix: str, node: str) -> None:
    program = f"""
os.environ["BRICKD_STRICT"] = "1"
p.graph_record_brick("launcher", 5)
try: p.graph_push_scope({node}); raise SystemExit("accepted")
except ValueError: pass
assert p.graph_is_scope_balanced()
p.graph_record_brick("next", 5)
with brick.span("span"): pass
"""
    got = recorded(worker, prefix, BEGIN + program)
    assert marks(got)["next:node",] == 1, "the node is at the top"
    assert ("span",) in summaries(got)


def test_a_raising_end_of_a_scope_skips_no_other_end(worker: Start, prefix: str) -> None:
    program = """
from brick_agent._compat.profiler.scopes import Scope
from brick_agent._core import _node_end
os.environ["BRICKD_STRICT"] = "1"
scope, node = Scope(p), brick.brick("inner")
scope.enter(brick.layer(3))
scope.begin(brick.brick("outer"))
scope.begin(node, timed=True)
_node_end(node)
try: scope.end(); raise SystemExit("accepted")
except RuntimeError: pass
with brick.span("span"): pass
"""
    got = recorded(worker, prefix, BEGIN + program)
    assert marks(got) == {("inner:node",): 1}
    assert ("span",) in summaries(got)


NESTED = {
    "a call with a stated time": 'p.graph_push_scope(N.Brick("f", 1_000_000_000))',
    "a call that is not timed": """
p.set_sync_mode("Off"); p.graph_push_scope(N.Function("f"))
p.graph_record_brick("f", 1_000_000_000); p.set_sync_mode("Deferred")
""",
}


@pytest.mark.parametrize("outer", NESTED)
def test_recursion_below_a_call_without_a_measured_time_is_timed_once(worker: Start, outer: str) -> None:
    program = f"""
import time
before = time.monotonic_ns()
{NESTED[outer]}
for _ in range(3): p.graph_push_scope(N.Function("f"))
until = time.monotonic_ns() + 2_000_000
while time.monotonic_ns() < until: pass
while p.graph_pop_scope(): pass
report([time.monotonic_ns() - before, p.execution_graph().nodes])
"""
    process = worker(BEGIN + program)
    took_ns, (node,) = process.next_report()
    assert 2_000_000 <= node["stated"]["total_ns"] - 1_000_000_000 <= took_ns, "the time counts once"
    assert process.end() == 0


@pytest.mark.ci
def test_a_recursive_functions_time_counts_once(worker: Start) -> None:
    program = """
import time
def walk(depth):
    p.graph_push_scope(N.Function("walk"))
    if depth: walk(depth - 1)
    else:
        until = time.monotonic_ns() + 2_000_000
        while time.monotonic_ns() < until: pass
    p.graph_pop_scope()
def span(depth):
    with brick.span("span"):
        if depth: span(depth - 1)
before = time.monotonic_ns()
walk(9); span(9)
report([time.monotonic_ns() - before, p.execution_graph().nodes])
pause()
"""
    process = worker(BEGIN + program)
    took_ns, (walk, span) = process.next_report()
    process.paused()
    assert (walk["stated"]["count"], span["count"]) == (10, 10)
    assert 2_000_000 <= walk["stated"]["total_ns"] <= took_ns
    in_brickd = {node["name"]: node for node in document("tree")["nodes"]}
    assert in_brickd["walk"]["total_ns"] == walk["stated"]["total_ns"]
    assert abs(in_brickd["span"]["total_ns"] - span["total_ns"]) <= 1
    process.go()


@pytest.mark.ci
def test_times_that_readers_refuse_are_not_recorded(worker: Start, prefix: str) -> None:
    process = worker(BEGIN + "for _ in range(16_386): p.graph_record_brick('x', 2**48)\npause()\n")
    process.paused()
    (node,) = document("tree")["nodes"]
    assert node["stated"] == {"count": 16_386, "total_ns": 2**62, "elements": 0}
    assert sum(lane["amounts"] for _, lane, _ in reading(prefix).lanes) == 2
    process.go()


@pytest.mark.parametrize("needs", [[("a", "a")], [("a", "b"), ("b", "a")], [("a", "in"), ("in", "a")]])
def test_cyclic_dependencies_terminate(worker: Start, needs: list[tuple[str, str]]) -> None:
    program = f"""
p.graph_record_brick("a", 1000); p.graph_record_brick("b", 1000)
p.graph_push_scope(N.Brick("a", timing_ns=500)); p.graph_record_brick("in", 100); p.graph_pop_scope()
for needed, by in {needs!r}: p.graph_add_dependency(needed, by)
report([p.critical_path()[1], len(p.compute_slack()), p.graph_to_dot().count("DependsOn")])
pause()
"""
    process = worker(BEGIN + program)
    length_ns, timed, arrows = process.next_report()
    process.paused()
    assert arrows == len(needs)
    answer = document("tree")
    assert timed == sum(node["slack_ns"] is not None for node in answer["nodes"])
    assert length_ns == answer["critical_path"]["length_ns"]
    process.go()


@pytest.mark.ci
def test_the_plain_tree_of_a_deep_chain_is_short() -> None:
    node: dict[str, Any] = {"kind": "brick", "total_ns": None, "elements": 0, "count": 1, "definitions": []}
    node |= dict.fromkeys(("kernel", "transfer", "task", "stated"))
    nodes = [{**node, "id": n, "parent": n - 1 if n else None, "name": "a", "order": n} for n in range(20_000)]
    lines = plain_tree(nodes, str).splitlines()
    assert lines[64] == " " * 4 * 63 + "└── a"
    assert lines[65] == " " * 4 * 63 + "└── …65 a"
    assert max(map(len, lines)) < 300


def test_terminal_escapes_in_a_name_are_escaped_by_each_report(worker: Start) -> None:
    hostile = "\x1b]0;title\x07\u202e\n"
    program = f"""
p.graph_push_scope(N.Function({hostile!r}, {hostile!r}, 3)); p.graph_record_brick({hostile!r}, 50)
p.graph_record_kernel({hostile!r}, None, 1, 1); p.graph_record_transfer({hostile!r}, "b", 5, "H2D")
p.graph_pop_scope()
p.graph_push_scope({hostile!r})
report([p.graph_to_ascii_tree(), p.graph_to_dot(), p.critical_path_summary(), p.report(), p.report("markdown")])
pause()
"""
    process = worker(BEGIN + program)
    texts = process.next_report()
    process.paused()
    texts += [brickd("tree", *form).stdout for form in ((), ("--plain",), ("--dot",), ("--critical",))]
    for text in texts:
        assert text
        assert all(line.isprintable() for line in text.splitlines())
        assert "\u202e" not in text
    process.go()
    assert process.end() == 0
    assert all(line.isprintable() for line in process.stderr.splitlines())
