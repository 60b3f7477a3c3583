"""Numeric differences in several views: which workers differ, and how much was compared.

Owns: the form of both in JSON, and as problems. Must not know: terminals, how a finding is reached. Invariant: "no
worker differs" is never reported without how much was compared.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from brickd.analysis.numerics import blame
from brickd.analysis.numerics.announce import Called, command
from brickd.analysis.numerics.announce import judged as of_case
from brickd.analysis.numerics.coverage import ServiceSeen, services
from brickd.analysis.numerics.online_state import Case, Compared, DivergentSite, KeptEvidence
from brickd.analysis.weights.verdicts import WeightsVerdict
from brickd.base.timestamps import rfc3339
from brickd.base.units import or_none
from brickd.model.workers import Worker
from brickd.shm import records
from brickd.views import weights_summary


def about(compared: Compared, workers: Collection[Worker], *, partial: bool) -> list[DivergentSite]:
    """The findings; `partial`: only those that name one of the workers."""
    uuids = {worker.reading.uuid for worker in workers}
    return [each for each in compared.findings.values() if not partial or uuids.intersection(each.named)]


def called_now(workers: Iterable[Worker]) -> Called:
    """The names of all workers; the workers in an aggregate no longer have one."""
    known = {worker.reading.uuid: worker for worker in workers if worker.together == 1}
    return Called(
        {uuid: worker.name for uuid, worker in known.items()},
        {uuid for uuid, worker in known.items() if not worker.reading.alive},
    )


def finding(of: DivergentSite, called: Called, *, whole: bool = True) -> dict[str, Any]:
    """The JSON of a finding; `whole`: with its evidence."""
    found = of_case(of.place, of.category, of.shown)
    judgement = None if found is None else found.judgement
    return {
        **of.place._asdict(),
        "layer": or_none(of.place.layer),
        "category": of.category,
        "evidence": "input",
        "since": rfc3339(of.first.at_ns),
        "latest": rfc3339(of.newest.at_ns),
        "cases": of.cases,
        "workers": [called.name(of, uuid) for uuid in of.named],
        "outliers": {called.name(of, uuid): times for uuid, times in of.outliers.items()},
        "contradict_themselves": sorted(called.name(of, uuid) for uuid in of.contradict),
        "blame": None if judgement is None else judgement.blame,
        "not_finite": None if judgement is None else judgement.not_finite,
        "relative_error": None if judgement is None else judgement.error,
        "command": command(of, called),
        **({"first": _case(of, of.first, called), "newest": _case(of, of.newest, called)} if whole else {}),
    }


def _case(of: DivergentSite, case: Case, called: Called) -> dict[str, Any] | None:
    found = of_case(of.place, of.category, case)
    if found is None:
        return None
    return {
        "at": rfc3339(case.at_ns),
        "against": _evidence(of, case.against, found.against, called),
        "other": _evidence(of, case.other, found.other, called),
    }


def _evidence(
    of: DivergentSite, kept: KeptEvidence, fingerprint: blame.DecodedFingerprint, called: Called
) -> dict[str, Any]:
    return {
        "worker": called.name(of, kept.worker),
        "uuid": kept.worker,
        **fingerprint.document(),
        "backend": kept.backend or None,
        "inputs": [records.tensor_document(tensor) for tensor in fingerprint.inputs],
    }


def summaries(
    compared: Compared | None, judged: Sequence[WeightsVerdict], workers: Sequence[Worker]
) -> list[dict[str, Any]] | None:
    """How much of each service was compared, by each evidence; None: nothing was compared."""
    by_input = {each.service: each for each in services(compared, workers)} if compared is not None else {}
    by_weights = {each.service: found for each in judged if (found := weights_summary.summary(each)) is not None}
    if compared is None and not by_weights:
        return None
    return [
        {
            "service": service,
            "workers": len([worker for worker in workers if worker.service == service and worker.reading.sites]),
            "weights": by_weights.get(service),
            **_by_input(by_input.get(service)),
        }
        for service in dict.fromkeys(worker.service for worker in workers)
        if service in by_input or service in by_weights
    ]


def _by_input(seen: ServiceSeen | None) -> dict[str, Any]:
    if seen is None:
        return {"input": None, "unseen": None}
    at_ns = seen.compared_ns
    return {
        "input": {
            "fingerprints": seen.counts.fingerprints,
            "compared": seen.counts.met,
            "unlike": seen.counts.unlike,
            "differ": seen.differ,
            "numeric_classes": seen.classes,
            "unkept": seen.unkept,
            "latest": None if at_ns is None else rfc3339(at_ns),
            "age_ns": None if at_ns is None else max(0, time.time_ns() - at_ns),
        },
        "unseen": {
            "sites_off": seen.off,
            "sites_closed": seen.closed,
            "sites_without_inputs": seen.no_inputs,
            "without_inputs": seen.counts.bare,
            "alone": seen.counts.alone,
            "stateful": seen.counts.stateful,
            "evicted": seen.counts.gone,
            "lost": seen.lost,
            "unreadable": seen.unreadable,
        },
    }
