"""The workers whose rows differ at a site, judged from the counts of each pair of workers.

Owns: the majority and the outliers among pairs. Must not know: how rows are counted (row_pairs.h), reports. Invariants:
An outlier differs from a worker of the majority. It also differs from a second worker of the majority, or is far from
that worker. No two workers of the majority differ. The majority is larger than the number of outliers. There is no
verdict at an unsteady site (row_pairs.h): either the operator does not treat rows separately, or it does not always
compute equal outputs from equal inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.place_state import GroupVerdict
from brickd.shm import _reader

UNSTEADY = "unsteady"  # most workers contradict themselves, or no two of three agree
UNCONFIRMED = "unconfirmed"  # the site is presumed to be row-wise, but its rows have not shown that
FEW = "few"  # rows with equal histories differ, but too few of them to name a worker
_CONFIRMED = 3  # this many repeated rows confirm that a site is row-wise


class RowPair(NamedTuple):
    """Two workers at a site. The last five fields are pairs: one value for each worker.

    Attributes:
        rows: the number of equal input rows that both workers had.
        apart: for each worker: of the newest 16 rows that both workers had, the number for which the other worker never
            had this worker's newest output.
        far: for each worker, the number of rows with an output that is far from all outputs of the other worker.
        unlike_own: for each worker, the number of rows with two outputs of its own that are far from each other.
        newest: for each worker, the fingerprints of both workers at the last row where it was far. If there is no such
            row, those at the last row where it was apart.
        differs: for each worker, whether it differs from the other worker.
    """

    one: int
    other: int
    rows: int
    apart: tuple[int, int]
    far: tuple[int, int]
    unlike_own: tuple[int, int]
    newest: tuple[tuple[int, int], tuple[int, int]]
    differs: tuple[bool, bool]

    @property
    def agree(self) -> bool:
        """Whether the outputs of both workers are equal, apart from rounding."""
        return not any(self.differs) and self.far == (0, 0)

    def peer(self, worker: int) -> int:
        """The other worker of the pair."""
        return self.other if worker == self.one else self.one

    def side(self, worker: int) -> int:
        """The index (0 or 1) of a worker in the fields that are pairs."""
        return int(worker != self.one)

    def example(self, worker: int) -> tuple[int, int]:
        """Return the fingerprints of the other worker and of `worker` at the last row at which `worker` differs."""
        side = self.side(worker)
        return self.newest[side][not side], self.newest[side][side]


class RowVerdict(NamedTuple):
    """The verdict on a site.

    Attributes:
        waits: whether more rows of a third worker may soon show which of two is the outlier.
        doubt: why workers that differ got no verdict; "" if they got one.
    """

    group: GroupVerdict
    waits: bool = False
    doubt: str = ""


def row_pairs(fingerprints: _reader.Fingerprints, service: int, site: int) -> list[RowPair]:
    """Return the pairs of workers of a service at a site of single rows."""
    return [RowPair(*pair) for pair in fingerprints.row_pairs(service, site)]


def is_unconfirmed(numerics: Numerics, service: int, site: int) -> bool:
    """Whether a site is only presumed to be row-wise, and too few rows had the same output in several steps."""
    return site in numerics.presumed and numerics.fingerprints.rows_repeated(service, site) < _CONFIRMED


def judge_pairs(pairs: Sequence[RowPair]) -> RowVerdict:
    """Judge the workers at a site.

    >>> none = ((0, 0), (0, 0))
    >>> same = RowPair(1, 2, 9, (0, 0), (0, 0), (0, 0), none, (False, False))
    >>> other = [RowPair(0, peer, 9, (9, 9), (9, 9), (0, 0), none, (True, True)) for peer in (1, 2)]
    >>> judge_pairs([same]).group.other, judge_pairs([same, *other]).group.outliers
    (None, frozenset({0}))
    """
    workers = frozenset(worker for pair in pairs for worker in pair[:2])
    nothing = GroupVerdict(workers, frozenset())
    differing = [pair for pair in pairs if any(pair.differs)]
    agreeing = [frozenset(pair[:2]) for pair in pairs if pair.agree]
    if not differing:
        return RowVerdict(nothing)
    if _reader.rows_unsteady(pairs):
        return RowVerdict(nothing, doubt=UNSTEADY)
    involved = {worker for pair in differing for worker in pair[:2]}
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
    waits = not outliers and any(involved & set(pair[:2]) and not any(pair.differs) for pair in pairs)
    against, other = most.example(outlier)
    return RowVerdict(nothing._replace(outliers=outliers, against=against, other=other), waits)


def _weight(pair: RowPair) -> tuple[int, int]:
    return sum(pair.far), sum(pair.apart)


def _majority(workers: Iterable[int], agreeing: Sequence[frozenset[int]]) -> frozenset[int]:
    """Return the worker that agrees with the most others, and these others. The first worker wins a tie."""
    sets = ({worker}.union(*(pair for pair in agreeing if worker in pair)) for worker in sorted(workers))
    return frozenset(max(sets, key=len, default=()))


def _is_outlier(worker: int, majority: frozenset[int], pairs: Iterable[RowPair]) -> bool:
    """Whether a worker differs from one worker of the majority, and either differs or is far from a second one."""
    mine = [pair for pair in pairs if worker in pair[:2] and pair.peer(worker) in majority]
    differs = {pair.peer(worker) for pair in mine if pair.differs[pair.side(worker)]}
    leans = {pair.peer(worker) for pair in mine if pair.far[pair.side(worker)]} | differs
    return bool(differs) and len(leans) > 1
