"""The view `events`: the events that the daemon logged.

Owns: the schema of the document. Must not know: the causes of events, screens.
"""

from __future__ import annotations

from typing import Protocol

from brickd.base.timestamps import rfc3339
from brickd.datasources.world import World
from brickd.model.event_log import Past, since
from brickd.query.queries import EventsQuery
from brickd.views.common import Answer, begun


class EventLogging(World, Protocol):
    """A world with an event log."""

    @property
    def events(self) -> Past:
        """The event log."""
        ...


def answer(world: EventLogging, query: EventsQuery) -> Answer:
    """List the events."""
    page = since(world.events, query.since)
    newest = world.events.since(page.newest - 1).events
    document = {
        **begun(world),
        "newest": page.newest,
        "newest_time": rfc3339(newest[-1].time_ns) if newest else None,
        "missed": page.missed,
        "events": [event.document() for event in page.events],
    }
    return Answer(document)
