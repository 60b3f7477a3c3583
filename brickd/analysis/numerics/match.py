"""The reader's comparison of fingerprints, with names for its numbers.

Owns: those names. Must not know: how rows are made, what is done with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from brickd.shm import _reader


class Class(IntEnum):
    """The classes of `match.h` in its order; each after DIVERGED is a reason not to compare."""

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
    """A fingerprint in a row; `worker`: the index in the workers that were named."""

    worker: int
    number: int
    class_: int


class Before(NamedTuple):
    """The numbers of comparisons by result before another one, in the order of execution."""

    identical: int
    within: int
    not_comparable: int


class MatchRow(NamedTuple):
    """Fingerprints of several workers, one of each, that are not all identical.

    Attributes:
        class_: diverged if any member is, else the greatest of the members' classes.
        against: the index of the reference.
        worst: the index of the member furthest from it.
        agree: the number of members that agree with the reference.
        error: of the worst, relative and estimated; None: unknown.
        inputs_error: the largest of its inputs; 0: they are equal; None: unknown.
        tolerance: the largest error within tolerance.
        rounding: the error that rounding leads to expect; by input it excuses nothing.
        contents: by input: the contents at which the worst and the reference differ like two numeric classes; below
            CONTENTS_MIN: undecided; 0: not two classes.
        before: if this is the first row that differs: the comparisons before it.
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
        moment: its first place in the order of execution.
        fingerprints: the number of its fingerprints.
        compared: the number of comparisons.
        classes: the number of comparisons of each class.
        lone: fingerprints without a counterpart in another worker.
        bare: by input: fingerprints without inputs.
        missing: how often a worker lacks a step that another has.
        uncertain: the same for a step that may still come, or may have been evicted.
        error: the largest within tolerance.
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
    """The numbers of steps: shared by workers, of only one worker, of other work."""

    shared: int
    lone: int
    other: int


class Matched(NamedTuple):
    """The result for all workers.

    Attributes:
        fingerprints: the number of all their fingerprints.
        rows: the first rows that are not all identical, in the order of execution; comparable ones first.
        rows_count: the number of all such rows.
        sites: in no order.
        workers: in the order in which they were named.
        steps: by run; otherwise zeros.
    """

    fingerprints: int
    rows: list[MatchRow]
    rows_count: int
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
) -> Matched:
    """Compare workers.

    Args:
        fingerprints: a copy that nothing else uses, because it is locked meanwhile.
        workers: their numbers; without a majority the first one is the reference.
        since: per worker: only fingerprints from these ticks on.
        by_input: compare fingerprints with equal inputs, whenever they came; else those of one site, step and position.
        step: only this one.
        rtol: the largest relative error within tolerance; None: derived from the dtype and the size of the reduction.
        rows_max: the largest number of rows in the result.
        lost: by run, per worker: the number of lost records; empty: none.
        worn: by run, per worker: whether its oldest fingerprints may have been evicted; empty: no.
    """
    limit = -1.0 if rtol is None else rtol
    found = fingerprints.match(
        list(workers), list(since), by_input, step, limit, rows_max, list(lost) or None, list(worn) or None
    )
    return Matched(
        found["fingerprints"],
        [MatchRow(*row[:-2], Before(*row[-2]), [Member(*member) for member in row[-1]]) for row in found["rows"]],
        found["rows_count"],
        [SiteFound(*site) for site in found["sites"]],
        [WorkerFound(*worker) for worker in found["workers"]],
        StepOverlap(*found["steps"]),
    )
