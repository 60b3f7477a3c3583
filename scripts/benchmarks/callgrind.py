"""Instructions per span, counted by callgrind. Unlike times, these numbers are the same in every run.

Each case runs with two loop counts. The result is the difference, so the start and the end of the process do not count.
There is no limit for this number. It shows each instruction that a change adds to the recording of a span.
"""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import cases
from benchmarks.report import Table
from benchmarks.workplace import Workplace, progress

_FEWER, _MORE = 20_000, 120_000
_COUNTED = (
    cases.WITH,
    cases.WITH_CONTROL,
    cases.RINGED,
    cases.NESTED,
    cases.START,
    cases.START_CONTROL,
    cases.AMOUNTS,
    cases.BY_NAME,
    cases.PORTED,
    cases.PORTED_OFF,
    cases.PORTED_EMPTY,
    cases.OFF,
    cases.WITH_EMPTY,
)
_TOOLS = ("valgrind", "setarch")
_KEY, _TITLE = "instructions", "Instructions by callgrind, the loop of 3 bytecodes included"


def _run(place: Workplace, name: str, times: int) -> tuple[int, int]:
    output = f"--callgrind-out-file={place.folder}/callgrind.%p"
    done = place.python(
        "-m", "benchmarks.counted", name, str(times), under=("setarch", "-R", "valgrind", "--tool=callgrind", output)
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise RuntimeError(f"callgrind printed no count\n{done.stderr}")
    return int(found[1]), int(done.stdout)


def _count(place: Workplace, name: str) -> dict[str, Any]:
    progress(f"instructions of {name}")
    (fewer, clock), (more, _) = _run(place, name, _FEWER), _run(place, name, _MORE)
    return {
        "case": name,
        "instructions": round((more - fewer) / (_MORE - _FEWER), 1),
        "clock": cases.CLOCKS[clock],
        "goal": None,
        "passed": None,
    }


def counted(place: Workplace, workers: int) -> Table:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return Table(_KEY, _TITLE, [], f"skipped: {' and '.join(missing)} not found")
    with ThreadPoolExecutor(workers) as pool:
        return Table(_KEY, _TITLE, list(pool.map(lambda name: _count(place, name), _COUNTED)))
