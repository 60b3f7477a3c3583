"""What a daemon can be told to do, as the command line and the API both take it.

Owns: the orders and their parameters. Must not know: how an order is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from brickd.questions.parameter import Choice, Name, Names
from brickd.questions.question import Question, given

OnOff = Literal["on", "off"]
_ON_OFF = ("on", "off")


@dataclass(frozen=True)
class Setting(Question):
    """What the workers of a service are to do from now on; None: as before. With neither, it asks what is set."""

    service: str = given(Name("the name of a service", metavar="SERVICE", positional=True))
    spans: OnOff | None = given(Choice(_ON_OFF, "Whether each span is kept in detail, for traces."), None)
    recording: OnOff | None = given(Choice(_ON_OFF, "Whether anything is recorded at all."), None)

    @property
    def changes(self) -> bool:
        """Whether anything is to be set."""
        return self.spans is not None or self.recording is not None


def settings(*, spans: bool, off: bool) -> dict[str, OnOff]:
    """What is set, in the words of an order."""
    return {"spans": "on" if spans else "off", "recording": "off" if off else "on"}


@dataclass(frozen=True)
class Forgetting(Question):
    """Whose totals are to be forgotten, of the dead: everybody's where nobody is named."""

    names: tuple[str, ...] = given(Names("names of workers or services", key="name", positional=True), ())
