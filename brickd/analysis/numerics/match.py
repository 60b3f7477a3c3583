"""The comparison of fingerprints by the C reader, with names for the numbers that it returns.

Owns: the names of these numbers. Must not know: how rows are made and used.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from brickd.shm import _reader
from brickd.shm.sites import Tier


class Class(IntEnum):
    """The classes of `match.h`, in the same order. The classes after DIVERGED are reasons not to compare."""

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
    """A fingerprint in a row; `worker` is an index into the list of compared workers."""

    worker: int
    number: int
    class_: int


class Before(NamedTuple):
    """For each result, how many comparisons with this result come earlier in the order of execution."""

    identical: int
    within: int
    not_comparable: int


class MatchRow(NamedTuple):
    """One fingerprint from each of several workers. Not all of these fingerprints are identical.

    Attributes:
        class_: DIVERGED if any member has diverged, else the greatest class of the members.
        against: the index of the reference.
        worst: the index of the member that differs most from the reference.
        agree: the number of members that agree with the reference.
        error: the estimated relative error of `worst`; None if unknown.
        inputs_error: the largest error of the inputs of `worst`; 0 if they are equal, None if unknown.
        tolerance: the largest accepted error.
        rounding: the error that rounding may cause; a comparison by input does not accept it.
        contents: in a comparison by input, at how many contents (groups of equal inputs) `worst` and the reference
            differ like two numeric classes. 0: they are not two classes; below CONTENTS_MIN: undecided.
        before: how many comparisons come before this row; known only for the first row that differs.
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
        site: the digest of the site.
        moment: the first position of the site in the order of execution.
        fingerprints: the number of fingerprints at the site.
        compared: the number of comparisons.
        classes: the number of comparisons of each class.
        lone: the number of fingerprints without a counterpart in another worker.
        bare: the number of fingerprints without inputs, in a comparison by input.
        missing: how often one worker has no record of a step that another worker has.
        uncertain: the number of missing records that may still arrive, or may already have been evicted.
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
    """The number of steps that several workers have, that only one has, and in which workers did different work."""

    shared: int
    lone: int
    other: int


class Matched(NamedTuple):
    """The result for all workers.

    Attributes:
        fingerprints: the number of fingerprints of all workers.
        rows: the first rows with differing fingerprints: comparable rows, then others, each part in the order of
            execution.
        sites: the result at each site, in no order.
        workers: the result for each worker, in the order of the arguments.
        steps: zeros unless the comparison is by run.
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
    tier: Tier = Tier.TENSORS,
    named: Iterable[tuple[int, int]] = (),
) -> Matched:
    """Compare workers.

    Args:
        fingerprints: a copy that no other code uses, because it is locked during the comparison.
        workers: the indexes of the workers; without a majority the first worker is the reference.
        since: per worker, a time in ticks; earlier fingerprints are ignored.
        by_input: if true, compare fingerprints that have equal inputs, no matter when they were recorded; if false,
            compare fingerprints of the same site, step and position.
        step: compare only this step.
        rtol: the largest accepted relative error; if None, it depends on the dtype and the size of the reduction.
        rows_max: the largest number of rows in the result.
        lost: for a comparison by run, per worker, the number of lost records; empty if none was lost.
        worn: for a comparison by run, per worker, whether its oldest fingerprints may be evicted already; empty: all
            False.
        tier: for a comparison by input: which fingerprints to compare.
        named: pairs of a site and a worker whose rows are known to differ there. For such a pair, every difference
            counts.
    """
    limit = -1.0 if rtol is None else rtol
    found = fingerprints.match(
        list(workers), list(since), by_input, step, limit, rows_max, list(lost) or None, list(worn) or None, tier, named
    )
    return Matched(
        found["fingerprints"],
        [MatchRow(*row[:-2], Before(*row[-2]), [Member(*member) for member in row[-1]]) for row in found["rows"]],
        [SiteFound(*site) for site in found["sites"]],
        [WorkerFound(*worker) for worker in found["workers"]],
        StepOverlap(*found["steps"]),
    )
