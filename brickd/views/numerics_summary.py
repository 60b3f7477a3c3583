"""Numeric differences, for several views: how much was compared, and the findings about each worker.

Owns: the JSON of the counts. Must not know: terminals, how a finding is reached. Invariants: "no worker differs" is
never reported without the number of comparisons. If nothing was compared, modules that compare are not loaded.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND
from brickd.model.worker_names import KnownNames
from brickd.model.workers import Worker

if TYPE_CHECKING:
    from brickd.analysis.numerics.coverage import ServiceSeen
    from brickd.analysis.numerics.online_state import Compared, DivergentSite
    from brickd.analysis.weights.verdicts import WeightsVerdict


def about(compared: Compared, workers: Collection[Worker], *, partial: bool) -> list[DivergentSite]:
    """Return the findings, or with `partial` only those that name one of the workers. The leading ones come first."""
    uuids = {worker.reading.uuid for worker in workers}
    found = [each for each in compared.findings.values() if not partial or uuids.intersection(each.named)]
    if not found:
        return []
    from brickd.analysis.numerics.announce import lead

    return sorted(found, key=lead)


def called_now(workers: Iterable[Worker]) -> KnownNames:
    """Return the names of all workers. Workers that were merged into an aggregate no longer have a name."""
    known = {worker.reading.uuid: worker for worker in workers if worker.together == 1}
    return KnownNames(
        {uuid: worker.name for uuid, worker in known.items()},
        {uuid for uuid, worker in known.items() if not worker.reading.alive},
    )


def summaries(
    compared: Compared | None, judged: Sequence[WeightsVerdict], workers: Sequence[Worker]
) -> list[dict[str, Any]] | None:
    """Return, for each service and class of evidence, how much was compared; None if nothing was compared."""
    if compared is None and not judged:
        return None
    from brickd.analysis.numerics.coverage import services
    from brickd.views import weights_summary

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
        return {"input": None, "row": None, "history": None, "unseen": None}
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
        "row": {
            "rows": seen.rows.fingerprints,
            "compared": seen.rows.met,
            "differ": seen.rows_differ,
            "unknown": seen.calls.reasons,
            "phases": dict(seen.calls.phases),
            "layers": seen.layers,
            "layers_in_turn": seen.layers_in_turn,
            "turns": seen.calls.turns,
            "cycle_ns": seen.calls.cycle_seconds * SECOND,
        },
        "history": {
            "rows": seen.histories.fingerprints,
            "compared": seen.histories.met,
            "differ": seen.histories_differ,
            "unknown": dict(seen.calls.histories),
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
