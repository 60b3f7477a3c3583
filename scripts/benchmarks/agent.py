"""`scripts/bench agent`: what a span costs a worker in time, instructions and memory, and what the import costs."""

from __future__ import annotations

from benchmarks import callgrind, cases, imports, machine, memory, plot, spans
from benchmarks.control import compile_control
from benchmarks.report import Report
from benchmarks.workplace import Workplace

HELP = "spans against the compiled control and against other tools; memory; import"


def run(place: Workplace, quick: bool) -> Report:
    """Measure. The times are measured first, when no other process of this run is working."""
    clock = place.ask("clock")
    compile_control(place.folder, clock)
    times = spans.timed(place, clock == cases.TSC, rounds=100 if quick else 400)
    tables = [
        times,
        imports.imported(place, interpreters=10 if quick else 20),
        memory.committed(place),
        callgrind.counted(place, workers=2),
    ]
    facts = machine.facts() | {"agent_clock": cases.CLOCKS[clock]}
    return Report("agent", facts, tables, plot.svg(times.title, spans.fastest(times), facts))
