"""BrickProfiler.graph_*: the calls of the older profiler give the same structure, and mistakes do no harm."""

from __future__ import annotations

import json

import pytest
from faults import Start
from test_marks import marks, recorded

from brickd.shm.ledger import ledger_of

BEGIN = """
N, T = brick.ExecutionNode, brick.TransferDirection
p = brick.BrickProfiler()
p.enable_graph()
"""


def test_the_documented_calls_give_the_documented_structure(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
for _ in range(2):
    ptx = p.graph_register_source("rmsnorm_kernel", ".entry rmsnorm_kernel() { ret; }", "rmsnorm.ptx")
    assert p.graph_push_scope(N.Layer(0)) == "Layer 0"
    assert p.graph_push_scope(N.Brick(brick.BrickId.RmsNorm, elements=4096)) == "RmsNorm"
    assert p.graph_record_kernel("rmsnorm_kernel", ptx, (16, 1, 1), (256, 1, 1), 1024) == "rmsnorm_kernel"
    assert p.graph_record_transfer("tokens", "gpu0", 64, T.H2D) == "tokens→gpu0"
    assert not p.graph_is_scope_balanced()
    assert p.graph_pop_scope() == "RmsNorm"
    p.graph_add_dependency("RmsNorm", brick.BrickId.QkvProjection)
    assert p.graph_pop_scope() == "Layer 0"
    assert p.graph_is_scope_balanced()
assert f"{ptx:016x}" == "56f3c130e5efd4fa", f"{ptx:016x}"
""",
    )
    norm = ("RmsNorm@0:node",)
    launched = (*norm, "rmsnorm_kernel@0:launched")
    assert marks(got) == {
        norm: 2,
        launched: 2,
        (*launched, "<<<16,256,1>>> smem=1024B @56f3c130e5efd4fa:shaped"): 2,
        (*norm, "tokens→gpu0@0:h2d"): 2,
        ("QkvProjection@0:ticks", "RmsNorm:needs"): 2,
    }


def test_a_kernel_recorded_after_a_brick_is_launched_by_it(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
p.graph_record_kernel("alone", None, 1, 1)
p.graph_push_scope(N.Layer(0))
p.graph_record_brick(brick.BrickId.RmsNorm, 50_000, elements=4096)
p.graph_record_kernel("rmsnorm_kernel", 0, (16, 1, 1), (256, 1, 1), 1024)
p.graph_record_brick("gemm", 70_000)
p.graph_record_kernel("gemm_kernel", 0, None, None)
p.graph_push_scope(N.Brick("Softmax"))
p.graph_record_kernel("softmax_kernel", 0, None, None)
p.graph_pop_scope()
p.graph_record_kernel("gemm_kernel", 0, None, None)
p.graph_push_scope(N.Brick("Down", timing_ns=9_000))
p.graph_record_kernel("down_kernel", 0, None, None)
p.graph_pop_scope()
p.graph_pop_scope()
p.graph_record_kernel("alone", None, None, None)
assert p.all_brick_stats() == []
""",
    )
    norm = ("RmsNorm@0:node", "rmsnorm_kernel@0:launched")
    assert marks(got) == {
        ("alone:launched",): 2,
        ("alone:launched", "<<<1,1,1>>> smem=0B:shaped"): 1,
        norm: 1,
        (*norm, "<<<16,256,1>>> smem=1024B:shaped"): 1,
        ("RmsNorm@0:node",): 1,
        ("gemm@0:node",): 1,
        ("gemm@0:node", "gemm_kernel@0:launched"): 2,
        ("AttentionSoftmax@0:node",): 1,
        ("AttentionSoftmax@0:node", "softmax_kernel@0:launched"): 1,
        ("DownProjection@0:node",): 1,
        ("DownProjection@0:node", "down_kernel@0:launched"): 1,
    }
    assert sum(lane["unmatched"] for _, lane, _ in got.lanes) == 0


ORDERS = {
    "a span begun after the brick": (
        "p.graph_record_brick('a', 5)\nwith brick.span('b'): launch()",
        {("a:node",), ("b:ticks", "k:launched")},
    ),
    "a brick recorded in the span": (
        "with brick.span('b'):\n p.graph_record_brick('a', 5); launch()",
        {("b:ticks", "a:node"), ("b:ticks", "a:node", "k:launched")},
    ),
    "a brick recorded after the span": (
        "with brick.span('b'): pass\np.graph_record_brick('b', 5); launch()",
        {("b:node",), ("b:node", "k:launched")},
    ),
    "a span ended since the brick": (
        "p.graph_record_brick('a', 5)\nwith brick.span('b'): pass\nlaunch()",
        {("a:node",), ("a:node", "k:launched")},
    ),
    "a brick recorded in a span that has ended": (
        "with brick.span('b'): p.graph_record_brick('a', 5)\nlaunch()",
        {("b:ticks", "a:node"), ("k:launched",)},
    ),
    "a brick recorded in an earlier span of the same name": (
        "for _ in range(2):\n with brick.span('b'):\n  launch(); p.graph_record_brick('a', 5)",
        {("b:ticks", "a:node"), ("b:ticks", "k:launched")},
    ),
    "kernels while each brick is timed, the bricks recorded afterwards": (
        "for name in ('a', 'b'):\n t = p.start(name); launch(); p.stop(t); p.graph_record_brick(name, 5)",
        {("a:node",), ("b:node",), ("a:ticks", "k:launched"), ("b:ticks", "k:launched")},
    ),
    "kernels after each brick was timed, the bricks recorded afterwards": (
        "for name in ('a', 'b'):\n p.stop(p.start(name)); launch(); p.graph_record_brick(name, 5)",
        {("a:node",), ("b:node",), ("a:node", "k:launched"), ("b:node", "k:launched")},
    ),
    "kernels after each known brick was timed": (
        "for id in (0, 3):\n p.stop_brick(p.start_brick(id)); launch(); p.graph_record_brick(id, 5)",
        {("RmsNorm:node",), ("RopeEmbedding:node",)}
        | {("RmsNorm:node", "k:launched"), ("RopeEmbedding:node", "k:launched")},
    ),
    "a kernel of the outer brick, after an inner one with its own": (
        "p.graph_record_brick('c', 5)\n"
        "t = p.start('a'); u = p.start('b'); launch(); p.stop(u); launch(); p.stop(t); launch()",
        {("c:node",), ("a:ticks", "b:ticks", "k:launched"), ("a:ticks", "k:launched"), ("k:launched",)},
    ),
    "kernels after inner bricks": (
        "t = p.start('a')\nfor name in ('b', 'c'): p.stop(p.start(name)); launch()\np.stop(t)",
        {("a:ticks", "b:node", "k:launched"), ("a:ticks", "c:node", "k:launched")},
    ),
    "bricks that are not timed": (
        "p.disable()\nfor name in ('a', 'b'):\n p.stop(p.start(name)); launch(); p.graph_record_brick(name, 5)",
        {("a:node",), ("b:node",), ("a:node", "k:launched"), ("b:node", "k:launched")},
    ),
    "deferred bricks": (
        "p = brick.BrickProfiler.enabled(sync=lambda: None, mode='Deferred'); p.enable_graph()\n"
        "for name in ('a', 'b'):\n t = p.start(name); launch(); p.stop(t); launch(); p.graph_record_brick(name, 5)",
        {("a:node",), ("b:node",), ("a:node", "k:launched"), ("b:node", "k:launched")},
    ),
    "a tile": (
        "p.enable_tile_profiling()\np.graph_record_brick('a', 5); p.stop_tile(p.start_tile('Midi')); launch()",
        {("a:node",), ("a:node", "k:launched")},
    ),
    "a span in a scope": (
        "p.graph_push_scope(N.Brick('f', 5))\np.graph_record_brick('a', 5)\n"
        "with brick.span('b'): launch()\nlaunch()",
        {("f:node",), ("f:node", "a:node"), ("f:node", "b:ticks", "k:launched"), ("f:node", "a:node", "k:launched")},
    ),
    "a scope in a span": (
        "p.graph_record_brick('a', 5)\nwith brick.span('b'):\n p.graph_push_scope(N.Brick('f', 5)); launch(); "
        "p.graph_record_brick('c', 5)\n launch(); p.graph_pop_scope()\nlaunch()",
        {("a:node",), ("a:node", "k:launched"), ("b:ticks", "f:node"), ("b:ticks", "f:node", "c:node")}
        | {("b:ticks", "f:node", "k:launched"), ("b:ticks", "f:node", "c:node", "k:launched")},
    ),
    "a layer begun after the brick": (
        "p.graph_record_brick('a', 5)\nwith brick.layer(3): launch()\nlaunch()",
        {("a:node",), ("k@3:launched",), ("a:node", "k:launched")},
    ),
    "another layer begun after the brick": (
        "with brick.layer(3):\n p.graph_record_brick('a', 5)\n with brick.layer(4): launch()",
        {("a@3:node",), ("k@4:launched",)},
    ),
    "a layer begun again after the brick": (
        "with brick.span('x'), brick.span('y'): pass\n"
        "with brick.layer(3):\n p.graph_record_brick('a', 5)\n with brick.layer(3): launch()",
        {("a@3:node",), ("a@3:node", "k@3:launched")},
    ),
    "a span of another thread": (
        "p.graph_record_brick('a', 5)\nelsewhere(lambda: brick.brick('b').start())\nlaunch()",
        {("a:node",), ("a:node", "k:launched")},
    ),
    "a brick of another thread": (
        "elsewhere(lambda: p.graph_record_brick('a', 5))\nlaunch()",
        {("a:node",), ("k:launched",)},
    ),
    "a span of another task": (
        """
import asyncio
async def other(begun, done):
    with brick.span("b"): begun.set(); await done.wait()
async def main():
    begun, done = asyncio.Event(), asyncio.Event()
    p.graph_record_brick("a", 5)
    task = asyncio.create_task(other(begun, done))
    await begun.wait(); launch(); done.set(); await task
asyncio.run(main())
""",
        {("a:node",), ("a:node", "k:launched")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_a_brick_launches_the_kernels_recorded_after_it_in_the_same_place(
    worker: Start, prefix: str, order: str
) -> None:
    program, expected = ORDERS[order]
    launch = """
import threading
def launch(): p.graph_record_kernel("k", None, None, None)
def elsewhere(call):
    thread = threading.Thread(target=call); thread.start(); thread.join()
p.enable()
"""
    got = recorded(worker, prefix, BEGIN + launch + program)
    assert set(marks(got)) == expected
    assert (ledger_of(got).marks["refused"], sum(lane["unmatched"] for _, lane, _ in got.lanes)) == (0, 0)


def test_every_kind_of_node_is_a_scope(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
for node in (
    N.Function("decode", "model.py", 7),
    N.AsyncTask("request", 3, 2, 500),
    N.Kernel("gemm", 0, 4, 32, timing_ns=1500),
    N.Transfer("a", "b", 64, "D2D", 20),
    N.Brick("Softmax", timing_ns=50_000, elements=9),
):
    p.graph_push_scope(node)
    p.graph_record_kernel("inside", None, None, None)
while p.graph_pop_scope(): pass
assert p.all_brick_stats() == []
""",
    )
    decode, task = ("decode:node",), ("decode:node", "request:node")
    gemm = (*task, "gemm:node")
    softmax = (*gemm, "a→b:node", "AttentionSoftmax:node")
    assert marks(got) == {
        decode: 1,
        (*decode, "model.py@7:defined"): 1,
        (*decode, "inside:launched"): 1,
        task: 1,
        (*task, "other:task"): 1,
        (*task, "inside:launched"): 1,
        (*task, "gemm:launched"): 1,
        (*task, "gemm:launched", "<<<4,32,1>>> smem=0B:shaped"): 1,
        gemm: 1,
        (*gemm, "inside:launched"): 1,
        (*gemm, "a→b:d2d"): 1,
        (*gemm, "a→b:node"): 1,
        (*gemm, "a→b:node", "inside:launched"): 1,
        softmax: 1,
        (*softmax, "inside:launched"): 1,
    }
    assert ledger_of(got).marks["refused"] == 0


def test_a_disabled_graph_records_nothing_and_returns_none(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
N = brick.ExecutionNode
p = brick.BrickProfiler.enabled()
assert not p.is_graph_enabled()
gave = [
    p.graph_push_scope(N.Brick(0)), p.graph_push_scope(N.Layer(1)), p.graph_record_brick(0, 5, 1),
    p.graph_record_kernel("k", 1, 1, 1, 1), p.graph_record_transfer("a", "b", 1, "H2D"), p.graph_pop_scope(),
    p.graph_register_source("k", "text"), p.graph_add_dependency("a", "b"), p.graph_clear(),
]
assert gave == [None] * 9 and p.graph_is_scope_balanced()
assert p.all_brick_stats() == []
brick.init()
""",
    )
    assert (marks(got), sum(lane["begun"] for _, lane, _ in got.lanes)) == ({}, 0)


def test_sync_mode_off_times_no_scope_and_counts_launches(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
p.set_sync_mode("None")
p.graph_push_scope(N.Layer(3)); p.graph_push_scope(N.Brick("gemm"))
p.graph_record_kernel("k", None, None, None)
assert (p.graph_pop_scope(), p.graph_pop_scope()) == ("gemm", "Layer 3")
""",
    )
    assert marks(got) == {("gemm@3:node",): 1, ("gemm@3:node", "k@3:launched"): 1}
    assert sum(lane["begun"] for _, lane, _ in got.lanes) == 0


MISTAKES = {
    "p.graph_pop_scope()": "scopes popped twice",
    "p.graph_push_scope('Layer 0')": "nodes",
    "p.graph_push_scope(N.Brick(99))": "brick ids",
    "p.graph_push_scope(N.Brick(True))": "brick ids",
    "p.graph_push_scope(N.Layer(-1))": "layers",
    "p.graph_push_scope(N.Layer(True))": "layers",
    "p.graph_push_scope(N.Layer(16_777_215))": "layers",
    "p.graph_push_scope(N.Kernel(None))": "node names",
    "p.graph_push_scope(N.Function(7))": "node names",
    "p.graph_push_scope(N.AsyncTask(None))": "node names",
    "p.graph_push_scope(N.Transfer('a', 'b', 8, 'H2X'))": "transfer directions",
    "p.graph_record_kernel(None, None, None, None)": "node names",
    "p.graph_record_transfer('a', 'b', 8, 'H2X')": "transfer directions",
    "p.graph_record_transfer('a', 'b', 8, 0)": "transfer directions",
    "p.graph_record_brick(-1, 5)": "brick ids",
    "p.graph_add_dependency('a', 15)": "brick ids",
    "for _ in range(257): p.graph_push_scope(N.Function('f'))": "scopes too deep",
    "import threading; p.graph_push_scope(N.Function('f'))\n"
    "t = threading.Thread(target=lambda: run(p.graph_pop_scope)); t.start(); t.join()": "scopes popped twice",
}


@pytest.mark.parametrize("call", MISTAKES)
def test_a_mistake_is_counted_and_reported_and_raises_only_in_strict_mode(
    worker: Start, prefix: str, call: str
) -> None:
    process = worker(
        BEGIN
        + f"""
raised = []
def run(what):
    try: assert what() is None
    except ValueError as error: raised.append(str(error))
def mistake():
    exec({call!r}, globals())
run(mistake)
report(p.to_json())
report(len(p.execution_graph().nodes))
p.graph_clear()
os.environ["BRICKD_STRICT"] = "1"
run(mistake)
report(raised)
"""
    )
    lost = json.loads(process.next_report())["not_recorded"]
    nodes = process.next_report()
    raised = process.next_report()
    assert lost[MISTAKES[call]] == 1
    assert nodes <= 1 + 256 * ("257" in call), "a refused call adds no node"
    assert len(raised) == 1
    assert "BRICKD_STRICT" in raised[0]
    assert process.end() == 0
    assert "brickd: " in process.stderr


def test_impossible_numbers_are_counted_and_never_raise(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
p.graph_record_brick(0, 0, 0)
p.graph_record_brick("x", -5, -1)
p.graph_push_scope(N.Brick(0, elements=-3)); p.graph_pop_scope()
p.graph_record_kernel("k", -1, (0, 1, 1), (1, 1, 1), -1)
p.graph_record_kernel("k", 2**64, "wide", None)
p.graph_record_transfer("a", "b", -1, "H2D")
p.graph_record_transfer(1, None, 5, T.D2H)
""",
    )
    assert marks(got) == {
        ("RmsNorm:node",): 2,
        ("x:node",): 1,
        ("x:node", "k:launched"): 2,
        ("a→b:h2d",): 1,
        ("<int>→<NoneType>:d2h",): 1,
    }
    assert sum(lane["amounts"] for _, lane, _ in got.lanes) >= 5


def test_a_brick_launches_kernels_of_its_profiler_until_the_graph_is_cleared(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
q = brick.BrickProfiler.enabled(); q.enable_graph()
p.graph_record_brick("a", 5)
q.graph_record_kernel("of_q", None, None, None)
p.graph_record_kernel("of_p", None, None, None)
p.graph_clear()
p.graph_record_kernel("later", None, None, None)
""",
    )
    assert {path for path in marks(got) if path[-1].endswith(":launched")} == {
        ("of_q:launched",), ("a:node", "of_p:launched"), ("later:launched",),
    }  # fmt: skip


def test_clearing_a_graph_ends_the_scopes_of_its_profiler_from_the_innermost(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
q = brick.BrickProfiler(); q.enable_graph()
q.graph_push_scope(N.Brick("of q", 5))
p.graph_push_scope(N.Brick("outer")); p.graph_push_scope(N.Brick("inner"))
p.graph_clear()
q.graph_record_brick("next", 5)
assert q.graph_pop_scope() == "of q"
""",
    )
    above = ("of q:node",)
    assert marks(got) == dict.fromkeys(
        [above, (*above, "outer:node"), (*above, "outer:node", "inner:node"), (*above, "next:node")], 1
    )
    assert sum(lane["unmatched"] for _, lane, _ in got.lanes) == 0


def test_a_scope_left_open_keeps_its_children_and_its_late_pop_is_counted(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
import threading
def left():
    p.graph_push_scope(N.Layer(0)); p.graph_push_scope(N.Brick("left"))
    p.graph_record_kernel("k", None, None, None)
t = threading.Thread(target=left); t.start(); t.join()
with brick.span("outer"):
    p.graph_push_scope(N.Brick("inner", timing_ns=5))
assert p.graph_pop_scope() == "inner"   # not before the span that it was pushed in
with brick.span("after"): brick.kernel("k")
""",
    )
    assert marks(got) == {
        ("left@0:node", "k@0:launched"): 1,
        ("outer:ticks", "inner:node"): 1,
        ("after:ticks", "k:launched"): 1,
    }
    lanes = [lane for _, lane, _ in got.lanes]
    assert sum(lane["abandoned"] for lane in lanes) == 0
    assert sum(lane["unmatched"] for lane in lanes) == 1


def test_each_task_and_each_profiler_has_its_own_scopes(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        BEGIN
        + """
import asyncio
q = brick.BrickProfiler(); q.enable_graph()
async def one(name):
    p.graph_push_scope(N.AsyncTask(name))
    for _ in range(3):
        await asyncio.sleep(0)
        q.graph_push_scope(N.Function("step"))
        p.graph_record_kernel(name + "_kernel", None, None, None)
        await asyncio.sleep(0)
        assert q.graph_pop_scope() == "step"
    assert p.graph_pop_scope() == name
    return p.graph_is_scope_balanced() and q.graph_is_scope_balanced()
async def main():
    return await asyncio.gather(one("a"), one("b"))
assert asyncio.run(main()) == [True, True]
""",
    )
    assert marks(got) == {
        ("a:node",): 1,
        ("b:node",): 1,
        ("a:node", "step:node"): 3,
        ("b:node", "step:node"): 3,
        ("a:node", "step:node", "other:defined"): 3,
        ("b:node", "step:node", "other:defined"): 3,
        ("a:node", "other:task"): 1,
        ("b:node", "other:task"): 1,
        ("a:node", "step:node", "a_kernel:launched"): 3,
        ("b:node", "step:node", "b_kernel:launched"): 3,
    }
    assert sum(lane["unmatched"] + lane["abandoned"] for _, lane, _ in got.lanes) == 0


def test_a_forked_child_has_no_scopes_of_its_parent(worker: Start, prefix: str) -> None:
    process = worker(
        BEGIN
        + """
p.graph_push_scope(N.Brick("parents"))
child = os.fork()
if child == 0:
    os._exit(0 if p.graph_is_scope_balanced() and p.graph_pop_scope() is None else 9)
_, status = os.waitpid(child, 0)
report([status, p.graph_pop_scope()])
"""
    )
    assert process.next_report() == [0, "parents"]
    assert process.end() == 0


def test_arguments_of_wrong_types_are_harmless(worker: Start, prefix: str) -> None:
    recorded(
        worker,
        prefix,
        BEGIN
        + """
class Odd:
    def __str__(self): raise OSError
    __repr__ = __bool__ = __eq__ = __str__
    __hash__ = None
assert p.graph_record_transfer(Odd(), "b", 8, T.H2D) == "<Odd>→b"
assert p.graph_push_scope(N.Transfer("a", Odd(), 8, T.D2H)) == "a→<Odd>"
p.graph_push_scope(N.Brick("x", timing_ns=Odd(), elements=Odd()))
p.graph_record_brick("y", Odd(), Odd())
p.graph_record_kernel("k", Odd(), Odd(), Odd(), Odd())
while p.graph_pop_scope(): pass
""",
    )
