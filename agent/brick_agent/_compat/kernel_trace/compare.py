"""The comparison of two runs of traces.

Owns: which trace is compared with which, and what all pairs come to. Must not know: what one pair comes to, JSON,
sentences. Invariants: what is expected is the reference's; no run is equal of which anything was not compared;
the same two runs give the same report. The verdicts are those of `brickd diff`, but that a run of which a part was not
compared is incomplete: for nobody here knows whether that was lost.
"""

from __future__ import annotations

from brick_agent._compat.kernel_trace.pair import (
    CULPRIT,
    DIVERGED,
    IDENTICAL,
    NOT_COMPARABLE,
    WITHIN,
    TracePair,
    judged,
)
from brick_agent._compat.kernel_trace.report import TraceReport
from brick_agent._compat.kernel_trace.trace import KernelTrace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    _Key = tuple[str, int | None, int | str | None]

INCOMPLETE = "incomplete"


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
