"""The view `weights`: whether replicas hold the same parameters, and which workers differ.

Owns: the schema of the document. Must not know: how weights are compared, screens. Invariants: Tensors that were not
compared are counted for each reason. At most ROWS_MAX differing rows are listed, and all are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from brickd.analysis.weights.contents import TensorContent
from brickd.analysis.weights.digests import digests
from brickd.analysis.weights.headlines import headlines
from brickd.analysis.weights.replicas import holdings, judge
from brickd.analysis.weights.tensors import Tensor
from brickd.analysis.weights.verdicts import ComparedWorker, Differing, Holding, Verdict, WeightOutlier, WeightsVerdict
from brickd.datasources.world import World
from brickd.query.queries import WeightsQuery
from brickd.views.common import Answer, Document, begun, chosen
from brickd.views.weights_summary import held

ROWS_MAX = 1_000


def answer(world: World, query: WeightsQuery) -> Answer:
    """Compare the weights of the selected workers."""
    _, workers, words = chosen(world, query.names)
    weights = world.weights(workers)
    judged, of = judge(weights, workers), digests(weights, workers)
    rows = [row for each in judged for differing in each.differing for row in _rows(differing)]
    document = {
        **begun(world),
        "verdict": _verdict(judged),
        "headlines": [headline.text for each in judged for headline in headlines(each)],
        "services": [_service(each) for each in judged],
        "not_comparable": dict(sum((each.reasons() for each in judged), Counter[str]())),
        "workers": [_worker(found, of.get(found.uuid)) for each in judged for found in each.workers],
        "differing_count": len(rows),
        "differing": rows[:ROWS_MAX],
    }
    if query.all:
        document["tensors"] = [_holding(each) for each in holdings(weights, workers)]
    return Answer(document, words)


def _verdict(judged: Sequence[WeightsVerdict]) -> Verdict:
    of = {each.verdict for each in judged}
    return "differ" if "differ" in of else "equal" if "equal" in of else "nothing"


def _service(judged: WeightsVerdict) -> Document:
    return {
        "service": judged.service,
        "verdict": judged.verdict,
        "workers": len(judged.workers),
        "equal": judged.equal,
        "tensors": judged.tensors,
        "compared": judged.compared,
        "changed_alike": judged.alike,
        "load_only": judged.load_only,
        "age_ns": judged.age_ns,
        "rescanned_age_ns": judged.rescanned_age_ns,
    }


def _worker(found: ComparedWorker, digest: str | None) -> Document:
    return {
        "worker": found.name,
        "service": found.service,
        "shard": found.shard,
        "state": found.state,
        "key": key_name(found.key),
        "tensors": found.known,
        "tensors_watched": found.watched,
        "tensors_unreadable": found.unreadable,
        "tensors_load_only": found.load_only,
        "scans": found.scans,
        "digest": digest,
        "generation": None if found.generation is None else f"{found.generation:016x}",
        "age_ns": found.times.age_ns,
        "rescanned_age_ns": found.times.rescanned_age_ns,
        "compared": found.compared,
        "differing": found.differing,
        "disagreeing": found.disagreeing,
        "changed_in_place": found.changed,
        "missing": found.missing,
        "with_nan": found.nan,
        "with_inf": found.inf,
        "no_room": found.refused,
        "holds_shard": found.holds,
        "not_comparable": dict(found.reasons),
    }


def _tensor(service: str, shard: str, tensor: Tensor, generation: int) -> Document:
    return {
        "service": service,
        "shard": shard,
        "tensor": tensor.name,
        **tensor.numbers(),
        "generation": f"{generation:016x}",
    }


def _rows(row: Differing) -> Iterator[Document]:
    """Return a row for each outlier. Without a majority, return a row for each worker, the reference first."""
    for name in row.agree if row.why == "disagree" else ():
        yield _row(row, name, row.wanted, None)
    for outlier in row.outliers:
        yield _row(row, outlier.worker, outlier.held, outlier)


def _row(row: Differing, worker: str, content: TensorContent | None, outlier: WeightOutlier | None) -> Document:
    """Return the row of a worker; `outlier` describes its difference, if it is an outlier."""
    of, wanted = held(content), held(None if outlier is None else row.wanted)
    return {
        **_tensor(row.service, row.shard, row.tensor, row.generation),
        "why": row.why,
        "worker": worker,
        "against": row.agree[0] if row.agree and outlier is not None else None,
        "against_workers": len(row.agree) if outlier is not None else 0,
        "relative_error": None if outlier is None else outlier.error,
        "checksum": of["checksum"],
        "checksum_against": wanted["checksum"],
        "changed_in_place": None if outlier is None else outlier.changed,
        "dtype": of["dtype"],
        "dtype_against": wanted["dtype"],
        "shape": of["shape"],
        "shape_against": wanted["shape"],
        "nan": of["nan"],
        "pos_inf": of["pos_inf"],
        "neg_inf": of["neg_inf"],
    }


def _holding(holding: Holding) -> Document:
    of = held(holding.content)
    return {
        **_tensor(holding.service, holding.shard, holding.tensor, holding.generation),
        "key": key_name(holding.key),
        **{name: of[name] for name in ("dtype", "shape", "elements", "checksum")},
        "workers": list(holding.workers),
    }


def key_name(key: int) -> str | None:
    """Return the public name of a key; None if the checksums have no key."""
    return f"{key:016x}" if key else None
