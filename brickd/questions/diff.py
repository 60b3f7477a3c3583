"""The question `diff`.

Owns: by which evidence workers may be compared, which number a step has. Must not know: how they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from brickd.questions.parameter import Choice, Name, Names, Number
from brickd.questions.question import Question, given

By = Literal["weights", "input", "run"]
_ALL = 2**64 - 1
_DIGITS = re.compile(r"[0-9a-fA-F]{16}")
_NUMBER = re.compile(r"-?[0-9]{1,20}")


def step_number(text: str) -> int:
    """The number of a step: itself, sixteen digits as they are shown, or what the agent makes of any other text.

    >>> step_number("17"), step_number("0000000000000011"), step_number("-1") == _ALL
    (17, 17, True)
    >>> f"{step_number('req-1'):016x}"
    'fddbeef2b6ce4891'
    """
    if _DIGITS.fullmatch(text):
        return int(text, 16)
    if _NUMBER.fullmatch(text):
        return int(text) & _ALL
    number = 0xCBF29CE484222325  # FNV-1a, as `core_number` of the agent
    for byte in text.encode(errors="surrogatepass"):
        number = (number ^ byte) * 0x100000001B3 & _ALL
    return number


@dataclass(frozen=True)
class DiffQuestion(Question):
    """Which workers, by which evidence, and how far back."""

    names: tuple[str, ...] = given(
        Names(
            "names of workers or services, or patterns",
            metavar="[[RECORDING:]WORKER|SERVICE]...",
            key="name",
            positional=True,
        ),
        (),
    )
    by: By | None = given(
        Choice(
            get_args(By),
            "Compare by this evidence: weights (replicas hold the same), input (equal inputs give equal outputs), or"
            " run (the workers did the same work). Default: input, or weights if no output can be compared.",
        ),
        None,
    )
    step: str | None = given(
        Name(
            "a step",
            "Compare only this step: its number, the 16 hexadecimal digits shown for it, or its text.",
            metavar="STEP",
        ),
        None,
    )
    since: float | None = given(
        Number(0.001, 1e9, "Compare only what was recorded in the last SECONDS.", metavar="SECONDS"), None
    )
    rtol: float | None = given(
        Number(0, 1e6, "With --by run: tolerate relative errors up to this one.", metavar="ERROR"), None
    )
