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
        Name(
            "a device",
            "Compare with this device: core, machine, gpu0, or a name from calibrate --device.",
            metavar="NAME",
        ),
        "machine",
    )
    type: str = given(Name("a type of number", "Use the peak for this type of number.", metavar="TYPE"), "float32")
    level: str = given(
        Name("a level", "Use the bandwidth of this level: L1, L2, L3 or memory.", metavar="LEVEL"), "memory"
    )
    by: By | None = given(Choice(get_args(By), "One row per brick and worker, service or layer."), None)
    category: str | None = given(Name("a category", "Show only the bricks of this category.", metavar="NAME"), None)
    top: int | None = given(Whole(1, None, "Show the first N bricks and the totals of the rest.", metavar="N"), None)
    over: str = given(OVER, START)
