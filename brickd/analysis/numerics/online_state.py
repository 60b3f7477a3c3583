"""The results of comparing fingerprints of equal inputs: counts by place, and findings.

Owns: the results as a value, which survives a restart of the daemon. Must not know: how the results change, their form
in a file, screens. Invariants: the value is immutable, so any thread may read it; it is bounded; names identify places
and uuids identify workers, so every daemon understands them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import NamedTuple

from brickd.analysis.numerics.not_finite import Births, BornAt
from brickd.analysis.numerics.recent_counts import Recent

SITES_MAX = 4_096  # sites with separate counts; all others share one count
OTHERS = ("", -1)  # the kernel and the layer of that count
FINDINGS_MAX = SITES_MAX
EVIDENCE_MAX = 64  # findings per service that keep their fingerprints
ALL_EVIDENCE_MAX = 256
DOUBTS_MAX = 1_024
_EQUAL_MIN, _EQUAL_TIMES = 100, 20
CLASSES_MAX = SITES_MAX  # places with known classes
WORKERS_MAX = 64  # workers named in one finding; outliers: twice as many


Apart = tuple[tuple[frozenset[str], frozenset[str]], ...]  # uuids of one numeric class, and of another one


class ServiceSite(NamedTuple):
    """A site of a service; `rows`: single rows are compared there, else whole tensors.

    Sites without room share one place, whose kernel is "".
    """

    service: str
    kernel: str
    layer: int
    rows: bool = False

    def is_of(self, services: Collection[str]) -> bool:
        """Whether the place belongs to one of these services, or to no service."""
        return self.service in services or not (self.service or self.kernel)


class SiteCounts(NamedTuple):
    """Counts of fingerprints at a place.

    Attributes:
        category: the category of its kernel.
        bare: the number without inputs, which are not comparable.
        met: the number whose inputs another worker had, too.
        unlike: the number whose output differs from another worker's for the same inputs.
        gone: the number that were evicted before another worker had the same inputs.
        stateful: the number whose output depends on state that is not an input, so workers may differ.
        judged: the number of unlike ones that were judged.
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
        """Whether enough comparisons were equal to show that the kernel does not cause a contradiction."""
        equal = self.met - self.unlike
        return equal >= _EQUAL_MIN and equal >= _EQUAL_TIMES * self.unlike

    @property
    def alone(self) -> int:
        """The comparable fingerprints without a counterpart in another worker."""
        return max(0, self.fingerprints - self.bare - self.stateful - self.met)


class KeptEvidence(NamedTuple):
    """A fingerprint: the worker's uuid, the record (empty: no room), and the texts of two names."""

    worker: str
    slots: bytes
    backend: str
    of: str


class Case(NamedTuple):
    """Two different fingerprints of equal inputs; `against` is the majority's, if there is one."""

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
        category: the category of its kernel.
        cases: the number of judged cases; the place's counts may include other cases.
        workers: the names of the first workers in these cases, by uuid.
        outliers: how often each worker differed from the majority; empty without a majority.
        contradict: the workers that contradict themselves.
        newest: the last case; only a limited number of findings keep the fingerprints of both cases.
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
        """The uuids of the outliers, the worst first, or of the two workers that disagree."""
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
    """A place where most workers contradict themselves, or where some do and the others may.

    Attributes:
        workers: the uuids of the compared workers.
        contradict: the uuids of those that contradict themselves.
        case: two outputs of one of these workers; None: they were evicted.
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
    """When a service's number of comparisons last grew (since 1970), and the number then."""

    met: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The whole state.

    Attributes:
        since_ns: when the counts began, since 1970; 0: nothing was counted.
        window_bytes: the limit of the window; 0: nothing is compared.
        window_since_ns: when the window began.
        held: the number of fingerprints in the window; evicted ones are no longer compared.
        oldest: when the oldest fingerprint in a window arrived, or a little later, since 1970; by service, and by
            whether the window has rows.
        apart: the workers of two numeric classes, if any are known, by place.
        latest: the latest growth of each service's comparisons.
        recent: the counts of whole tensors in the last hour, by service.
        recent_rows: the counts of single rows in the last hour, by service.
        births: NaN and infinities that began in a worker.
        by_design: NaN and infinities that a worker computes since its first fingerprints.
        births_unkept: the number of births, and of fingerprints that may contain one, that had no room.
        unlooked: the number of unlike fingerprints that were not judged, because one place had too many or they were
            evicted.
        unkept: the number of findings that were dropped for lack of room, by service.
    """

    since_ns: int = 0
    window_bytes: int = 0
    window_since_ns: int = 0
    held: int = 0
    oldest: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    sites: Mapping[ServiceSite, SiteCounts] = field(default_factory=dict)
    findings: Mapping[ServiceSite, DivergentSite] = field(default_factory=dict)
    doubts: Mapping[ServiceSite, Doubt] = field(default_factory=dict)
    apart: Mapping[ServiceSite, Apart] = field(default_factory=dict)
    latest: Mapping[str, Latest] = field(default_factory=dict)
    unlooked: int = 0
    unkept: Mapping[str, int] = field(default_factory=dict)
    recent: Mapping[str, Recent] = field(default_factory=dict)
    recent_rows: Mapping[str, Recent] = field(default_factory=dict)
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
            recent={service: slots for service, slots in self.recent.items() if service in services},
            recent_rows={service: slots for service, slots in self.recent_rows.items() if service in services},
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
