"""The state of a site at which workers computed different outputs from equal inputs.

Owns: the states, their transitions, and the majority rule. Must not know: fingerprints, reports, limits. Invariants: A
round of comparisons combines all results at a site before the state changes, so the order of the results does not
matter. No worker is named if most workers contradict themselves, if the outlier keeps changing, or if no more than half
of the workers agree. A worker that agrees with all others is never named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from brickd.analysis.numerics.online_state import WORKERS_MAX, Case, DivergentSite, Doubt


class Fate(Enum):
    """The state of a site."""

    COMPARABLE = auto()  # nothing is wrong at the site
    DOUBTED = auto()  # workers contradict themselves; the cause is a worker or the kernel
    FOUND = auto()  # workers differ


@dataclass
class PlaceLook:
    """The result of one round of comparisons at a site.

    Attributes:
        fingerprints: the number of judged fingerprints.
        workers: the uuids of the compared workers.
        contradict: the uuids of the workers that contradict themselves.
        outliers: the uuids of the workers that differ from the majority.
        cases: the number of new cases.
        times: how often each worker was an outlier, in the new cases and in earlier cases without a majority.
        case: the first new case with a majority, or else the first new case.
        contradiction: two outputs of a worker that contradicts itself.
    """

    fingerprints: int = 0
    workers: set[str] = field(default_factory=set)
    contradict: set[str] = field(default_factory=set)
    outliers: set[str] = field(default_factory=set)
    cases: int = 0
    times: Counter[str] = field(default_factory=Counter)
    case: Case | None = None
    contradiction: Case | None = None

    def doubt(
        self, finding: DivergentSite | None, doubt: Doubt | None, present: Collection[str], living: Collection[str]
    ) -> Doubt:
        """Combine this round of comparisons with what was known about the workers at the site.

        The workers in `present` have a fingerprint in the window. Only the `living` count towards a majority, because
        one faulty machine that restarts its worker again and again would look like several workers.
        """
        before = doubt or Doubt(frozenset(), frozenset())
        if finding is not None:
            before = Doubt(frozenset(finding.workers), finding.contradict)
        workers = _more(_more(before.workers, self.outliers, 2 * WORKERS_MAX), self.workers, WORKERS_MAX)
        contradict = before.contradict.union(self.contradict & workers)
        outliers = workers & self.outliers.union(finding.outliers if finding is not None else ())
        if 2 * len(outliers.intersection(living)) > len(workers.union(present).intersection(living)):
            contradict |= outliers  # the outlier keeps changing, so the kernel is the cause
        return Doubt(workers, contradict, before.case or self.contradiction)


def _more(known: frozenset[str], others: Collection[str], most: int) -> frozenset[str]:
    """Add other workers, up to a total of `most` workers."""
    return known.union(sorted(set(others) - known)[: max(0, most - len(known))])


def fate(doubt: Doubt, present: Collection[str], *, differs: bool, repeats: bool) -> Fate:
    """Return the state of a site.

    `differs` tells whether workers that do not contradict themselves differ now, or differed earlier. The workers in
    `present` have a fingerprint in the window. If `repeats` is true, the kernel computes equal outputs from equal
    inputs, so a worker without a case agrees.
    """
    if 2 * len(doubt.contradict) > len(doubt.workers.union(present) if repeats else doubt.workers):
        return Fate.DOUBTED
    if differs or (repeats and doubt.contradict and doubt.case is not None):
        return Fate.FOUND
    return Fate.DOUBTED if doubt.contradict and not repeats else Fate.COMPARABLE


class GroupVerdict(NamedTuple):
    """The verdict on a group of fingerprints with equal inputs.

    Attributes:
        outliers: the workers that differ from the majority; empty without a majority.
        against: a fingerprint of the majority, or else of the first worker; None if nothing can be compared.
        other: a fingerprint that differs from `against`; None if `against` is None.
        contradiction: the most frequent fingerprint of a worker that contradicts itself, and another one of that
            worker.
    """

    workers: frozenset[int]
    contradict: frozenset[int]
    outliers: frozenset[int] = frozenset()
    against: int | None = None
    other: int | None = None
    contradiction: tuple[int, int] | None = None


def judge_group(group: Sequence[tuple[int, int, int, int]]) -> GroupVerdict:
    """Judge a group; each item is a worker, an output, its count, and the sequence number of its newest fingerprint."""
    rows_of: dict[int, list[tuple[int, int, int]]] = {}
    for worker, output, times, newest in group:
        rows_of.setdefault(worker, []).append((output, times, newest))
    steady = {worker: rows[0] for worker, rows in rows_of.items() if len(rows) == 1}
    workers, contrary = frozenset(rows_of), frozenset(rows_of.keys() - steady.keys())
    contradiction = _contradiction(rows_of[min(contrary)]) if contrary else None
    undecided = GroupVerdict(workers, contrary, contradiction=contradiction)
    once = len(steady) == 1 and next(iter(steady.values()))[1] == 1  # whether it repeats its results is unknown
    if len(workers) < 2 or 2 * len(contrary) > len(workers) or once:
        return undecided
    right = _right([output for output, _, _ in steady.values()])
    if right is None:
        leader = min(steady)
        first, _, against = steady[leader]
        other = max(newest for output, _, newest in steady.values() if output != first)
        return undecided._replace(against=against, other=other)
    unlike = [(newest, worker) for worker, output, _, newest in group if output != right]
    if not unlike:
        return undecided
    against = max(newest for output, _, newest in steady.values() if output == right)
    return undecided._replace(outliers=frozenset(worker for _, worker in unlike), against=against, other=max(unlike)[0])


def _contradiction(rows: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    most, *others = sorted(rows, key=lambda row: -row[1])
    return most[2], others[0][2]


def _right(outputs: Sequence[int]) -> int | None:
    """Return the output of more than half of the workers. Workers that contradict themselves have no vote."""
    ((output, votes),) = Counter(outputs).most_common(1)
    return output if 2 * votes > len(outputs) else None
