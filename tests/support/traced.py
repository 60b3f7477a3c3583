"""Makes runs of traces that tests compare. The traces are made from fingerprints alone; nothing is recorded."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

import brick_agent as brick


class T(NamedTuple):
    """A trace: its place, and a number for each of its tensors. None means that the tensor is not given."""

    kernel: str = "k"
    layer: int | None = 0
    position: int | str | None = 0
    output: Any = None
    inputs: Any = None
    backend: str | None = None
    params: Any = None


def print_of(numbers: Any) -> brick.Fingerprint:
    return brick.fingerprint(array("f", numbers) if isinstance(numbers, (list, tuple)) else numbers)


def trace_of(t: T) -> brick.KernelTrace:
    trace = brick.KernelTrace(*t[:3], t.backend)
    if t.output is not None:
        trace.with_output_checksum(print_of(t.output))
    if t.inputs is not None:
        trace.with_input_checksum([print_of(each) for each in t.inputs])
    return trace if t.params is None else trace.with_params(t.params)


def run_of(run_id: str, traces: Iterable[T]) -> brick.TraceRun:
    run = brick.TraceRun(run_id)
    for each in traces:
        run.add_trace(trace_of(each))
    return run
