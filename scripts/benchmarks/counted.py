"""The process that callgrind measures: `python -m benchmarks.counted CASE TIMES` runs a case and prints the clock."""

from __future__ import annotations

import sys

from benchmarks.cases import agent_clock, span_cases


def main() -> None:
    name, times = sys.argv[1], int(sys.argv[2])
    (case,) = (case for case in span_cases() if case.name == name)
    case.compiled()(times)
    print(agent_clock())


if __name__ == "__main__":
    main()
