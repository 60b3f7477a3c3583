"""Puts stored evidence back into a window of fingerprints that has evicted it.

Owns: the insertion of a stored fingerprint. Must not know: how a difference was found, who asks for the evidence.
Invariants: Evidence keeps the names that were stored with it. A fingerprint that is still in the window is not added
again.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from brickd.analysis.numerics.fingerprints import GONE, Numerics
from brickd.analysis.numerics.online_state import Compared, KeptEvidence
from brickd.shm import _reader, records
from brickd.shm.sites import Site, Tier, WorkerNames, digest, of_tier, plain


def add(
    fingerprints: _reader.Fingerprints, evidence: KeptEvidence, worker: int, service: int, site: int, shard: int = 0
) -> None:
    """Add a stored fingerprint of a worker at a site.

    The fingerprint was comparable when it was stored. So it is added without the stateful flag of its site. If the
    engine declared the call stateless, the flag stays, because the declaration overrides it.
    """
    events, _ = records.events(evidence.slots)
    for record in events:
        names = array("Q", bytes(8 * (max(record["backend"], record["of"]) + 1)))
        for number, text in ((record["backend"], evidence.backend), (record["of"], evidence.of)):
            names[number] = digest(text)
        number = site if record["flags"] & _reader.CHECKED_STATELESS else plain(site)
        sites = array("Q", bytes(8 * record["site"])) + array("Q", [number])
        fingerprints.add(worker, service, shard, sites, names, evidence.slots, True)


def recall(numerics: Numerics, compared: Compared, shards: Mapping[str, str]) -> None:
    """Add evicted evidence of the workers in `shards` (keyed by uuid).

    Also note which workers differ in single rows.
    """
    for place, finding in compared.findings.items():
        site = numerics.sites.number(Site(place.kernel, place.layer, finding.category))
        oldest_ns = compared.oldest.get((place.service, place.tier))
        for case in dict.fromkeys((finding.first, finding.newest)):
            if oldest_ns is not None and case.at_ns >= oldest_ns:
                continue
            for evidence in (case.against, case.other):
                if evidence.worker in shards and evidence.slots:
                    producer = numerics.producers.get(evidence.worker)
                    if producer is None:
                        shard = shards[evidence.worker]
                        producer = numerics.producer(evidence.worker, place.service, lambda: WorkerNames((), ()), shard)
                        producer.began = GONE
                    service = numerics.service_number(place.service)
                    add(numerics.fingerprints, evidence, producer.number, service, site, producer.shard_digest)
                    producer.newest = numerics.ends(place.service)
        if place.tier is not Tier.TENSORS:
            known = (numerics.producers.get(uuid) for uuid in finding.outliers)
            at = of_tier(site, place.tier)
            numerics.named.update((at, producer.number) for producer in known if producer is not None)
