"""The results of comparing fingerprints of equal inputs: counts by place, and findings.

Owns: that state as a value, which outlives a daemon. Must not know: how it changes, its form in a file, screens.
Invariants: it is replaced as a whole and never changed, so any thread may read it; it is bounded; places are known by
names and workers by uuids, so they mean the same to every daemon.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import NamedTuple

from brickd.analysis.numerics.not_finite import Births, BornAt
from brickd.analysis.numerics.recent_counts import Recent

SITES_MAX = 4_096  # sites with counts of their own; all others share one count
OTHERS = ("", -1)  # the kernel and the layer of that count
FINDINGS_MAX = SITES_MAX
EVIDENCE_MAX = 64  # findings of a service whose fingerprints are kept
ALL_EVIDENCE_MAX = 256
DOUBTS_MAX = 1_024
_EQUAL_MIN, _EQUAL_TIMES = 100, 20
CLASSES_MAX = SITES_MAX  # places with known classes
WORKERS_MAX = 64  # named in one finding; twice as many outliers


Apart = tuple[tuple[frozenset[str], frozenset[str]], ...]  # uuids of one numeric class, and of another one


class ServiceSite(NamedTuple):
    """A site of a service; the kernel is "" for the sum of all sites without room."""

    service: str
    kernel: str
    layer: int

    def is_of(self, services: Collection[str]) -> bool:
        """Whether it is of one of these services, or the sum of sites without a service."""
        return self.service in services or not (self.service or self.kernel)


class SiteCounts(NamedTuple):
    """Counts of fingerprints at a place.

    Attributes:
        category: of its kernel.
        bare: without inputs, so not comparable.
        met: another worker had the same inputs.
        unlike: the same inputs gave another output.
        gone: evicted before another worker had the same inputs.
        stateful: state that no input shows decides the output, so workers need not agree.
        judged: the unlike ones with a judgement.
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
        """Add to each count, in the order of the fields; the last ones may be omitted."""
        return SiteCounts(self.category, *map(sum, zip_longest(self[1:], more, fillvalue=0)))

    @property
    def repeats(self) -> bool:
        """Whether enough comparisons were equal that a contradiction is not the kernel's fault."""
        equal = self.met - self.unlike
        return equal >= _EQUAL_MIN and equal >= _EQUAL_TIMES * self.unlike

    @property
    def alone(self) -> int:
        """The comparable fingerprints that met no other worker's."""
        return max(0, self.fingerprints - self.bare - self.stateful - self.met)


class KeptEvidence(NamedTuple):
    """A fingerprint: the worker's uuid, its record (empty without room), the texts of two names."""

    worker: str
    slots: bytes
    backend: str
    of: str


class Case(NamedTuple):
    """Two fingerprints of equal inputs that differ; `against` is the majority's, if any."""

    at_ns: int
    against: KeptEvidence
    other: KeptEvidence

    @property
    def whole(self) -> bool:
        """Whether both fingerprints are kept."""
        return bool(self.against.slots and self.other.slots)

    def bare(self) -> Case:
        """The case without the fingerprints."""
        against, other = (KeptEvidence(each.worker, b"", "", "") for each in (self.against, self.other))
        return Case(self.at_ns, against, other)


class DivergentSite(NamedTuple):
    """A place where workers differ.

    Attributes:
        category: of its kernel.
        cases: the number of judged cases; the place's counts may include more.
        workers: the names of the first workers in these cases, by uuid.
        outliers: how often each worker was not with the majority; empty without a majority.
        contradict: the workers that contradict themselves.
        newest: the last case; the fingerprints of both cases are kept for a limited number of findings.
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
        """The uuids of the outliers, the worst first; without any, of the two that disagree."""
        worst = sorted(self.outliers, key=lambda uuid: -self.outliers[uuid])
        return worst or [self.newest.against.worker, self.newest.other.worker]

    @property
    def shown(self) -> Case:
        """The first case if both its fingerprints are kept, else the newest."""
        return self.first if self.first.whole else self.newest

    def bare(self) -> DivergentSite:
        """The finding without fingerprints."""
        return self._replace(first=self.first.bare(), newest=self.newest.bare())

    def without(self, workers: Collection[str]) -> DivergentSite | None:
        """The finding without some workers; None: nothing is left."""
        outliers = {uuid: times for uuid, times in self.outliers.items() if uuid not in workers}
        if self.outliers and not outliers:
            return None
        return self._replace(outliers=outliers, contradict=self.contradict.difference(workers))


class Doubt(NamedTuple):
    """A place where most workers contradict themselves, or some do and others may.

    Attributes:
        workers: the uuids of the compared workers.
        contradict: the uuids of those that contradict themselves.
        case: two outputs of one of these; None: they were evicted.
    """

    workers: frozenset[str]
    contradict: frozenset[str]
    case: Case | None = None

    def without(self, workers: Collection[str]) -> Doubt | None:
        """The doubt without some workers; None: nothing is left."""
        contradict = self.contradict.difference(workers)
        case = None if self.case is None or self.case.other.worker in workers else self.case
        return Doubt(self.workers.difference(workers), contradict, case) if contradict else None


class Latest(NamedTuple):
    """The last growth of a service's comparisons: their number then, and the time, since 1970."""

    met: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The whole state.

    Attributes:
        since_ns: the begin of the counts, since 1970; 0: nothing was counted.
        window_bytes: the limit of the window; 0: nothing is compared.
        window_since_ns: the begin of the window.
        held: the number of fingerprints in the window: evicted ones are not compared any more.
        oldest: by service a time, since 1970, at or after the arrival of its oldest fingerprint in the window.
        apart: by place the workers of two numeric classes, if any are known.
        latest: by service.
        recent: by service, the counts of the last hour.
        births: NaN and infinities that began in a worker.
        by_design: NaN and infinities that a worker gives since its first fingerprints.
        births_unkept: the number of births, and of fingerprints that may hold one, without room.
        unlooked: the number of unlike fingerprints that were not judged: too many of one place, or evicted.
        unkept: by service the number of findings that were not kept, or dropped, for lack of room.
    """

    since_ns: int = 0
    window_bytes: int = 0
    window_since_ns: int = 0
    held: int = 0
    oldest: Mapping[str, int] = field(default_factory=dict)
    sites: Mapping[ServiceSite, SiteCounts] = field(default_factory=dict)
    findings: Mapping[ServiceSite, DivergentSite] = field(default_factory=dict)
    doubts: Mapping[ServiceSite, Doubt] = field(default_factory=dict)
    apart: Mapping[ServiceSite, Apart] = field(default_factory=dict)
    latest: Mapping[str, Latest] = field(default_factory=dict)
    unlooked: int = 0
    unkept: Mapping[str, int] = field(default_factory=dict)
    recent: Mapping[str, Recent] = field(default_factory=dict)
    births: Births = field(default_factory=dict)
    by_design: Collection[BornAt] = frozenset()
    births_unkept: int = 0

    def of_services(self, services: Collection[str]) -> Compared:
        """The state without findings of other services."""
        return replace(
            self,
            findings={place: finding for place, finding in self.findings.items() if place.is_of(services)},
            doubts={place: doubt for place, doubt in self.doubts.items() if place.is_of(services)},
            apart={place: each for place, each in self.apart.items() if place.is_of(services)},
            latest={service: latest for service, latest in self.latest.items() if service in services},
            unkept={service: n for service, n in self.unkept.items() if service in services},
            recent={service: slots for service, slots in self.recent.items() if service in services},
            births={at: birth for at, birth in self.births.items() if at.service in services},
            by_design=frozenset(at for at in self.by_design if at.service in services),
        )

    def without(self, workers: Collection[str]) -> Compared:
        """The state without some workers."""
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
