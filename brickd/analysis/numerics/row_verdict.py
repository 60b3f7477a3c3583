"""The workers whose rows differ at a site, from the counts of each pair of workers.

Owns: the outlier among pairs. Must not know: how rows are counted (row_pairs.h), reports. Invariant: a worker is an
outlier only if it differs from one of two workers that agree, and is apart from the other one; at most half of the
workers are outliers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from brickd.analysis.numerics.place_state import GroupVerdict
from brickd.shm import _reader

_FEW, _MANY = 8, 64  # rows of a pair: enough to exclude a difference; enough to report two workers in any case
_AGREE = 8  # two workers agree if at most one row in this number has different outputs


class RowPair(NamedTuple):
    """Two workers at a site.

    Attributes:
        rows: how many equal input rows both had.
        apart: the number of these rows where their outputs differ.
        beyond: the number of rows where they differ by more than rounding.
        steps: the number of steps in which each had a row that is apart: 0, 1, or 2 for more.
        newest: a fingerprint of each, at the last such row of one worker, and at the last such row of the other.
        differ: whether these counts are enough to say that the workers differ.
    """

    one: int
    other: int
    rows: int
    apart: int
    beyond: int
    steps: tuple[int, int]
    newest: tuple[tuple[int, int], tuple[int, int]]
    differ: bool

    @property
    def agree(self) -> bool:
        """Whether the outputs of the two workers are equal, apart from rare rounding."""
        return not self.differ and not self.beyond and _AGREE * self.apart <= self.rows

    def peer(self, worker: int) -> int:
        """The other worker."""
        return self.other if worker == self.one else self.one

    def example(self, worker: int) -> tuple[int, int]:
        """Return fingerprints at the last row of a worker that is apart: the other worker's, and its own."""
        side = worker != self.one
        return self.newest[side][not side], self.newest[side][side]

    def steps_of(self, worker: int) -> int:
        """The number of steps at which a worker had a row that is apart."""
        return self.steps[worker != self.one]


def row_pairs(fingerprints: _reader.Fingerprints, service: int, site: int) -> list[RowPair]:
    """Return the pairs of workers of a service at a site of rows."""
    return [RowPair(*pair) for pair in fingerprints.row_pairs(service, site)]


def judge_pairs(pairs: Sequence[RowPair]) -> GroupVerdict:
    """Judge the workers at a site.

    >>> same = RowPair(1, 2, 9, 0, 0, (0, 0), ((0, 0), (0, 0)), False)
    >>> other = [RowPair(0, peer, 9, 9, 9, (2, 2), ((7, peer), (7, peer)), True) for peer in (1, 2)]
    >>> judge_pairs([same]).other, judge_pairs([same, *other]).outliers, judge_pairs(other[:1]).outliers
    (None, frozenset({0}), frozenset())
    """
    workers = frozenset(worker for pair in pairs for worker in pair[:2])
    differing = [pair for pair in pairs if pair.differ]
    if not differing:
        return GroupVerdict(workers, frozenset())
    outliers = {worker for worker in workers if _is_outlier(worker, differing, pairs)}
    if 2 * len(outliers) > len(workers):
        outliers.clear()
    if not outliers and _may_be_named(pairs, differing):
        return GroupVerdict(workers, frozenset())
    about = [pair for pair in differing if len(outliers.intersection(pair[:2])) == 1] or differing
    most = max(about, key=lambda pair: (pair.beyond, pair.apart))
    outlier = most.one if most.one in outliers else most.other
    return GroupVerdict(workers, frozenset(), frozenset(outliers), *most.example(outlier))


def _may_be_named(pairs: Iterable[RowPair], differing: Sequence[RowPair]) -> bool:
    """Whether more rows of another worker may soon tell which of two workers is the outlier."""
    both = {worker for pair in differing for worker in pair[:2]}
    unsure = [pair for pair in pairs if both.intersection(pair[:2]) and not pair.differ]
    return any(not pair.agree or pair.rows < _FEW for pair in unsure) and max(pair.rows for pair in differing) < _MANY


def _is_outlier(worker: int, differing: Iterable[RowPair], pairs: Sequence[RowPair]) -> bool:
    agreeing = [pair for pair in pairs if pair.agree]
    apart = {pair.peer(worker) for pair in pairs if worker in pair[:2] and pair.apart}
    peers = [pair.peer(worker) for pair in differing if worker in pair[:2] and pair.steps_of(worker) > 1]
    return any(pair.peer(peer) in apart for peer in peers for pair in agreeing if peer in pair[:2])
