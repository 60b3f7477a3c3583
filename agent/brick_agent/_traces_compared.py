"""Two runs of traces beside each other: what differs first, and where that was born.

Owns: which trace stands beside which, what all pairs come to, and the report. Must not know: what one pair comes to,
JSON, sentences. Invariants: what is expected is the reference's; no run is equal of which anything was not compared;
the same two runs give the same report. The verdicts are those of `brickd diff`, but that a run of which a part was not
compared is incomplete: for nobody here knows whether that was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brick_agent._traces import KernelTrace
from brick_agent._traces_paired import CULPRIT, DIVERGED, IDENTICAL, NOT_COMPARABLE, WITHIN, TracePair, judged
from brick_agent._traces_told import diagnosis

# typing takes longer to import than everything else here together: only type checkers see it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    _Key = tuple[str, int | None, int | str | None]

INCOMPLETE = "incomplete"


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


def compare(
    run: tuple[str, Sequence[KernelTrace], int], reference: tuple[str, Sequence[KernelTrace], int], rtol: float
) -> TraceReport:
    """Set a run beside a reference, each with its id, its traces and how many it had no room for."""
    run_id, actual, lost = run
    reference_id, expected, reference_lost = reference
    wanted, had = _by_place(expected), _by_place(actual)
    missing = tuple(each for key, traces in wanted.items() for each in traces[len(had.get(key, ())) :])
    pairs: list[TracePair] = []
    extra: list[KernelTrace] = []
    seen: dict[_Key, int] = {}
    born: TracePair | None = None
    for trace in actual:
        key = _place(trace)
        occurrence = seen[key] = seen.get(key, -1) + 1
        beside = wanted.get(key, ())
        if occurrence >= len(beside):
            extra.append(trace)
            continue
        uneven = len(beside) != len(had[key])
        pairs.append(judged(beside[occurrence], trace, occurrence, rtol, born, uneven))
        if born is None and pairs[-1].blame == CULPRIT:
            born = pairs[-1]
    apart = tuple(each for each in pairs if each.verdict == NOT_COMPARABLE)
    divergences = tuple(each for each in pairs if each.verdict == DIVERGED)
    within = sum(each.verdict == WITHIN for each in pairs)
    compared, dropped = len(pairs) - len(apart), lost + reference_lost
    if not compared:
        verdict = NOT_COMPARABLE
    elif divergences:
        verdict = DIVERGED
    elif missing or extra or apart or dropped:
        verdict = INCOMPLETE
    else:
        verdict = WITHIN if within else IDENTICAL
    return TraceReport(
        run_id, reference_id, verdict, compared, divergences, within, apart, missing, tuple(extra), dropped
    )


def _place(trace: KernelTrace) -> _Key:
    return trace.kernel, trace.layer, trace.position


def _by_place(traces: Sequence[KernelTrace]) -> dict[_Key, list[KernelTrace]]:
    found: dict[_Key, list[KernelTrace]] = {}
    for trace in traces:
        found.setdefault(_place(trace), []).append(trace)
    return found
