"""NaN and infinities that are born at a site: found in one worker, without another that had the same inputs.

Owns: when a birth is a finding, and the findings as values that outlive a daemon. Must not know: how births are
counted, screens. Invariants: a site that gives the same kind from its first fingerprints on in all workers does so by
design, as a mask does; the findings are bounded, and those of unknown workers leave; what found no room is counted.

A birth of a kind is a finding in a worker if it began after the worker's first fingerprints at the site, or if another
worker of the service has as many fingerprints there and none of that kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.base.json_values import I32_MAX, listed, require, unicode, whole

KINDS = ("NaN", "Inf", "-Inf")
# How many first fingerprints of a worker at a site say what it gives by design. Masks, logarithms of zero and choices
# of the largest logits give -Inf now and then in healthy models.
FIRST = {"NaN": 16, "Inf": 16, "-Inf": 1_024}
BIRTHS_MAX = 1_024


class BornAt(NamedTuple):
    """A kind at a site of a worker, which is known by its uuid; the layer is -1 without one."""

    service: str
    kernel: str
    layer: int
    worker: str
    kind: str


class Birth(NamedTuple):
    """How often it was born there, and when it was seen first and last, since 1970."""

    times: int
    since_ns: int
    latest_ns: int


Births = Mapping[BornAt, Birth]


class CountedBirths(NamedTuple):
    """What was counted of one worker at one site; of each of KINDS the first fingerprint that had it, and how often."""

    service: int
    site: int
    worker: int
    fingerprints: int
    kinds: tuple[tuple[int, int], ...]


def found(rows: Sequence[CountedBirths]) -> Iterator[tuple[CountedBirths, str, int]]:
    """The births that are no design: whose, of which kind, how often."""
    at_site: dict[tuple[int, int], list[CountedBirths]] = defaultdict(list)
    for row in rows:
        at_site[row.service, row.site].append(row)
    for workers in at_site.values():
        for number, kind in enumerate(KINDS):
            least = FIRST[kind]
            others = any(each.fingerprints >= least and not each.kinds[number][1] for each in workers)
            for row in workers:
                first, times = row.kinds[number]
                if times and (first > least or others):
                    yield row, kind, times


class BirthsWatch:
    """Finds the births in a window of fingerprints."""

    def __init__(self, numerics: Numerics) -> None:
        self._numerics = numerics
        self._counted: dict[tuple[int, int, str], int] = {}

    def look(self, before: Births, known: Collection[str], at_ns: int) -> tuple[dict[BornAt, Birth], list[BornAt], int]:
        """The findings now, the new ones among them, and how many found no room; `known`: uuids of workers."""
        births = {at: birth for at, birth in before.items() if at.worker in known}
        new, unkept = list[BornAt](), 0
        rows = [CountedBirths(*row[:4], row[4:]) for row in self._numerics.fingerprints.births()]
        producers = {each.number: each for each in self._numerics.producers.copy().values()} if rows else {}
        counted: dict[tuple[int, int, str], int] = {}
        for row, kind, times in found(rows):
            producer = producers.get(row.worker)
            if producer is None or producer.uuid not in known:
                continue
            counted[row.worker, row.site, kind] = times
            earlier = self._counted.get((row.worker, row.site, kind), 0)
            more = times - earlier if times >= earlier else times  # else it was counted anew
            site = self._numerics.sites[row.site]
            at = BornAt(producer.service, site.kernel, site.layer, producer.uuid, kind)
            if at in births:
                births[at] = births[at]._replace(times=births[at].times + more, latest_ns=at_ns) if more else births[at]
            elif len(births) < BIRTHS_MAX:
                births[at] = Birth(times, at_ns, at_ns)
                new.append(at)
            else:
                unkept += 1
        self._counted = counted
        return births, new, unkept


def plain(births: Births) -> list[list[Any]]:
    """As JSON has it."""
    return [[*at, *birth] for at, birth in births.items()]


def of_document(rows: Any) -> dict[BornAt, Birth]:
    """What `plain` wrote."""
    return dict(_of_row(*row) for row in listed(rows, BIRTHS_MAX))


def _of_row(service: Any, kernel: Any, layer: Any, worker: Any, kind: Any, *birth: Any) -> tuple[BornAt, Birth]:
    require(kind in KINDS, "a kind of number", kind)
    at = BornAt(unicode(service), unicode(kernel), whole(layer, -1, I32_MAX), unicode(worker), kind)
    return at, Birth._make(map(whole, birth))
