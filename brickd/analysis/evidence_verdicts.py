"""The verdicts on a service, one per class of evidence: equal, diverged or unproven.

Owns: the three verdicts, how long a comparison counts as proof, why a class is unproven, the next command to run. Must
not know: how workers are compared, screens. Invariants: A class is never equal if nothing was compared. For every
unproven class, the verdict says why. Weights are equal only if every watched weight of every worker was compared. A
finding makes its class diverged, even if the comparison is old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from brickd.analysis.numerics.recent_counts import WINDOW_NS, FingerprintCounts, within
from brickd.base.units import count, duration, plural
from brickd.base.unknown_rows import without_histories, without_rows
from brickd.model.row_calls import row_calls
from brickd.model.worker_names import as_argument
from brickd.model.workers import Worker
from brickd.shm._reader import ROW_WORKERS_MAX
from brickd.shm.sites import ServiceTier, Tier

if TYPE_CHECKING:
    from brickd.analysis.numerics.online_state import Compared
    from brickd.analysis.weights.verdicts import ComparedWorker, WeightsVerdict

Proof = Literal["equal", "diverged", "unproven"]

# The default window for comparisons of weights. If two scans take longer than this, the window is as long as two scans.
WEIGHTS_WINDOW_NS = 3 * 3_600_000_000_000
WEIGHTS_WINDOW_SET_NS = 600_000_000_000
_REASONS = {
    "alone": "without a counterpart in another worker",
    "context": "that another worker had only in another context",
    "lineage": "whose tokens another worker computed only in other steps or shapes",
    "unjudged": "at sites where rows differ and are not judged",
    "workers": f"of more than {ROW_WORKERS_MAX} workers",
    "stateful": "of stateful kernels",
    "without_inputs": "without inputs",
    "missing": "that no other worker has",
    "generation": "of another generation",
    "key": "of another key",
    "unread": "not read yet",
    "unreadable": "that cannot be read",
    "no_room": "whose records did not fit into the event ring",
}


class EvidenceVerdict(NamedTuple):
    """The verdict that follows from one class of evidence.

    Attributes:
        service: None if the user chose single workers by name.
        evidence: weights, input, row, history or run.
        recorded: whether the workers recorded evidence of this class.
        looked_at: the number of recorded fingerprints, or of watched weights.
        compared: how many of these were compared.
        not_comparable: how many of these were not compared, by reason.
        unknown: for each reason, the number of sites that had no rows in some or all of their calls, or whose rows
            cannot be judged. Of evidence by history: in how many steps of sequences the history was unknown, and the
            number of sites whose rows cannot be judged.
        window_ns: the age up to which a comparison counts; None if all comparisons count.
        why: why the class is unproven, in words.
        command: the next command to run; None if the class is equal.
    """

    service: str | None
    evidence: str
    verdict: Proof
    recorded: bool = False
    looked_at: int = 0
    compared: int = 0
    not_comparable: Mapping[str, int] = MappingProxyType({})
    unknown: Mapping[str, int] = MappingProxyType({})
    window_ns: int | None = None
    why: str | None = None
    command: str | None = None

    @property
    def unproven(self) -> bool:
        """Whether nothing was compared."""
        return self.verdict == "unproven"

    def document(self) -> dict[str, Any]:
        """The verdict as JSON."""
        return {
            "service": self.service,
            "evidence": self.evidence,
            "verdict": self.verdict,
            "recorded": self.recorded,
            "looked_at": self.looked_at,
            "compared": self.compared,
            "not_comparable": dict(self.not_comparable),
            "unknown": dict(self.unknown),
            "window_ns": self.window_ns,
            "why": self.why,
            "command": self.command,
        }


class Comparisons(NamedTuple):
    """The input for the verdicts on a service.

    Attributes:
        compared: the results of comparing fingerprints; None if no daemon compares them.
        weights: the comparisons of the weights of all services.
        now_ns: the current time, since 1970; None if comparisons of any age count.
        idle: why fingerprints are not compared now, and the next command; None if they are compared.
    """

    compared: Compared | None
    weights: Sequence[WeightsVerdict]
    now_ns: int | None
    idle: tuple[str, str] | None = None


def verdicts(of: Comparisons, workers: Collection[Worker]) -> list[EvidenceVerdict]:
    """The verdicts on the services of these workers, one for each class of evidence."""
    weights = {each.service: each for each in of.weights}
    found = []
    by_service: dict[str, list[Worker]] = {}
    for worker in workers:
        by_service.setdefault(worker.service, []).append(worker)
    for service, members in by_service.items():
        found.append(_by_weights(service, weights.get(service)))
        found += [_by_outputs(service, of, members, tier) for tier in Tier]
    return found


def _by_weights(service: str, judged: WeightsVerdict | None) -> EvidenceVerdict:
    command = f"brickd weights {as_argument(service)}"
    if judged is None or not any(worker.known or worker.watched for worker in judged.workers):
        return EvidenceVerdict(service, "weights", "unproven", why="none watched", command=command)
    unseen = {
        "unread": sum(worker.unread for worker in judged.workers),
        "unreadable": sum(worker.unreadable for worker in judged.workers),
        "no_room": sum(worker.refused for worker in judged.workers),
    }
    reasons = dict(judged.reasons()) | {reason: n for reason, n in unseen.items() if n}
    proof = proof_of(differ=judged.verdict == "differ", compared=judged.compared if judged.verdict == "equal" else 0)
    late, why = [age_ns for age_ns in map(_late_ns, judged.workers) if age_ns], None
    if proof == "equal" and unseen != dict.fromkeys(unseen, 0):
        proof, why = "unproven", _partly(judged.workers)
    elif proof == "equal" and late:
        proof, why, command = "unproven", f"not compared for {duration(max(late))}", f"{command} --rescan"
    elif proof == "unproven":
        why = uncompared("tensor", judged.tensors, reasons) if judged.tensors else "not read yet"
    return EvidenceVerdict(
        service,
        "weights",
        proof,
        True,
        judged.tensors,
        judged.compared,
        reasons,
        {},
        max(window_ns for worker in judged.workers for _, window_ns in _ages(worker)),
        why,
        None if proof == "equal" else command,
    )


def _ages(worker: ComparedWorker) -> list[tuple[int | None, int]]:
    """The ages of a worker's scans of its weights. Each comes with the age up to which such a scan counts.

    If some weights are read only when they are loaded, the first item is for them. The time between scans does not
    apply to these weights.
    """
    times, found = worker.times, list[tuple[int | None, int]]()
    if times.at_load:
        found.append((times.age_ns, WEIGHTS_WINDOW_NS))
    if not times.at_load or times.at_load.bit_count() < worker.known:
        window_ns = max(WEIGHTS_WINDOW_SET_NS if times.every_ns else WEIGHTS_WINDOW_NS, 2 * times.period_ns)
        found.append((times.rescanned_age_ns, window_ns))
    return found


def _late_ns(worker: ComparedWorker) -> int:
    """If the comparison of the worker's weights is too old to count, return its age; otherwise return 0."""
    late = [age_ns for age_ns, window_ns in _ages(worker) if age_ns is not None and age_ns > window_ns]
    return max(late, default=0) if worker.compared else 0


def _partly(workers: Sequence[ComparedWorker]) -> str:
    """Describe the worker with the most uncompared weights, and count the other workers with uncompared weights."""
    unseen = {
        worker.name: {"unread": worker.unread, "unreadable": worker.unreadable, "no_room": worker.refused}
        for worker in workers
    }
    worst = max(workers, key=lambda worker: sum(unseen[worker.name].values()))
    parts = [f"{count(worst.compared)} compared"]
    parts += [f"{count(n)} {_REASONS[reason]}" for reason, n in unseen[worst.name].items() if n]
    others = sum(any(each.values()) for each in unseen.values()) - 1
    also = f"; the same holds for {plural(others, 'other worker')}" if others else ""
    return f"{worst.name} has {plural(worst.watched, 'tensor')}: {', '.join(parts)}{also}"


def _by_outputs(service: str, of: Comparisons, workers: Collection[Worker], tier: Tier) -> EvidenceVerdict:
    """Judge a service by the fingerprints of one tier."""
    sites = any(site is not None for worker in workers for site in worker.reading.sites)
    found = _Found() if of.compared is None else _found(of.compared, (service, tier), of.now_ns)
    counts, reasons, doubts, differ = found
    unknown = _unknown(workers, tier)
    proof = proof_of(differ=differ, compared=counts.compared)
    why, command = None, None if proof == "equal" else f"brickd coverage {as_argument(service)}"
    what = "fingerprint" if tier is Tier.TENSORS else "row"
    if proof == "unproven" and sites and of.idle is not None:
        why, command = of.idle
    elif proof == "unproven" and counts.fingerprints:
        why = uncompared(what, counts.fingerprints, reasons)
    elif proof == "unproven":
        why = f"no {what}s{' with a history' if tier is Tier.HISTORY else ''}"
        why += "" if of.now_ns is None or not sites else f" in the last {duration(WINDOW_NS)}"
    if why is not None:
        why = "; ".join([why, *_without(unknown, doubts, tier)])
    return EvidenceVerdict(
        service,
        tier.evidence,
        proof,
        # An engine whose histories are all unknown means to record rows with histories.
        counts.fingerprints > 0 or (tier is Tier.TENSORS and sites) or (tier is Tier.HISTORY and bool(unknown)),
        counts.fingerprints,
        counts.compared,
        dict(reasons),
        dict(Counter(unknown) + Counter(doubts)),
        None if of.now_ns is None else WINDOW_NS,
        why,
        command,
    )


class _Found(NamedTuple):
    """What comparisons of a service's fingerprints of one tier have shown.

    Attributes:
        reasons: how many fingerprints were not compared, by reason.
        doubts: the number of sites whose rows differ but are not judged, by reason.
        differ: whether a finding names the tier.
    """

    counts: FingerprintCounts = FingerprintCounts()
    reasons: Mapping[str, int] = MappingProxyType({})
    doubts: Mapping[str, int] = MappingProxyType({})
    differ: bool = False


def _found(compared: Compared, of: ServiceTier, now_ns: int | None) -> _Found:
    counts = _counted(compared, of, now_ns)
    reasons = _reasons(compared, of, counts)
    doubts = Counter(each.why for place, each in compared.row_doubts.items() if (place.service, place.tier) == of)
    sites = [place for place, each in compared.sites.items() if (place.service, place.tier) == of and each.met]
    if doubts and counts.met and all(place in compared.row_doubts for place in sites):
        reasons["unjudged"] = counts.met
        counts = counts._replace(met=0)
    return _Found(counts, reasons, doubts, any((each.service, each.tier) == of for each in compared.findings))


def _reasons(compared: Compared, of: ServiceTier, counts: FingerprintCounts) -> dict[str, int]:
    """Count the fingerprints that were not compared, by reason."""
    apart = compared.rows_apart.get(of)
    context = 0 if apart is None else min(counts.alone, apart.context)
    lineage = 0 if apart is None else min(counts.alone - context, apart.lineage)
    found = {
        "alone": counts.alone - context - lineage,
        "context": context,
        "lineage": lineage,
        "workers": counts.left_out,
        "stateful": counts.stateful,
        "without_inputs": counts.without_inputs,
    }
    return {reason: n for reason, n in found.items() if n}


def _unknown(workers: Collection[Worker], tier: Tier) -> Mapping[str, int]:
    """For each reason, count the sites whose rows are unknown or, by history, the steps whose history is unknown."""
    if tier is Tier.TENSORS:
        return {}
    calls = row_calls(workers)
    return calls.reasons if tier is Tier.ROWS else calls.histories


def _without(unknown: Mapping[str, int], doubts: Mapping[str, int], tier: Tier) -> list[str]:
    """Say what is unknown; `doubts` has the sites whose rows differ but are not judged, by reason."""
    if tier is Tier.HISTORY:
        return [without(of) for without, of in ((without_histories, unknown), (without_rows, doubts)) if of]
    both = {**unknown, **doubts}
    return [without_rows(both)] if both else []


def _counted(compared: Compared, of: ServiceTier, now_ns: int | None) -> FingerprintCounts:
    """Count the fingerprints of a service and tier that are recent enough."""
    if now_ns is not None:
        return within(compared.recent.get(of, ()), now_ns)
    total = FingerprintCounts()
    for place, counts in compared.sites.items():
        if (place.service, place.tier) == of:
            total = total.plus(FingerprintCounts(counts.fingerprints, counts.bare, counts.stateful, counts.met))
    left_out = sum(slot.counts.left_out for slot in compared.recent.get(of, ()))
    return total.plus(FingerprintCounts(left_out, left_out=left_out))


def proof_of(*, differ: bool, compared: int) -> Proof:
    """Return the verdict `diverged` if workers differ; else `equal` if anything was compared."""
    return "diverged" if differ else "equal" if compared else "unproven"


def uncompared(what: str, looked_at: int, reasons: Mapping[str, int]) -> str:
    """Say that nothing was compared, and why; the most frequent reason comes first."""
    most = sorted(reasons.items(), key=lambda each: -each[1])
    if [reason for reason, _ in most] in ([], ["alone"]):
        return f"0 of {plural(looked_at, what)} had a counterpart"
    why = ", ".join(f"{count(n)} {_REASONS.get(reason, reason.replace('_', ' '))}" for reason, n in most)
    return f"0 of {plural(looked_at, what)} compared: {why}"
