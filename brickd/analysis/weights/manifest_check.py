"""Compares workers with a manifest.

Owns: the result as a document. Must not know: where workers' weights come from, files, screens. Invariants: Only
checksums with the key of the manifest are compared. For each reason, the result has the number of tensors that were not
compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brickd.analysis.weights.manifest import Document, ExpectedContent, Manifest, TensorKey, content_of, place_of
from brickd.base.units import called, plural
from brickd.errors import BrickdError


def against(manifest: Manifest, document: Document) -> dict[str, Any]:
    """Compare all workers in a document of the view `weights` with a manifest. The document must list all tensors.

    Raises:
        BrickdError: there are workers, but none of them has the key of the manifest.
    """
    workers = [worker for worker in document["workers"] if worker["tensors"]]
    if workers and all(worker["key"] != manifest.key for worker in workers):
        raise BrickdError(
            f"the manifest has key {manifest.key}, the workers' checksums have key {workers[0]['key']}: start them with"
            " the same BRICKD_KEY_FILE, or save a new manifest (brickd weights --save MANIFEST)"
        )
    held: dict[str, dict[TensorKey, Document]] = {worker["worker"]: {} for worker in workers}
    for tensor in document["tensors"]:
        for name in tensor["workers"]:
            held[name][place_of(tensor)] = tensor
    rows: list[dict[str, Any]] = []
    found = [_worker(manifest, worker, held.get(worker["worker"], {}), rows) for worker in document["workers"]]
    states = {worker["state"] for worker in found}
    return {
        **document,
        "verdict": _verdict(states),
        "headlines": [_headline(worker, rows) for worker in found if worker["state"] == "differs"],
        "services": [_service(each, found) for each in document["services"]],
        "not_comparable": dict(sum((Counter(worker["not_comparable"]) for worker in found), Counter[str]())),
        "workers": found,
        "differing_count": len(rows),
        "differing": rows,
        "manifest": {"service": manifest.service, "key": manifest.key, "tensors": len(manifest.tensors)},
    }


_LACKING = dict.fromkeys(("generation", "checksum", "dtype", "shape"))


def _worker(
    manifest: Manifest, worker: Document, held: Mapping[TensorKey, Document], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    expected = {place: content for place, content in manifest.tensors.items() if place.shard == worker["shard"]}
    reasons: Counter[str] = Counter()
    compared = differing = 0
    for place, tensor in held.items():
        content = expected.get(place)
        if worker["key"] != manifest.key:
            reasons["key"] += 1
        elif content is None:
            reasons["shard" if not expected else "not in the manifest"] += 1
        else:
            compared += 1
            if content != content_of(tensor):
                differing += 1
                rows.append(_row(worker, tensor, content))
    whole = worker["tensors"] >= worker["tensors_watched"] > 0 and worker["key"] == manifest.key
    # a worker need not have the tensors of other shards
    missing = sorted(expected.keys() - held.keys(), key=str) if whole else []
    rows += [_row(worker, place._asdict() | _LACKING, expected[place]) for place in missing]
    differing += len(missing)
    state = "differs" if differing else "equal" if compared else "not comparable" if held else "unknown"
    return {
        **worker,
        "state": state,
        "compared": compared,
        "differing": differing,
        "disagreeing": 0,
        "missing": len(missing),
        "holds_shard": None,
        "not_comparable": dict(reasons),
    }


def _row(worker: Document, tensor: Document, expected: ExpectedContent) -> dict[str, Any]:
    return {
        "service": worker["service"],
        **{name: tensor[name] for name in ("shard", "tensor", "layer", "expert", "generation")},
        "why": "manifest",
        "worker": worker["worker"],
        "against": None,
        "against_workers": 0,
        "relative_error": None,
        "checksum": tensor["checksum"],
        "checksum_against": expected.checksum,
        "changed_in_place": None,
        "dtype": tensor["dtype"],
        "dtype_against": expected.dtype,
        "shape": tensor["shape"],
        "shape_against": list(expected.shape),
        **dict.fromkeys(("nan", "pos_inf", "neg_inf")),
    }


def _headline(worker: Document, rows: Sequence[Document]) -> str:
    first = next(row for row in rows if row["worker"] == worker["worker"])
    named = called(first["tensor"], first["layer"], first["expert"])
    count, of = worker["differing"], plural(worker["compared"] + worker["missing"], "tensor")
    which = f"{named}, 1 of {of}" if count == 1 else f"{count} of {of}, first in {named}"
    return f"{worker['worker']} differs from the manifest in {which}"


def _verdict(states: Collection[str]) -> str:
    return "differ" if "differs" in states else "equal" if "equal" in states else "nothing"


def _service(service: Document, workers: Sequence[Document]) -> dict[str, Any]:
    mine = [worker for worker in workers if worker["service"] == service["service"]]
    states = [worker["state"] for worker in mine]
    return {
        **service,
        "verdict": _verdict(states),
        "equal": states.count("equal"),
        "compared": max((worker["compared"] for worker in mine), default=0),
    }
