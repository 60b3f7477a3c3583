"""What a daemon can be told to do, as the command line and the API both take it.

Owns: the orders and their parameters. Must not know: how an order is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from brickd.errors import WrongQuestion
from brickd.views.parameter import Choice, Name, Names
from brickd.views.question import Question, given

OnOff = Literal["on", "off"]
_ON_OFF = ("on", "off")


@dataclass(frozen=True)
class Setting(Question):
    """What the workers of a service are to do from now on; None: as before."""

    service: str = given(Name("the name of a service", metavar="SERVICE", positional=True))
    spans: OnOff | None = given(Choice(_ON_OFF, "Whether each span is kept in detail, for traces."), None)
    recording: OnOff | None = given(Choice(_ON_OFF, "Whether anything is recorded at all."), None)

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        if self.spans is None and self.recording is None:
            raise WrongQuestion("nothing is to be set, wanted is spans or recording")


@dataclass(frozen=True)
class Forgetting(Question):
    """Whose totals are to be forgotten, of the dead: everybody's where nobody is named."""

    names: tuple[str, ...] = given(Names("names of workers or services", key="name", positional=True), ())
