"""Workers compared by one kind of evidence: the counts, what differs, what differs first.

Owns: what lost records make of a difference, who is the outlier, what follows from what. Must not know: where workers
come from, documents, screens. Invariants: verdicts are formed within one kind of evidence; what records that were lost
may explain is never called diverged; with two nobody is the outlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from brickd.analysis.numerics.blame import Blame, DecodedFingerprint, Judgement, Verdict, judged, read
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.match import Class, Matched, MatchRow, match
from brickd.shm.sites import plain

ROWS_MAX = 1024  # that are judged
_BORN = (Blame.CULPRIT, Blame.HERE_OR_CACHE)


class EvidenceClass(StrEnum):
    """Why two must agree, the strongest first."""

    WEIGHTS = "weights"
    INPUT = "input"
    RUN = "run"


class Party(NamedTuple):
    """A worker that is compared.

    Attributes:
        number: of its producer.
        since: ticks before which its fingerprints do not count.
        lost: how many of the records that count were lost.
        worn: whether its first fingerprints may have left for want of room.
    """

    name: str
    number: int
    since: int = 0
    lost: int = 0
    worn: bool = False


class Difference(NamedTuple):
    """A row in which not all is identical, with the fingerprints, which are still here."""

    row: MatchRow
    site: int
    judgement: Judgement
    against: DecodedFingerprint
    worst: DecodedFingerprint

    @property
    def differs(self) -> bool:
        """Whether it is more than rounding, and sure."""
        return self.judgement.verdict.differs

    def members(self, *classes: Class) -> list[int]:
        """The parties of these classes."""
        return [member.worker for member in self.row.members if member.class_ in classes]

    @property
    def agree(self) -> list[int]:
        """The parties that agree against the worst; only equal ones, if one within cannot tell."""
        both = self.members(Class.IDENTICAL, Class.WITHIN)
        return both if len(both) == self.row.agree else self.members(Class.IDENTICAL)

    @property
    def expected(self) -> int:
        """The party that the others are compared with."""
        return self.row.members[self.row.against].worker

    @property
    def actual(self) -> int:
        """The one that is furthest from it."""
        return self.row.members[self.row.worst].worker


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison; `differences` are the first ones, in the order of execution."""

    evidence: EvidenceClass
    parties: Sequence[Party]
    matched: Matched
    differences: Sequence[Difference]

    @cached_property
    def counts(self) -> Counter[Class]:
        """How many comparisons are of each class."""
        counts: Counter[Class] = Counter()
        for site in self.matched.sites:
            counts.update({Class(class_): count for class_, count in enumerate(site.classes) if count})
        return counts

    @property
    def compared(self) -> int:
        """The comparisons that could be made."""
        return sum(count for class_, count in self.counts.items() if class_.comparable)

    @property
    def diverged(self) -> int:
        """Those that differ by more than rounding, for sure."""
        return self.counts[Class.DIVERGED]

    @property
    def incomplete(self) -> int:
        """The comparisons that could not be made, or say nothing, for what was lost."""
        workers = zip(self.parties, self.matched.workers, strict=True)
        return self.counts[Class.LOST] + sum(max(party.lost, found.missing) for party, found in workers if party.lost)

    @property
    def not_comparable(self) -> dict[str, int]:
        """The comparisons that could not be made, by reason."""
        return {class_.name.lower(): n for class_, n in sorted(self.counts.items()) if not class_.comparable}

    @property
    def verdict(self) -> Verdict:
        """The verdict on all of it: if something differs, that of the first difference."""
        if self.diverged > 0:
            return Verdict.DIVERGED if self.first is None else self.first.judgement.verdict
        if self.incomplete:
            return Verdict.INCOMPLETE
        if not self.compared:
            return Verdict.NOT_COMPARABLE
        return Verdict.WITHIN if self.counts[Class.WITHIN] else Verdict.IDENTICAL

    @property
    def first(self) -> Difference | None:
        """The first that differs."""
        return next((each for each in self.differences if each.differs), None)

    @property
    def outlier(self) -> int | None:
        """The one party that the others, at least two, agree against."""
        first = self.first
        if first is None:
            return None
        apart = first.members(Class.DIVERGED)
        return apart[0] if len(apart) == 1 and len(first.agree) >= 2 else None

    def born(self) -> list[int]:
        """The sites where a difference was born, in order; what reads a cache may follow another."""
        found = [each for each in self.differences if each.differs and each.judgement.blame in _BORN]
        sure = (each.site for each in found if each is self.first or each.judgement.blame == Blame.CULPRIT)
        return list(dict.fromkeys(sure))

    def missing(self) -> tuple[int, int]:
        """How often the first party, and how often another, lacks what was not lost."""
        lacks = [
            0 if party.lost else found.missing for party, found in zip(self.parties, self.matched.workers, strict=True)
        ]
        return sum(lacks[:1]), sum(lacks[1:])


def compare(
    numerics: Numerics,
    parties: Sequence[Party],
    evidence: EvidenceClass,
    *,
    step: int | None = None,
    rtol: float | None = None,
) -> Comparison:
    """Compare workers by input or by run; `step` and `rtol` as for `match`."""
    found = match(
        numerics.fingerprints,
        [party.number for party in parties],
        [party.since for party in parties],
        by_input=evidence == EvidenceClass.INPUT,
        step=step,
        rtol=rtol,
        rows_max=ROWS_MAX,
        lost=[party.lost for party in parties],
        worn=[party.worn for party in parties],
    )
    differences = [each for row in found.rows if (each := _difference(numerics, row)) is not None]
    return Comparison(evidence, parties, found, differences)


def _difference(numerics: Numerics, row: MatchRow) -> Difference | None:
    against = read(numerics.fingerprints, row.members[row.against].number)
    worst = read(numerics.fingerprints, row.members[row.worst].number)
    if against is None or worst is None:
        return None
    site = numerics.sites[against.site]
    return Difference(row, plain(against.site), judged(row, site, against, worst), against, worst)


def following(run: Comparison, born: Sequence[int]) -> int:
    """The number of sites that differ by run and are none of these."""
    return sum(site.classes[Class.DIVERGED] > 0 and site.site not in born for site in run.matched.sites)
