"""The weights of workers, for several views: which workers differ, and how much was compared.

Owns: how weights are written as JSON and as problems. Must not know: how weights are compared, terminals. Invariants:
"no worker differs" is never reported without the number of comparisons. A finding has the keys of a finding about
outputs; keys that do not apply to weights are null.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from brickd.analysis.numerics.blame import Blame, NotFinite
from brickd.analysis.numerics.online_state import ServiceSite
from brickd.analysis.weights.contents import TensorContent
from brickd.analysis.weights.headlines import Headline, headlines
from brickd.analysis.weights.tensors import Tensor
from brickd.analysis.weights.verdicts import Differing, Holding, WeightOutlier, WeightsVerdict
from brickd.model.worker_names import as_argument
from brickd.model.workers import Worker


def findings(
    judged: Iterable[WeightsVerdict], workers: Collection[Worker], *, partial: bool
) -> list[dict[str, Any]] | None:
    """Return the findings, or with `partial` only those about the given workers; None if nothing was compared."""
    of = list(judged)
    if all(each.verdict == "nothing" for each in of):
        return None
    named = {worker.name for worker in workers}
    found = [_finding(each, headline) for each in of for headline in headlines(each)]
    return [each for each in found if not partial or named.intersection(each["workers"])]


def _finding(judged: WeightsVerdict, headline: Headline) -> dict[str, Any]:
    first = next(iter(headline.rows), None)
    disagree = first is not None and first.why == "disagree"
    names = [*first.names] if first is not None and disagree else [headline.found.name]
    numbers = dict.fromkeys(("layer", "expert")) if first is None else first.tensor.numbers()
    outlier = None if first is None else next((each for each in first.outliers if each.worker in names), None)
    return {
        "service": judged.service,
        "kernel": None if first is None else first.tensor.name,
        "layer": numbers["layer"],
        "category": "weight",
        "evidence": "weights",
        "since": None,
        "latest": None,
        "cases": len(headline.rows),
        "workers": names,
        "outliers": {} if disagree else {headline.found.name: len(headline.rows)},
        "contradict_themselves": sorted(_changed(headline.rows, names)),
        "blame": Blame.UNKNOWN if disagree else Blame.CULPRIT,
        "not_finite": None if first is None or outlier is None else _not_finite(first, outlier),
        "relative_error": None if outlier is None else outlier.error,
        "command": f"brickd weights {as_argument(judged.service)}",
        "expert": numbers["expert"],
        "shard": headline.found.shard,
        "holds_shard": headline.found.holds,
        "tensors": headline.found.known,
        "text": headline.text,
    }


def _changed(rows: Iterable[Differing], names: Collection[str]) -> set[str]:
    return {outlier.worker for row in rows for outlier in row.outliers if outlier.changed and outlier.worker in names}


def _not_finite(row: Differing, outlier: WeightOutlier) -> NotFinite | None:
    if outlier.held is None or row.wanted is None:
        return None
    there, wanted = _holds_any(outlier.held), _holds_any(row.wanted)
    return None if there == wanted else NotFinite.BORN if there and row.why != "disagree" else NotFinite.UNKNOWN


def _holds_any(of: TensorContent) -> bool:
    return bool(of.nan or of.pos_inf or of.neg_inf)


def held(of: TensorContent | None) -> dict[str, Any]:
    """Return the content of a tensor; all values are null if the worker does not have the tensor."""
    if of is None:
        return dict.fromkeys(_HELD)
    return {**{name: getattr(of, name) for name in _HELD}, "checksum": f"{of.checksum:016x}", "shape": list(of.shape)}


_HELD = ("checksum", "dtype", "elements", "shape", "nan", "pos_inf", "neg_inf")


# ---- how much was compared


class TensorSeen(NamedTuple):
    """The tensors of one name and layer, of all experts and shards.

    Attributes:
        place: where the tensors are recorded.
        held: the number of these tensors in all workers.
        compared: how many of them were compared with a tensor of another worker.
        outliers: how many of them differ from the majority.
        differ: whether any of them differs from another worker's tensor, or from its own earlier content.
    """

    place: ServiceSite
    held: int
    compared: int
    outliers: int
    differ: bool


def tensors(judged: Iterable[WeightsVerdict], held: Iterable[Holding]) -> list[TensorSeen]:
    """Count all known tensors by name and layer."""
    counts: dict[ServiceSite, Counter[str]] = defaultdict(Counter)
    counted: Counter[tuple[ServiceSite, object]] = Counter()
    for each in held:
        place = _place(each.service, each.tensor)
        counts[place]["held"] += len(each.workers)
        counted[place, (each.key, each.shard, each.tensor.expert, each.generation)] += len(each.workers)
    for (place, _), workers in counted.items():
        counts[place]["compared"] += workers if workers > 1 else 0
    for row in (row for each in judged for row in each.differing):
        outliers = sum(bool(each.content) for each in row.outliers) if row.agree and row.reference else 0
        counts[_place(row.service, row.tensor)].update(outliers=outliers, differ=1)
    return [
        TensorSeen(place, of["held"], of["compared"], of["outliers"], of["differ"] > 0) for place, of in counts.items()
    ]


def _place(service: str, tensor: Tensor) -> ServiceSite:
    return ServiceSite(service, tensor.name, tensor.layer)


def summary(judged: WeightsVerdict) -> dict[str, Any] | None:
    """Return how much of a service was compared; None if no worker has recorded a tensor."""
    if not any(worker.known or worker.watched for worker in judged.workers):
        return None
    return {
        "verdict": judged.verdict,
        "workers": len(judged.workers),
        "workers_equal": judged.equal,
        "workers_odd": len(judged.unequal),
        "tensors": judged.tensors,
        "watched": max((worker.watched for worker in judged.workers), default=0),
        "unreadable": max((worker.unreadable for worker in judged.workers), default=0),
        "load_only": judged.load_only,
        "compared": judged.compared,
        "differ": len({row.tensor for row in judged.differing}),
        "age_ns": judged.age_ns,
        "rescanned_age_ns": judged.rescanned_age_ns,
        "unseen": {
            "workers_without": sum(not (worker.known or worker.watched) for worker in judged.workers),
            "unread": sum(worker.unread for worker in judged.workers),
            "unreadable": sum(worker.unreadable for worker in judged.workers),
            "missing": sum(worker.missing for worker in judged.workers),
            "no_room": sum(worker.refused for worker in judged.workers),
            "not_comparable": dict(judged.reasons()),
        },
    }
