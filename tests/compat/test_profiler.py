"""BrickProfiler, which has the names of an older profiler: its protocols F101 to F110, how it records, and its
reports."""

from __future__ import annotations

import json
import math
import platform
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from brick_agent import BrickBottleneck, BrickCategory, BrickId
from brick_agent._compat.profiler.report import ProfilerReport, as_text
from brick_agent._compat.profiler.stats import BrickStats, CategoryStats, by_category
from conftest import ROOT, reading
from faults import Start, exact
from hypothesis import given
from hypothesis import strategies as st
from recorded import counts, record, summaries

ALIASES = {
    "Qkv": "QkvProjection",
    "Rope": "RopeEmbedding",
    "RoPE": "RopeEmbedding",
    "Softmax": "AttentionSoftmax",
    "OutProj": "OutputProjection",
    "Gate": "GateProjection",
    "Up": "UpProjection",
    "SiLU": "Activation",
    "GELU": "Activation",
    "ReLU": "Activation",
    "Down": "DownProjection",
    "Embed": "Embedding",
    "Head": "LmHead",
    "Sample": "Sampling",
}


def report_of(worker: Start, program: str, **environment: str) -> Any:
    """Return the last report of a program."""
    process = worker("p = brick.BrickProfiler.enabled()\n" + program, **environment)
    reported = process.next_report()
    assert process.end() == 0, process.stderr
    return reported


# ---- F101 to F110: `scripts/test -k F106` ----------------------------------------------------------------------------


def test_f101_there_are_15_known_bricks() -> None:
    assert [int(known) for known in BrickId] == list(range(15))
    assert BrickId.COUNT == len(BrickId.ALL) == 15
    assert list(BrickId.ALL) == list(BrickId)
    assert [known.name for known in BrickId] == [
        "RmsNorm",
        "LayerNorm",
        "QkvProjection",
        "RopeEmbedding",
        "AttentionScore",
        "AttentionSoftmax",
        "AttentionOutput",
        "OutputProjection",
        "GateProjection",
        "UpProjection",
        "Activation",
        "DownProjection",
        "Embedding",
        "LmHead",
        "Sampling",
    ]
    assert {alias: known.name for known in BrickId for alias in known.aliases} == ALIASES


def test_an_alias_means_its_brick_and_is_case_sensitive() -> None:
    for alias, name in ALIASES.items():
        assert BrickId.from_name(alias) is BrickId[name]
        assert BrickId.from_name(alias.lower()) is BrickId.from_name(alias.upper() + "_") is None


def test_f102_every_known_brick_has_its_category() -> None:
    assert [(category.name, int(category)) for category in BrickCategory] == [
        ("Norm", 0),
        ("Attention", 1),
        ("FFN", 2),
        ("Other", 3),
    ]
    assert [known.category.name for known in BrickId] == (
        ["Norm"] * 2 + ["Attention"] * 6 + ["FFN"] * 4 + ["Other"] * 3
    )


def test_f103_deferred_work_accumulates_until_finalize(worker: Start, prefix: str) -> None:
    pending = report_of(
        worker,
        """
found = [p.pending_count()]
for n in range(5):
    p.record_deferred(n % 2, p.elapsed_ns(), elements=n)
    found.append(p.pending_count())
report([found, p.has_pending(), p.all_brick_stats() == [], brick.pending()])
""",
    )
    assert pending == [[0, 1, 2, 3, 4, 5], True, True, 5]


def test_f104_finalize_clears_the_queue(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
for _ in range(3): p.record_deferred_dynamic("gemm", p.elapsed_ns(), elements=7)
p.finalize(p.elapsed_ns())
p.finalize()
of = p.stats("gemm")
report([p.has_pending(), p.pending_count(), brick.pending(), of.count, of.bounded, of.total_elements])
""",
    )
    assert found == [False, 0, 0, 3, 3, 21]


@pytest.mark.ci
@pytest.mark.parametrize("why", ["p.disable()", "p.set_sync_mode('None')"])
def test_f105_a_disabled_profiler_reads_no_clock(
    worker: Start, prefix: str, compiled: Callable[..., Path], why: str
) -> None:
    preload = compiled("counting.so", (ROOT / "tests/native/counting.c",), "-shared", "-fPIC")
    off, on = report_of(
        worker,
        f"""
import ctypes
reads = ctypes.CDLL(None).clock_reads
def work():
    before = reads()
    for _ in range(10):
        p.stop_brick(p.start_brick(0), 8)
        p.stop(p.start("x"), 8)
        p.stop_tile(p.start_tile("Macro"), 8, 8)
        p.record_elapsed("x", 5, 8)
        p.record_elapsed_with_bytes("x", 5, 8, 8, 8)
        p.record_deferred(0, 5, 8)
        p.record_deferred_dynamic("x", 5, 8)
    return reads() - before
p.enable_tile_profiling()
{why}
off = work()
p.enable(); p.set_sync_mode("Deferred")
report([off, work()])
""",
        BRICKD_CLOCK="monotonic",
        LD_PRELOAD=str(preload),
    )
    assert off == 0
    assert on >= 60, "without this, the test could not fail"


COUNTED = """
import ctypes
steps = ctypes.CDLL({!r})
steps.steps_end.restype = ctypes.c_uint64
def instructions(call):
    for _ in range(30): call()  # Python adapts a function to its calls
    found = []
    for _ in range(3):
        steps.steps_begin()
        call()
        found.append(steps.steps_end())
    return min(found)
def nothing(): pass
"""
counted = pytest.mark.skipif(platform.machine() != "x86_64", reason="counts instructions by the trap flag of x86")


@pytest.fixture
def counting(compiled: Callable[..., Path]) -> str:
    """Return lines to put before a program.

    With these lines, the program can count the instructions that its functions execute.
    """
    source = ROOT / "tests/native/instructions.c"
    return COUNTED.format(str(compiled("instructions.so", (source,), "-shared", "-fPIC", "-Wno-unused-parameter")))


@pytest.mark.ci
@counted
def test_a_start_and_a_stop_take_at_most_twice_the_instructions_of_a_handle(
    worker: Start, prefix: str, counting: str
) -> None:
    nothing, pair, handle = report_of(
        worker,
        counting
        + """
b = brick.brick("b")
def pair(): p.stop_brick(p.start_brick(0))
def handle(): b.start(); b.stop()
report([instructions(nothing), instructions(pair), instructions(handle)])
""",
    )
    assert handle - nothing > 200, "otherwise nothing was counted"
    assert pair - nothing <= 2 * (handle - nothing)


@pytest.mark.ci
@counted
def test_f105_a_disabled_start_and_stop_take_few_more_instructions_than_two_empty_calls(
    worker: Start, prefix: str, counting: str
) -> None:
    nothing, pair, empty = report_of(
        worker,
        counting
        + """
p.disable()
s = set()
def pair(): p.stop_brick(p.start_brick(0))
def empty(): s.discard(s.discard(0))  # also methods in C that take one argument
report([instructions(nothing), instructions(pair), instructions(empty)])
""",
    )
    assert empty - nothing > 100, "otherwise nothing was counted"
    assert pair - nothing <= 1.5 * (empty - nothing)


@pytest.mark.ci
@counted
def test_f106_looking_up_any_of_2000_bricks_takes_equally_many_instructions(
    worker: Start, prefix: str, counting: str
) -> None:
    first, last = report_of(
        worker,
        counting
        + """
def pair(name): return lambda: p.stop(p.start(name))
first = instructions(pair("b0"))
for n in range(2000): p.stop(p.start(f"b{n}"))
report([first, max(instructions(pair(f"b{n}")) for n in range(1997, 2000))])
""",
        BRICKD_PATHS="4096",
        PYTHONHASHSEED="0",
    )
    assert first > 200, "otherwise nothing was counted"
    assert last < first + 600, "neither Python nor C searches 2,000 names"


@pytest.mark.ci
def test_f107_concurrent_threads_lose_no_time(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
import threading
sys.setswitchinterval(1e-5)
together = threading.Barrier(4)
def work(n):
    together.wait()
    for i in range(500):
        outer = p.start_brick(n)
        p.stop(p.start("shared"), 3)
        p.stop_brick(outer, 2)
        p.record_deferred(n, p.elapsed_ns(), 1)
        p.record_elapsed_with_bytes("zstd", 10, 1, 8, 2)
        if i % 50 == n: p.finalize()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for each in threads: each.start()
for each in threads: each.join()
p.finalize()
report([[p.brick_stats(n).count for n in range(4)], p.stats("shared").total_elements, p.total_tokens(),
        p.stats("zstd").total_compressed_bytes, p.pending_count(), json.loads(p.to_json())["not_recorded"]])
""".replace("import threading", "import json, threading", 1),
    )
    assert found[:5] == [[1000] * 4, 6000, 4 * 500 * (3 + 2 + 1 + 1), 4000, 0]
    assert not any(found[5].values())


def test_f108_a_timer_has_40_bytes(worker: Start, prefix: str) -> None:
    size, same = report_of(
        worker,
        """
timer = p.start_brick(0)
size = sys.getsizeof(timer); assert not hasattr(timer, "__dict__")
p.stop_brick(timer); p.disable()
report([size, p.start_brick(0) is p.start("x")])
""",
    )
    assert size == 40, "a timer has the size that docs/porting.md states"
    assert same, "all bricks that are not timed share one timer"


def test_f109_the_time_since_the_epoch_never_decreases(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
times = [p.elapsed_ns() for _ in range(1000)]
p.disable(); p.enable()
times.append(p.elapsed_ns())
from time import CLOCK_MONOTONIC_RAW as ITS_CLOCK, clock_gettime_ns
before = clock_gettime_ns(ITS_CLOCK)
p.reset_epoch()
since = p.elapsed_ns()
took = clock_gettime_ns(ITS_CLOCK) - before  # of which the process may have stood still for most
report([times == sorted(times), times[0] >= 0, since <= took, brick.BrickProfiler().elapsed_ns()])
""",
    )
    assert found == [True, True, True, 0]


NESTED = """
for _ in range(20):
    a = p.start("block", "attention")
    for known in (0, 4, 9): p.stop_brick(p.start_brick(known), 10)
    p.stop(p.start("odd", "mine"), 1)
    p.stop(a, 2)
p.record_deferred(13, p.elapsed_ns(), 5); p.finalize()
"""


def test_f110_categories_add_up_to_the_total_and_are_in_the_json(worker: Start, prefix: str) -> None:
    tokens, names, text = report_of(
        worker, NESTED + "report([p.total_tokens(), list(p.category_stats()), p.to_json()])\n"
    )
    document = json.loads(text)
    categories = document["categories"]
    assert document["schema_version"] == 1
    assert names == [each["category"] for each in categories] == ["Norm", "Attention", "FFN", "Other", "mine"]
    assert [each["count"] for each in categories] == [20, 40, 20, 1, 20]
    assert sum(each["total_ns"] for each in categories) == document["total_ns"] > 0
    assert sum(each["elements"] for each in categories) == tokens == 20 * (30 + 1 + 2) + 5
    assert sum(each["percent"] for each in categories) == pytest.approx(100)


def test_a_category_name_is_case_insensitive(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
for n, category in enumerate(("norm", "Norm", "FFN", "ffn", "attention", "Other", "other", "Mine")):
    p.stop(p.start(f"b{n}", category))
report({each: of.count for each, of in p.category_stats().items()})
""",
    )
    assert found == {"Norm": 2, "Attention": 1, "FFN": 2, "Other": 2, "mine": 1}


# ---- all calls record in one way
# -------------------------------------------------------------------------------------------


def test_statistics_are_recorded_in_the_lanes_and_read_from_there(worker: Start, prefix: str) -> None:
    process = worker(
        """
p = brick.BrickProfiler.enabled()
with brick.layer(3):
    t = p.start("Rope"); p.stop(t, 8)
with brick.brick("elsewhere", "norm")(elements=5, bytes=6, flops=7): pass
p.record_elapsed("elsewhere", 1000, 2)
of = p.stats("elsewhere")
report([of.count, of.total_elements, of.total_bytes, of.total_flops, of.category, p.brick_stats(3).total_ns])
pause()
"""
    )
    *found, rope_ns = process.next_report()
    process.paused()
    got = reading(prefix)
    assert found == [2, 7, 6, 7.0, "Norm"], "records of other code count, too"
    rows = summaries(got)
    assert counts(got) == {("RopeEmbedding[3]",): 1, ("elsewhere",): 2}
    assert rope_ns == pytest.approx(rows["RopeEmbedding[3]",]["total_ns"], rel=0.01)
    process.go()
    assert process.end() == 0


@pytest.mark.ci
def test_statistics_read_during_recording_are_consistent(
    worker: Start, prefix: str, compiled: Callable[..., Path]
) -> None:
    flags = ("-shared", "-fPIC", "-Wno-unused-parameter", "-I", sysconfig.get_path("include"))
    built = compiled("busy.so", (ROOT / "tests/native/busy.c",), *flags)
    seen, wrong, same = report_of(
        worker,
        f"""
import importlib.util
spec = importlib.util.spec_from_file_location("busy", {str(built)!r})
busy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(busy)
busy.start()
found, counts = [], set()
while len(counts) < 500:
    _, torn, rows, _ = _core._totals(False)
    of = next((row[6], row[7], row[9], row[12], row[13]) for row in rows if row[2] == "busy")
    counts.add(of[0])
    if not torn: found.append(of)
done = busy.stop()
wrong = [each for each in found if each != (n := each[0], 1000 * n, 1e6 * n, n, 8 * n)]
report([len({{each[0] for each in found}}), wrong[:3], p.stats("busy").count == done])
""",
    )
    assert seen > 300, "most readings are consistent"
    assert wrong == []
    assert same


def test_a_nested_brick_counts_once_in_the_total(worker: Start, prefix: str) -> None:
    outer, outer_self, inner, total = report_of(
        worker,
        """
a = p.start("outer"); b = p.start("inner"); sum(range(20_000)); p.stop(b); p.stop(a)
report([p.stats("outer").total_ns, p.stats("outer").self_ns, p.stats("inner").total_ns, p.total_ns()])
""",
    )
    assert outer > inner > 0
    assert outer_self + inner == pytest.approx(outer, rel=0.01), "each figure is a separate reading"
    assert total == pytest.approx(outer, rel=0.01)


def test_a_recorded_time_inside_a_brick_counts_once_in_the_total(worker: Start, prefix: str) -> None:
    outer, given, second, more, total = report_of(
        worker,
        """
p.enable_graph()
t = p.start("outer"); p.record_elapsed("given", 1_000_000_000)
p.stop(t); t = p.start("second")
p.graph_push_scope(brick.ExecutionNode.Function("f")); p.record_elapsed("more", 1_000_000_000); p.graph_pop_scope()
p.stop(t)
stats = [p.stats(name) for name in ("outer", "given", "second", "more")]
report([[each.total_ns, each.self_ns] for each in stats] + [p.total_ns()])
""",
    )
    assert min(outer[0], second[0]) > 0
    assert outer[1] == second[1] == 0, "the program gave all of the time"
    assert (given, more, total) == ([1_000_000_000] * 2, [1_000_000_000] * 2, 2_000_000_000)


def test_a_missing_stop_is_counted(worker: Start, prefix: str) -> None:
    lost, names = report_of(
        worker,
        """
import json
a = p.start("outer"); p.start("missed"); p.stop(a)
report([json.loads(p.to_json())["not_recorded"], p.brick_names()])
""",
    )
    assert (lost["abandoned"], names) == (1, ["outer"])


def test_a_stop_by_another_thread_is_counted(worker: Start, prefix: str) -> None:
    lost = report_of(
        worker,
        """
import json, threading
t = p.start("x")
other = threading.Thread(target=p.stop, args=(t,)); other.start(); other.join()
report(json.loads(p.to_json())["not_recorded"])
""",
    )
    assert (lost["unmatched"], lost["open"]) == (1, 1)


# ---- reset -------------------------------------------------------------------------------------------------------

EVERYTHING = """
import json
p.enable_tile_profiling()
for _ in range(3): p.stop(p.start("x"), 5)
p.stop_tile(p.start_tile("Macro"), 1, 1)
p.record_elapsed_with_bytes("zstd", 10, 1, 8, 2)
p.record_cycles("x", 100)
p.set_brick_bottleneck("x", "Memory"); p.set_l2_cache_hit_rate(0.5); p.set_zero_copy(True)
p.record_deferred(0, p.elapsed_ns()); p.finalize(); p.record_deferred(1, p.elapsed_ns())
p.stop(None)
"""


def test_reset_clears_all_statistics(worker: Start, prefix: str) -> None:
    process = worker("p = brick.BrickProfiler.enabled()\n" + EVERYTHING + "p.reset(); report(p.to_json())\npause()\n")
    document = json.loads(process.next_report())
    process.paused()
    assert counts(reading(prefix)) == {("x",): 3, ("tile.macro",): 1, ("zstd",): 1}, (
        "a reset keeps the counts for other readers"
    )
    process.go()
    assert process.end() == 0
    assert document["wall_ns"] < 1e9
    assert (document["bricks"], document["supplied"], document["pending"]) == ([], {}, 0)
    assert document["total_ns"] == document["total_elements"] == 0
    assert not any(document["not_recorded"].values())
    assert not any(each["count"] for each in document["categories"] + document["tiles"])
    assert (document["enabled"], document["tile_profiling"]) == (True, True), "a reset keeps the settings"


def test_after_a_reset_old_extremes_are_not_shown_as_exact(worker: Start, prefix: str) -> None:
    exact_, bounds, after = report_of(
        worker,
        """
def figures():
    of = p.stats("x")
    return [of.count, of.min_ns, of.min_exact, of.max_ns, of.max_exact]
for ns in (10, 5_000, 1_000_000): p.record_elapsed("x", ns)
first = figures()
p.reset()
for ns in (4_000, 7_000): p.record_elapsed("x", ns)
second = figures()
for ns in (5, 2_000_000): p.record_elapsed("x", ns)
report([first, second, figures()])
""",
    )
    assert exact_ == [3, 10, True, 1_000_000, True]
    count, least, least_exact, most, most_exact = bounds
    assert (count, least_exact, most_exact) == (2, False, False)
    assert 4_000 / 2**0.25 <= least <= 4_000
    assert 7_000 <= most <= 7_000 * 2**0.25
    assert after == [4, 5, True, 2_000_000, True]


def test_a_new_profiler_is_empty(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
p.record_elapsed("x", 100)
q = brick.BrickProfiler.enabled()
p.record_elapsed("x", 50)
report([p.stats("x").total_ns, q.stats("x").total_ns])
""",
    )
    assert found == [150, 50]


def test_a_forked_child_starts_empty(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
p.record_elapsed("x", 1); p.reset()
p.record_elapsed("x", 100); p.record_deferred(0, p.elapsed_ns())
read, write = os.pipe()
if os.fork() == 0:
    p.record_elapsed("x", 7)
    os.write(write, f"{p.stats('x').total_ns} {p.pending_count()}".encode())
    os._exit(0)
os.wait()
report([os.read(read, 99).decode(), p.stats("x").total_ns, p.pending_count()])
""",
    )
    assert found == ["7 0", 100, 1]


def test_the_wall_time_of_a_forked_child_starts_at_the_fork(worker: Start, prefix: str) -> None:
    child, parent = report_of(
        worker,
        """
import json
def passed(): return json.loads(p.to_json())["wall_ns"]
while p.elapsed_ns() < 20_000_000: pass
before, forked = passed(), p.elapsed_ns()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, b"%d" % (passed() <= p.elapsed_ns() - forked))
    os._exit(0)
os.wait()
report([os.read(read, 9).decode(), passed() >= before])
""",
    )
    assert (child, parent) == ("1", True)


# ---- figures -----------------------------------------------------------------------------------------------------


def test_throughput_by_wall_time_is_shown_next_to_the_seeds(worker: Start, prefix: str) -> None:
    by_wall, text, before, after = report_of(
        worker,
        """
import time
before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
p.reset()
p.record_elapsed("x", 1_000, elements=1_000)
p.disable()
after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
report([p.total_throughput(), p.to_json(), before, after])
""",
    )
    document = json.loads(text)
    assert document["elements_per_s_in_bricks"] == 1e9
    assert 0 < document["wall_ns"] <= after - before
    assert by_wall == document["elements_per_s"] == pytest.approx(1_000 * 1e9 / document["wall_ns"])


def test_percentiles_and_standard_deviation_are_shown(worker: Start, prefix: str) -> None:
    p50, p99, deviation = report_of(
        worker,
        """
for ns in [1_000] * 90 + [100_000] * 10: p.record_elapsed("x", ns)
of = p.stats("x")
report([of.percentile_ns(50), of.percentile_ns(99), of.std_ns])
""",
    )
    assert p50 == pytest.approx(1_000, rel=0.1)
    assert p99 == pytest.approx(100_000, rel=0.1)
    assert deviation == pytest.approx(29_700)


def test_a_division_by_zero_gives_0() -> None:
    of = BrickStats("x")
    for figure in ("avg_ns", "std_ns", "throughput", "gb_per_s", "gflops", "compression_ratio", "avg_cycles"):
        assert getattr(of, figure) == 0
    assert (of.cycles_per_element, of.diagnosis, of.percentile_ns(50)) == (0, "insufficient data", None)
    assert (CategoryStats("x").avg_ns, CategoryStats("x").throughput) == (0, 0)


def test_one_run_does_not_vary_whatever_the_rounding_of_its_square() -> None:
    assert BrickStats("x", count=1, total_ns=3, squares=9.0001).std_ns == 0
    one_bounded = BrickStats("x", count=2, bounded=1, total_ns=7, bounded_ns=4, squares=9.0001)
    assert one_bounded.std_ns == 0
    assert BrickStats("x", count=2, total_ns=4, squares=10.0).std_ns == 1


def test_the_formulas_match_the_seed() -> None:
    of = BrickStats("x", count=2, total_ns=1_500, total_elements=300, total_bytes=3_000, total_compressed_bytes=750)
    assert (of.avg_ns, of.throughput, of.gb_per_s, of.compression_ratio) == (750, 2e8, 2, 4)
    of.total_cycles, of.cycle_count = 9_000, 2
    assert (of.avg_cycles, of.cycles_per_element) == (4_500, 30)
    assert of.diagnosis.startswith("memory-bound")
    assert BrickStats("x", total_ns=1, total_cycles=1, total_elements=3).diagnosis.startswith("compute-bound")
    assert BrickStats("x", total_ns=2, total_cycles=1, total_elements=1).diagnosis == "throttled or descheduled"
    assert BrickStats("x", total_ns=1, total_cycles=1, total_elements=1).diagnosis == "balanced"


@given(st.lists(st.tuples(st.sampled_from(["Norm", "Other", "mine", "a"]), *[st.integers(0, 2**40)] * 3)))
def test_categories_of_any_bricks_add_up(rows: list[tuple[str, int, int, int]]) -> None:
    bricks = [
        BrickStats(str(n), category, count=count, total_ns=2 * own, self_ns=own, total_elements=elements)
        for n, (category, own, count, elements) in enumerate(rows)
    ]
    found = by_category(bricks, ("Norm", "Other"))
    assert list(found)[:2] == ["Norm", "Other"]
    assert sum(each.total_ns for each in found.values()) == sum(each.self_ns for each in bricks)
    assert sum(each.count for each in found.values()) == sum(each.count for each in bricks)
    total = sum(each.percentage for each in found.values())
    assert math.isclose(total, 100) or not any(each.self_ns for each in bricks)


def test_compressed_bytes_and_cycles_are_kept_by_name(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
p.record_elapsed_with_bytes("zstd", 1000, 100, 1_000_000, 250_000)
p.record_elapsed_with_bytes("zstd", 2000, 200, 2_000_000, 500_000)
p.record_cycles("zstd", 3000); p.record_cycles("zstd", 6000)
of = p.stats("zstd")
report([of.count, of.total_ns, of.total_elements, of.total_bytes, of.total_compressed_bytes, of.compression_ratio,
        of.gb_per_s, of.total_cycles, of.min_cycles, of.max_cycles, of.avg_cycles, of.cycles_per_element])
""",
    )
    assert found == [2, 3000, 300, 3_000_000, 750_000, 4.0, 1000.0, 9000, 3000, 6000, 4500.0, 30.0]


# ---- messages ----------------------------------------------------------------------------------------------------


def test_the_summary_lists_bricks_by_total_time_and_categories(worker: Start, prefix: str) -> None:
    text = report_of(
        worker,
        """
p.record_elapsed("Rope", 25_000, 10); p.record_elapsed("b", 50_000, 20); p.record_elapsed("a", 25_000)
for _ in range(2): p.record_elapsed("Gate", 50_000, 35)
p.disable()
report(p.summary())
""",
    )
    _, bricks, categories, *_ = text.split("\n\n")
    assert [line.split()[:4] for line in bricks.splitlines()] == [
        ["BRICK", "CATEGORY", "SAMPLES", "TOTAL"],
        ["GateProjection", "FFN", "2", "100"],
        ["b", "Other", "1", "50"],
        ["RopeEmbedding", "Attention", "1", "25"],
        ["a", "Other", "1", "25"],
    ]
    assert [line.split()[0] for line in categories.splitlines()] == ["CATEGORY", "Attention", "FFN", "Other"]
    assert " 50.0 " in categories.splitlines()[2]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (999.4, "999 ns"), (999.7, "1 µs"), (999_400, "999 µs"), (999_700, "1 ms"), (1_234_567, "1.23 ms"),
     (999_600_000, "1 s"), (999.4e9, "999 s"), (999.7e9, "1,000 s"), (12_345e9, "12,345 s")],
)  # fmt: skip
def test_a_duration_has_three_digits_and_no_exponent(ns: float, text: str) -> None:
    assert as_text(ProfilerReport({}, ns, [], {}, [], {}, 0, {})).startswith(f"0 ns in bricks of {text}, ")  # type: ignore[arg-type]


def test_bricks_with_equal_times_are_sorted_by_name(worker: Start, prefix: str) -> None:
    names = [f"n{n}" for n in range(20)]
    program = "for name in {}: p.record_elapsed(name, 100)\nreport(p.brick_names())"
    assert report_of(worker, program.format(names)) == report_of(worker, program.format(names[::-1])) == sorted(names)


def test_labels_set_by_the_host_are_shown(worker: Start, prefix: str) -> None:
    text, summary = report_of(
        worker,
        """
p.record_elapsed("x", 100)
p.set_l2_cache_hit_rate(7); p.set_zero_copy(True); p.set_brick_bottleneck("x", "Memory"); p.record_cycles("x", 9)
report([p.to_json(), p.summary()])
""",
    )
    document = json.loads(text)
    assert document["supplied"] == {"l2_cache_hit_rate": 1.0, "zero_copy": True}
    (row,) = document["bricks"]
    assert (row["supplied"]["bottleneck"], row["supplied"]["cycles"]) == ("memory", 9)
    assert not {"bottleneck", "cycles", "ipc"} & set(row)
    assert "supplied by the user, not measured: l2_cache_hit_rate 1.0, zero_copy True" in summary
    assert "memory (supplied)" in summary


def test_no_name_breaks_the_summary_or_the_json(worker: Start, prefix: str) -> None:
    names = ['quote"s', "new\nline", "\x1b[31mred", "tab\t", "ünïcode", "\\", "</script>", "\u2028"]
    text, summary, found = report_of(
        worker,
        f"""
for name in {names!r}: p.record_elapsed(name, 100); p.record_deferred_dynamic(name, p.elapsed_ns())
p.finalize()
report([p.to_json(), p.summary(), p.brick_names()])
""",
    )
    assert sorted(found) == sorted(each["name"] for each in json.loads(text)["bricks"]) == sorted(names)
    assert "\x1b" not in summary
    assert "new\\nline" in summary
    assert len(summary.split("\n\n")[1].splitlines()) == len(names) + 1


@pytest.mark.ci
def test_a_report_survives_a_signal_handler_that_records(worker: Start, prefix: str) -> None:
    count, names = report_of(
        worker,
        """
n = 0
def handler(frame, event, arg):
    global n
    if "brick_agent" not in frame.f_code.co_filename: return None
    if event == "line":
        n += 1
        p.record_cycles(f"n{n % 50}", 5); p.record_deferred_dynamic("late", p.elapsed_ns()); p.stop(p.start("inner"))
        if n % 3 == 0: p.finalize()
        if n % 5 == 0: p.reset()
    return handler
for _ in range(4): p.record_deferred_dynamic("k", p.elapsed_ns())
sys.settrace(handler)
p.finalize(); p.summary(); p.to_json(); p.total_throughput(); p.reset()
sys.settrace(None)
p.stop(p.start("after"))
report([n, p.brick_names()])
""",
    )
    assert count > 300
    assert "after" in names


@pytest.mark.ci
def test_importing_the_agent_does_not_load_the_profiler(worker: Start, prefix: str) -> None:
    process = worker(
        """
import subprocess
code = "import sys, brick_agent; early = set(sys.modules); brick_agent.BrickProfiler; "
code += "late = 'brick_agent._compat.profiler.profiler'; print(late in early, late in sys.modules, 'enum' in early)"
report(subprocess.run([sys.executable, "-I", "-S", "-c", "import sys; sys.path[:] = %r; " % sys.path + code],
                      capture_output=True, text=True).stdout.split())
"""
    )
    assert process.next_report() == ["False", "True", "False"]
    assert process.end() == 0


def test_the_label_enumerations_have_the_names_of_the_seed() -> None:
    assert [each.name for each in BrickBottleneck] == ["Unknown", "Memory", "Compute"]


def test_the_profiler_leaves_the_ledger_exact(worker: Start, prefix: str) -> None:
    got = record(worker, prefix, "p = brick.BrickProfiler.enabled()\n" + EVERYTHING + NESTED)
    assert exact(got)["begun"] == 3 + 1 + 1 + 20 * 5
