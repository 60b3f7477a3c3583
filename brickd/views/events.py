"""The view `events`: what happened, as the daemon noted it.

Owns: the schema of its document. Must not know: what makes an event, screens.
"""

from __future__ import annotations

from typing import Protocol

from brickd.events import Past
from brickd.questions.queries import EventsQuestion
from brickd.views.answer import Answer, begun
from brickd.world import World


class Telling(World, Protocol):
    """A world in which somebody notes what happens."""

    @property
    def events(self) -> Past:
        """What did."""
        ...


def answer(world: Telling, question: EventsQuestion) -> Answer:
    """List the events."""
    page = world.events.since(question.since)
    document = {
        **begun(world),
        "newest": page.newest,
        "missed": page.missed,
        "events": [event.document() for event in page.events],
    }
    return Answer(document)
