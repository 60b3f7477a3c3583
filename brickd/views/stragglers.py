"""The view `stragglers`: slow workers, workers that stand out without being named as slow, and the coverage.

Owns: the schema of the document, which findings concern the selected workers. Must not know: how stragglers are judged,
screens. Invariant: "no worker is slow" is never reported without the coverage.
"""

from __future__ import annotations

from brickd.base.timestamps import rfc3339
from brickd.datasources.world import World
from brickd.errors import NoDaemon
from brickd.query.queries import StragglersQuery
from brickd.views.common import Answer, begun, chosen


def answer(world: World, query: StragglersQuery) -> Answer:
    """Report the findings about the selected workers.

    Raises:
        NoDaemon: no daemon has watched the workers.
    """
    judged = world.stragglers()
    if judged is None:
        raise NoDaemon("straggler detection needs a daemon (start one: brickd up -d)")
    _, workers, words = chosen(world, query.names)
    mine = judged.about({worker.name for worker in workers})
    services = {worker.service for worker in workers}
    document = {
        **begun(world),
        "compared": {
            "slots": judged.slots,
            "slots_wanted": judged.slots_wanted,
            "length_ns": judged.length_ns,
            "ended": rfc3339(judged.ended.at_ns) if judged.slots else None,
            "age_ns": judged.age_ns,
            "current": judged.current,
            "services": [each.document() for each in judged.coverage if each.service in services],
        },
        "headlines": [*(headline for _, headline in mine.headlines()), *(each.text for each in mine.waiting)],
        "stragglers": [finding.document() for finding in mine.findings],
        "waiting": [each.document() for each in mine.waiting],
        "passed_over": [each.document() for each in mine.passed],
    }
    return Answer(document, words)
