"""The result of a check.

Owns: the form of a finding, and the three words for its state. Must not know: any check, screens. Invariants: a finding
has a fix unless it is fine; texts may contain a worker's own words, so escape them before display.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

# The worst first. Advice: nothing is lost yet, or on purpose; broken: spans are lost, or cannot be read.
State = Literal["broken", "advice", "ok"]
STATES: tuple[State, ...] = ("broken", "advice", "ok")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        name: of the check, the same at every run.
        seen: the value.
        wanted: the value that would be fine.
        fix: a command or a setting to paste.
        why: the effect of the value, in a few words.
        about: all workers, processes, segments or users that it concerns; `seen` may name fewer.
    """

    name: str
    state: State
    seen: str
    wanted: str
    fix: str | None = None
    why: str = ""
    about: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.fix is None) != (self.state == "ok"):
            raise ValueError(f"{self.name} is {self.state}: a fix belongs to what is not fine, and to nothing else")

    def document(self) -> dict[str, Any]:
        """The JSON of the result."""
        return asdict(self) | {"about": list(self.about)}


def fine(name: str, seen: str, wanted: str, about: Sequence[str] = ()) -> CheckResult:
    """A result that needs no fix."""
    return CheckResult(name, "ok", seen, wanted, about=tuple(about))


def mib(size_bytes: int) -> str:
    """A size in MiB for people.

    >>> mib(0), mib(44 << 20), mib(400 << 10)
    ('0 MiB', '44 MiB', '0.4 MiB')
    """
    return f"{size_bytes / (1 << 20):,.{1 if 0 < size_bytes < 10 << 20 else 0}f} MiB"
