"""The fingerprints of an export, as rows.

Owns: the fields of a row. Must not know: where an export comes from. Invariant: A row has the values that `brickd diff`
shows for the same fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from brickd.analysis.numerics import blame, fingerprint_export
from brickd.analysis.numerics.fingerprints import ALL_BYTES, Numerics
from brickd.base.units import or_none
from brickd.shm import records
from brickd.shm.sites import Tier, tier_of

_DATA = ("workers", "weights", "step_texts")  # the records of an export (in base64), and the texts in its rows


def document(export: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of an export with rows in place of its records.

    Args:
        export: the document of the view `fingerprints`.
        names: the names of the wanted workers, by uuid.
    """
    numerics = Numerics(ALL_BYTES)
    mine = [each for each in export["workers"] if each["uuid"] in names]
    fingerprint_export.add_exported(numerics, {**export, "workers": mine})
    rest = {key: value for key, value in export.items() if key not in _DATA}
    return {**rest, "fingerprints": [*_rows(numerics, names)]}


def _rows(numerics: Numerics, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    producers = {producer.number: producer for producer in numerics.producers.values()}
    for number in range(numerics.fingerprints.first, numerics.fingerprints.end):
        found = blame.read(numerics.fingerprints, number)
        if found is None:
            continue
        producer, site, backend = producers[found.worker], numerics.sites[found.site], found.record["backend"]
        yield {
            "worker": names[producer.uuid],
            "service": producer.service,
            "uuid": producer.uuid,
            "kernel": site.kernel,
            "layer": or_none(site.layer),
            "category": site.category,
            **found.document(numerics.step_texts),
            "backend": producer.tables.name(backend) if backend else None,
            "inputs": [records.tensor_document(tensor) for tensor in found.inputs],
            "by_row": tier_of(found.site) is not Tier.TENSORS,
        }
