"""The question `coverage`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.parameter import Names
from brickd.questions.question import Question, given


@dataclass(frozen=True)
class CoverageQuestion(Question):
    """Of which services."""

    names: tuple[str, ...] = given(Names("names of services", metavar="[SERVICE]...", key="name", positional=True), ())
