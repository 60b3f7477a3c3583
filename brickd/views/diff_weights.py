"""Weights in `diff`: as evidence, and as the explanation of a difference.

Owns: the schema of weights in the document. Must not know: how weights are compared, screens. Invariant: a weight
explains a difference only if it is in the layer of the difference, and only if it differs in a worker whose output
differs too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from brickd.analysis.numerics.blame import Blame, Verdict
from brickd.analysis.numerics.comparison import EvidenceClass
from brickd.analysis.numerics.diagnosis import listed
from brickd.analysis.weights.headlines import how_far, unlike
from brickd.analysis.weights.replicas import judge
from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.verdicts import ComparedWorker, Differing, WeightsVerdict
from brickd.base.units import called, plural
from brickd.model.workers import Worker
from brickd.shm.sites import Site
from brickd.views.common import Document
from brickd.views.weights_summary import held

TENSORS_MAX = 16
# The reasons why a worker's tensor was not compared, and how to make it comparable.
_NOT_COMPARED = {
    "alone": "of a single replica (two workers of a service with the same weights are needed)",
    "missing": "that no other worker has",
    "generation": "of another generation",
    "key": "made with another key (set the same BRICKD_KEY_FILE for all)",
}


class Weighed(NamedTuple):
    """The weights of the compared workers.

    Attributes:
        judged: the verdict on each service.
        behind: for each worker (uuid), how many tensors it has not read yet in its current generation.
    """

    judged: Sequence[WeightsVerdict]
    behind: Mapping[str, int]

    @classmethod
    def of(cls, weights: Weights, workers: Sequence[Worker]) -> Weighed:
        """Compare the weights of some workers."""
        judged = judge(weights, workers)
        return cls(judged, {found.uuid: _behind(weights, found) for each in judged for found in each.workers})

    @property
    def compared(self) -> int:
        """The number of tensors that were compared between at least two workers."""
        return sum(each.compared for each in self.judged)

    @property
    def differing(self) -> list[Differing]:
        """The tensors that differ between workers."""
        return [row for each in self.judged for row in each.differing]

    @property
    def reasons(self) -> Counter[str]:
        """For each reason, the number of tensors that were not compared."""
        return sum((each.reasons() for each in self.judged), Counter[str]())

    @property
    def known(self) -> bool:
        """Whether any weights were compared or differ."""
        return bool(self.compared or self.differing)

    def uncertain(self, found: ComparedWorker) -> int:
        """Return how many of a worker's tensors were not read, or were read only in an earlier generation."""
        return found.unread + self.behind[found.uuid]

    @property
    def incomplete(self) -> int:
        """The number of unknown tensors of all workers.

        Either they were not read yet, or there was no room for them.
        """
        return sum(self.uncertain(found) + found.refused for each in self.judged for found in each.workers)

    @property
    def diverged(self) -> int:
        """The number of tensors that differ."""
        return len({(row.service, row.tensor) for row in self.differing})

    @property
    def verdict(self) -> Verdict:
        """The verdict over all services."""
        if self.differing:
            return Verdict.DIVERGED
        return Verdict.INCOMPLETE if self.incomplete else Verdict.IDENTICAL

    def other(self) -> Document:
        """Return a summary of the comparison of weights, for a document in which other evidence leads."""
        return {
            "evidence": EvidenceClass.WEIGHTS,
            "verdict": self.verdict,
            "compared": self.compared,
            "diverged": self.diverged,
        }

    def summary(self) -> Document | None:
        """Return a summary for a document in which other evidence leads; None if no weights were compared."""
        if not self.known:
            return None
        rows = self.differing
        return {
            "compared": self.compared,
            "differing": len(rows),
            "tensors": [_tensor(row) for row in rows[:TENSORS_MAX]],
        }

    def explaining(self, site: Site, workers: Sequence[str]) -> list[Differing]:
        """Return the differing weights in the layer of a site; if some have the site's name, only these."""
        rows = [
            row
            for row in self.differing
            if row.tensor.layer == site.layer and any(outlier.worker in workers for outlier in row.outliers)
        ]
        return [row for row in rows if site.kernel in row.tensor.name] or rows


def why_none(weighed: Weighed) -> str:
    """Say why the weights of some workers are not comparable."""
    who = listed([found.name for each in weighed.judged for found in each.workers])
    reasons = [f"{plural(n, 'tensor')} {_NOT_COMPARED[reason]}" for reason, n in weighed.reasons.items()]
    if reasons:
        return f"no weights of {who} are comparable: {', '.join(reasons)}"
    needs = "expected weights of two replicas or more (call brick.weights in the engine)"
    return f"no weights of {who} are recorded, {needs}"


def sentence(rows: Sequence[Differing]) -> str:
    """Name one weight that differs, count the others, and add the option that lists them."""
    first = rows[0]
    more = f" and {plural(len(rows) - 1, 'more weight')}" if len(rows) > 1 else ""
    what = f"weight {called(*first.tensor)}{more}"
    if first.why == "disagree":
        return f"{listed(first.names)} disagree in {what} (--by weights)"
    return f"{what} {'differ' if more else 'differs'} in {listed(_who(first))} (--by weights)"


def _who(row: Differing) -> list[str]:
    """Return the outliers, or all workers if there is no majority."""
    return list(row.names) if row.why == "disagree" else [outlier.worker for outlier in row.outliers]


def besides(rows: Sequence[Differing], *, more: bool) -> str:
    """Report weights that differ but explain nothing. `more` tells whether other weights explain the difference."""
    first = rows[0]
    who = listed(_who(first))
    others = f", and {plural(len(rows) - 1, 'more tensor')}" if len(rows) > 1 else ""
    return f"{'other ' if more else ''}weights differ, too: {called(*first.tensor)} in {who}{others} (--by weights)"


def _behind(weights: Weights, found: ComparedWorker) -> int:
    holds = weights.of(found.uuid)
    if holds is None or found.generation is None:
        return 0
    known = zip(holds.now, holds.generations, strict=True)
    return sum(now > 0 and generation != found.generation for now, generation in known)


def _tensor(row: Differing) -> Document:
    return {
        "tensor": row.tensor.name,
        **row.tensor.numbers(),
        "why": row.why,
        "workers": _who(row),
        "relative_error": row.outliers[0].error,
    }


def document(weighed: Weighed, workers: Sequence[str]) -> Document:
    """Return the part of the document that depends on the evidence, for a document in which weights lead."""
    rows, found = weighed.differing, [worker for each in weighed.judged for worker in each.workers]
    missing = {worker.name: worker.missing for worker in found}
    lacking = [missing.get(name, 0) for name in workers]
    return {
        "headlines": _headlines(weighed, workers),
        "diagnosis": _diagnosis(rows[0]) if rows else None,
        "evidence": "weights",
        "verdict": weighed.verdict,
        "compared": weighed.compared,
        "identical": max(0, weighed.compared - weighed.diverged),
        "within": 0,
        "diverged": weighed.diverged,
        "not_comparable": dict(weighed.reasons),
        "incomplete": weighed.incomplete,
        "missing": {"a": sum(lacking[:1]), "b": sum(lacking[1:])},
        "first": _first(rows[0]) if rows else None,
        "outlier": rows[0].outliers[0].worker
        if rows and rows[0].why != "disagree" and len(rows[0].outliers) == 1
        else None,
        "follow": None,
        "workers": [
            {
                "worker": worker.name,
                "service": worker.service,
                "fingerprints": worker.known,
                "lost": worker.refused,
                "missing": worker.missing,
                "uncertain": weighed.uncertain(worker),
            }
            for worker in found
        ],
        "coverage": {
            "fingerprints": sum(worker.known for worker in found),
            "sites": sum(each.tensors for each in weighed.judged),
            "sites_compared": weighed.compared,
            **dict.fromkeys(("lone", "bare"), 0),
            "uncertain": sum(map(weighed.uncertain, found)),
            "unreadable": sum(worker.unreadable for worker in found),
            "steps": None,
            "lost": sum(worker.refused for worker in found),
            "evicted": 0,
            "off_sites": 0,
            "off": [],
        },
        "sites": [_site(row) for row in rows],
    }


def _headlines(weighed: Weighed, workers: Sequence[str]) -> list[str]:
    rows = weighed.differing
    if not rows and weighed.incomplete:
        unknown = f"{plural(weighed.incomplete, 'tensor is', 'tensors are')} not known"
        return [f"by weights: incomplete, {unknown}; equal: {plural(weighed.compared, 'tensor')}"]
    if not rows:
        return [f"by weights: identical, {listed(workers)}: {plural(weighed.compared, 'tensor')}"]
    first = rows[0]
    who = f"{listed(_who(first))} disagree"
    if first.why != "disagree":
        others = f"from {len(first.agree)} that agree" if first.agree else "from its earlier content"
        who = f"{listed(_who(first))} {'differs' if len(first.outliers) == 1 else 'differ'} {others}"
    outlier = first.outliers[0]
    whose = f"{outlier.worker}: " if first.why == "disagree" and unlike(first, outlier) else ""
    changed = "; it changed in place" if outlier.changed else ""
    lines = [f"by weights: diverged: {who}, in {called(*first.tensor)}", f"{whose}{how_far(first, outlier)}{changed}"]
    return [*lines, *([f"{plural(len(rows) - 1, 'other tensor')} also differ"] if len(rows) > 1 else [])]


def _diagnosis(row: Differing) -> str:
    expected, actual = (held(of)["checksum"] or "none" for of in (row.wanted, row.outliers[0].held))
    agree = listed(row.agree) if row.agree else "before"
    return f"{called(*row.tensor)}: expected {expected} ({agree}), actual {actual} ({row.outliers[0].worker})"


def _first(row: Differing) -> Document:
    numbers, outlier = row.tensor.numbers(), row.outliers[0]
    return {
        "kernel": row.tensor.name,
        "layer": numbers["layer"],
        "position": numbers["expert"],
        "step": None,
        "step_text": None,
        "verdict": Verdict.DIVERGED,
        "blame": Blame.UNKNOWN if row.why == "disagree" else Blame.CULPRIT,
        "not_finite": None,
        "relative_error": outlier.error,
        "inputs_error": None,
        "tolerance": 0.0,
        "weights": [],
        "a": {"worker": row.agree[0] if row.agree else outlier.worker, **held(row.wanted)},
        "b": {"worker": outlier.worker, **held(outlier.held)},
    }


def _site(row: Differing) -> Document:
    return {
        "kernel": row.tensor.name,
        "layer": row.tensor.numbers()["layer"],
        "category": "weight",
        "fingerprints": len(row.names) - row.lacking,
        "compared": max(1, len(row.names) - 1),
        "identical": max(0, len(row.agree) - 1),
        "within": 0,
        "diverged": len(row.outliers),
        "not_comparable": {},
        "missing": row.lacking,
        "lone": 0,
        "bare": 0,
        "verdict": Verdict.DIVERGED,
        "blame": Blame.UNKNOWN if row.why == "disagree" else Blame.CULPRIT,
        "relative_error": row.outliers[0].error,
    }
