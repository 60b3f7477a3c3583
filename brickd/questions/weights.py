"""The question `weights`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.parameter import Switch
from brickd.questions.question import ABOUT_WORKERS, Question, given


@dataclass(frozen=True)
class WeightsQuestion(Question):
    """Of which workers, and whether every tensor is to be told."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, ())
    all: bool = given(Switch("Show every tensor, equal ones too."), False)
