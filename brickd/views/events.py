"""The view `events`: what happened, as the daemon noted it.

Owns: the schema of its document. Must not know: what makes an event, screens.
"""

from __future__ import annotations

from brickd.events import Log
from brickd.questions.events import EventsQuestion
from brickd.views.answer import Answer, begun
from brickd.world import World


def answer(world: World, log: Log, question: EventsQuestion) -> Answer:
    """List the events."""
    page = log.since(question.since)
    document = {
        **begun(world),
        "newest": page.newest,
        "missed": page.missed,
        "events": [event.document() for event in page.events],
    }
    return Answer(document)
