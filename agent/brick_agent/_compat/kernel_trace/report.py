"""TraceReport: the result of a comparison of two runs, and the same in a sentence.

Owns: the report and its words. Must not know: how a verdict comes about. Invariants: what is expected is called by the
reference's name, what is there instead by the run's; no name breaks a line or a terminal; that nothing differs is never
said without how much was compared, and how much was not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brick_agent._compat.kernel_trace.pair import IDENTICAL, WITHIN
from brick_agent._compat.profiler.report import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from brick_agent._compat.kernel_trace.pair import TracePair
    from brick_agent._compat.kernel_trace.trace import KernelTrace

# Why two are not compared: what is the matter with them.
_REASONS = {
    "unchecked": "without an output checksum",
    "key": "fingerprinted under another key",
    "shape": "of another shape",
    "valid": "of other valid rows",
    "params": "with other params",
    "dtype": "of another dtype",
    "repeats": "not as often in each",
    "range": "of numbers too large for a sketch",
}


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What a comparison of two runs came to.

    >>> run = brick.TraceRun("new")
    >>> run.compare(brick.TraceRun("base")).matched
    False

    Attributes:
        run_id: whose traces are the actual ones.
        reference_id: whose are the expected ones.
        verdict: identical, within, diverged, incomplete or not_comparable.
        kernels_compared: how many pairs could be.
        divergences: those that differ, in the order in which they ran; the first one leads.
        within: how many differ by no more than the tolerance.
        not_comparable: those that could not be compared, each with the reason.
        missing: what only the reference has.
        extra: what only the run has.
        dropped: how many traces neither run had room for.
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

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
        """Whether all of both runs was compared, and is equal or within the tolerance."""
        return self.verdict in (IDENTICAL, WITHIN)

    @property
    def first_divergent_kernel(self) -> str | None:
        """The kernel that differs first."""
        return self.divergences[0].actual.kernel if self.divergences else None

    @property
    def expected_trace(self) -> KernelTrace | None:
        """What the reference has there."""
        return self.divergences[0].expected if self.divergences else None

    @property
    def actual_trace(self) -> KernelTrace | None:
        """What the run has there."""
        return self.divergences[0].actual if self.divergences else None

    @property
    def diagnosis(self) -> str:
        """All of it in a line, for a person."""
        return diagnosis(self)


def diagnosis(of: TraceReport) -> str:
    """All of it in a line."""
    run, reference = _named(of.run_id, of.reference_id)
    not_all = "; ".join(_not_all(of, run, reference))
    compared = _many(of.kernels_compared, "kernel")
    match of.verdict:
        case "diverged":
            return "; ".join(
                (
                    f"diverged: {run} differs from {reference} in {len(of.divergences):,} of {compared}, "
                    f"first at {_difference(of.divergences[0], run, reference)}",
                    *([not_all] if not_all else []),
                )
            )
        case "incomplete":
            near = f", {of.within:,} of them within the tolerance" if of.within else ""
            return f"incomplete: equal in {run} and {reference} are {compared}{near}; {not_all}"
        case "within":
            return f"within the tolerance: {of.within:,} of {compared} of {run} and {reference}; the others are equal"
        case "identical":
            return f"identical: {compared} of {run} and {reference}"
    wanted = "wanted are output checksums of the same kernels, layers and positions in both"
    return f"nothing is comparable in {run} and {reference}: {not_all or 'they have no traces'}; {wanted}"


def place(trace: KernelTrace, occurrence: int = 0) -> str:
    """Where a trace stands."""
    layer = [] if trace.layer is None else [f"layer {trace.layer}"]
    position = [] if trace.position is None else [f"position {printable(str(trace.position))}"]
    again = [f"occurrence {occurrence}"] if occurrence else []
    return ", ".join([printable(trace.kernel), *layer, *position, *again])


def _named(run: str, reference: str) -> tuple[str, str]:
    if run == reference:  # or nobody could tell them apart
        run, reference = (f"{run} (this run)", f"{reference} (the reference)") if run else ("this run", "the reference")
    return printable(run) or "this run", printable(reference) or "the reference"


def _difference(pair: TracePair, run: str, reference: str) -> str:
    """One pair that differs: what was expected, of whom, and what is there."""
    a, b = pair.expected, pair.actual
    said = [
        f"{place(b, pair.occurrence)}: expected {a.output_checksum} ({reference}{_kind(a, b)}), "
        f"actual {b.output_checksum} ({run}{_kind(b, a)})",
        f"relative error {_error(pair.relative_error)}",
        _born(pair),
    ]
    match pair.not_finite:
        case "born":
            said.append("NaN or infinities are born there")
        case "passed_on":
            said.append("NaN or infinities are passed on")
        case "unknown":
            said.append("only one has as many NaN or infinities")
    return "; ".join(said)


def _kind(of: KernelTrace, other: KernelTrace) -> str:
    """Its backend and dtype, where the other's is another one."""
    kind = "" if of.backend == other.backend else f", on {printable(of.backend or 'an unknown backend')}"
    if of.output is not None and other.output is not None and of.output.dtype != other.output.dtype:
        kind += f", in {of.output.dtype}"
    return kind


def _born(pair: TracePair) -> str:
    match pair.blame:
        case "culprit":
            return "born there, or in a state that no input shows: its inputs were equal"
        case "propagated" if pair.born is not None:
            return f"passed on: its inputs differ; born at {place(pair.born.actual, pair.born.occurrence)}"
        case "propagated":
            return "passed on: its inputs differ already, from where no trace shows"
    if not (pair.expected.inputs and pair.actual.inputs):
        return "where it was born is not known: its inputs were not given"
    return "where it was born is not known: its inputs are apart, too, within the tolerance"


def _not_all(of: TraceReport, run: str, reference: str) -> list[str]:
    """What was not compared, and why."""
    said = []
    for traces, lacks, has in ((of.missing, run, reference), (of.extra, reference, run)):
        if traces:
            said.append(f"{lacks} lacks {_many(len(traces), 'kernel')} of {has} ({_first(traces)})")
    for reason, words in _REASONS.items():
        pairs = [each for each in of.not_comparable if each.reason == reason]
        if pairs:
            said.append(f"{_many(len(pairs), 'kernel')} {words} ({_why(pairs[0], reason, run, reference)})")
    if of.dropped:
        said.append(f"{_many(of.dropped, 'trace')} found no room")
    return said


def _first(traces: Sequence[KernelTrace]) -> str:
    return place(traces[0]) if len(traces) == 1 else f"first {place(traces[0])}"


def _why(pair: TracePair, reason: str, run: str, reference: str) -> str:
    """The first of those that were not compared for a reason: where, and what each has."""
    where = place(pair.actual, pair.occurrence)
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
