"""The view `status`: totals over all workers, and the problems.

Owns: the schema of the document. Must not know: terminals, files, which facts a daemon keeps of a past time. Invariant:
the ledger of the document is the sum of the ledgers of its workers and of the removed workers.
"""

from __future__ import annotations

import time

from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND
from brickd.datasources.world import World
from brickd.model.brick_totals import bricks, categories
from brickd.query.queries import StatusQuery
from brickd.views import evidence_summary, numerics_summary, removed_summary
from brickd.views.common import (
    Answer,
    ChosenWorkers,
    Document,
    begun,
    chosen,
    counted,
    day_of,
    past_time,
    require_services,
)
from brickd.views.problems import Seen, active
from brickd.views.workers import entries, whole_ledger


def answer(world: World, query: StatusQuery) -> Answer:
    """Add up the workers."""
    of_day, at_ns = day_of(world, query), past_time(world, query)
    there = world if at_ns is None else world.earlier(at_ns)  # None if the world knows only some facts of that time
    them = chosen(there or world, query.names, of_day)
    over = counted(world, them, query, of_day)
    totals = bricks(over.workers)
    words = them.words + over.words
    compared = None
    if query.against is not None:
        from brickd.views.against import against_yesterday

        require_services(them, query.names)
        compared, notes = against_yesterday(world, query.names, over, totals)
        words += notes
    state = {"at": None if at_ns is None else rfc3339(at_ns)}
    if there is not None:
        state |= _state(there, them, query)
    elif at_ns is not None:
        from brickd.views.past_status import of_past

        known, notes = of_past(world, at_ns, them.survey.workers, query.names)
        state, words = state | known, notes + words
    document = {
        **begun(world),
        **{key: state[key] for key in _FIRST},
        **over.document(),
        "bricks": [brick.document(over_ns=over.length_ns, summed=over.summed) for brick in totals],
        "categories": categories(totals),
        "against": compared,
        **{key: value for key, value in state.items() if key not in _FIRST},
    }
    return Answer(document, words)


_FIRST = ("at", "daemon", "ledger", "removed", "workers")  # the keys before the totals


def _state(world: World, them: ChosenWorkers, query: StatusQuery) -> Document:
    """Return the workers of the world, and everything about them that is no total."""
    found, workers, partial = them.survey, them.workers, bool(query.names)
    seen = Seen.of(world, found, workers, query.names)
    active_ns = None if query.active_for is None else round(query.active_for * SECOND)
    slow = seen.slow
    return {
        "daemon": None if seen.daemon is None else seen.daemon.document(),
        "ledger": whole_ledger(workers, seen.removed).document(),
        "removed": removed_summary.summary(seen.removed),
        "workers": entries(found, workers, partial=partial),
        "stragglers": [finding.document(rows=False) for finding in slow.findings] if slow and slow.current else None,
        "waiting": [each.document() for each in slow.waiting] if slow and slow.current else None,
        "judged_age_ns": None if slow is None else slow.age_ns,
        "alarms": None if seen.alarms is None else [alarm.document() for alarm in seen.alarms],
        "diverged": _diverged(seen),
        "weights": seen.weights,
        "numerics": numerics_summary.summaries(seen.compared, seen.weighed, workers),
        "evidence": evidence_summary.of_status(world, found, workers, seen.compared, seen.weighed),
        **active(seen, time.time_ns(), active_ns)._asdict(),
    }


def _diverged(seen: Seen) -> list[Document] | None:
    if not seen.differing:
        return None if seen.differing is None else []
    from brickd.views.finding_document import finding

    return [finding(each, seen.called) for each in seen.differing]
