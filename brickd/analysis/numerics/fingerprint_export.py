"""Exports the fingerprints of a daemon, and imports them elsewhere to compare them with others.

Owns: the format of an export. Must not know: HTTP, who asks. Invariant: an export contains everything that a comparison
needs: fingerprints, names, and the numbers of lost records.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from typing import Any

from brickd.analysis.numerics.fingerprints import GONE, Numerics
from brickd.analysis.weights import codec
from brickd.shm.sites import WorkerNames

_NOWHERE = ""  # exported weights have no prefix


def document(numerics: Numerics) -> dict[str, Any]:
    """Return all fingerprints as JSON."""
    records: dict[int, list[bytes]] = {}
    for number in range(numerics.fingerprints.first, numerics.fingerprints.end):
        if (found := numerics.fingerprints.read(number)) is not None:
            worker, _, slots = found
            records.setdefault(worker, []).append(slots)
    return {
        "evicted": numerics.evicted,
        "step_texts": numerics.step_texts.document(),
        "workers": [
            {
                "uuid": producer.uuid,
                "service": producer.service,
                "shard": producer.shard,
                "lost": numerics.lost(producer),
                "worn": numerics.worn(producer),
                "names": producer.tables.names,
                "sites": producer.tables.sites,
                "records": base64.b64encode(b"".join(records.get(producer.number, []))).decode("ascii"),
            }
            for producer in numerics.producers.values()
        ],
        "weights": base64.b64encode(codec.encode(_NOWHERE, numerics.weights)).decode("ascii"),
    }


def add_exported(numerics: Numerics, document: Mapping[str, Any], mark: str = "") -> None:
    """Add the fingerprints of an exported document; put `mark` before the uuids of its workers."""
    numerics.gone += document["evicted"]
    for service, texts in document.get("step_texts", {}).items():  # older daemons send none
        numerics.step_texts.take(service, (text.encode(errors="surrogatepass") for text in texts))
    for each in document["workers"]:
        tables = partial(WorkerNames, _rows(each["names"]), _rows(each["sites"]))
        producer = numerics.producer(mark + each["uuid"], each["service"], tables, each["shard"])
        if each["worn"]:
            producer.began = GONE
        producer.receive(base64.b64decode(each["records"]))
        producer.lose(each["lost"])
    weights = codec.decode(_NOWHERE, base64.b64decode(document["weights"]))
    if weights is not None:
        numerics.weights.merge(weights, mark)


def _rows(rows: Any) -> Any:
    return [None if row is None else tuple(row) for row in rows]
