"""Goals of BENCH.md: a limit and its direction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A value may be at most the limit, or must be at least it."""

    limit: float
    at_least: bool = False

    def met(self, *values: float) -> bool:
        """Whether one of the values meets it."""
        return any(value >= self.limit if self.at_least else value <= self.limit for value in values)

    def distance(self, *values: float) -> float:
        """How far the best of the values is from the limit, as a factor: 1 and below is met."""
        return min(self.limit / value if self.at_least else value / self.limit for value in values)

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"
