"""What becomes of a place at which workers said something else of the same, in a look.

Owns: the states of a place, and when it goes from one into another. Must not know: fingerprints, what is told, how much
is kept. Invariants: what a look heard of a place is put together before anything becomes of it, so that it does not
matter what came first; where most contradict themselves, or now one and now another is apart, nobody is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto

from brickd.numerics.compared import WORKERS_MAX, Case, Doubt, Finding


class Fate(Enum):
    """The state of a place."""

    COMPARABLE = auto()  # nothing is wrong there
    DOUBTED = auto()  # workers contradict themselves: they, or the kernel
    FOUND = auto()  # workers differ


@dataclass
class Heard:
    """What a look heard at a place.

    Attributes:
        prints: how many were judged.
        workers: the uuids of those who were beside each other.
        contradict: of those who say now this, now that.
        odd: of those who are not with the others.
        cases: how many there were that had not been counted.
        times: how often who was odd in these, and in those that had been counted when nobody knew who is right.
        case: the first of them, or the first in which it is known who is right.
        contradiction: what one who contradicts himself said both times.
    """

    prints: int = 0
    workers: set[str] = field(default_factory=set)
    contradict: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)
    cases: int = 0
    times: Counter[str] = field(default_factory=Counter)
    case: Case | None = None
    contradiction: Case | None = None

    def doubt(
        self, finding: Finding | None, doubt: Doubt | None, present: Collection[str], living: Collection[str]
    ) -> Doubt:
        """With what was known before: who is there, and who of them is not to be relied on.

        Args:
            finding: what was found there before.
            doubt: the doubt that there was.
            present: all of the service of whom anything is held.
            living: who lives: a bad machine has been several workers, if it was started again.
        """
        before = doubt or Doubt(frozenset(), frozenset())
        if finding is not None:
            before = Doubt(frozenset(finding.workers), finding.contradict)
        workers = _more(_more(before.workers, self.odd, 2 * WORKERS_MAX), self.workers, WORKERS_MAX)
        contradict = before.contradict.union(self.contradict & workers)
        odd = workers & self.odd.union(finding.outliers if finding is not None else ())
        if 2 * len(odd.intersection(living)) > len(workers.union(present).intersection(living)):
            contradict |= odd  # now one, now another is not with the others: that is the kernel
        return Doubt(workers, contradict, before.case or self.contradiction)


def _more(known: frozenset[str], others: Collection[str], most: int) -> frozenset[str]:
    """With others, as far as there is room."""
    return known.union(sorted(set(others) - known)[: max(0, most - len(known))])


def fate(doubt: Doubt, present: Collection[str], *, differs: bool, repeats: bool) -> Fate:
    """The state that a place is in now.

    Args:
        doubt: who is there, and who is not to be relied on.
        present: all of the service of whom anything is held: where the kernel repeats, those who are not looked at say
            nothing else than the others.
        differs: whether any differ who do not contradict themselves, now or before.
        repeats: whether the kernel is known to.
    """
    if 2 * len(doubt.contradict) > len(doubt.workers.union(present) if repeats else doubt.workers):
        return Fate.DOUBTED
    if differs or (repeats and doubt.contradict and doubt.case is not None):
        return Fate.FOUND
    return Fate.DOUBTED if doubt.contradict and not repeats else Fate.COMPARABLE
