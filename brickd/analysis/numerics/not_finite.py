"""Finds NaN and infinities that are born at a site, even if there is only one worker.

Owns: the rule by which a NaN or an infinity becomes a finding, and the findings, which survive a restart of the daemon.
Must not know: how the values are counted, how findings are shown. Invariants: The number of findings is bounded.
Findings for which there is no room are counted. Findings of unknown workers are dropped. If the first fingerprints of
all workers at a site have a kind of value, it is there by design and is not a finding. A mask is an example.

A kind is NaN, +Inf or -Inf. A kind is born at a site if the output has it and no input has it. A birth is a finding in
two cases. In the first case, it appeared only after the worker's first fingerprints at the site (`FIRST` tells how many
these are). In the second case, another worker of the service has at least that many fingerprints at the site, and none
of them has the kind. A worker's counts at a site start again from 0 when the daemon restarts, and when all of the
worker's fingerprints at the site are evicted. A birth that was once found to be by design stays by design.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.base.json_values import I32_MAX, listed, require, unicode, whole

KINDS = ("NaN", "Inf", "-Inf")
# A kind is by design if it appears in a worker's first fingerprints at a site. This is how many first fingerprints are
# examined. In healthy models, masks, logarithms of zero and the choice of the largest logits occasionally give -Inf.
FIRST = {"NaN": 16, "Inf": 16, "-Inf": 1_024}
BIRTHS_MAX = 1_024
BY_DESIGN_MAX = 4_096


class BornAt(NamedTuple):
    """A kind of value at a site of a worker (given by its uuid); the layer is -1 for a site without a layer."""

    service: str
    kernel: str
    layer: int
    worker: str
    kind: str


class Birth(NamedTuple):
    """How often the value was born at the place, and the times of the first and the last birth (since 1970)."""

    times: int
    since_ns: int
    latest_ns: int


Births = Mapping[BornAt, Birth]


class CountedBirths(NamedTuple):
    """The counts of one worker at one site: for each kind, the first fingerprint that has it, and how many have it."""

    service: int
    site: int
    worker: int
    fingerprints: int
    kinds: tuple[tuple[int, int], ...]


# The worker, the site and the kind of a birth; worker and site are ids of a window.
_Key = tuple[int, int, str]


def found(rows: Sequence[CountedBirths], by_design: Collection[_Key] = ()) -> Iterator[tuple[CountedBirths, str, int]]:
    """Return the births that are not by design: the counts, the kind, and how often it was born."""
    at_site: dict[tuple[int, int], list[CountedBirths]] = defaultdict(list)
    for row in rows:
        at_site[row.service, row.site].append(row)
    for workers in at_site.values():
        for number, kind in enumerate(KINDS):
            least = FIRST[kind]
            others = any(each.fingerprints >= least and not each.kinds[number][1] for each in workers)
            for row in workers:
                first, times = row.kinds[number]
                late = first > least and (row.worker, row.site, kind) not in by_design
                if times and (late or others):
                    yield row, kind, times


class Known(NamedTuple):
    """All known births.

    Attributes:
        by_design: births that a worker has had since its first fingerprints. These births are stored, because the
            counts may start again later.
        new: the findings that are new in this round of comparisons.
        unkept: the number of findings for which there was no room.
    """

    births: dict[BornAt, Birth]
    by_design: frozenset[BornAt]
    new: list[BornAt]
    unkept: int


class _Counted(NamedTuple):
    fingerprints: int
    times: int


class BirthsWatch:
    """Finds births in a window of fingerprints.

    A birth is a call whose output has a NaN or an infinity, while no input has one of the same kind.
    """

    def __init__(self, numerics: Numerics) -> None:
        self._numerics = numerics
        self._counted: dict[_Key, _Counted] = {}
        self._unkept: dict[_Key, int] = {}  # the time when each finding without room was first found

    def look(self, before: Births, by_design: Collection[BornAt], known: Collection[str], at_ns: int) -> Known:
        """Return the current findings; `known` has the uuids of all known workers."""
        births = {at: birth for at, birth in before.items() if at.worker in known}
        designs = {at for at in by_design if at.worker in known}
        rows = [CountedBirths(*row[:4], row[4:]) for row in self._numerics.fingerprints.births()]
        places = self._places(rows, known)
        designed = {key for key, (at, _) in places.items() if at in designs}
        findings = {(row.worker, row.site, kind) for row, kind, _ in found(rows, designed)}
        new, unkept, counted = list[BornAt](), dict[_Key, int](), dict[_Key, _Counted]()
        for key, (at, now) in places.items():
            counted[key] = now
            earlier = self._counted.get(key, _Counted(0, 0))
            anew = now.fingerprints < earlier.fingerprints or now.times < earlier.times
            more = now.times - (0 if anew else earlier.times)
            if key not in findings:
                if len(designs) < BY_DESIGN_MAX and at not in births:
                    designs.add(at)
            elif at in births:
                births[at] = births[at]._replace(times=births[at].times + more, latest_ns=at_ns) if more else births[at]
            elif len(births) < BIRTHS_MAX and (more or key not in self._unkept):
                births[at] = Birth(now.times, self._unkept.get(key, at_ns), at_ns)
                new.append(at)
            else:
                unkept[key] = self._unkept.get(key, at_ns)
        self._counted, self._unkept = counted, unkept
        return Known(births, frozenset(designs), new, len(unkept))

    def _places(self, rows: Sequence[CountedBirths], known: Collection[str]) -> dict[_Key, tuple[BornAt, _Counted]]:
        """Return the births in known workers: where each was born, and how often."""
        producers = {each.number: each for each in self._numerics.producers.copy().values()} if rows else {}
        places: dict[_Key, tuple[BornAt, _Counted]] = {}
        for row in rows:
            producer = producers.get(row.worker)
            if producer is None or producer.uuid not in known:
                continue
            site = self._numerics.sites[row.site]
            for kind, (_, times) in zip(KINDS, row.kinds, strict=True):
                if times:
                    at = BornAt(producer.service, site.kernel, site.layer, producer.uuid, kind)
                    places[row.worker, row.site, kind] = at, _Counted(row.fingerprints, times)
        return places


def plain(births: Births) -> list[list[Any]]:
    """Encode births as JSON."""
    return [[*at, *birth] for at, birth in births.items()]


def of_document(rows: Any) -> dict[BornAt, Birth]:
    """Decode the output of `plain`."""
    return dict(_of_row(*row) for row in listed(rows, BIRTHS_MAX))


def plain_places(places: Collection[BornAt]) -> list[list[Any]]:
    """Encode places as JSON."""
    return [[*at] for at in sorted(places)]


def places_of_document(rows: Any) -> frozenset[BornAt]:
    """Decode the output of `plain_places`."""
    return frozenset(_place_of(*row) for row in listed(rows, BY_DESIGN_MAX))


def _of_row(service: Any, kernel: Any, layer: Any, worker: Any, kind: Any, *birth: Any) -> tuple[BornAt, Birth]:
    return _place_of(service, kernel, layer, worker, kind), Birth._make(map(whole, birth))


def _place_of(service: Any, kernel: Any, layer: Any, worker: Any, kind: Any) -> BornAt:
    require(kind in KINDS, "a kind of number", kind)
    return BornAt(unicode(service), unicode(kernel), whole(layer, -1, I32_MAX), unicode(worker), kind)
