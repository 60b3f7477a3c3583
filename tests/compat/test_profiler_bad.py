"""A mistake of the host with BrickProfiler is counted and reported; in strict mode, it raises an exception."""

from __future__ import annotations

import json

import pytest
from faults import Start
from test_profiler import report_of

LOST = "import json\ndef lost(): return {k: n for k, n in json.loads(p.to_json())['not_recorded'].items() if n}\n"

REFUSED = {
    "p.set_sync_mode('Sometimes')": "sync modes",
    "p.set_sync_mode('deferred')": "sync modes",
    "p.set_sync_mode(2)": "sync modes",
    "p.set_sync_mode(None)": "sync modes",
    "p.set_sync_mode('Deferred', sync=7)": "sync functions",
    "p.start_brick(15)": "brick ids",
    "p.start_brick(-1)": "brick ids",
    "p.start_brick('RmsNorm')": "brick ids",
    "p.brick_stats([])": "brick ids",
    "t = p.start('x'); p.stop(t); p.stop(t)": "timers stopped twice",
    "p.stop(brick.BrickProfiler.enabled().start('x'))": "timers of others",
    "p.stop(None)": "timers of others",
    "p.stop_brick(17, 5)": "timers of others",
    "p.record_elapsed_with_bytes('x', 5, 1, 1, -1)": "amounts",
    "p.record_cycles('x', 2.5)": "amounts",
    "p.record_deferred(0, -1)": "deferred starts",
    "p.record_deferred(0, p.elapsed_ns() + 10**12)": "deferred starts",
    "p.record_deferred_dynamic('x', 'soon')": "deferred starts",
    "p.record_deferred(0, p.elapsed_ns()); p.finalize(-5)": "finalizes",
    "p.record_deferred(0, p.elapsed_ns()); p.finalize('now')": "finalizes",
    "while p.elapsed_ns() < 9: pass\np.record_deferred(0, p.elapsed_ns()); p.finalize(0)": "finalizes",
    "p.start_tile('Huge')": "tile levels",
    "p.tile_stats(0)": "tile levels",
    "p.set_brick_bottleneck('x', 'Network')": "bottlenecks",
    "p.set_l2_cache_hit_rate('often')": "cache hit rates",
    "p.set_l2_cache_hit_rate(float('nan'))": "cache hit rates",
}


@pytest.mark.parametrize("call", REFUSED)
def test_a_mistake_is_counted_and_reported_and_raises_only_in_strict_mode(
    worker: Start, prefix: str, call: str
) -> None:
    process = worker(
        f"""
p = brick.BrickProfiler.enabled()
p.enable_tile_profiling()
def mistake():
    global p
{chr(10).join("    " + line for line in call.splitlines())}
mistake()
report([p.to_json(), p.summary()])
os.environ["BRICKD_STRICT"] = "1"
try: mistake(); report("not raised")
except ValueError as error: report(str(error))
"""
    )
    text, summary = process.next_report()
    refused = {what: n for what, n in json.loads(text)["not_recorded"].items() if n and what != "open"}
    assert refused == {REFUSED[call]: 1}
    assert f"1 {REFUSED[call]}" in summary
    assert "BRICKD_STRICT=1" in process.next_report()
    assert process.end() == 0
    assert len([line for line in process.stderr.splitlines() if line.startswith("brickd: ")]) == 1


def test_an_invalid_mode_changes_nothing(worker: Start, prefix: str) -> None:
    assert (
        report_of(worker, "p.set_sync_mode('PerLayer'); p.set_sync_mode('Never'); report(p.sync_mode().name)")
        == "PerLayer"
    )


def test_a_kind_of_mistake_is_reported_once(worker: Start, prefix: str) -> None:
    process = worker("p = brick.BrickProfiler.enabled()\nfor _ in range(50): p.stop(None); p.reset()\n")
    assert process.end() == 0
    assert len(process.stderr.splitlines()) == 1


def test_a_size_of_zero_is_accepted_and_a_negative_one_ignored(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        LOST
        + """
p.enable_tile_profiling()
for n in (0, -1, 2**60, "x"):
    p.stop(p.start("x"), n)
    p.record_elapsed("y", 5, n)
    p.record_deferred_dynamic("z", p.elapsed_ns(), n)
    p.stop_tile(p.start_tile("Macro"), n, n)
p.record_elapsed("y", -5)
p.finalize()
of = [(s.count, s.total_elements, s.throughput) for s in map(p.stats, "xyz")]
report([of, p.tile_stats("Macro").total_flops, lost()])
""",
    )
    assert found[0] == [[4, 0, 0], [4, 0, 0], [4, 0, 0]]
    assert found[1] == 2**60, "the sum leaves room for further amounts"
    assert found[2] == {"amounts": 3 * 4 + 2, "rejected": 1}


def test_unbalanced_scopes_are_counted(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        LOST
        + """
a = p.start("a"); b = p.start("b"); p.stop(a); p.stop(b)
scope = p.layer(1); scope.__enter__(); c = p.start("c"); scope.__exit__(None, None, None); p.stop(c)
report([p.brick_names(), lost()])
""",
    )
    assert found == [["a"], {"abandoned": 2, "unmatched": 2}]


def test_a_body_that_raises_ends_its_layer(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
p.set_sync_mode("PerLayer", sync=lambda: None)
try:
    with p.layer(1):
        p.stop(p.start("x")); raise KeyError
except KeyError: pass
p.set_sync_mode("Immediate"); p.stop(p.start("y"))
report([p.pending_count(), p.stats("x").bounded, p.stats("y").count])
""",
    )
    assert found == [0, 1, 1]


@pytest.mark.parametrize("name", ["None", "7", "[]", "b'x'", "'\\ud800'", "''", "'x' * 500"])
def test_an_invalid_name_is_harmless(worker: Start, prefix: str, name: str) -> None:
    text = report_of(
        worker,
        f"""
name = {name}
p.stop(p.start(name), 1)
p.record_elapsed(name, 5); p.record_elapsed_with_bytes(name, 5, 1, 1, 1); p.record_cycles(name, 5)
p.record_deferred_dynamic(name, p.elapsed_ns()); p.finalize()
p.set_brick_bottleneck(name, "Memory"); p.stats(name)
report(p.summary() and p.to_json())
""",
    )
    assert sum(each["count"] for each in json.loads(text)["bricks"]) == 4


@pytest.mark.ci
def test_the_number_of_names_is_limited(worker: Start, prefix: str) -> None:
    kept, count, text = report_of(
        worker,
        """
for n in range(6000): p.record_elapsed_with_bytes(f"n{n}", 5, 1, 2, 1)
report([len(p._local.named), p.stats("other").total_compressed_bytes, p.to_json()])
""",
        BRICKD_NAMES="8192",
    )
    assert kept <= 4097
    document = json.loads(text)
    assert document["total_elements"] + document["not_recorded"]["rejected"] == 6000
    assert count > 0


@pytest.mark.parametrize("environment", [{"BRICKD": "0"}, {"BRICKD_CLOCK": "sundial"}])
def test_where_nothing_can_be_recorded_nothing_is_reported(
    worker: Start, prefix: str, environment: dict[str, str]
) -> None:
    found = report_of(
        worker,
        """
p.stop(p.start("x"), 5); p.record_deferred(0, p.elapsed_ns()); p.finalize()
report([p.brick_names(), p.total_ns(), p.pending_count()])
""",
        **environment,
    )
    assert found == [[], 0, 0]


# Hostile objects in place of an enumeration, a name, a number, a time, a timer or a function.
MADE_UP = """
class Hostile:
    def fails(self, *_): raise RuntimeError("hostile")
    __index__ = __float__ = __bool__ = __eq__ = __repr__ = fails
    __hash__ = object.__hash__
class Array(list):
    def __ne__(self, other): return self
    def __bool__(self): raise ValueError("ambiguous")
values = [Hostile(), Array(), [], {}, None, 2.5, float("nan"), float("inf"), -1, 10**400, 10**5000, b"x", "\\ud800"]
"""


@pytest.mark.parametrize(
    "call",
    [
        "p.start_brick(x)",
        "p.stop_brick(x); p.stop_brick(p.start_brick(0), x)",
        "p.start(x, x)",
        "p.stop(p.start('x'), x)",
        "p.record_elapsed(x, x, x)",
        "p.record_elapsed_with_bytes('x', 5, x, x, x)",
        "p.record_cycles('x', x)",
        "p.record_deferred(0, x); p.record_deferred(0, p.elapsed_ns(), x)",
        "p.record_deferred(0, p.elapsed_ns()); p.finalize(x)",
        "p.start_tile(x); p.stop_tile(p.start_tile('Macro', x, x), x, x)",
        "p.set_sync_mode(x, sync=None); p.set_sync_mode('Deferred', sync=x); brick.BrickProfiler(sync=x, mode=x)",
        "p.tile_stats(x), p.brick_stats(x), p.stats(x)",
        "p.set_brick_bottleneck('x', x); p.set_l2_cache_hit_rate(x); p.set_zero_copy(x)",
        "with p.layer(x): pass",
        "p.enable_graph(); p.graph_push_scope(x)",
    ],
)
def test_no_argument_raises_an_exception(worker: Start, prefix: str, call: str) -> None:
    raised, _ = report_of(
        worker,
        MADE_UP
        + f"""
import json
p.enable_tile_profiling()
def call(x):
    {call}
raised = []
for x in values:
    try: call(x)
    except Exception as error: raised.append([type(x).__name__, str(error)[:200]])
report([raised, json.loads(p.to_json())["bricks"] and p.summary().count("\\n")])
""",
    )
    assert raised == []


@pytest.mark.parametrize("stream", ["None", "closed"])
def test_a_mistake_that_cannot_be_printed_is_counted(worker: Start, prefix: str, stream: str) -> None:
    found = report_of(
        worker,
        LOST
        + f"""
kept = sys.stderr
sys.stderr = closed = open(os.devnull, "w"); closed.close()
sys.stderr = {stream}
p.stop(None)
sys.stderr = kept
report(lost())
""",
    )
    assert found == {"timers of others": 1}


def test_a_wrong_argument_is_reported_on_one_short_line(worker: Start, prefix: str) -> None:
    process = worker(
        """
class Loud:
    def __repr__(self): return "\\x1b[2J\\n" * 1000
p = brick.BrickProfiler.enabled()
p.stop(Loud())
"""
    )
    assert process.end() == 0
    (line,) = process.stderr.splitlines()
    assert line.startswith("brickd: stop takes a timer that start() of the same profiler returned, not \\x1b[2J\\n")
    assert len(line) < 300


@pytest.mark.ci
def test_the_profilers_base_class_cannot_be_used_alone(worker: Start) -> None:
    process = worker(
        """
try: _core.Timing().start_brick(1)
except TypeError as error: report(str(error))
report(brick.BrickProfiler.enabled().start_brick(0).name)
""",
        python=("-P",),  # a new interpreter, because a forked test process has already loaded all of the agent
    )
    assert process.next_report() == "brick_agent: use BrickProfiler, not its base"
    assert process.next_report() == "RmsNorm"
