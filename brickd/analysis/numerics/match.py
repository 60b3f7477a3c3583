"""The reader's comparison of fingerprints, with names for its numbers.

Owns: the names of the numbers. Must not know: how rows are made and used.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from brickd.shm import _reader


class Class(IntEnum):
    """The classes of `match.h`, in its order. Those after DIVERGED are reasons not to compare."""

    IDENTICAL = 0
    WITHIN = 1
    DIVERGED = 2
    DTYPE = 3
    SHAPE = 4
    FORM = 5
    BACKEND = 6
    PARAMS = 7
    VALID = 8
    RELATION = 9
    REPEATS = 10
    UNSTEADY = 11
    WORK = 12
    VALUES = 13
    STATEFUL = 14
    SHARD = 15
    LOST = 16
    RANGE = 17

    @property
    def comparable(self) -> bool:
        """Whether a comparison is possible."""
        return self <= Class.DIVERGED


class Member(NamedTuple):
    """A fingerprint in a row; `worker`: the index in the list of compared workers."""

    worker: int
    number: int
    class_: int


class Before(NamedTuple):
    """The numbers of earlier comparisons, by result, in the order of execution."""

    identical: int
    within: int
    not_comparable: int


class MatchRow(NamedTuple):
    """One fingerprint of each of several workers; not all are identical.

    Attributes:
        class_: diverged if any member is, else the members' greatest class.
        against: the index of the reference.
        worst: the index of the member that differs most from it.
        agree: the number of members that agree with the reference.
        error: the estimated relative error of the worst; None: unknown.
        inputs_error: the largest error of its inputs; 0: they are equal; None: unknown.
        tolerance: the largest accepted error.
        rounding: the expected error of rounding; it is not accepted by input.
        contents: by input, the number of contents (groups of equal inputs) at which the worst and the reference differ
            as two numeric classes do; below CONTENTS_MIN: undecided; 0: not two classes.
        before: the numbers of earlier comparisons; only known for the first row that differs.
    """

    class_: int
    against: int
    worst: int
    agree: int
    error: float | None
    inputs_error: float | None
    tolerance: float | None
    rounding: float | None
    contents: int
    before: Before
    members: list[Member]


class SiteFound(NamedTuple):
    """The result at one site.

    Attributes:
        site: its digest.
        moment: its first position in the order of execution.
        fingerprints: the number of its fingerprints.
        compared: the number of comparisons.
        classes: the number of comparisons of each class.
        lone: fingerprints without a counterpart in another worker.
        bare: the number of fingerprints without inputs, in a comparison by input.
        missing: how often a worker has no record of a step that another worker has.
        uncertain: like `missing`, but the record may still come, or may be evicted.
        error: the largest accepted error.
    """

    site: int
    moment: int
    fingerprints: int
    compared: int
    classes: tuple[int, ...]
    lone: int
    bare: int
    missing: int
    uncertain: int
    error: float


class WorkerFound(NamedTuple):
    """The result for one worker."""

    fingerprints: int
    missing: int
    uncertain: int


class StepOverlap(NamedTuple):
    """The numbers of steps: those of several workers, those of only one worker, those with different work."""

    shared: int
    lone: int
    other: int


class Matched(NamedTuple):
    """The result for all workers.

    Attributes:
        fingerprints: the number of all their fingerprints.
        rows: the first rows whose fingerprints differ; comparable rows come first, then in the order of execution.
        sites: unordered.
        workers: the workers in the order of the arguments.
        steps: zeros unless compared by run.
    """

    fingerprints: int
    rows: list[MatchRow]
    sites: list[SiteFound]
    workers: list[WorkerFound]
    steps: StepOverlap


def match(
    fingerprints: _reader.Fingerprints,
    workers: Iterable[int],
    since: Iterable[int],
    *,
    by_input: bool,
    step: int | None = None,
    rtol: float | None = None,
    rows_max: int = 4096,
    lost: Iterable[int] = (),
    worn: Iterable[bool] = (),
    rows: bool = False,
    named: Iterable[tuple[int, int]] = (),
) -> Matched:
    """Compare workers.

    Args:
        fingerprints: a copy that no other code uses: it is locked during the comparison.
        workers: their numbers; without a majority the first worker is the reference.
        since: per worker, ignore fingerprints before these ticks.
        by_input: compare fingerprints with equal inputs at any time; False: compare those of one site, step and
            position.
        step: compare only this step.
        rtol: the largest accepted relative error; None: derived from the dtype and the size of the reduction.
        rows_max: the largest number of rows in the result.
        lost: by run, per worker, the number of lost records; empty: none.
        worn: by run, per worker, whether its oldest fingerprints may be evicted; empty: no.
        rows: by input, compare single rows; False: compare whole tensors.
        named: of rows, sites and workers: each is known to differ there, so each of its differences counts.
    """
    limit = -1.0 if rtol is None else rtol
    found = fingerprints.match(
        list(workers), list(since), by_input, step, limit, rows_max, list(lost) or None, list(worn) or None, rows, named
    )
    return Matched(
        found["fingerprints"],
        [MatchRow(*row[:-2], Before(*row[-2]), [Member(*member) for member in row[-1]]) for row in found["rows"]],
        [SiteFound(*site) for site in found["sites"]],
        [WorkerFound(*worker) for worker in found["workers"]],
        StepOverlap(*found["steps"]),
    )
