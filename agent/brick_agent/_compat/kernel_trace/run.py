"""TraceRun: keeps the traces of one run, records them, and compares them with another run.

    run = TraceRun("cuda")
    run.add_trace(KernelTrace("rope", 3, 17, "cuda").with_input_checksum(x).with_output_checksum(y))
    report = run.compare_and_mark(TraceRun.from_json(open("cpu.json").read()))
    print(report.diagnosis)

Owns: the traces, their limit, and whether the run is marked as diverged. Must not know: how runs are compared, the form
of JSON. Invariants: recording raises nothing (except with BRICKD_STRICT=1): an argument that is not a trace is only
counted, and so is a trace for which there is no room; later changes of a trace do not affect the run; clear() keeps
only the id.

add_trace also records the trace in the segment, like `checksum`, at the trace's kernel and layer. So `brickd diff` and
`brickd.diff` can compare it across many workers, live or recorded. They take steps and ranks into account, and decide
by majority. A run can be compared with another run of the same process. It can also be compared with a run of another
process that did the same work, if that run was stored as JSON.
"""

from __future__ import annotations

import copy
import json

from brick_agent._compat.kernel_trace.compare import compare
from brick_agent._compat.kernel_trace.pair import DIVERGED
from brick_agent._compat.kernel_trace.report import TraceReport
from brick_agent._compat.kernel_trace.run_json import as_json, from_json
from brick_agent._compat.kernel_trace.trace import TEXT_MAX, KernelTrace
from brick_agent._compat.profiler.local_totals import LocalTotals
from brick_agent._core import Taken, checksum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsIndex

TRACES_MAX = 16_384


class TraceRun:
    """The traces of one run, at most 16,384 (48 MB with one input each).

    In cbtop, this class is BrickProfiler. Each tensor is read twice: once for the trace, and once for the segment,
    because the fingerprints in the segment use the service's key. With BRICKD=0, the segment gets nothing, but runs
    still keep and compare traces.

    >>> from array import array
    >>> base, new = brick.TraceRun("base"), brick.TraceRun("new")
    >>> for run, by in ((base, 2.0), (new, 2.5)):
    ...     x = array("f", [1, 2, 3])
    ...     trace = brick.KernelTrace("scale", 0, 17, "cpu").with_input_checksum(x)
    ...     run.add_trace(trace.with_output_checksum(array("f", [by * each for each in x])))
    >>> report = new.compare(base)
    >>> report.verdict, report.first_divergent_kernel, report.divergences[0].blame
    ('diverged', 'scale', 'culprit')

    Attributes:
        run_id: the name of the run.
        diverged: whether the last compare_and_mark found a divergence.
        divergence_diagnosis: the diagnosis of the last compare_and_mark, unless all traces matched.
        traces_dropped: the number of traces that were dropped because the run was full.
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    def __init__(self, run_id: str = "") -> None:
        self._local = LocalTotals()
        self.run_id = run_id if isinstance(run_id, str) and len(run_id) <= TEXT_MAX else ""
        if self.run_id is not run_id:
            self._local.refuse("ids", f"a run's id must be a string of at most {TEXT_MAX} characters")
        self._traces: list[KernelTrace] = []
        self.diverged = False
        self.divergence_diagnosis: str | None = None
        self.traces_dropped = 0

    def __repr__(self) -> str:
        many = f"{len(self._traces)} trace{'' if len(self._traces) == 1 else 's'}"
        return f"TraceRun({self.run_id!r}, {many}{', diverged' if self.diverged else ''})"

    def __reduce__(self) -> tuple[Callable[[str], TraceRun], tuple[str]]:
        """Copy and pickle as JSON, so that a copy shares nothing with the run."""
        return type(self).from_json, (self.to_json(),)

    def is_diverged(self) -> bool:
        """Whether the last compare_and_mark found a divergence.

        >>> brick.TraceRun("base").is_diverged()
        False
        """
        return self.diverged

    def add_trace(self, trace: KernelTrace) -> None:
        """Keep a copy of a trace, and record it once, even if it is added to several runs.

        If a tensor was given as a fingerprint, only runs compare it, not the segment. If it was given as a result of
        `take`, it is compared only in the segment. In the segment, a trace without a layer gets the surrounding layer,
        and a trace without a position gets its occurrence in the step.

        >>> brick.TraceRun("base").add_trace(brick.KernelTrace("rope", 3, 17))
        """
        if not isinstance(trace, KernelTrace):
            self._local.refuse("traces", f"add_trace takes a KernelTrace, not a {type(trace).__name__}")
            return
        taken, inputs = trace._hand_over()
        with self._local.lock:
            if len(self._traces) < TRACES_MAX:
                self._traces.append(copy.copy(trace))
            else:
                self.traces_dropped += 1
        if taken is not None:
            _record(trace, taken, inputs)

    def clear(self) -> None:
        """Delete everything except the id.

        >>> brick.TraceRun("base").clear()
        """
        with self._local.lock:
            self._local.forget()
            self._traces.clear()
            self.diverged, self.divergence_diagnosis, self.traces_dropped = False, None, 0

    @property
    def traces(self) -> tuple[KernelTrace, ...]:
        """Return all traces, in the order in which they were added."""
        return tuple(self._traces)

    @property
    def total_time_us(self) -> float:
        """Return the sum of the traces' times."""
        return self._total_ns() / 1e3

    @property
    def mistakes(self) -> dict[str, int]:
        """The number of refused calls, by kind."""
        return dict(self._local.mistakes)

    def traces_for_kernel(self, kernel: str) -> list[KernelTrace]:
        """The traces of a kernel.

        >>> brick.TraceRun("base").traces_for_kernel("rope")
        []
        """
        return [each for each in self.traces if each.kernel == kernel]

    def traces_for_layer(self, layer: SupportsIndex | None) -> list[KernelTrace]:
        """The traces of a layer; None: the traces without a layer.

        >>> brick.TraceRun("base").traces_for_layer(3)
        []
        """
        return [each for each in self.traces if each.layer == layer]

    def compare(self, reference: TraceRun, *, rtol: float = 0.0) -> TraceReport:
        """Compare this run with a reference. Traces of the same kernel, layer and position are paired in order.

        rtol: the tolerated relative error of whole tensors, estimated from the sketches; 0: all bits must be equal.
        (`brickd diff --by run` also knows which errors rounding explains.) Traces with a different backend or float
        dtype are compared, and the report says so. Two traces are not compared if their shapes, params, valid rows or
        keys differ.

        Raises:
            TypeError: the reference is not a run.
            ValueError: the tolerance is invalid.

        >>> brick.TraceRun("new").compare(brick.TraceRun("base")).verdict
        'not_comparable'
        """
        if not isinstance(reference, TraceRun):
            raise TypeError(f"brick_agent: compare takes a TraceRun, not a {type(reference).__name__}")
        if not 0 <= rtol < float("inf"):
            raise ValueError(f"brick_agent: rtol is {rtol}, expected a number of 0 or more")
        return compare(self._snapshot(), reference._snapshot(), rtol)

    def compare_and_mark(self, reference: TraceRun, *, rtol: float = 0.0) -> TraceReport:
        """Compare with a reference, and store in this run whether it diverged, and the diagnosis.

        >>> from array import array
        >>> base, new = brick.TraceRun("base"), brick.TraceRun("new")
        >>> for run, by in ((base, 2.0), (new, 2.5)):
        ...     run.add_trace(brick.KernelTrace("scale").with_output_checksum(array("f", [by])))
        >>> report = new.compare_and_mark(base)
        >>> new.diverged, base.diverged
        (True, False)
        """
        report = self.compare(reference, rtol=rtol)
        with self._local.lock:
            self.diverged = report.verdict == DIVERGED
            self.divergence_diagnosis = None if report.matched else report.diagnosis
        return report

    def to_json(self) -> str:
        """Return the run as JSON, which reveals as much about tensors as a recording with `--values`.

        >>> '"schema_version": 1' in brick.TraceRun("base").to_json()
        True
        """
        with self._local.lock:
            head: dict[str, object] = {
                "run_id": self.run_id,
                "total_time_ns": self._total_ns(),
                "diverged": self.diverged,
                "divergence_diagnosis": self.divergence_diagnosis,
                "traces_dropped": self.traces_dropped,
                "mistakes": self.mistakes,
            }
            traces = self.traces
        return as_json(head, traces)

    @classmethod
    def from_json(cls, text: str | bytes) -> TraceRun:
        """Read the output of to_json; the traces are not recorded in the segment.

        Raises:
            ValueError: the text is not the document of a run.

        >>> brick.TraceRun.from_json(brick.TraceRun("base").to_json()).run_id
        'base'
        """
        head, traces = from_json(text, TRACES_MAX)
        run = cls(head["run_id"])
        run._traces = traces
        run.diverged, run.divergence_diagnosis = head["diverged"], head["divergence_diagnosis"]
        run.traces_dropped = head["traces_dropped"]
        run._local.mistakes.update(head["mistakes"])
        return run

    def _total_ns(self) -> int:
        return sum(each.time_ns or 0 for each in self.traces)

    def _snapshot(self) -> tuple[str, tuple[KernelTrace, ...], int]:
        with self._local.lock:
            return self.run_id, self.traces, self.traces_dropped


def _record(trace: KernelTrace, output: Taken, inputs: tuple[Taken | None, ...]) -> None:
    """Record a trace as a checksum. Its inputs are recorded only if all of them are known."""
    known = tuple(each for each in inputs if each is not None)
    checksum(
        trace.kernel,
        output,
        input=known if len(known) == len(inputs) else None,
        layer=trace.layer,
        position=trace.position,
        backend=trace.backend,
        params=None if trace.params is None else json.loads(trace.params),
    )
