"""The view `events`: what happened, as the daemon noted it.

Owns: the schema of its document. Must not know: what makes an event, screens.
"""

from __future__ import annotations

from typing import Protocol

from brickd.datasources.world import World
from brickd.model.event_log import Past
from brickd.query.queries import EventsQuery
from brickd.views.common import Answer, begun


class Telling(World, Protocol):
    """A world in which somebody notes what happens."""

    @property
    def events(self) -> Past:
        """What did."""
        ...


def answer(world: Telling, question: EventsQuery) -> Answer:
    """List the events."""
    page = world.events.since(question.since)
    document = {
        **begun(world),
        "newest": page.newest,
        "missed": page.missed,
        "events": [event.document() for event in page.events],
    }
    return Answer(document)
