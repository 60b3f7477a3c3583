"""An exported span and an event of the torch profiler at the same place have the same time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from faults import Start
from test_record import recording
from verbs import brickd

pytest.importorskip("torch", reason="torch is not installed: .ci/run does it")

PROGRAM = """
import torch
brick.init()
pause()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    for _ in range(50):
        with torch.profiler.record_function("aligned"), brick.span("aligned"):
            torch.ones(8).sum()
profile.export_chrome_trace(PATH)
pause()
"""
# brickd and torch each read a pair of clocks within a few µs. Some of the 50 pairs of a span and an event may be
# interrupted, so only the closest pair counts.
TOLERANCE_NS = 200_000


@pytest.mark.ci
def test_spans_are_aligned_with_a_trace_of_the_torch_profiler(worker: Start, tmp_path: Path) -> None:
    trace, run = tmp_path / "trace.json", tmp_path / "run.brick"
    process = worker(PROGRAM.replace("PATH", repr(str(trace))), BRICKD_SERVICE="api")
    process.paused()
    with recording("-o", str(run), "--spans", "--until-exit") as recorder:
        process.go()
        process.paused()
        process.go()
        process.end()
        recorder.communicate()
    lines = brickd("export", str(run), "--brick", "aligned", "-f", "jsonl", "-o", "-").stdout.splitlines()
    spans = [json.loads(line)["begin_unix_ns"] for line in lines[1:-1]]
    found = json.loads(trace.read_text())
    base_ns = int(found.get("baseTimeNanoseconds", 0))
    events = sorted(
        base_ns + round(each["ts"] * 1000)
        for each in found["traceEvents"]
        if each["name"] == "aligned" and each["ph"] == "X"
    )
    assert len(spans) == len(events) == 50
    apart = [span - event for span, event in zip(sorted(spans), events, strict=True)]
    assert min(map(abs, apart)) < TOLERANCE_NS, apart
