"""torch's record_function, measured only if torch is installed, because torch is too large to install for this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.method import Case
from benchmarks.peers import needs

BY = "torch"
PROFILED = "with record_function(name): profiled"
UNPROFILED = "with record_function(name): no profiler"
HOW = {
    PROFILED: "under torch.profiler.profile, CPU; its start and end are not counted",
    UNPROFILED: "no profiler is active, nothing is recorded",
}


class _Profile:
    """A profiler that is active between the two calls."""

    def __init__(self, profiler: Any) -> None:
        self._profiler = profiler
        self._active: Any = None
        self.recorded = 0

    def begin(self) -> None:
        self._active = self._profiler.profile(activities=[self._profiler.ProfilerActivity.CPU])
        self._active.start()

    def end(self) -> None:
        self._active.stop()
        self.recorded += sum(event.name == "b" for event in self._active.events())
        self._active = None


def cases(_: Path) -> list[Case]:
    """Return the cases: one span with and without a profiler."""
    profiler = needs.package("torch.profiler", "pip install torch, into .venv")
    profile = _Profile(profiler)
    names = {"record_function": profiler.record_function, "name": "b"}
    statement = "with record_function(name): pass"
    return [
        Case(PROFILED, statement, names, profile.begin, profile.end, recorded=lambda: profile.recorded),
        Case(UNPROFILED, statement, names),
    ]
