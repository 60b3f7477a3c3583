"""What `import brick_agent` costs: its time in a new interpreter, and which forbidden modules it loads."""

from __future__ import annotations

import json
import statistics
from typing import Any

from benchmarks.goals import Goal
from benchmarks.report import Table
from benchmarks.workplace import Workplace, progress

_HEAVY = ("numpy", "click", "psutil", "asyncio")
_GOAL_MS = Goal(15)
_PROGRAM = f"""\
import sys, time
before = set(sys.modules)
began = time.perf_counter_ns()
import brick_agent
ns = time.perf_counter_ns() - began
import json
print(json.dumps([ns / 1e6, [name for name in {_HEAVY!r} if name in sys.modules and name not in before]]))
"""


def imported(place: Workplace, interpreters: int) -> Table:
    progress(f"import brick_agent in {interpreters} fresh interpreters")
    found = [json.loads(place.python("-c", _PROGRAM).stdout) for _ in range(interpreters)]
    times = [ms for ms, _ in found]
    heavy = sorted({name for _, names in found for name in names})
    row: dict[str, Any] = {
        "module": "brick_agent",
        "ms_min": min(times),
        "ms_median": statistics.median(times),
        "loads": ", ".join(heavy) or "none of " + ", ".join(_HEAVY),
        "goal": f"{_GOAL_MS} ms, none",
        "passed": _GOAL_MS.met(min(times)) and not heavy,
    }
    return Table("import", "Import", [row])
