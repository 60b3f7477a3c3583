"""The comparison of workers by one kind of evidence: the counts, and the differences.

Owns: what lost records mean for a difference, which worker is the outlier, which differences result from earlier ones.
Must not know: where workers come from, documents, screens. Invariants: A verdict uses only one kind of evidence. If
lost records may explain a difference, its verdict is never `diverged`. If two workers are compared, neither is the
outlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from brickd.analysis.numerics.blame import Blame, DecodedFingerprint, Judgement, Verdict, judged, read
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.match import Class, Matched, MatchRow, SiteFound, match
from brickd.analysis.numerics.row_verdict import is_unconfirmed
from brickd.model.step_texts import StepTexts
from brickd.shm._reader import CHECKED_STEP
from brickd.shm.records import checked_head
from brickd.shm.sites import Tier, plain

ROWS_MAX = 1024  # rows that one comparison judges
_BORN = (Blame.CULPRIT, Blame.HERE_OR_CACHE)


class EvidenceClass(StrEnum):
    """Why two fingerprints must agree, the strongest reason first."""

    WEIGHTS = "weights"
    INPUT = "input"
    ROW = "row"
    HISTORY = "history"
    RUN = "run"


_TIERS = {EvidenceClass.ROW: Tier.ROWS, EvidenceClass.HISTORY: Tier.HISTORY}


class Party(NamedTuple):
    """A worker that takes part in the comparison.

    Attributes:
        number: the worker's index in the window of fingerprints.
        since: a time in ticks; earlier fingerprints do not count.
        lost: the number of the worker's lost records.
        worn: whether the worker's oldest fingerprints may already be evicted.
    """

    name: str
    number: int
    since: int = 0
    lost: int = 0
    worn: bool = False


class Difference(NamedTuple):
    """A row with unequal outputs, and the fingerprints of the two workers that differ most."""

    row: MatchRow
    site: int
    judgement: Judgement
    against: DecodedFingerprint
    worst: DecodedFingerprint

    @property
    def differs(self) -> bool:
        """Whether the difference is certain and larger than rounding."""
        return self.judgement.verdict.differs

    def members(self, *classes: Class) -> list[int]:
        """The parties whose fingerprints have one of these classes."""
        return [member.worker for member in self.row.members if member.class_ in classes]

    @property
    def agree(self) -> list[int]:
        """The parties that agree with the reference.

        If it is undecided whether similar outputs agree, only the parties with equal outputs are returned.
        """
        both = self.members(Class.IDENTICAL, Class.WITHIN)
        return both if len(both) == self.row.agree else self.members(Class.IDENTICAL)

    @property
    def expected(self) -> int:
        """The reference of the row."""
        return self.row.members[self.row.against].worker

    @property
    def actual(self) -> int:
        """The party furthest from the reference."""
        return self.row.members[self.row.worst].worker


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        differences: the first differences, in the order of execution.
        step: the only step that was compared; None if all steps were compared.
        step_texts: the known texts of steps.
        steps: for each party, its steps, or None if it has no fingerprints. The list is filled only if fewer than two
            parties have `step`.
    """

    evidence: EvidenceClass
    parties: Sequence[Party]
    matched: Matched
    differences: Sequence[Difference]
    step: int | None = None
    step_texts: StepTexts = field(default_factory=StepTexts)
    steps: Sequence[frozenset[int] | None] = ()

    @cached_property
    def counts(self) -> Counter[Class]:
        """The number of comparisons of each class."""
        counts: Counter[Class] = Counter()
        for site in self.matched.sites:
            counts.update({Class(class_): count for class_, count in enumerate(site.classes) if count})
        return counts

    @property
    def compared(self) -> int:
        """The number of comparisons that were possible."""
        return sum(count for class_, count in self.counts.items() if class_.comparable)

    @property
    def diverged(self) -> int:
        """The number of differences that are certain and larger than rounding."""
        return self.counts[Class.DIVERGED]

    @property
    def incomplete(self) -> int:
        """The number of comparisons that are impossible or undecided because records were lost."""
        workers = zip(self.parties, self.matched.workers, strict=True)
        return self.counts[Class.LOST] + sum(max(party.lost, found.missing) for party, found in workers if party.lost)

    @property
    def not_comparable(self) -> dict[str, int]:
        """The number of impossible comparisons for each reason."""
        return {class_.name.lower(): n for class_, n in sorted(self.counts.items()) if not class_.comparable}

    @property
    def verdict(self) -> Verdict:
        """The overall verdict; if a difference is certain, the first such difference decides the verdict."""
        if self.diverged > 0:
            return Verdict.DIVERGED if self.first is None else self.first.judgement.verdict
        if self.incomplete:
            return Verdict.INCOMPLETE
        if not self.compared:
            return Verdict.NOT_COMPARABLE
        return Verdict.WITHIN if self.counts[Class.WITHIN] else Verdict.IDENTICAL

    @property
    def first(self) -> Difference | None:
        """The first difference that is certain."""
        return next((each for each in self.differences if each.differs), None)

    @property
    def outlier(self) -> int | None:
        """The only party that differs, while at least two other parties agree."""
        first = self.first
        if first is None:
            return None
        apart = first.members(Class.DIVERGED)
        return apart[0] if len(apart) == 1 and len(first.agree) >= 2 else None

    def born(self) -> list[int]:
        """The sites where a difference was born, in order. A site with a cache may repeat an earlier difference."""
        found = [each for each in self.differences if each.differs and each.judgement.blame in _BORN]
        sure = (each.site for each in found if each is self.first or each.judgement.blame == Blame.CULPRIT)
        return list(dict.fromkeys(sure))

    def missing(self) -> tuple[int, int]:
        """Count the fingerprints that are missing but not lost: those of the first party, and those of the others."""
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
    """Compare workers by the fingerprints of their sites; `match` explains `step` and `rtol`."""
    found = match(
        numerics.fingerprints,
        [party.number for party in parties],
        [party.since for party in parties],
        by_input=evidence != EvidenceClass.RUN,
        step=step,
        rtol=rtol,
        rows_max=ROWS_MAX,
        lost=[party.lost for party in parties],
        worn=[party.worn for party in parties],
        tier=_TIERS.get(evidence, Tier.TENSORS),
        named=numerics.named,
    )
    if evidence == EvidenceClass.ROW:
        found = _without_unconfirmed(numerics, found)
    differences = [each for row in found.rows if (each := _difference(numerics, row)) is not None]
    if evidence == EvidenceClass.ROW:
        differences = _outermost_first(numerics, differences)
    if evidence == EvidenceClass.HISTORY:
        differences = _born_first(differences)
    absent = step is not None and sum(worker.fingerprints > 0 for worker in found.workers) < 2
    steps = _recorded_steps(numerics, parties) if absent else ()
    return Comparison(evidence, parties, found, differences, step, numerics.step_texts, steps)


def _recorded_steps(numerics: Numerics, parties: Sequence[Party]) -> list[frozenset[int] | None]:
    """The steps of each party's fingerprints. This reads every fingerprint, and each one takes about 4 µs."""
    found: dict[int, set[int]] = {}
    since = {party.number: party.since for party in parties}
    for number in range(numerics.fingerprints.first, numerics.fingerprints.end):
        worker, _, slots = numerics.fingerprints.read(number) or (-1, 0, b"")
        if worker in since and (head := checked_head(slots))["ticks"] >= since[worker]:
            steps = found.setdefault(worker, set())
            steps.update([head["step"]] if head["step"] or head["flags"] & CHECKED_STEP else [])
    return [None if party.number not in found else frozenset(found[party.number]) for party in parties]


def _difference(numerics: Numerics, row: MatchRow) -> Difference | None:
    against = read(numerics.fingerprints, row.members[row.against].number)
    worst = read(numerics.fingerprints, row.members[row.worst].number)
    if against is None or worst is None:
        return None
    site = numerics.sites[against.site]
    return Difference(row, plain(against.site), judged(row, site, against, worst), against, worst)


def _without_unconfirmed(numerics: Numerics, found: Matched) -> Matched:
    """If a site is presumed to be row-wise but this is not confirmed, count its differences as UNSTEADY."""
    services = {numerics.service_number(each.service) for each in numerics.producers.values()}
    sites = {
        site.site
        for site in found.sites
        if site.classes[Class.DIVERGED] and all(is_unconfirmed(numerics, each, site.site) for each in services)
    }
    if not sites:
        return found
    rows = [row for row in found.rows if not sites.intersection(_sites_of(numerics, row))]
    return found._replace(rows=rows, sites=[_unjudged(site) if site.site in sites else site for site in found.sites])


def _unjudged(site: SiteFound) -> SiteFound:
    classes = list(site.classes)
    classes[Class.UNSTEADY] += classes[Class.DIVERGED]
    classes[Class.DIVERGED] = 0
    return site._replace(classes=tuple(classes))


def _sites_of(numerics: Numerics, row: MatchRow) -> set[int]:
    """The digest of a row's site; empty if it was evicted."""
    known = numerics.fingerprints.read(row.members[row.against].number)
    return set() if known is None else {known[1], plain(known[1])}


def _outermost_first(numerics: Numerics, differences: Sequence[Difference]) -> list[Difference]:
    """Sort differences of rows. Those at outermost sites come first. In both groups, those that have a majority lead.

    Every row that differs had equal inputs, so the difference was born within its site. The outermost site contains all
    others.
    """
    sites = {each.site for each in differences if each.differs}
    within = {site for site in sites if any(_encloses(numerics, other, site) for other in sites)}
    return sorted(differences, key=lambda each: (each.site in within, len(each.agree) < 2))


def _born_first(differences: Sequence[Difference]) -> list[Difference]:
    """Sort differences of rows with equal histories. Those that were born at their site come first.

    A row that differs makes all later rows of its sequence differ, and the site where this began may be recorded after
    the sites inside it. In both groups, those that have a majority lead.
    """
    return sorted(differences, key=lambda each: (each.judgement.blame not in _BORN, len(each.agree) < 2))


def _encloses(numerics: Numerics, outer: int, inner: int) -> bool:
    """Whether the site `inner` is a part of the site `outer`, by their names."""
    one, other = numerics.sites[outer], numerics.sites[inner]
    return other.layer == one.layer and other.kernel.startswith(f"{one.kernel}.")


def inner_sites(numerics: Numerics, rows: Comparison, outer: int) -> list[int]:
    """Return the sites inside the site `outer` that also differ."""
    sites = dict.fromkeys(each.site for each in rows.differences if each.differs)
    return [site for site in sites if _encloses(numerics, outer, site)]


def following(run: Comparison, born: Sequence[int]) -> int:
    """Count the sites that differ although no difference was born there, in a comparison by run or by history."""
    return sum(site.classes[Class.DIVERGED] > 0 and site.site not in born for site in run.matched.sites)
