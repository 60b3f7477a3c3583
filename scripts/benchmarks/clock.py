"""Print the clock that the agent selects, BRICK_CLOCK_*: the control must read the same."""

from __future__ import annotations

from benchmarks.cases import agent_clock

if __name__ == "__main__":
    print(agent_clock())
