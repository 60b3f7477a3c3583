"""TraceRun: the traces of one run, kept in this process, recorded, and compared with another run's.

    run = TraceRun("cuda")
    run.add_trace(KernelTrace("rope", 3, 17, "cuda").with_input_checksum(x).with_output_checksum(y))
    report = run.compare_and_mark(TraceRun.from_json(open("cpu.json").read()))
    print(report.diagnosis)

Owns: which traces there are, how many may be, and whether the run is marked. Must not know: how two are compared, the
form of JSON. Invariants: nothing on the way of recording raises (but in BRICKD_STRICT=1): what is no trace, and what
finds no room, is counted; what was added is not changed by whoever added it; a clear is of everything but the id.

What is added is recorded as `checksum` records it, at its kernel and layer, so that `brickd diff` and `brickd.diff` see
the same: of many workers, live or recorded, with steps, ranks and a majority. A run is for one process, for two that
did the same, and for JSON.
"""

from __future__ import annotations

import copy
import json

from brick_agent._compat.kernel_trace.arguments import TEXT_MAX
from brick_agent._compat.kernel_trace.compare import compare
from brick_agent._compat.kernel_trace.pair import DIVERGED
from brick_agent._compat.kernel_trace.report import TraceReport
from brick_agent._compat.kernel_trace.run_json import as_json, from_json
from brick_agent._compat.kernel_trace.trace import KernelTrace
from brick_agent._compat.profiler.local_totals import Kept
from brick_agent._core import Taken, checksum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

TRACES_MAX = 16_384


class TraceRun:
    """The traces of one run: at most 16,384 (48 MB with one input each); `traces_dropped` counts those beyond.

    cbtop calls it BrickProfiler. A tensor that is recorded, too, is read twice: the segment's fingerprints are of the
    service's key. Where nothing is recorded, as with BRICKD=0, runs are kept and compared all the same.

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
        run_id: what it is called.
        diverged: whether compare_and_mark found it so.
        divergence_diagnosis: what that said, unless all matched.
        traces_dropped: how many traces found no room.
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    def __init__(self, run_id: str = "") -> None:
        self._kept = Kept()
        self.run_id = run_id if isinstance(run_id, str) and len(run_id) <= TEXT_MAX else ""
        if self.run_id is not run_id:
            self._kept.refuse("ids", f"a run's id must be a string of at most {TEXT_MAX} characters")
        self._traces: list[KernelTrace] = []
        self.diverged = False
        self.divergence_diagnosis: str | None = None
        self.traces_dropped = 0

    # ---- recording ---------------------------------------------------------------------------------------------------

    def add_trace(self, trace: KernelTrace) -> None:
        """Keep a trace as it is now, and record it: once, whatever it is added to.

        What was given as a fingerprint is compared here alone, what `take` gave in the segment alone. A trace without
        a layer has, in the segment, that of the layer around, and one without a position its occurrence in the step.

        >>> brick.TraceRun("base").add_trace(brick.KernelTrace("rope", 3, 17))
        """
        if not isinstance(trace, KernelTrace):
            self._kept.refuse("traces", f"add_trace takes a KernelTrace, not a {type(trace).__name__}")
            return
        taken, inputs = trace._hand_over()
        with self._kept.lock:
            if len(self._traces) < TRACES_MAX:
                self._traces.append(copy.copy(trace))
            else:
                self.traces_dropped += 1
        if taken is not None:
            _record(trace, taken, inputs)

    def clear(self) -> None:
        """Begin anew with everything but the id.

        >>> brick.TraceRun("base").clear()
        """
        with self._kept.lock:
            self._kept.forget()
            self._traces.clear()
            self.diverged, self.divergence_diagnosis, self.traces_dropped = False, None, 0

    # ---- what there is -----------------------------------------------------------------------------------------------

    @property
    def traces(self) -> tuple[KernelTrace, ...]:
        """All of them, as they were added."""
        return tuple(self._traces)

    @property
    def total_time_us(self) -> float:
        """The time of all that say one."""
        return self._total_ns() / 1e3

    @property
    def mistakes(self) -> dict[str, int]:
        """What was asked of it and could not be done, how often."""
        return dict(self._kept.mistakes)

    def traces_for_kernel(self, kernel: str) -> list[KernelTrace]:
        """Those of a kernel.

        >>> brick.TraceRun("base").traces_for_kernel("rope")
        []
        """
        return [each for each in self.traces if each.kernel == kernel]

    def traces_for_layer(self, layer: SupportsIndex | None) -> list[KernelTrace]:
        """Those of a layer; None: those outside of the layers.

        >>> brick.TraceRun("base").traces_for_layer(3)
        []
        """
        return [each for each in self.traces if each.layer == layer]

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def compare(self, reference: TraceRun, *, rtol: float = 0.0) -> TraceReport:
        """Hold this run against a reference, trace against trace of the same kernel, layer and position, in order.

        rtol: up to which relative error of whole tensors, estimated from the sketches, numbers are within tolerance;
        without one they must be equal to the last bit. (`brickd diff --by run` knows what rounding explains.) Another
        backend or another float is compared, and told; another shape, other params, valid rows or key are not.

        Raises:
            TypeError, ValueError: the reference is no run, or the tolerance none.

        >>> brick.TraceRun("new").compare(brick.TraceRun("base")).verdict
        'not_comparable'
        """
        if not isinstance(reference, TraceRun):
            raise TypeError(f"brick_agent: compare takes a TraceRun, not a {type(reference).__name__}")
        if not 0 <= rtol < float("inf"):
            raise ValueError(f"brick_agent: rtol is {rtol}, wanted is a number from 0 on")
        return compare(self._said(), reference._said(), rtol)

    def compare_and_mark(self, reference: TraceRun, *, rtol: float = 0.0) -> TraceReport:
        """The same, and say of this run whether it diverged, and what was found unless all matched.

        >>> from array import array
        >>> base, new = brick.TraceRun("base"), brick.TraceRun("new")
        >>> for run, by in ((base, 2.0), (new, 2.5)):
        ...     run.add_trace(brick.KernelTrace("scale").with_output_checksum(array("f", [by])))
        >>> report = new.compare_and_mark(base)
        >>> new.diverged, base.diverged
        (True, False)
        """
        report = self.compare(reference, rtol=rtol)
        with self._kept.lock:
            self.diverged = report.verdict == DIVERGED
            self.divergence_diagnosis = None if report.matched else report.diagnosis
        return report

    # ---- JSON --------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """All of it, with its schema_version. It tells as much of tensors as a recording with `--values`.

        >>> '"schema_version": 1' in brick.TraceRun("base").to_json()
        True
        """
        with self._kept.lock:
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
        """What to_json said; nothing of it is recorded.

        Raises:
            ValueError: it is none of that.

        >>> brick.TraceRun.from_json(brick.TraceRun("base").to_json()).run_id
        'base'
        """
        head, traces = from_json(text, TRACES_MAX)
        run = cls(head["run_id"])
        run._traces = traces
        run.diverged, run.divergence_diagnosis = head["diverged"], head["divergence_diagnosis"]
        run.traces_dropped = head["traces_dropped"]
        run._kept.mistakes.update(head["mistakes"])
        return run

    def _total_ns(self) -> int:
        return sum(each.time_ns or 0 for each in self.traces)

    def _said(self) -> tuple[str, tuple[KernelTrace, ...], int]:
        with self._kept.lock:
            return self.run_id, self.traces, self.traces_dropped


def _record(trace: KernelTrace, output: Taken, inputs: tuple[Taken | None, ...]) -> None:
    """As any checksum; inputs of which some are not for the segment explain nothing there."""
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
