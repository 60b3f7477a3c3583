"""The question `source`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.parameter import Name
from brickd.questions.question import Question, given


@dataclass(frozen=True)
class SourceQuestion(Question):
    """The text of which source; none: which sources there are."""

    hash: str | None = given(
        Name("the hash of a source, or what that begins with", metavar="[HASH]", positional=True), None
    )
