"""The question `events`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.parameter import Whole
from brickd.questions.question import Question, given


@dataclass(frozen=True)
class EventsQuestion(Question):
    """From where on."""

    since: int = given(Whole(0, None, "List only the events after number N.", metavar="N"), 0)
