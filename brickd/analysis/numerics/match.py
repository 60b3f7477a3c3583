"""What stands side by side, as the reader found it.

Owns: what the reader's numbers are called. Must not know: how rows come about, what is made of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from brickd.shm import _reader


class Class(IntEnum):
    """What a comparison came to, in the order of `match.h`; all beyond DIVERGED are reasons why there is none."""

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
        """Whether there is one at all."""
        return self <= Class.DIVERGED


class Member(NamedTuple):
    """A print in a row; `worker`: which of those that were asked for."""

    worker: int
    number: int
    class_: int


class Before(NamedTuple):
    """How many comparisons came to what before one, in the order of execution."""

    identical: int
    within: int
    not_comparable: int


class MatchRow(NamedTuple):
    """Prints of several workers, one of each, that are not all identical.

    Attributes:
        class_: diverged where any of them is, else the last of theirs.
        against: which of the members the others are held against.
        worst: which of them is furthest from that one.
        agree: how many agree against that one.
        error: of the worst, relative and estimated; None: not known.
        inputs_error: the largest of its inputs'; 0: these are equal; None: not known.
        tolerance: up to which error it would be within.
        rounding: which error rounding leads to expect, of the worst, though by input it is no excuse.
        contents: by input: at how many contents the worst and the one that it is held against are apart as those of
            two numeric classes are; below CONTENTS_MIN nobody knows yet; 0: they are not.
        before: what came before it, as far as it could be compared nothing that differs, where this is the first.
        members: in the order of the workers.
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
    """What comparisons at one site came to.

    Attributes:
        site: its digest.
        moment: where it first stands in the order of execution.
        prints: how many were looked at.
        compared: how many comparisons these gave.
        classes: how many of each class.
        lone: prints beside which none of another worker stands.
        bare: prints without inputs, where it is by these that they are compared.
        missing: of steps that another worker has, too: how often one lacks it.
        uncertain: the same, where it may be still to come, or may have been there before.
        error: the largest that is within the tolerance.
    """

    site: int
    moment: int
    prints: int
    compared: int
    classes: tuple[int, ...]
    lone: int
    bare: int
    missing: int
    uncertain: int
    error: float


class WorkerFound(NamedTuple):
    """What was looked at of one worker."""

    prints: int
    missing: int
    uncertain: int


class StepOverlap(NamedTuple):
    """Of how many workers have which steps: shared by some, of one alone, of other work."""

    shared: int
    lone: int
    other: int


class Matched(NamedTuple):
    """Workers side by side.

    Attributes:
        prints: that were looked at.
        rows: the first of those that are not identical throughout, in the order in which they were executed; those that
            can be compared before others.
        rows_count: how many of these there are.
        sites: in no order.
        workers: in the order in which they were asked for.
        steps: by run; otherwise zeros.
    """

    prints: int
    rows: list[MatchRow]
    rows_count: int
    sites: list[SiteFound]
    workers: list[WorkerFound]
    steps: StepOverlap


def match(
    prints: _reader.Prints,
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
    """Set workers side by side.

    Args:
        prints: what was said, of which the caller has the only one: it is locked meanwhile.
        workers: their numbers; the first one leads where there is no majority.
        since: of each: no prints before these ticks.
        by_input: those with the same inputs, whenever they came; else those of the same site, step and position.
        step: this one alone.
        rtol: up to which relative error two are within tolerance; None: what their dtype and reduction lead to expect.
        rows_max: so many rows are told.
        lost: by run: of each worker: how many of its records are not here; empty: none.
        worn: by run: of each worker: whether what it said first may have left for want of room; empty: of none.
    """
    limit = -1.0 if rtol is None else rtol
    found = prints.match(
        list(workers), list(since), by_input, step, limit, rows_max, list(lost) or None, list(worn) or None
    )
    return Matched(
        found["prints"],
        [MatchRow(*row[:-2], Before(*row[-2]), [Member(*member) for member in row[-1]]) for row in found["rows"]],
        found["rows_count"],
        [SiteFound(*site) for site in found["sites"]],
        [WorkerFound(*worker) for worker in found["workers"]],
        StepOverlap(*found["steps"]),
    )
