"""The view `events`: what happened, as the daemon noted it.

Owns: the schema of its document. Must not know: what makes an event, screens.
"""

from __future__ import annotations

from dataclasses import dataclass

from brickd.events import Log
from brickd.views.answer import Answer, begun
from brickd.views.parameter import Whole
from brickd.views.question import Question, given
from brickd.world import World


@dataclass(frozen=True)
class EventsQuestion(Question):
    """From where on."""

    since: int = given(Whole(0, None, "Only what came after the event of this number.", metavar="N"), 0)


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
