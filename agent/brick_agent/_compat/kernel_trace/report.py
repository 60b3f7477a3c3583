"""TraceReport: the result of a comparison of two runs, and its diagnosis as a sentence.

Owns: the report and its words. Must not know: how a verdict is reached. Invariants: expected values are shown under the
reference's name, actual values under the run's name; a name can neither break a line nor control a terminal; each
verdict says how much was compared, and how much was not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brick_agent._compat.kernel_trace.pair import IDENTICAL, WITHIN
from brick_agent._compat.profiler.report import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brick_agent._compat.kernel_trace.pair import TracePair
    from brick_agent._compat.kernel_trace.trace import KernelTrace

_REASONS = {
    "unchecked": "without an output checksum",
    "key": "fingerprinted under another key",
    "shape": "with a different shape",
    "valid": "with a different number of valid rows",
    "params": "with different params",
    "dtype": "with a different dtype",
    "repeats": "recorded a different number of times",
    "range": "with numbers too large for a sketch",
}


@dataclass(frozen=True, slots=True)
class TraceReport:
    """The result of a comparison of two runs.

    >>> run = brick.TraceRun("new")
    >>> run.compare(brick.TraceRun("base")).matched
    False

    Attributes:
        run_id, reference_id: the runs of the actual and of the expected traces.
        verdict: identical, within, diverged, incomplete or not_comparable.
        kernels_compared: the number of compared pairs.
        divergences: the pairs that differ, in the order of execution.
        within: the number of pairs that differ by at most the tolerance.
        not_comparable: the pairs that could not be compared, with the reason of each.
        missing, extra: the traces that only the reference has; the traces that only the run has.
        dropped: the number of traces that were dropped because a run was full.
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    run_id: str
    reference_id: str
    verdict: str
    kernels_compared: int
    divergences: tuple[TracePair, ...] = field(repr=False)
    within: int
    not_comparable: tuple[TracePair, ...] = field(repr=False)
    missing: tuple[KernelTrace, ...] = field(repr=False)
    extra: tuple[KernelTrace, ...] = field(repr=False)
    dropped: int

    @property
    def matched(self) -> bool:
        """Whether both runs were compared completely and agree, exactly or within the tolerance."""
        return self.verdict in (IDENTICAL, WITHIN)

    @property
    def first_divergent_kernel(self) -> str | None:
        """The first kernel that differs."""
        return self.divergences[0].actual.kernel if self.divergences else None

    @property
    def expected_trace(self) -> KernelTrace | None:
        """The reference's trace of the first kernel that differs."""
        return self.divergences[0].expected if self.divergences else None

    @property
    def actual_trace(self) -> KernelTrace | None:
        """The run's trace of the first kernel that differs."""
        return self.divergences[0].actual if self.divergences else None

    @property
    def diagnosis(self) -> str:
        """The report in one line of text."""
        run, reference = _names(self.run_id, self.reference_id)
        not_compared = "; ".join(_not_compared(self, run, reference))
        compared = _many(self.kernels_compared, "kernel")
        match self.verdict:
            case "diverged":
                differing = f"diverged: {run} differs from {reference} in {len(self.divergences):,} of {compared}"
                first = f"{differing}, first at {_difference(self.divergences[0], run, reference)}"
                return f"{first}; {not_compared}" if not_compared else first
            case "incomplete":
                near = f", {self.within:,} of them within the tolerance" if self.within else ""
                return f"incomplete: {compared} of {run} and {reference} are equal{near}; {not_compared}"
            case "within":
                within = f"{self.within:,} of {compared} of {run} and {reference}"
                return f"within the tolerance: {within}; the others are equal"
            case "identical":
                return f"identical: {compared} of {run} and {reference}"
        wanted = "expected output checksums of the same kernels, layers and positions in both"
        return f"nothing is comparable in {run} and {reference}: {not_compared or 'they have no traces'}; {wanted}"


def _place(trace: KernelTrace, occurrence: int = 0) -> str:
    layer = [] if trace.layer is None else [f"layer {trace.layer}"]
    position = [] if trace.position is None else [f"position {printable(str(trace.position))}"]
    again = [f"occurrence {occurrence}"] if occurrence else []
    return ", ".join([printable(trace.kernel), *layer, *position, *again])


def _names(run: str, reference: str) -> tuple[str, str]:
    if run == reference:
        run, reference = (f"{run} (this run)", f"{reference} (the reference)") if run else ("this run", "the reference")
    return printable(run) or "this run", printable(reference) or "the reference"


def _difference(pair: TracePair, run: str, reference: str) -> str:
    a, b = pair.expected, pair.actual
    clauses = [
        f"{_place(b, pair.occurrence)}: expected {a.output_checksum} ({reference}{_kind(a, b)}), "
        f"actual {b.output_checksum} ({run}{_kind(b, a)})",
        f"relative error {_error(pair.relative_error)}",
        _born(pair),
    ]
    match pair.not_finite:
        case "born":
            clauses.append("NaN or infinities began there")
        case "passed_on":
            clauses.append("NaN or infinities came from an input")
        case "unknown":
            clauses.append("the outputs have different numbers of NaN or infinities")
    return "; ".join(clauses)


def _kind(of: KernelTrace, other: KernelTrace) -> str:
    """Describe the backend and the dtype of a trace, but leave out what the other trace has in common with it."""
    kind = "" if of.backend == other.backend else f", on {printable(of.backend or 'an unknown backend')}"
    if of.output is not None and other.output is not None and of.output.dtype != other.output.dtype:
        kind += f", in {of.output.dtype}"
    return kind


def _born(pair: TracePair) -> str:
    match pair.blame:
        case "culprit":
            return "the difference began there, or in state that is not an input: the inputs were equal"
        case "propagated" if pair.born is not None:
            return (
                f"the inputs already differ; the difference began at {_place(pair.born.actual, pair.born.occurrence)}"
            )
        case "propagated":
            return "the inputs already differ, but no trace shows where the difference began"
    if not (pair.expected.inputs and pair.actual.inputs):
        return "where the difference began is unknown: the inputs were not recorded"
    return "where the difference began is unknown: the inputs also differ, within the tolerance"


def _not_compared(of: TraceReport, run: str, reference: str) -> list[str]:
    """Describe which traces were not compared, and why."""
    clauses = []
    for traces, lacks, has in ((of.missing, run, reference), (of.extra, reference, run)):
        if traces:
            first = _place(traces[0]) if len(traces) == 1 else f"first {_place(traces[0])}"
            clauses.append(f"{_many(len(traces), 'kernel')} of {has} missing in {lacks} ({first})")
    for reason, words in _REASONS.items():
        pairs = [each for each in of.not_comparable if each.reason == reason]
        if pairs:
            clauses.append(f"{_many(len(pairs), 'kernel')} {words} ({_why(pairs[0], reason, run, reference)})")
    if of.dropped:
        clauses.append(f"{_many(of.dropped, 'trace')} dropped, because the run was full")
    return clauses


def _why(pair: TracePair, reason: str, run: str, reference: str) -> str:
    """Describe a pair that could not be compared. Give its place, and the two values that explain the reason."""
    where = _place(pair.actual, pair.occurrence)
    if reason == "unchecked":
        lacks = [name for name, trace in ((reference, pair.expected), (run, pair.actual)) if trace.output is None]
        return f"{where}, in {' and '.join(lacks)}"
    expected, actual = _figure(pair.expected, reason), _figure(pair.actual, reason)
    return where if expected == actual else f"{where}: {expected} in {reference}, {actual} in {run}"


def _figure(of: KernelTrace, reason: str) -> str:
    match reason:
        case "key":
            return of.key or "unknown"
        case "shape":
            elements = 0 if of.output is None else of.output.elements
            return _many(elements, "element") if of.shape is None else "×".join(map(str, of.shape)) or "scalar"
        case "valid":
            return "all" if of.valid is None else str(of.valid)
        case "params":
            return "none" if of.params is None else printable(of.params[:80])
        case "dtype":
            return "" if of.output is None else of.output.dtype
    return ""


def _error(error: float | None) -> str:
    return "not known" if error is None else "<1e-6" if error < 1e-6 else f"{error:.2g}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
