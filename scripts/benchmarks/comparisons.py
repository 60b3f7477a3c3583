"""Which case is compared with which, and BENCH.md's goals for the ratios."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import cases
from benchmarks.goals import Goal


@dataclass(frozen=True, slots=True)
class Comparison:
    """A case, what it is divided by, and the goal if there is one."""

    case: str
    reference: str
    goal: Goal | None = None
    needs_tsc: bool = False  # the goal stands where the agent reads the time stamp counter

    def goal_with(self, tsc: bool) -> Goal | None:
        """The goal on this machine."""
        return self.goal if tsc or not self.needs_tsc else None


COMPARISONS = (
    Comparison(cases.WITH, cases.WITH_CONTROL, Goal(1.45)),
    Comparison(cases.RINGED, cases.WITH_CONTROL, Goal(1.45)),
    Comparison(cases.NESTED, cases.WITH_CONTROL),
    Comparison(cases.START, cases.START_CONTROL, Goal(1.6)),
    Comparison(cases.AMOUNTS, cases.WITH, Goal(2)),
    Comparison(cases.BY_NAME, cases.WITH, Goal(2)),
    Comparison(cases.OFF, cases.WITH_EMPTY, Goal(1.1)),
    Comparison(cases.OFF_ENVIRONMENT, cases.WITH_EMPTY, Goal(1.1)),
    Comparison(cases.OFF_CONSUMER, cases.WITH_EMPTY),
    Comparison(cases.PROMETHEUS, cases.WITH, Goal(50, at_least=True), needs_tsc=True),
    Comparison(cases.PYTHON_RING, cases.WITH),
)
