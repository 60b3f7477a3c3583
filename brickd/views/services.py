"""The view `services`: which services there are.

Owns: the schema of its document. Must not know: screens.
"""

from __future__ import annotations

from collections import Counter

from brickd.datasources.world import World
from brickd.query.queries import ServicesQuery
from brickd.views.common import Answer, begun, chosen


def answer(world: World, question: ServicesQuery) -> Answer:
    """Count the workers of each service."""
    _, workers, words = chosen(world, question.names)
    counts = Counter(worker.service for worker in workers)
    services = [{"service": service, "workers": count} for service, count in sorted(counts.items())]
    return Answer({**begun(world), "services": services}, words)
