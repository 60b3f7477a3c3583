"""The question `hang`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.parameter import Number
from brickd.questions.question import ABOUT_WORKERS, Question, given


@dataclass(frozen=True)
class HangQuestion(Question):
    """Whom to watch, and for how long."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, ())
    watch: float = given(Number(0.01, 3600, "Wait this long between the two looks.", metavar="SECONDS"), 1.0)
    longer: float = given(
        Number(0, 86400, "A span must be open at least this long to count as stuck.", metavar="SECONDS"), 1.0
    )
