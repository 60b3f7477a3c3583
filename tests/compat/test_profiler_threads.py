"""The local state of profilers and runs stays complete and consistent if another thread interrupts a call.

The function `meanwhile` runs another thread. It returns when that thread has ended or waits for the lock.
"""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from faults import Start

MEETING = """
import json, threading
from brick_agent._compat.kernel_trace import run as trace_run
from brick_agent._compat.profiler.stats import BrickStats

class Lock:
    def __init__(self, of): self.of, self.waited_for = of, threading.Event()
    def __enter__(self):
        if not self.of.acquire(blocking=False):
            self.waited_for.set()
            self.of.acquire()
    def __exit__(self, *_): self.of.release()

def watched(kept):
    kept.lock = Lock(kept.lock)
    return kept

others = []
def meanwhile(kept, do):
    def other():
        do()
        kept.lock.waited_for.set()
    others.append(threading.Thread(target=other))
    others[-1].start()
    kept.lock.waited_for.wait()

def once(kept, do):
    left = [do]
    return lambda: left and meanwhile(kept, left.pop())

class Met(BrickStats):
    # After the figure `at` has been read, another thread runs.
    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name == at: hook()
        return value

def report_after_others(of):
    for each in others: each.join()
    report(of())

p = brick.BrickProfiler.enabled()
kept = watched(p._local)
"""

PROFILER: dict[str, tuple[str, Any]] = {
    "compressed bytes": (
        """
        class Bytes:
            def __index__(self):
                hook()
                return 5
        hook = once(kept, lambda: p.record_elapsed_with_bytes("zstd", 10, 1, 8, 2))
        p.record_elapsed_with_bytes("zstd", 10, 1, 8, Bytes())
        report_after_others(lambda: p.stats("zstd").total_compressed_bytes)
        """,
        7,
    ),
    "cycles": (
        """
        at, hook = "total_cycles", once(kept, lambda: p.record_cycles("gemm", 5))
        kept.named["gemm"] = Met("gemm")
        p.record_cycles("gemm", 7)
        report_after_others(lambda: [kept.named["gemm"].total_cycles, kept.named["gemm"].cycle_count])
        """,
        [12, 2],
    ),
    "bounds of a sync": (
        """
        def defer():
            p.record_deferred_dynamic("gemm", p.elapsed_ns(), 1)
        at, hook = "total_ns", once(kept, lambda: (defer(), p.finalize()))
        of = kept.named["gemm"] = Met("gemm")
        defer()
        p.finalize()
        report_after_others(lambda: [of.total_ns - of.bounded_ns, of.count])
        """,
        [0, 2],
    ),
    "a reset during a sync": (
        """
        at, hook = "total_ns", once(kept, p.reset)
        kept.named["gemm"] = Met("gemm")
        for name in ("gemm", "norm"):
            p.record_deferred_dynamic(name, p.elapsed_ns(), 1)
        p.finalize()
        report_after_others(lambda: [sorted(kept.named), p.pending_count()])
        """,
        [[], 0],
    ),
    "reading figures": (
        """
        p.record_cycles("gemm", 7)
        kept.named["gemm"] = Met("gemm", total_cycles=7, min_cycles=7, max_cycles=7, cycle_count=1)
        at, hook = "min_cycles", once(kept, lambda: p.record_cycles("gemm", 7))
        found = p.stats("gemm")
        report_after_others(lambda: [found.total_cycles, found.cycle_count, kept.named["gemm"].cycle_count])
        """,
        [7, 1, 2],
    ),
    "mistakes": (
        """
        class Mistakes(dict):
            def get(self, *what):
                value = super().get(*what)
                hook()
                return value
        hook = once(kept, lambda: kept.refuse("amounts", "made up"))
        kept.mistakes = Mistakes()
        kept.refuse("amounts", "made up")
        report_after_others(lambda: kept.mistakes)
        """,
        {"amounts": 2},
    ),
}

RUNS: dict[str, tuple[str, Any]] = {
    "room for traces": (
        """
        trace_run.TRACES_MAX = 1
        class Copied(brick.KernelTrace):
            def __copy__(self):
                hook()
                return brick.KernelTrace("rope")
        hook = once(kept, lambda: run.add_trace(brick.KernelTrace("norm")))
        run.add_trace(Copied("rope"))
        report_after_others(lambda: [[each.kernel for each in run.traces], run.traces_dropped])
        """,
        [["rope"], 1],
    ),
    "a clear while it is stored": (
        """
        stored = []
        forget, hook = kept.forget, once(kept, lambda: stored.append(json.loads(run.to_json())))
        kept.forget = lambda: (forget(), hook())
        run.add_trace(brick.KernelTrace("rope"))
        run.traces_dropped, run.diverged = 3, True
        run.clear()
        report_after_others(lambda: [len(stored[0]["traces"]), stored[0]["traces_dropped"], stored[0]["diverged"]])
        """,
        [0, 0, False],
    ),
    "a trace while it is stored": (
        """
        class Run(brick.TraceRun):
            @property
            def traces(self):
                found = super().traces
                hook()
                return found
        run = Run("base")
        kept = watched(run._local)
        hook = lambda: None
        first, second = brick.KernelTrace("rope"), brick.KernelTrace("norm")
        first.time_ns, second.time_ns = 10, 20
        run.add_trace(first)
        hook = once(kept, lambda: run.add_trace(second))
        stored = json.loads(run.to_json())
        report_after_others(lambda: [stored["total_time_ns"], len(stored["traces"]), len(run.traces)])
        """,
        [10, 1, 2],
    ),
    "a clear while it is compared": (
        """
        class Run(brick.TraceRun):
            @property
            def traces(self):
                found = super().traces
                hook()
                return found
        run = Run("base")
        kept = watched(run._local)
        hook = lambda: None
        run.add_trace(brick.KernelTrace("rope"))
        run.traces_dropped = 3
        hook = once(kept, run.clear)
        _, traces, dropped = run._snapshot()
        report_after_others(lambda: [len(traces), dropped, len(run.traces), run.traces_dropped])
        """,
        [1, 3, 0, 0],
    ),
    "a mark while it is stored": (
        """
        stored = []
        class Report:
            verdict, diagnosis = trace_run.DIVERGED, "made up"
            @property
            def matched(self):
                hook()
                return False
        class Run(brick.TraceRun):
            def compare(self, reference, *, rtol=0.0): return Report()
        run = Run("base")
        kept = watched(run._local)
        hook = once(kept, lambda: stored.append(json.loads(run.to_json())))
        run.compare_and_mark(run)
        report_after_others(lambda: [stored[0]["diverged"], stored[0]["divergence_diagnosis"]])
        """,
        [True, "made up"],
    ),
}


def report_of(worker: Start, setup: str, program: str) -> Any:
    process = worker(MEETING + setup + dedent(program))
    reported = process.next_report()
    assert process.end() == 0, process.stderr
    return reported


@pytest.mark.parametrize("what", PROFILER)
def test_f107_a_profiler_survives_a_thread_switch_at_any_instruction(worker: Start, what: str) -> None:
    program, wanted = PROFILER[what]
    assert report_of(worker, "", program) == wanted


@pytest.mark.parametrize("what", RUNS)
def test_f107_a_run_survives_a_thread_switch_at_any_instruction(worker: Start, what: str) -> None:
    program, wanted = RUNS[what]
    assert report_of(worker, 'run = brick.TraceRun("base")\nkept = watched(run._local)\n', program) == wanted
