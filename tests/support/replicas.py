"""Workers that run a small version of the demonstration's transformer, and their records."""

from __future__ import annotations

from typing import Any, NamedTuple

from conftest import ROOT, readings
from faults import Start
from recorded import checked

from brickd.demo.transformer import OF_A_LAYER, Size
from brickd.shm.segment_copy import Reading

LAYERS, PROMPT, STEPS = 2, 5, 3
SMALL = Size(layers=LAYERS, width=32, heads=4, hidden=48, vocabulary=64, context=16)
MODEL = f"""
import itertools
import sys
sys.path.append({str(ROOT / "scripts")!r})
import numpy as np
from brickd.demo.transformer import *
size = {SMALL}
def report_of(model, **how):
    return list(itertools.islice(model.generate(range({PROMPT}), **how), {STEPS}))
"""
KERNELS = [kernel.name for kernel in OF_A_LAYER]
RUNS = [(kernel, layer) for layer in range(LAYERS) for kernel in KERNELS] + [("norm", -1)]
MOMENTS = [(0, 0), *((step, PROMPT - 1 + step) for step in range(1, STEPS))]


class Seen(NamedTuple):
    """The fingerprint record of one run of an operator."""

    kernel: str
    layer: int
    step: int
    position: int
    inputs: tuple[int, ...]
    output: int


def seen(of: Reading) -> list[Seen]:
    found = []
    for (kernel, layer, _), each in checked(of):
        output, *inputs = (tensor["checksum"] for tensor in each["tensors"])
        found.append(Seen(kernel, layer, each["step"], each["position"], tuple(inputs), output))
    return found


def replicas(worker: Start, prefix: str, *programs: str) -> tuple[list[Any], list[list[Seen]]]:
    """Run these programs, and return their reports and records."""
    reported, processes = [], [worker(MODEL + program + "\npause()") for program in programs]
    for process in processes:
        reported.append(process.next_report())
        process.paused()
    recorded = {of.header["pid"]: seen(of) for of in readings(prefix)}
    for process in processes:
        process.go()
        assert (process.end(), process.stderr) == (0, "")
    return reported, [recorded[process.pid] for process in processes]
