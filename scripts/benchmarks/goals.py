"""The goal of a measurement: a limit and its direction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit: the largest allowed value or, with `at_least`, the smallest."""

    limit: float
    at_least: bool = False

    def met(self, *values: float) -> bool:
        """Return whether one of the values meets the goal."""
        return any(value >= self.limit if self.at_least else value <= self.limit for value in values)

    def distance(self, *values: float) -> float:
        """Return the best value divided by the limit; the goal is met if the result is at most 1."""
        return min(self.limit / value if self.at_least else value / self.limit for value in values)

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"
