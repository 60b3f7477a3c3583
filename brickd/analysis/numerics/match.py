"""Groups of fingerprints, as the reader compares them.

Owns: what the reader's numbers are called. Must not know: how rows come about, what is made of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from brickd.shm import _reader


class Class(IntEnum):
    """The classes of `match.h` in its order; all beyond DIVERGED are reasons for no comparison."""

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
    """A fingerprint in a row; `worker`: the index among those that were asked for."""

    worker: int
    number: int
    class_: int


class Before(NamedTuple):
    """How many comparisons came to what before one, in the order of execution."""

    identical: int
    within: int
    not_comparable: int


class MatchRow(NamedTuple):
    """Fingerprints of several workers, one of each, that are not all identical.

    Attributes:
        class_: diverged if any of them is, else the last of theirs.
        against: the index of the member that the others are compared with.
        worst: the index of the member that is furthest from that one.
        agree: how many agree against the worst.
        error: of the worst, relative and estimated; None: not known.
        inputs_error: the largest of its inputs'; 0: these are equal; None: not known.
        tolerance: up to which error it would be within.
        rounding: which error rounding leads to expect, of the worst, though by input it is no excuse.
        contents: by input: at how many contents the worst and `against` are apart as those of two numeric classes are;
            below CONTENTS_MIN that is not known yet; 0: they are not.
        before: if this is the first row that differs: what came before it.
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
        moment: where it first stands in the order of execution.
        fingerprints: how many were looked at.
        compared: how many comparisons these gave.
        classes: how many of each class.
        lone: fingerprints without a counterpart in another worker.
        bare: fingerprints without inputs, if it is by these that they are compared.
        missing: how often a worker lacks a step that another has.
        uncertain: the same, if it may be still to come, or may have been there before.
        error: the largest that is within the tolerance.
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
    """The numbers of steps: shared by some workers, of one alone, of other work."""

    shared: int
    lone: int
    other: int


class Matched(NamedTuple):
    """The result for workers that were compared.

    Attributes:
        fingerprints: how many were looked at.
        rows: the first of those that are not identical throughout, in the order of execution; comparable ones first.
        rows_count: how many of these there are.
        sites: in no order.
        workers: in the order in which they were asked for.
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
        fingerprints: the fingerprints, in a copy that nobody else uses: it is locked meanwhile.
        workers: their numbers; the first one leads if there is no majority.
        since: of each: no fingerprints before these ticks.
        by_input: those with the same inputs, whenever they came; else those of the same site, step and position.
        step: this one alone.
        rtol: up to which relative error two are within tolerance; None: what their dtype and reduction lead to expect.
        rows_max: the number of rows that are returned.
        lost: by run: of each worker: how many of its records are not here; empty: none.
        worn: by run: of each worker: whether its first fingerprints may have left for want of room; empty: of none.
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
