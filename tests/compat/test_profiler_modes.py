"""When BrickProfiler waits for the device, and which part of the time each brick gets."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from brick_agent._compat.profiler.pending import WAITING_MAX, Waiting
from conftest import ROOT, WRITER, reading
from faults import Start, native
from hypothesis import given
from hypothesis import strategies as st
from recorded import counts, events
from test_profiler import report_of

# A device that executes its work in order while the host continues. sync() waits for the device, as in torch.
DEVICE = """
import time
def now(): return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
busy_until, syncs = 0, []
def launch(ns):
    global busy_until
    busy_until = max(busy_until, now()) + ns
def sync():
    syncs.append(now())
    while now() < busy_until: pass
    syncs[-1] = now()
def forward(layers=2):
    for n in range(layers):
        with p.layer(n):
            for name in ("attention", "mlp"):
                t = p.start(name); launch(200_000); p.stop(t, 8)
"""


def test_immediate_waits_before_each_stop_reads_the_clock(worker: Start, prefix: str) -> None:
    syncs, count, least, bounded, pending = report_of(
        worker,
        DEVICE
        + """
p.set_sync_mode("Immediate", sync=sync)
forward()
of = p.stats("mlp")
report([len(syncs), of.count, of.min_ns, of.bounded, p.pending_count()])
""",
    )
    assert (syncs, count, bounded, pending) == (4, 2, 0, 0)
    assert least >= 200_000, "a shorter time means that the clock was read before the device had finished"


def test_per_layer_waits_once_at_the_end_of_each_layer(worker: Start, prefix: str) -> None:
    syncs, after, count, bounded, pending = report_of(
        worker,
        DEVICE
        + """
p.set_sync_mode("PerLayer", sync=sync)
forward(3)
after = len(syncs)
t = p.start("head"); p.stop(t)
found = p.pending_count()
p.finalize()
report([len(syncs), after, p.stats("mlp").count, p.stats("mlp").bounded, found])
""",
    )
    assert (after, syncs, count, bounded, pending) == (3, 4, 3, 3, 1)


def test_deferred_waits_once_at_finalize(worker: Start, prefix: str) -> None:
    before, after, count, total, elements, span = report_of(
        worker,
        DEVICE
        + """
p.set_sync_mode("Deferred", sync=sync)
begun = now()
forward(3)
before = len(syncs)
p.finalize()
ended = now()
report([before, len(syncs), p.stats("mlp").count, p.total_ns(), p.stats("mlp").total_elements, ended - begun])
""",
    )
    assert (before, after, count, elements) == (0, 1, 3, 24)
    assert 6 * 200_000 <= total <= span, "the elapsed time counts once"


def test_off_neither_waits_nor_records(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        DEVICE
        + """
p.set_sync_mode("None", sync=sync)
forward()
p.record_deferred(0, 0); p.record_elapsed("x", 5); p.finalize()
report([syncs, p.brick_names(), p.pending_count(), p.sync_mode().name])
""",
    )
    assert found == [[], [], 0, "Off"]


def test_without_a_sync_function_host_time_is_recorded(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
for mode in ("Immediate", "PerLayer", "Deferred"):
    p.set_sync_mode(mode)
    with p.layer(1): p.stop(p.start("x"))
report([p.stats("x").count, p.stats("x").bounded, p.pending_count()])
""",
    )
    assert found == [3, 0, 0]


def test_bricks_finalized_together_share_the_elapsed_time_once(worker: Start, prefix: str) -> None:
    parts, latencies, end = report_of(
        worker,
        """
for n in range(10): p.record_deferred_dynamic(f"k{n}", n * 1000 if p.elapsed_ns() > 20_000 else n)
while p.elapsed_ns() < 20_000: pass
p.reset()
for n in range(10): p.record_deferred_dynamic(f"k{n}", n * 1000, 4)
p.finalize(15_000)
report([[p.stats(f"k{n}").total_ns for n in range(10)],
        [p.stats(f"k{n}").sync_latency_ns for n in range(10)], p.total_ns()])
""",
    )
    assert parts == [1000] * 9 + [6000]
    assert latencies == [15_000 - n * 1000 for n in range(10)]
    assert end == 15_000


def test_a_bound_is_not_reported_as_a_measurement(worker: Start, prefix: str) -> None:
    text, summary = report_of(
        worker,
        """
p.record_deferred_dynamic("k", p.elapsed_ns()); p.finalize()
report([p.to_json(), p.summary()])
""",
    )
    (row,) = json.loads(text)["bricks"]
    assert (row["count"], row["bounded"], row["bounded_ns"]) == (1, 1, row["total_ns"])
    assert (row["min_exact"], row["max_exact"], row["p50_ns"]) == (False, False, None)
    assert "bounded 1" in summary


def test_resetting_the_epoch_before_finalize_loses_no_time(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
import json
p.record_deferred_dynamic("k", p.elapsed_ns())
old = p.elapsed_ns() + 10**12
while p.elapsed_ns() < 100_000: pass
p.reset_epoch()
p.finalize(old)  # of the old epoch: it has not come yet
refused = [p.pending_count(), json.loads(p.to_json())["not_recorded"]["finalizes"]]
p.record_deferred_dynamic("late", old)
p.finalize()
report([*refused, p.stats("k").total_ns >= 50_000, p.stats("late") is None])
""",
    )
    assert found == [1, 1, True, True]


def test_deferred_work_is_an_event_with_its_start_and_in_no_summary(worker: Start, prefix: str) -> None:
    process = worker(
        DEVICE
        + """
p = brick.BrickProfiler.enabled(sync=sync)
before = now()
with p.layer(3):
    t = p.start("k", "ffn"); between = now(); launch(300_000); sync(); p.stop(t, 8)
after = now()
p.finalize()
report([before, between, after, brick.pending()])
pause()
""",
        BRICKD_CLOCK="monotonic",
    )
    before, between, after, pending = process.next_report()
    process.paused()
    got = reading(prefix)
    start, finalize = events(got)
    assert (start["path"], start["elements"]) == (("k[3]",), 8)
    assert (finalize["stream"], finalize["every"]) == (start["stream"], 0)
    assert pending == 0
    assert counts(got) == {}
    assert before <= start["start"] <= between, "the work began when it was started, not when it was stopped"
    assert after <= finalize["ticks"]
    process.go()
    assert process.end() == 0


def test_a_deferred_start_is_recorded_with_the_tick_of_its_time(worker: Start, prefix: str) -> None:
    process = worker(
        """
p = brick.BrickProfiler.enabled()
with brick.span("open the segment"): pass
while p.elapsed_ns() < 3_000_000: pass
p.record_deferred(0, 1_000_000); p.record_deferred(0, 2_000_000); p.record_deferred(0, 2_500_000)
pause()
""",
        BRICKD_CLOCK="monotonic",
    )
    process.paused()
    first, second, third = (each["start"] for each in events(reading(prefix)))
    assert second - first == pytest.approx(1_000_000, abs=20_000)
    assert third - second == pytest.approx(500_000, abs=20_000)
    process.go()
    assert process.end() == 0


@pytest.mark.ci
def test_a_possible_start_is_recorded_exactly_and_an_impossible_one_as_now(
    compiled: Callable[..., Path], prefix: str
) -> None:
    binary = compiled("since", (ROOT / "tests/native/since.c", *WRITER))
    with native(binary) as process:
        process.paused()
        logged = events(reading(prefix))
    now = 5_000_000_000
    assert [each["start"] for each in logged] == [now - 1_000_000, 1, now - 1, *[now] * 9]
    assert {each["path"] for each in logged} == {("kernel",)}
    assert [each["bytes"] for each in logged] == [2] * 11 + [0], "an amount that is too large is dropped"


def test_each_profiler_finalizes_its_own_work(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
q = brick.BrickProfiler.enabled()
p.record_deferred(0, p.elapsed_ns()); q.record_deferred(0, q.elapsed_ns()); brick.brick("k").defer()
p.finalize()
report([p.pending_count(), q.pending_count(), brick.pending()])
""",
    )
    assert found == [0, 1, 2]


def test_a_sync_function_that_raises_is_reported_and_ends_nothing(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
import json
def fails(): raise RuntimeError("device lost")
p.set_sync_mode("Deferred", sync=fails)
p.stop(p.start("k")); p.finalize()
pending = p.pending_count()
p.set_sync_mode("Immediate")
p.stop(p.start("k"))
report([pending, p.stats("k").count, json.loads(p.to_json())["not_recorded"]["syncs"]])
""",
    )
    assert found == [1, 1, 2]


def test_a_brick_ends_in_the_mode_in_which_it_started(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
def sync(): pass
measured = p.start("a")
p.set_sync_mode("Deferred", sync=sync)
deferred = p.start("b")
p.set_sync_mode("Off"); p.disable()
p.stop(deferred); p.stop(measured); p.finalize()
report([p.stats("a").bounded, p.stats("a").count, p.stats("b").bounded])
""",
    )
    assert found == [0, 1, 1]


def test_a_brick_that_started_with_a_sync_stops_with_one(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
syncs = []
p.set_sync_mode("Immediate", sync=lambda: syncs.append(1))
for mode in ("Deferred", "PerLayer", "Off", "Immediate"):
    t = p.start("k"); p.set_sync_mode(mode); p.stop(t); p.set_sync_mode("Immediate")
before = len(syncs)
p.set_sync_mode("Immediate", sync=None)
t = p.start("host"); p.set_sync_mode("Immediate", sync=lambda: syncs.append(1)); p.stop(t)
report([before, len(syncs), p.stats("k").count, p.stats("k").bounded])
""",
    )
    assert found == [4, 4, 4, 0]


def test_a_tile_never_waits_for_the_device(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
syncs = []
p.enable_tile_profiling()
for mode in ("Immediate", "PerLayer", "Deferred"):
    p.set_sync_mode(mode, sync=lambda: syncs.append(1))
    p.stop_tile(p.start_tile("Micro"), 1, 1)
report([syncs, p.tile_stats("Micro").count, p.pending_count()])
""",
    )
    assert found == [[], 3, 0]


@pytest.mark.parametrize("mode", ["Immediate", "PerLayer", "Deferred"])
def test_a_sync_function_may_use_its_own_profiler(worker: Start, prefix: str, mode: str) -> None:
    calls, waits, pending, lost = report_of(
        worker,
        f"""
import json
calls = []
def sync():
    calls.append(1)
    with p.layer(9): p.stop(p.start("waits"))
    p.finalize()
p.set_sync_mode({mode!r}, sync=sync)
with p.layer(1): p.stop(p.start("k"))
p.finalize()
report([len(calls), p.stats("waits").count, p.pending_count(), json.loads(p.to_json())["not_recorded"]])
""",
    )
    assert (calls, waits, pending) == (1, 1, 0)
    assert not any(lost.values())


def test_an_interrupted_sync_interrupts_the_host_and_loses_nothing(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
def interrupted(): raise KeyboardInterrupt
reported = 0
for mode in ("Immediate", "PerLayer", "Deferred"):
    p.set_sync_mode(mode, sync=interrupted)
    try:
        with p.layer(1): p.stop(p.start("k"))
        p.finalize()
    except KeyboardInterrupt: reported += 1
before = p.pending_count()
p.set_sync_mode("Deferred", sync=lambda: None); p.finalize()
with brick.span("after"): pass
report([reported, before, p.stats("k").count, p.pending_count(), p.stats("after").self_ns == p.stats("after").total_ns])
""",
    )
    assert found == [3, 2, 3, 0, True]


starts = st.lists(st.integers(0, 1000), max_size=12)


@given(st.lists(st.tuples(starts, st.integers(0, 1000)), max_size=6))
def test_parts_never_exceed_the_elapsed_time(rounds: list[tuple[list[int], int]]) -> None:
    waiting, reported, last = Waiting(), 0, 0
    settled: list[tuple[str, int, int, int]] = []
    for at, end in rounds:
        reported += len(at)
        for start in at:
            assert waiting.add((start, "k", 1))
        settled += waiting.settle(end)
        last = max(last, end)
    assert len(settled) + len(waiting) == reported
    assert all(part >= 0 and latency >= 0 for _, part, latency, _ in settled)
    assert sum(part for _, part, _, _ in settled) <= last


@given(starts.filter(len), st.integers(1000, 2000))
def test_parts_of_a_sync_add_up_to_the_time_since_the_first_start(at: list[int], end: int) -> None:
    waiting = Waiting()
    for start in at:
        waiting.add((start, "k", 1))
    assert sum(part for _, part, _, _ in waiting.settle(end)) == end - min(at)


def test_the_queue_of_deferred_work_is_limited() -> None:
    waiting = Waiting()
    assert all(waiting.add((n, "k", 1)) for n in range(WAITING_MAX))
    assert not waiting.add((0, "k", 1))
    assert len(waiting.settle(WAITING_MAX)) == WAITING_MAX


def settled_with_an_interruption(at: int) -> tuple[int, Waiting, list[tuple[str, int, int, int]]]:
    """Settle deferred work, and let another sync interrupt this before instruction number `at`.

    Return the number of instructions, the work that still waits, and the work that was settled.
    """
    waiting, count = Waiting(), 0
    within: list[tuple[str, int, int, int]] = []
    for n in range(4):
        waiting.add((10 * n, "k", 1))

    def interrupts(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        if "pending" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == at:
                waiting.add((35, "late", 1))
                within.extend(waiting.settle(200))
        return interrupts

    sys.settrace(interrupts)
    try:
        settled = waiting.settle(100)
    finally:
        sys.settrace(None)
    return count, waiting, settled + within


@pytest.mark.ci
def test_a_sync_nested_in_another_loses_nothing() -> None:
    instructions, _, _ = settled_with_an_interruption(0)
    assert instructions > 50
    for at in range(1, instructions + 1):
        _, waiting, settled = settled_with_an_interruption(at)
        assert len(settled) + len(waiting) == 5
        assert sum(part for _, part, _, _ in settled) <= 200
