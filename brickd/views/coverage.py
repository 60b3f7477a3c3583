"""The view `coverage`: which sites were compared, by which evidence, and which sites cannot be compared.

Owns: the schema of the document. Must not know: terminals. Invariant: if no daemon compares, this view compares the
available fingerprints by the same rules.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from brickd.analysis.numerics.coverage import SiteSeen, SiteState, bricks_without_sites, sites, thinned
from brickd.analysis.numerics.online_state import SITES_MAX, Compared, ServiceSite
from brickd.analysis.numerics.watch import Watch
from brickd.analysis.numerics.watch_round import Roll
from brickd.analysis.weights.monitor import watching
from brickd.analysis.weights.replicas import holdings, judge
from brickd.base.timestamps import rfc3339
from brickd.base.units import or_none
from brickd.datasources.world import World
from brickd.model.step_texts import StepTexts
from brickd.model.worker_names import KnownNames
from brickd.model.workers import Worker
from brickd.query.queries import CoverageQuery
from brickd.shm import _reader
from brickd.shm.sampling import words_of
from brickd.views import evidence_summary, numerics_summary, weights_summary
from brickd.views.common import Answer, ChosenWorkers, Document, begun, chosen
from brickd.views.finding_document import finding
from brickd.views.numerics_summary import about
from brickd.views.weights_summary import TensorSeen

_COMPARED = (SiteState.COMPARED, SiteState.DIFFERS, SiteState.UNJUDGED)


def answer(world: World, query: CoverageQuery) -> Answer:
    """Report the coverage."""
    _, workers, words = them = chosen(world, query.names)
    compared = world.compared() or _now(world, them)
    partial, bricks = bool(query.names), bricks_without_sites(workers)
    called, services = numerics_summary.called_now(them.survey.workers), {worker.service for worker in workers}
    weighing = [each for each in watching(them.survey.workers) if each.service in services]
    weights = world.weights(weighing)
    judged = judge(weights, weighing)
    differing = about(compared, workers, partial=partial)
    texts = world.step_texts(workers) if differing else StepTexts()
    tensors = weights_summary.tensors(judged, holdings(weights, weighing))
    document = {
        **begun(world),
        "since": _instant(compared.since_ns),
        "window": {
            "bytes": compared.window_bytes,
            "fingerprints": compared.held,
            "since": _instant(compared.window_since_ns),
            "oldest_age_ns": max(0, time.time_ns() - min(compared.oldest.values())) if compared.oldest else None,
        },
        "unlooked": compared.unlooked,
        "births_unkept": compared.births_unkept,
        "services": [
            {**each, "thinned": _thinned(each["service"], workers)}
            for each in numerics_summary.summaries(compared, judged, workers) or ()
        ],
        "evidence": evidence_summary.of_coverage(world, them.survey, workers, compared, judged),
        "findings": [
            *(weights_summary.findings(judged, workers, partial=partial) or ()),
            *(finding(each, called, texts) for each in differing),
        ],
        "sites": _sites(sites(compared, workers), tensors, called),
        "bricks_without_sites": [{"service": service, "brick": brick} for service, brick in bricks],
    }
    return Answer(document, words)


def _now(world: World, them: ChosenWorkers) -> Compared:
    watch = Watch(world.numerics(them.workers), lambda *_, **__: None, turns=SITES_MAX)
    names = {worker.reading.uuid: worker.name for worker in them.workers}
    return watch.look(lambda: Roll(names, {worker.service for worker in them.workers}, names))


def _thinned(service: str, workers: Sequence[Worker]) -> Document | None:
    """Return the lowest rate at which fingerprints are recorded; None if unknown, or if every step is recorded."""
    its = (worker for worker in workers if worker.service == service and worker.reading.sites)
    rate, instrumented, here, all_here = thinned(its)
    if rate == _reader.RATE_ALL:
        return None
    return {"fingerprints": words_of(rate), "instrumented": instrumented, "workers": here, "of": all_here}


def _instant(ns: int) -> str | None:
    return rfc3339(ns) if ns else None


def _sites(seen: Sequence[SiteSeen], tensors: Sequence[TensorSeen], called: KnownNames) -> list[Document]:
    """Return all sites in the order of their states, then weights without a site."""
    weights = {each.place for each in tensors}
    found = [_site(each, called) for each in seen if each.counts.fingerprints or each.place not in weights]
    found += [_weights(each) for each in sorted(tensors)]
    order = list(SiteState)
    return sorted(found, key=lambda each: order.index(each["state"]))


def _weights(of: TensorSeen) -> Document:
    state = SiteState.DIFFERS if of.differ else SiteState.COMPARED if of.compared else SiteState.ALONE
    return {
        **_place(of.place),
        "category": "weight",
        "state": state,
        "evidence": [] if state is SiteState.ALONE else ["weights"],
        "numeric_classes": [],
        "fingerprints": of.held,
        "compared": of.compared,
        "stateful": 0,
        "without_inputs": 0,
        "alone": of.held - of.compared,
        "evicted": 0,
        "unlike": of.outliers,
        "unknown": {},
        "phases": {},
    }


def _place(place: ServiceSite) -> Document:
    return {"service": place.service, "kernel": place.kernel or None, "layer": or_none(place.layer)}


def _site(of: SiteSeen, called: KnownNames) -> Document:
    counts = of.counts
    classes = ((called.names[uuid] for uuid in each if uuid in called.names) for each in of.classes)
    named = sorted(filter(None, map(sorted, classes)))
    return {
        **_place(of.place),
        "category": counts.category,
        "state": of.state,
        "evidence": [of.place.tier.evidence] if of.state in _COMPARED else [],
        "numeric_classes": named if len(named) > 1 else [],
        "fingerprints": counts.fingerprints,
        "compared": counts.met,
        "stateful": counts.stateful,
        "without_inputs": counts.bare,
        "alone": counts.alone,
        "evicted": counts.gone,
        "unlike": counts.unlike,
        "unknown": dict(of.unknown),
        "phases": dict(of.phases),
    }
