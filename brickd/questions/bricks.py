"""The question `bricks`.

Owns: in which orders bricks may be asked for, and apart by what. Must not know: how totals are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from brickd.errors import WrongQuestion
from brickd.questions.parameter import Choice, Name, Whole
from brickd.questions.question import ABOUT_WORKERS, OVER, START, Question, given

By = Literal["worker", "service", "layer"]

# By what bricks may be sorted, and which key of an entry that means.
SORTS = {
    **{each: f"{each}_ns" for each in ("self", "total", "mean", "p50", "p90", "p99", "max")},
    **{each: each for each in ("count", "elements", "bytes", "flops", "name", "spread")},
}


@dataclass(frozen=True)
class BricksQuestion(Question):
    """Which bricks, of which workers, in which order."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, ())
    sort: str = given(Choice(list(SORTS), "Sort by this figure, the largest first."), "self")
    by: By | None = given(Choice(get_args(By), "One row per brick and worker, service or layer."), None)
    category: str | None = given(Name("a category", "Show only the bricks of this category.", metavar="NAME"), None)
    top: int | None = given(Whole(1, None, "Show the first N bricks and the totals of the rest.", metavar="N"), None)
    over: str = given(OVER, START)

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        if (self.sort, self.by) == ("spread", "worker"):
            raise WrongQuestion("sort spread compares workers, which by worker tells apart: give one of them")
        if self.sort == "max" and self.over != START:
            raise WrongQuestion(f"the longest span of the last {self.over} is not known: sort by p99, or over start")
