"""The comparison of two runs of traces.

Owns: which traces are compared, and the verdict on all of them. Must not know: the verdict of one pair, JSON,
sentences.
Invariants: the expected values are those of the reference; runs are equal only if all traces were compared; the same
two runs give the same report. The verdicts are those of `brickd diff`, with one exception. If a part of a run was not
compared, the verdict is incomplete, because that part may contain a difference.
"""

from __future__ import annotations

from brick_agent._compat.kernel_trace.pair import (
    CULPRIT,
    DIVERGED,
    IDENTICAL,
    NOT_COMPARABLE,
    WITHIN,
    TracePair,
    compare_pair,
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
    """Compare a run with a reference. Each run is given as its id, its traces, and the number of its dropped traces."""
    run_id, actual, run_dropped = run
    reference_id, expected, reference_dropped = reference
    of_reference, of_run = _by_place(expected), _by_place(actual)
    missing = tuple(each for key, traces in of_reference.items() for each in traces[len(of_run.get(key, ())) :])
    pairs: list[TracePair] = []
    extra: list[KernelTrace] = []
    seen: dict[_Key, int] = {}
    born: TracePair | None = None
    for trace in actual:
        key = _place(trace)
        occurrence = seen[key] = seen.get(key, -1) + 1
        counterparts = of_reference.get(key, ())
        if occurrence >= len(counterparts):
            extra.append(trace)
            continue
        uneven = len(counterparts) != len(of_run[key])
        pairs.append(compare_pair(counterparts[occurrence], trace, occurrence, rtol, born, uneven))
        if born is None and pairs[-1].blame == CULPRIT:
            born = pairs[-1]
    not_comparable = tuple(each for each in pairs if each.verdict == NOT_COMPARABLE)
    divergences = tuple(each for each in pairs if each.verdict == DIVERGED)
    within = sum(each.verdict == WITHIN for each in pairs)
    compared, dropped = len(pairs) - len(not_comparable), run_dropped + reference_dropped
    if not compared:
        verdict = NOT_COMPARABLE
    elif divergences:
        verdict = DIVERGED
    elif missing or extra or not_comparable or dropped:
        verdict = INCOMPLETE
    else:
        verdict = WITHIN if within else IDENTICAL
    return TraceReport(
        run_id, reference_id, verdict, compared, divergences, within, not_comparable, missing, tuple(extra), dropped
    )


def _place(trace: KernelTrace) -> _Key:
    return trace.kernel, trace.layer, trace.position


def _by_place(traces: Sequence[KernelTrace]) -> dict[_Key, list[KernelTrace]]:
    places: dict[_Key, list[KernelTrace]] = {}
    for trace in traces:
        places.setdefault(_place(trace), []).append(trace)
    return places
