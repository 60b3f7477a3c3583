"""The results of comparing fingerprints of equal inputs: the counts of each site, and the findings.

Owns: the value that holds the results, which survives a restart of the daemon. Must not know: how the results change,
how they are saved, screens. Invariants: The value is immutable, so any thread may read it. The size of the value is
bounded. Sites have names and workers have uuids, so that every daemon understands them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import NamedTuple

from brickd.analysis.numerics.not_finite import Births, BornAt
from brickd.analysis.numerics.recent_counts import Recent
from brickd.shm.sites import ServiceTier, Tier

SITES_MAX = 4_096  # sites with separate counts; all others share one count
OTHERS = ("", -1)  # the kernel and the layer of the shared count
FINDINGS_MAX = SITES_MAX
EVIDENCE_MAX = 64  # findings of a service that keep their fingerprints
ALL_EVIDENCE_MAX = 256
DOUBTS_MAX = 1_024
_EQUAL_MIN, _EQUAL_TIMES = 100, 20
CLASSES_MAX = SITES_MAX  # the limit of sites with known classes
WORKERS_MAX = 64  # workers that are named in one finding; up to twice as many outliers


# The uuids of the workers of one numeric class, and those of another class.
Apart = tuple[tuple[frozenset[str], frozenset[str]], ...]


class ServiceSite(NamedTuple):
    """A site of a service; `tier` tells whether whole tensors or single rows are compared at the site, and by what.

    All sites for which there was no room share one place, whose kernel is "".
    """

    service: str
    kernel: str
    layer: int
    tier: Tier = Tier.TENSORS

    def is_of(self, services: Collection[str]) -> bool:
        """Whether this site belongs to one of `services`, or to no service."""
        return self.service in services or not (self.service or self.kernel)


class SiteCounts(NamedTuple):
    """Counts of fingerprints at a site.

    Attributes:
        category: the category of the site's kernel.
        bare: the fingerprints without inputs, which are not comparable.
        met: the fingerprints whose inputs another worker also had.
        unlike: the fingerprints whose output differs from another worker's for the same inputs.
        gone: the fingerprints that were evicted before another worker had the same inputs.
        stateful: the fingerprints whose output depends on state that is not an input, so workers may differ.
        judged: the unlike fingerprints that were judged.
    """

    category: str
    fingerprints: int = 0
    bare: int = 0
    met: int = 0
    unlike: int = 0
    gone: int = 0
    stateful: int = 0
    judged: int = 0

    def and_(self, *more: int) -> SiteCounts:
        """Add a value to each count, in the order of the fields; the last values may be omitted."""
        return SiteCounts(self.category, *map(sum, zip_longest(self[1:], more, fillvalue=0)))

    @property
    def repeats(self) -> bool:
        """Whether equal results are frequent enough to exclude the kernel as the cause of a contradiction."""
        equal = self.met - self.unlike
        return equal >= _EQUAL_MIN and equal >= _EQUAL_TIMES * self.unlike

    @property
    def alone(self) -> int:
        """The number of comparable fingerprints without a counterpart in another worker."""
        return max(0, self.fingerprints - self.bare - self.stateful - self.met)


class KeptEvidence(NamedTuple):
    """A stored fingerprint: the worker's uuid, the record, and the texts of two names in the record.

    The record is empty if there was no room for it.
    """

    worker: str
    slots: bytes
    backend: str
    of: str


class Case(NamedTuple):
    """Two fingerprints with equal inputs and different outputs. If there is a majority, `against` belongs to it."""

    at_ns: int
    against: KeptEvidence
    other: KeptEvidence

    @property
    def whole(self) -> bool:
        """Whether both fingerprints are stored."""
        return bool(self.against.slots and self.other.slots)

    def bare(self) -> Case:
        """The case without the fingerprints."""
        against, other = (KeptEvidence(each.worker, b"", "", "") for each in (self.against, self.other))
        return Case(self.at_ns, against, other)


class DivergentSite(NamedTuple):
    """A site where workers differ.

    Attributes:
        category: the category of the site's kernel.
        cases: the number of judged cases; the counts of the site may include further cases.
        workers: the names of the first workers in these cases, by uuid.
        outliers: how often each worker differed from the majority; empty without a majority.
        contradict: the workers that contradict themselves.
        newest: the last case; only a limited number of findings store the fingerprints of their cases.
    """

    place: ServiceSite
    category: str
    cases: int
    workers: Mapping[str, str]
    outliers: Mapping[str, int]
    contradict: frozenset[str]
    first: Case
    newest: Case

    @property
    def named(self) -> list[str]:
        """The uuids of the outliers, the most frequent first.

        If there are none, those of the two workers that disagree.
        """
        worst = sorted(self.outliers, key=lambda uuid: -self.outliers[uuid])
        return worst or [self.newest.against.worker, self.newest.other.worker]

    @property
    def shown(self) -> Case:
        """The first case if both of its fingerprints are stored, else the newest case."""
        return self.first if self.first.whole else self.newest

    def bare(self) -> DivergentSite:
        """The finding without fingerprints."""
        return self._replace(first=self.first.bare(), newest=self.newest.bare())

    def without(self, workers: Collection[str]) -> DivergentSite | None:
        """The finding without these workers; None if nothing is left of it."""
        outliers = {uuid: times for uuid, times in self.outliers.items() if uuid not in workers}
        if self.outliers and not outliers:
            return None
        return self._replace(outliers=outliers, contradict=self.contradict.difference(workers))


class Doubt(NamedTuple):
    """A site where most workers contradict themselves, or where some workers do and the others may do it too.

    Attributes:
        workers: the uuids of the compared workers.
        contradict: the uuids of the workers that contradict themselves.
        case: two outputs of one of these workers; None if they were evicted.
    """

    workers: frozenset[str]
    contradict: frozenset[str]
    case: Case | None = None

    def without(self, workers: Collection[str]) -> Doubt | None:
        """The doubt without these workers; None if nothing is left of it."""
        contradict = self.contradict.difference(workers)
        case = None if self.case is None or self.case.other.worker in workers else self.case
        return Doubt(self.workers.difference(workers), contradict, case) if contradict else None


class RowDoubt(NamedTuple):
    """Why the rows of a site differ but are not judged, and when this was seen last, since 1970."""

    why: str
    at_ns: int


class RowsApart(NamedTuple):
    """How many rows in a window another worker also had, but only in another context, or only with another lineage."""

    context: int = 0
    lineage: int = 0


class Latest(NamedTuple):
    """The number of comparisons of a service, and the time (since 1970) when this number last grew."""

    met: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The whole state.

    Attributes:
        since_ns: when the counts began, since 1970; 0 if nothing was counted.
        window_bytes: the limit of the window in bytes; 0 if nothing is compared.
        window_since_ns: when the window began, since 1970.
        held: the number of fingerprints in the window. Evicted fingerprints are no longer compared.
        oldest: for each service and tier, the time (since 1970) when the oldest fingerprint in its window had arrived.
        apart: for each site, the workers of two numeric classes, if any are known.
        latest: for each service, the last growth of its number of comparisons.
        recent: for each service and tier, the counts of fingerprints in the last hour.
        rows_apart: for each service and tier of rows, the rows in the window that another worker had in another way.
        row_doubts: for each site whose rows differ but could not be judged in the last hour: why they could not.
        births: NaN and infinities that were born in a worker.
        by_design: NaN and infinities that a worker has computed since its first fingerprints.
        births_unkept: the number of births for which there was no room. The number includes fingerprints for which
            there was no room and which may show a birth.
        unlooked: the number of unlike fingerprints that were not judged, because their site had too many or because
            they were evicted.
        unkept: for each service, the number of findings that were dropped for lack of room.
    """

    since_ns: int = 0
    window_bytes: int = 0
    window_since_ns: int = 0
    held: int = 0
    oldest: Mapping[ServiceTier, int] = field(default_factory=dict)
    sites: Mapping[ServiceSite, SiteCounts] = field(default_factory=dict)
    findings: Mapping[ServiceSite, DivergentSite] = field(default_factory=dict)
    doubts: Mapping[ServiceSite, Doubt] = field(default_factory=dict)
    apart: Mapping[ServiceSite, Apart] = field(default_factory=dict)
    latest: Mapping[str, Latest] = field(default_factory=dict)
    unlooked: int = 0
    unkept: Mapping[str, int] = field(default_factory=dict)
    recent: Mapping[ServiceTier, Recent] = field(default_factory=dict)
    rows_apart: Mapping[ServiceTier, RowsApart] = field(default_factory=dict)
    row_doubts: Mapping[ServiceSite, RowDoubt] = field(default_factory=dict)
    births: Births = field(default_factory=dict)
    by_design: Collection[BornAt] = frozenset()
    births_unkept: int = 0

    def of_services(self, services: Collection[str]) -> Compared:
        """Return the state with the findings of these services only."""
        return replace(
            self,
            findings={place: finding for place, finding in self.findings.items() if place.is_of(services)},
            doubts={place: doubt for place, doubt in self.doubts.items() if place.is_of(services)},
            apart={place: each for place, each in self.apart.items() if place.is_of(services)},
            latest={service: latest for service, latest in self.latest.items() if service in services},
            unkept={service: n for service, n in self.unkept.items() if service in services},
            recent={of: slots for of, slots in self.recent.items() if of[0] in services},
            rows_apart={of: apart for of, apart in self.rows_apart.items() if of[0] in services},
            row_doubts={place: doubt for place, doubt in self.row_doubts.items() if place.is_of(services)},
            births={at: birth for at, birth in self.births.items() if at.service in services},
            by_design=frozenset(at for at in self.by_design if at.service in services),
        )

    def without(self, workers: Collection[str]) -> Compared:
        """Return the state without these workers."""
        findings = {place: each.without(workers) for place, each in self.findings.items()}
        doubts = {place: each.without(workers) for place, each in self.doubts.items()}
        apart = {place: _without(each, workers) for place, each in self.apart.items()}
        return replace(
            self,
            findings={place: left for place, left in findings.items() if left is not None},
            doubts={place: left for place, left in doubts.items() if left is not None},
            apart={place: left for place, left in apart.items() if left},
            births={at: birth for at, birth in self.births.items() if at.worker not in workers},
            by_design=frozenset(at for at in self.by_design if at.worker not in workers),
        )


def _without(apart: Apart, workers: Collection[str]) -> Apart:
    left = ((one.difference(workers), two.difference(workers)) for one, two in apart)
    return tuple((one, two) for one, two in left if one and two)
