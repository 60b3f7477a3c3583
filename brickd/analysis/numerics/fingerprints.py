"""The newest fingerprints of many workers.

Owns: the producers of fingerprints, and the translation of the ids in a worker's records into ids that all workers
share. Must not know: where records come from, what is done about differences. Invariants: No record is added twice.
References in a record are resolved by name, or by id if they have no name. The bytes of all fingerprints are bounded.
If the services share the bytes, each service gets an equal share and evicts only its own fingerprints.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from brickd.analysis.numerics.row_workers import RowWorkers
from brickd.analysis.weights.store import Weights
from brickd.model.step_texts import StepTexts
from brickd.shm import _reader
from brickd.shm.sites import Site, Sites, Tier, WorkerNames, digest, of_tier

WINDOW_BYTES = 64 << 20
ALL_BYTES = 1 << 30  # the limit in bytes for the fingerprints that one query receives
PRODUCERS_MAX = 4_096
GONE = -1  # `began` of a worker whose first fingerprints were evicted before the worker was known
_VAIN_MAX = 1_023
_ROWS = 1 << Tier.ROWS | 1 << Tier.HISTORY
_PRESUMED = _reader.SITE_PRESUMED
_UNKNOWN = 2**32 - 2  # a number that is never given to a service


class Learned(NamedTuple):
    """A worker's tables, and the digests of its names and sites, indexed by id. A digest is 0 if there is no name."""

    tables: WorkerNames
    names: array[int]
    sites: array[int]


_NOTHING = Learned(WorkerNames((), ()), array("Q"), array("Q"))


class FingerprintProducer:
    """A worker that sends fingerprints.

    Attributes:
        shard: the part of the model that the worker holds, or "".
        shard_digest: the digest of `shard`; 0 without a shard.
        number: the worker's index in the window.
        lost: the number of checksums for which the worker had no room.
        lost_before: how many fingerprints its service had when `lost` last grew.
        newest: for each window, how many fingerprints its service had when the worker's newest one arrived; 0 without
            one.
        latest: how many fingerprints all services had when the worker's newest one arrived.
        began: how many fingerprints its service had before the worker's first fingerprint; negative if some of the
            worker's fingerprints were already evicted.
    """

    def __init__(
        self, numerics: Numerics, uuid: str, service: str, number: int, tables: Callable[[], WorkerNames], shard: str
    ) -> None:
        self.uuid, self.service, self.number, self.shard = uuid, service, number, shard
        self.lost = self.lost_before = self.latest = 0
        self.newest = Ends(0, 0, 0)
        self.began = numerics.gone + numerics.extent(service).end
        self._numerics, self._tables = numerics, tables
        self.shard_digest = digest(shard) if shard else 0
        self._learned = _NOTHING
        self._vain = self._vain_left = 0  # look-ups to skip after a failed one

    def receive(self, records: bytes) -> None:
        """Process complete records, in the order of the ring."""
        if not records:
            return
        left = self._add(records, named=True)
        if left and self._vain_left == 0:
            self.learn()
            left = self._add(left, named=True)
            # A record may refer to a name that the worker never publishes. So each failed look-up doubles the time
            # until the next look-up.
            self._vain = min(2 * self._vain + 1, _VAIN_MAX) if left else 0
            self._vain_left = self._vain
        elif left:
            self._vain_left -= 1
        if left:
            self._add(left, named=False)

    def _add(self, records: bytes, *, named: bool) -> bytes:
        """Add the records before the first one with an unknown name; return the rest."""
        numerics = self._numerics
        service = numerics.service_number(self.service)
        _, names, sites = self._learned
        before, all_before = numerics.ends(self.service), numerics.fingerprints.end
        left_out, lacks_room = numerics.fingerprints.left_out, not numerics.admits_rows(self)
        taken, weights = numerics.fingerprints.add(
            self.number, service, self.shard_digest, sites, names, records, named, _ROWS if lacks_room else 0
        )
        for tier, (before_it, now) in enumerate(zip(left_out, numerics.fingerprints.left_out, strict=True)):
            if now != before_it:
                numerics.row_workers.left_out[self.service, Tier(tier)] += now - before_it
        if numerics.fingerprints.end != all_before:  # records of weights are not added to these windows
            self.latest, after = numerics.fingerprints.end, numerics.ends(self.service)
            pairs = zip(self.newest, before, after, strict=True)
            self.newest = Ends(*(new if new != old else own for own, old, new in pairs))
            if before[1:] != after[1:] and not lacks_room:
                numerics.row_workers.add(self.service, self.uuid)
        numerics.producers[self.uuid] = self
        if weights:
            numerics.weights.take(self, weights)
        return records[taken:]

    def name_steps(self, texts: Iterable[bytes]) -> None:
        """Take the texts by which the worker names its steps."""
        self._numerics.step_texts.take(self.service, texts)

    def lose(self, lost: int) -> None:
        """Set the total number of records that the worker has lost."""
        if lost > self.lost:
            self.lost, self.lost_before = lost, self._numerics.gone + self._numerics.extent(self.service).end

    def for_another(self, numerics: Numerics) -> FingerprintProducer:
        """Copy this producer into another window, under a new index."""
        learned = self._learned
        other = numerics.producer(self.uuid, self.service, lambda: learned.tables, self.shard)
        other._learned = learned
        if self._numerics.worn(self):
            other.began = GONE
        other.lose(self._numerics.lost(self))
        return other

    @property
    def tables(self) -> WorkerNames:
        """The worker's names and sites, as they were at the last look-up."""
        return self._learned.tables

    @property
    def digests(self) -> array[int]:
        """The digests of the worker's sites, indexed by id, at the last look-up; 0 for a site without a name."""
        return self._learned.sites

    def known(self, number: int) -> Site | None:
        """Return the site with this id; None if it has no name."""
        return self.tables.known(number)

    def learn(self) -> None:
        """Look up the worker's names and sites now."""
        self._learned = self._numerics.learned(self.service, self._tables())


class Ends(NamedTuple):
    """For each tier of a service: a number that is one above the sequence number of a fingerprint in its window."""

    tensors: int
    rows: int
    histories: int


class WindowExtent(NamedTuple):
    """The id of a window, how many fingerprints it has evicted, and how many it has received."""

    window: int
    first: int
    end: int


class Numerics:
    """The fingerprints of many workers.

    With `shares`, each service has a window for each tier that it sends. All windows then have equal shares of the
    bytes, and fingerprints can be compared only in a copy of the object. `gone` is the number of fingerprints that were
    evicted before this copy was made. `presumed` has the sites that are only presumed to be row-wise. `named` has the
    pairs of a site and a worker (both as ids) for which rows are known to differ. `step_texts` has the texts of steps
    that workers sent.
    """

    def __init__(self, bytes_max: int = WINDOW_BYTES, weights: Weights | None = None, *, shares: bool = False) -> None:
        self.bytes_max = bytes_max
        self.fingerprints = _reader.Fingerprints(bytes_max, shares)
        self.sites = Sites()
        self.producers: dict[str, FingerprintProducer] = {}
        self.weights = weights or Weights()
        self.gone = 0
        self._services: dict[str, int] = {}
        self._services_added = 0
        self.named = set[tuple[int, int]]()
        self.presumed = set[int]()
        self.row_workers = RowWorkers()
        self.step_texts = StepTexts()
        self._learned: dict[str, Learned] = {}
        self._numbers = 0

    @property
    def evicted(self) -> int:
        """The number of evicted fingerprints of all workers."""
        return self.gone + self.fingerprints.first

    def extent(self, service: str, tier: Tier = Tier.TENSORS) -> WindowExtent:
        """The window of a service's fingerprints of this tier; any thread may call this."""
        return WindowExtent(*self.fingerprints.extent(self._services.get(service, _UNKNOWN), tier))

    def ends(self, service: str) -> Ends:
        """The sequence numbers that the next fingerprints in the windows of a service will get."""
        return Ends(*(self.extent(service, tier).end for tier in Tier))

    def holds(self, producer: FingerprintProducer) -> bool:
        """Whether the windows have a fingerprint of this worker."""
        extents = (self.extent(producer.service, tier) for tier in Tier)
        return any(newest > extent.first for newest, extent in zip(producer.newest, extents, strict=True))

    def admits_rows(self, producer: FingerprintProducer) -> bool:
        """Whether the rows of a worker may be added. A service admits only a limited number of workers with rows."""

        def holds(uuid: str) -> bool:
            known = self.producers.get(uuid)
            rows = (Tier.ROWS, Tier.HISTORY)
            return known is not None and any(known.newest[of] > self.extent(known.service, of).first for of in rows)

        return self.row_workers.admits(producer.service, producer.uuid, holds)

    def lost(self, producer: FingerprintProducer) -> int:
        """Return how many records a worker has lost; 0 if all were lost before the window's oldest fingerprint."""
        return producer.lost if producer.lost_before >= self._evicted_of(producer) else 0

    def worn(self, producer: FingerprintProducer) -> bool:
        """Whether some of a worker's first fingerprints may already be evicted."""
        return self._evicted_of(producer) > producer.began

    def _evicted_of(self, producer: FingerprintProducer) -> int:
        return self.gone + self.extent(producer.service).first

    def learned(self, service: str, tables: WorkerNames) -> Learned:
        """The digests of a worker's names and sites. Workers of a service with equal tables share one object."""
        learned = self._learned.get(service)
        if learned is None or learned.tables != tables:
            names = array("Q", (0 if row is None else digest(row[0]) for row in tables.names))
            number = self.sites.number
            sites = array("Q", (0 if row is None else number(tables.site(n)) for n, row in enumerate(tables.sites)))
            presumed = (site for site, row in zip(sites, tables.sites, strict=True) if row and row[2] == _PRESUMED)
            self.presumed.update(of_tier(site, Tier.ROWS) for site in presumed)
            learned = self._learned[service] = Learned(tables, names, sites)
        return learned

    def producer(self, uuid: str, service: str, tables: Callable[[], WorkerNames], shard: str) -> FingerprintProducer:
        """Add a worker; `shard` is the part of the model that it holds (see shards.shard_of), or ""."""
        if len(self.producers) >= PRODUCERS_MAX:
            longest = sorted(self.producers.values(), key=lambda each: each.latest)[: PRODUCERS_MAX // 4]
            self.forget([each.uuid for each in longest])
        self._numbers += 1
        self.producers[uuid] = FingerprintProducer(self, uuid, service, self._numbers, tables, shard)
        return self.producers[uuid]

    def forget(self, uuids: Iterable[str]) -> None:
        """Drop the fingerprints of some workers. Also drop each service that has no worker left."""
        known = [self.producers.pop(uuid) for uuid in uuids if uuid in self.producers]
        self.fingerprints.mute([producer.number for producer in known])
        for producer in known:
            self.row_workers.forget(producer.service, producer.uuid)
        left = {each.service for each in self.producers.values()}
        self.step_texts.keep(left)
        for number in [number for service, number in self._services.items() if service not in left]:
            self.fingerprints.drop(number)
        self._services = {service: number for service, number in self._services.items() if service in left}
        self._learned = {service: learned for service, learned in self._learned.items() if service in left}

    def about(self, uuids: Collection[str]) -> Numerics:
        """Copy the window for some of the workers.

        The workers get new indexes, in the order of `uuids`. The copy shares no mutable state with this window.
        """
        other = Numerics(weights=self.weights.about(uuids))
        theirs = [producer for uuid, producer in self.producers.copy().items() if uuid in uuids]
        services = {producer.service for producer in theirs}
        extents = [self.extent(service, tier) for service in services for tier in Tier]
        other.sites, other.gone, other.presumed = self.sites.copy(), self.gone, self.presumed.copy()
        other.step_texts = self.step_texts.copy()
        other.gone += sum({each.window: each.first for each in extents}.values())
        mine = [producer.for_another(other) for producer in theirs]
        other.fingerprints, ends = self.fingerprints.select(
            [producer.number for producer in theirs],
            [producer.number for producer in mine],
            [other.service_number(producer.service) for producer in mine],
        )
        for producer, end in zip(mine, ends, strict=True):
            producer.newest = Ends(end, end, end)
        return other

    def service_number(self, service: str) -> int:
        """The id of a service. The id is never reused, because old fingerprints may still have it."""
        number = self._services.get(service)
        if number is None:
            number = self._services[service] = self._services_added
            self._services_added += 1
        return number

    def service(self, number: int) -> str:
        """Return the service with this id, or "" if it has no known worker.

        Sites for which there was no room have service 0.
        """
        return next((service for service, each in self._services.items() if each == number), "")
