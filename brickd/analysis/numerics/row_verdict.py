"""The workers whose rows differ at a site, from the counts of each pair of workers.

Owns: the majority and the outliers among pairs. Must not know: how rows are counted (row_pairs.h), reports. Invariants:
a worker is an outlier only if it differs from a worker of the majority, and is far from another one or differs from it,
too; the majority has no rows that are far from each other, and more workers than it has opponents; a site where most
workers contradict themselves, or where no two of three agree, gets no verdict: it is not row-wise, or does not repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from brickd.analysis.numerics.place_state import GroupVerdict
from brickd.shm import _reader

_CONTRADICTS = 3  # rows, as for two workers that differ
_ENOUGH = 8  # rows of a pair without a difference, to exclude one


class RowPair(NamedTuple):
    """Two workers at a site. The last four are pairs: of the one, of the other.

    Attributes:
        rows: the number of equal input rows that both had.
        apart: the number of these where they have no output in common.
        far: the number of these where it has an output that is far from all outputs of the other worker.
        unlike_own: the number of these where an output of it is far from another one of its own.
        newest: fingerprints of both at the last row where it was far, or else apart.
        differs: whether it differs from the other worker.
    """

    one: int
    other: int
    rows: int
    apart: int
    far: tuple[int, int]
    unlike_own: tuple[int, int]
    newest: tuple[tuple[int, int], tuple[int, int]]
    differs: tuple[bool, bool]

    @property
    def agree(self) -> bool:
        """Whether their outputs are equal, apart from rounding."""
        return not any(self.differs) and self.far == (0, 0)

    def peer(self, worker: int) -> int:
        """The other worker."""
        return self.other if worker == self.one else self.one

    def side(self, worker: int) -> int:
        """The place of a worker in the pairs of numbers."""
        return int(worker != self.one)

    def example(self, worker: int) -> tuple[int, int]:
        """Return fingerprints at the last such row of a worker: the other worker's, and its own."""
        side = self.side(worker)
        return self.newest[side][not side], self.newest[side][side]


class RowVerdict(NamedTuple):
    """The verdict on a site; `waits`: more rows of another worker may soon tell which of two is the outlier."""

    group: GroupVerdict
    waits: bool = False


def row_pairs(fingerprints: _reader.Fingerprints, service: int, site: int) -> list[RowPair]:
    """Return the pairs of workers of a service at a site of rows."""
    return [RowPair(*pair) for pair in fingerprints.row_pairs(service, site)]


def judge_pairs(pairs: Sequence[RowPair]) -> RowVerdict:
    """Judge the workers at a site.

    >>> none = ((0, 0), (0, 0))
    >>> same = RowPair(1, 2, 9, 0, (0, 0), (0, 0), none, (False, False))
    >>> other = [RowPair(0, peer, 9, 9, (9, 9), (0, 0), none, (True, True)) for peer in (1, 2)]
    >>> judge_pairs([same]).group.other, judge_pairs([same, *other]).group.outliers
    (None, frozenset({0}))
    """
    workers = frozenset(worker for pair in pairs for worker in pair[:2])
    nothing = GroupVerdict(workers, frozenset())
    differing = [pair for pair in pairs if any(pair.differs)]
    agreeing = [frozenset(pair[:2]) for pair in pairs if pair.agree]
    contradict = {worker for pair in pairs for worker in pair[:2] if pair.unlike_own[pair.side(worker)] >= _CONTRADICTS}
    if not differing or 2 * len(contradict) > len(workers):
        return RowVerdict(nothing)
    involved = {worker for pair in differing for worker in pair[:2]}
    if len(involved) > 2 and not agreeing:
        return RowVerdict(nothing)
    majority = _majority(workers, agreeing)
    outliers = frozenset(worker for worker in workers - majority if _is_outlier(worker, majority, pairs))
    if len(majority) <= len(outliers):
        outliers = frozenset()
    if outliers:
        about = [pair for pair in differing if len(outliers.intersection(pair[:2])) == 1 and majority & set(pair[:2])]
        most = max(about, key=_weight)
        outlier = most.one if most.one in outliers else most.other
    else:
        most = max(differing, key=_weight)
        outlier = most.one if most.differs[0] else most.other
    unsure = [pair for pair in pairs if involved & set(pair[:2]) and not any(pair.differs)]
    waits = not outliers and any(pair.rows < _ENOUGH or not pair.agree for pair in unsure)
    against, other = most.example(outlier)
    return RowVerdict(nothing._replace(outliers=outliers, against=against, other=other), waits)


def _weight(pair: RowPair) -> tuple[int, int]:
    return sum(pair.far), pair.apart


def _majority(workers: Iterable[int], agreeing: Sequence[frozenset[int]]) -> frozenset[int]:
    """Return the worker that agrees with most others, and these; the first one of several."""
    sets = ({worker}.union(*(pair for pair in agreeing if worker in pair)) for worker in sorted(workers))
    return frozenset(max(sets, key=len, default=()))


def _is_outlier(worker: int, majority: frozenset[int], pairs: Iterable[RowPair]) -> bool:
    """Whether it differs from a worker of the majority, and is at least once far from another one."""
    mine = [pair for pair in pairs if worker in pair[:2] and pair.peer(worker) in majority]
    differs = {pair.peer(worker) for pair in mine if pair.differs[pair.side(worker)]}
    leans = {pair.peer(worker) for pair in mine if pair.far[pair.side(worker)]} | differs
    return bool(differs) and len(leans) > 1
