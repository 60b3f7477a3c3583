"""What a check says.

Owns: the form of a finding, and the three words for its state. Must not know: any check, screens. Invariants: what is
not fine has a fix, what is fine has none; texts may hold a worker's own words, so whoever shows one escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

# The worst first. Advice: nothing is lost yet, or on purpose; broken: spans are lost, or nobody can read them.
State = Literal["broken", "advice", "ok"]
STATES: tuple[State, ...] = ("broken", "advice", "ok")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check's answer.

    Attributes:
        name: of the check, the same at every run.
        seen: the value.
        wanted: the value that would be fine.
        fix: a command or a setting to paste.
        why: what the value does to brickd, in a few words.
        about: the workers, processes, segments or users that are meant: all of them, however few `seen` names.
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
        """As JSON has it."""
        return asdict(self) | {"about": list(self.about)}


def fine(name: str, seen: str, wanted: str, about: Sequence[str] = ()) -> CheckResult:
    """A finding that asks for nothing."""
    return CheckResult(name, "ok", seen, wanted, about=tuple(about))


def mib(size_bytes: int) -> str:
    """Bytes for people.

    >>> mib(0), mib(44 << 20), mib(400 << 10)
    ('0 MiB', '44 MiB', '0.4 MiB')
    """
    return f"{size_bytes / (1 << 20):,.{1 if 0 < size_bytes < 10 << 20 else 0}f} MiB"
