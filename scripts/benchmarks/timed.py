"""One attempt: times the cases of one group in this process, `python -m benchmarks.timed GROUP ROUNDS TURN`."""

from __future__ import annotations

import json
import sys

from benchmarks.cases import off_cases, peer_cases, span_cases
from benchmarks.comparisons import COMPARISONS
from benchmarks.method import measure, pin


def main() -> None:
    """Groups: `spans`, and `off` with BRICKD=0."""
    group, rounds, turn = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    cpu = pin(turn)
    cases = off_cases() if group == "off" else [*span_cases(), *peer_cases()]
    times = measure(cases, rounds, seed=turn)
    names = [case.name for case in cases]
    compared = [
        {
            "case": each.case,
            "reference": each.reference,
            "ns_min": times.least(each.case),
            "ns_median": times.median(each.case),
            "reference_ns_min": times.least(each.reference),
            "reference_ns_median": times.median(each.reference),
            "ratio_of_min": times.ratio_of_min(each.case, each.reference),
            "ratio_median": times.ratio_median(each.case, each.reference),
            "attempt": turn + 1,
            "cpu": cpu,
        }
        for each in COMPARISONS
        if each.case in names
    ]
    print(json.dumps(compared))


if __name__ == "__main__":
    main()
