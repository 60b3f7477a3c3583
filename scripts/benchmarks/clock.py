"""Prints the clock that the agent chooses here, BRICK_CLOCK_*: the control is to read the same."""

from __future__ import annotations

from benchmarks.cases import agent_clock

if __name__ == "__main__":
    print(agent_clock())
