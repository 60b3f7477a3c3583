"""The question `tree`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.parameter import Number, Switch, Whole
from brickd.questions.question import ABOUT_WORKERS, OVER, START, Question, given


@dataclass(frozen=True)
class TreeQuestion(Question):
    """Whose tree, and how much of it."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, ())
    layers: bool = given(Switch("Show each layer separately instead of merging bricks over layers."), False)
    depth: int | None = given(Whole(1, None, "Show N levels; deeper ones are counted.", metavar="N"), None)
    min: float = given(
        Number(0, 100, "Leave out what took less than PERCENT of the time; it is counted.", metavar="PERCENT"), 0.0
    )
    over: str = given(OVER, START)
