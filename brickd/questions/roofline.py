"""The question `roofline`.

Owns: whose bricks, and of which device's roof, they are asked for. Must not know: what a device's peaks are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from brickd.questions.bricks import By
from brickd.questions.parameter import Choice, Name, Whole
from brickd.questions.question import ABOUT_WORKERS, OVER, START, Question, given


@dataclass(frozen=True)
class RooflineQuestion(Question):
    """Which bricks, under which roof."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, ())
    device: str = given(
        Name("a device", "Whose roof: core, machine, gpu0, or one that was given.", metavar="NAME"), "machine"
    )
    type: str = given(Name("a type of number", "Of which numbers the peak is.", metavar="TYPE"), "float32")
    level: str = given(Name("a level", "From where the bytes come: L1, L2, L3, memory.", metavar="LEVEL"), "memory")
    by: By | None = given(Choice(get_args(By), "A row for each brick in each of these."), None)
    category: str | None = given(Name("a category", "Only the bricks of this category.", metavar="NAME"), None)
    top: int | None = given(Whole(1, None, "Only so many; the rest is counted.", metavar="N"), None)
    over: str = given(OVER, START)
