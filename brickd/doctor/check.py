"""The result of a check.

Owns: the fields of a finding, and the three words for its state. Must not know: individual checks, screens. Invariants:
A finding has a fix unless its state is `ok`. Texts may contain a worker's strings, so a caller escapes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

# The worst state comes first. Broken: spans are lost or cannot be read. Advice: nothing is lost yet, or the state is
# intended.
State = Literal["broken", "advice", "ok"]
STATES: tuple[State, ...] = ("broken", "advice", "ok")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        name: the name of the check, the same in every run.
        seen: the value seen.
        wanted: the value expected.
        fix: a command or a setting that the user can paste.
        why: the effect of the value, in a few words.
        about: all affected workers, processes, segments or users; `seen` may name only some of them.
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
            raise ValueError(
                f"{self.name} is {self.state}: a finding that is not fine needs a fix, a fine finding has none"
            )

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        return asdict(self) | {"about": list(self.about)}


def results_document(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return the results of all checks as JSON. The machine is healthy if nothing is broken."""
    return {
        "schema_version": 1,
        "healthy": all(each.state != "broken" for each in results),
        "findings": [each.document() for each in results],
    }


def fine(name: str, seen: str, wanted: str, about: Sequence[str] = ()) -> CheckResult:
    """Return a result that needs no fix."""
    return CheckResult(name, "ok", seen, wanted, about=tuple(about))


def mib(size_bytes: int) -> str:
    """Format a size in MiB.

    >>> mib(0), mib(44 << 20), mib(400 << 10)
    ('0 MiB', '44 MiB', '0.4 MiB')
    """
    return f"{size_bytes / (1 << 20):,.{1 if 0 < size_bytes < 10 << 20 else 0}f} MiB"
