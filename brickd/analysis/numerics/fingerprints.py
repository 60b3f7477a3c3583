"""The newest fingerprints of many workers.

Owns: the producers of fingerprints, and how the numbers in a worker's records become those that mean the same for all.
Must not know: where records come from, what is made of fingerprints that differ. Invariants: a record is taken once;
what it refers to is known by name, or by its number if the worker never named it; fingerprints are bounded by bytes;
with shares, no service makes another one lose fingerprints that fit into an equal part of the bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from brickd.analysis.weights.store import Weights
from brickd.shm import _reader
from brickd.shm.sites import Site, Sites, WorkerNames, digest

WINDOW_BYTES = 64 << 20
ALL_BYTES = 1 << 30  # of what is received for one question
PRODUCERS_MAX = 4_096
GONE = -1  # of a worker of whose first fingerprints some had gone before it was known
_VAIN_MAX = 1_023
_UNKNOWN = 2**32 - 2  # the number of no service


class Learned(NamedTuple):
    """A worker's tables, and the digests of its names and sites by number; 0: never named."""

    tables: WorkerNames
    names: array[int]
    sites: array[int]


_NOTHING = Learned(WorkerNames((), ()), array("Q"), array("Q"))


class FingerprintProducer:
    """A worker that sends fingerprints.

    Attributes:
        shard: which one of a model it holds, or "".
        shard_digest: 0: no shard.
        number: of its fingerprints.
        lost: checksums that it found no room for.
        lost_before: how many fingerprints its service had had, in all, when that last grew.
        newest_end: how many its service had had with its last one; 0: it never had one.
        latest: how many there had been of all services with its last one.
        began: how many its service had had before its first; below 0: some of its own had gone then.
    """

    def __init__(
        self, numerics: Numerics, uuid: str, service: str, number: int, tables: Callable[[], WorkerNames], shard: str
    ) -> None:
        self.uuid, self.service, self.number, self.shard = uuid, service, number, shard
        self.lost = self.lost_before = self.newest_end = self.latest = 0
        self.began = numerics.gone + numerics.extent(service).end
        self._numerics, self._tables = numerics, tables
        self.shard_digest = digest(shard) if shard else 0
        self._learned = _NOTHING
        self._vain = self._vain_left = 0  # looks that are spared, since the last one was in vain

    def receive(self, records: bytes) -> None:
        """Take whole records in order."""
        if not records:
            return
        left = self._add(records, named=True)
        if left and self._vain_left == 0:
            self.learn()
            left = self._add(left, named=True)
            # One that refers to what it never names is not asked each time.
            self._vain = min(2 * self._vain + 1, _VAIN_MAX) if left else 0
            self._vain_left = self._vain
        elif left:
            self._vain_left -= 1
        if left:
            self._add(left, named=False)

    def _add(self, records: bytes, *, named: bool) -> bytes:
        """Add records up to the first that refers to an unknown name; return the rest."""
        numerics = self._numerics
        service = numerics.service_number(self.service)
        _, names, sites = self._learned
        before = numerics.fingerprints.end
        taken, weights = numerics.fingerprints.add(
            self.number, service, self.shard_digest, sites, names, records, named
        )
        if numerics.fingerprints.end != before:  # of weights none is kept
            self.newest_end, self.latest = numerics.extent(self.service).end, numerics.fingerprints.end
        numerics.producers[self.uuid] = self
        if weights:
            numerics.weights.take(self, weights)
        return records[taken:]

    def lose(self, lost: int) -> None:
        """Note the number of records that it has lost so far."""
        if lost > self.lost:
            self.lost, self.lost_before = lost, self._numerics.gone + self._numerics.extent(self.service).end

    def for_another(self, numerics: Numerics) -> FingerprintProducer:
        """Make a copy of this producer in another window, with a number of its own there."""
        learned = self._learned
        other = numerics.producer(self.uuid, self.service, lambda: learned.tables, self.shard)
        other._learned = learned
        if self._numerics.worn(self):
            other.began = GONE
        other.lose(self._numerics.lost(self))
        return other

    @property
    def tables(self) -> WorkerNames:
        """Its names and sites, as far as they were looked up."""
        return self._learned.tables

    @property
    def digests(self) -> array[int]:
        """The digests of its sites by number, as far as they were looked up; 0: never named."""
        return self._learned.sites

    def known(self, number: int) -> Site | None:
        """The site with this number; None if the worker never named it."""
        return self.tables.known(number)

    def learn(self) -> None:
        """Look up its names and sites now."""
        self._learned = self._numerics.learned(self.service, self._tables())


class WindowExtent(NamedTuple):
    """How many fingerprints have left a service's window, and how many there ever were in it."""

    window: int
    first: int
    end: int


class Numerics:
    """Fingerprints of many workers; `gone`: those that had left the window before the copy.

    With `shares` each service has a window of its own, and an equal part of the bytes. Only a copy can be compared.
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
        self._learned: dict[str, Learned] = {}
        self._numbers = 0

    @property
    def evicted(self) -> int:
        """The number of fingerprints, of any worker, that have left the window."""
        return self.gone + self.fingerprints.first

    def extent(self, service: str) -> WindowExtent:
        """The window of a service; from any thread."""
        return WindowExtent(*self.fingerprints.extent(self._services.get(service, _UNKNOWN)))

    def lost(self, producer: FingerprintProducer) -> int:
        """The number of lost records of a worker that would be in the window."""
        return producer.lost if producer.lost_before >= self._evicted_of(producer) else 0

    def worn(self, producer: FingerprintProducer) -> bool:
        """Whether the first fingerprints of a worker may have left the window."""
        return self._evicted_of(producer) > producer.began

    def _evicted_of(self, producer: FingerprintProducer) -> int:
        return self.gone + self.extent(producer.service).first

    def learned(self, service: str, tables: WorkerNames) -> Learned:
        """The digests of a worker's names and sites, made once for workers of a service that agree."""
        learned = self._learned.get(service)
        if learned is None or learned.tables != tables:
            names = array("Q", (0 if row is None else digest(row[0]) for row in tables.names))
            number = self.sites.number
            sites = (0 if row is None else number(tables.site(n)) for n, row in enumerate(tables.sites))
            learned = self._learned[service] = Learned(tables, names, array("Q", sites))
        return learned

    def producer(self, uuid: str, service: str, tables: Callable[[], WorkerNames], shard: str) -> FingerprintProducer:
        """Add a worker; `shard`: the one of the model that it holds (shards.shard_of), or ""."""
        if len(self.producers) >= PRODUCERS_MAX:
            longest = sorted(self.producers.values(), key=lambda each: each.latest)[: PRODUCERS_MAX // 4]
            self.forget([each.uuid for each in longest])
        self._numbers += 1
        self.producers[uuid] = FingerprintProducer(self, uuid, service, self._numbers, tables, shard)
        return self.producers[uuid]

    def forget(self, uuids: Iterable[str]) -> None:
        """Drop the fingerprints of some workers, and the names of services that no other one is of."""
        self.fingerprints.mute([self.producers.pop(uuid).number for uuid in uuids if uuid in self.producers])
        left = {each.service for each in self.producers.values()}
        for number in [number for service, number in self._services.items() if service not in left]:
            self.fingerprints.drop(number)
        self._services = {service: number for service, number in self._services.items() if service in left}
        self._learned = {service: learned for service, learned in self._learned.items() if service in left}

    def about(self, uuids: Collection[str]) -> Numerics:
        """A copy of the window with some of the workers.

        They are numbered there as they come in, like workers that are added later: no number that was given here means
        anything, and nothing that changes is shared.
        """
        other = Numerics(weights=self.weights.about(uuids))
        theirs = [producer for uuid, producer in self.producers.copy().items() if uuid in uuids]
        extents = [self.extent(service) for service in {producer.service for producer in theirs}]
        other.sites, other.gone = self.sites.copy(), self.gone
        other.gone += sum({each.window: each.first for each in extents}.values())
        mine = [producer.for_another(other) for producer in theirs]
        other.fingerprints, ends = self.fingerprints.select(
            [producer.number for producer in theirs],
            [producer.number for producer in mine],
            [other.service_number(producer.service) for producer in mine],
        )
        for producer, end in zip(mine, ends, strict=True):
            producer.newest_end = end
        return other

    def service_number(self, service: str) -> int:
        """The number of a service; none is given twice, for old fingerprints may still have it."""
        number = self._services.get(service)
        if number is None:
            number = self._services[service] = self._services_added
            self._services_added += 1
        return number

    def service(self, number: int) -> str:
        """The service with this number, if it has a known worker; 0 also means sites without room."""
        return next((service for service, each in self._services.items() if each == number), "")
