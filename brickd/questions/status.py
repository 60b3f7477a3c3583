"""The question `status`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.question import ABOUT_WORKERS, Question, given


@dataclass(frozen=True)
class StatusQuestion(Question):
    """Over which workers."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, ())
