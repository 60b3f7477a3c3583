"""The question `inspect`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.parameter import Name, Whole
from brickd.questions.question import Question, given


@dataclass(frozen=True)
class InspectQuestion(Question):
    """Which segment, and how much of its rings."""

    name: str | None = given(Name("the name of a worker or segment", metavar="[WORKER|SEGMENT]", positional=True), None)
    records: int = given(Whole(0, 100_000, "Show the newest N records of each ring.", short="-n", metavar="N"), 10)
