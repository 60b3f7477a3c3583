"""Every class of evidence in `diff`: its verdict, and the daemon's findings on the workers.

Owns: the schema of the verdicts and of the findings. Must not know: how workers are compared, which evidence leads,
screens. Invariants: A class in which nothing was compared is unproven. A finding of the daemon about a worker appears
in each comparison of that worker.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from brickd.analysis.evidence_verdicts import EvidenceVerdict, proof_of, uncompared
from brickd.analysis.numerics.announce import command, headlines
from brickd.analysis.numerics.comparison import Comparison, EvidenceClass
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.weights.headlines import headlines as weights_headlines
from brickd.analysis.weights.verdicts import WeightsVerdict
from brickd.base.unknown_rows import without_histories
from brickd.model.row_calls import row_calls
from brickd.model.worker_names import KnownNames, as_argument
from brickd.model.workers import Worker
from brickd.views.diff_weights import Weighed

_KNOWN_MAX = 8


class KnownFinding(NamedTuple):
    """A finding of the daemon about some workers, from the comparison of all workers of their service."""

    evidence: str
    workers: list[str]
    text: str
    command: str

    @property
    def headline(self) -> str:
        """The sentence to use if a comparison includes only some of the workers."""
        by = "weights: " if self.evidence == "weights" else ""
        return f"over all workers: {by}{self.text}"


def known(
    compared: Compared | None, weights: Sequence[WeightsVerdict], called: KnownNames, workers: Collection[Worker]
) -> list[KnownFinding]:
    """Return the findings that name one of the workers as the outlier; weights come first."""
    return [*_by_weights(weights, workers), *_by_input(compared or Compared(), called, workers)][:_KNOWN_MAX]


def _by_weights(weights: Sequence[WeightsVerdict], workers: Collection[Worker]) -> Iterator[KnownFinding]:
    names = {worker.name for worker in workers}
    for judged in weights:
        for line in weights_headlines(judged):
            if line.found.state == "differs" and line.found.name in names:
                following = f"brickd weights {as_argument(judged.service)}"
                yield KnownFinding("weights", [line.found.name], line.text, following)


def _by_input(compared: Compared, called: KnownNames, workers: Collection[Worker]) -> Iterator[KnownFinding]:
    uuids = {worker.reading.uuid for worker in workers}
    about = [finding for finding in compared.findings.values() if uuids.intersection(finding.outliers)]
    for finding, text in headlines(about, called, time.time_ns()):
        named = [called.name(finding.workers, uuid) for uuid in finding.named]
        yield KnownFinding(finding.place.tier.evidence, named, text, command(finding, called))


def headline(found: Sequence[KnownFinding], outlier: str | None) -> list[str]:
    """Return a sentence about findings that contradict a comparison.

    If every finding names just this outlier, return no sentence.
    """
    others = [each for each in found if each.workers != [outlier]]
    return [others[0].headline] if others else []


def classes(
    outputs: Collection[Comparison], weighed: Weighed, workers: Collection[Worker], *, other_keys: bool
) -> list[dict[str, Any]]:
    """Return the verdict that follows from each class of evidence, the strongest class first."""
    services = {worker.service for worker in workers}
    service = next(iter(services)) if len(services) == 1 else None
    found = [_weights(weighed, service)]
    for each in sorted(outputs, key=lambda each: list(EvidenceClass).index(each.evidence)):
        unknown = row_calls(workers).histories if each.evidence == EvidenceClass.HISTORY else {}
        found.append(_outputs(each, service, unknown, other_keys=other_keys))
    return [each.document() for each in found]


def _weights(weighed: Weighed, service: str | None) -> EvidenceVerdict:
    recorded = any(worker.known or worker.watched for each in weighed.judged for worker in each.workers)
    tensors, reasons = sum(each.tensors for each in weighed.judged), dict(weighed.reasons)
    proof = proof_of(differ=weighed.diverged > 0, compared=weighed.compared)
    why = None
    if proof == "unproven":
        why = uncompared("tensor", tensors, reasons) if tensors else "not read yet" if recorded else "none watched"
    following = None if proof == "equal" else f"brickd weights{'' if service is None else f' {as_argument(service)}'}"
    return EvidenceVerdict(
        service, "weights", proof, recorded, tensors, weighed.compared, reasons, why=why, command=following
    )


def _outputs(
    found: Comparison, service: str | None, unknown: Mapping[str, int], *, other_keys: bool
) -> EvidenceVerdict:
    looked_at, compared, diverged = found.matched.fingerprints, found.compared, found.diverged
    counts = {
        "alone": sum(site.lone for site in found.matched.sites),
        "without_inputs": sum(site.bare for site in found.matched.sites),
        "lost": found.incomplete,
    }
    reasons = {reason: n for reason, n in (found.not_comparable | counts).items() if n}
    if other_keys:
        compared, diverged, reasons = 0, 0, {"key": looked_at}
    proof = proof_of(differ=diverged > 0, compared=compared)
    why = None
    if proof == "unproven":
        of = "" if found.step is None else f" of step {found.step_texts.name(found.step)}"
        what = "row" if found.evidence in (EvidenceClass.ROW, EvidenceClass.HISTORY) else "fingerprint"
        why = uncompared(what, looked_at, reasons) if looked_at else f"no {what}s{of}"
        why += f"; {without_histories(unknown)}" if unknown else ""
    following = None if proof == "equal" else f"brickd coverage{'' if service is None else f' {as_argument(service)}'}"
    return EvidenceVerdict(
        service,
        str(found.evidence),
        proof,
        looked_at > 0,
        looked_at,
        compared,
        reasons,
        unknown,
        why=why,
        command=following,
    )
