"""Print the clock that the agent selects (a BRICK_CLOCK_* number): the control must read the same clock."""

from __future__ import annotations

from benchmarks.cases import agent_clock

if __name__ == "__main__":
    print(agent_clock())
