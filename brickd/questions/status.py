"""The question `status`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.question import ABOUT_WORKERS, OVER, Question, given


@dataclass(frozen=True)
class StatusQuestion(Question):
    """Over which workers and what time: the last 60 seconds, where somebody knows them, if no time is given."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, ())
    over: str | None = given(OVER, None)
