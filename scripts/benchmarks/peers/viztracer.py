"""viztracer's log_event. With it, viztracer records a custom span while it traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.method import Case
from benchmarks.peers import needs

BY = "viztracer"
SPAN = "with tracer.log_event(name):"
HOW = {SPAN: "while it traces; the file is not counted"}
_ENTRIES = 100_000


class _Tracing:
    """A tracer whose hooks are active in the interpreter only between the two calls."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.recorded = 0

    def begin(self) -> None:
        self.tracer.start()

    def end(self) -> None:
        self.tracer.stop()
        self.tracer.parse()
        self.recorded += sum(event["name"].startswith("b (") for event in self.tracer.data["traceEvents"])
        self.tracer.clear()


def cases(_: Path) -> list[Case]:
    package = needs.package("viztracer", needs.BENCH)
    tracing = _Tracing(package.VizTracer(verbose=0, tracer_entries=_ENTRIES))
    return [
        Case(
            SPAN,
            "with tracer.log_event(name): pass",
            {"tracer": tracing.tracer, "name": "b"},
            tracing.begin,
            tracing.end,
            batch_max=_ENTRIES // 2,
            recorded=lambda: tracing.recorded,
        )
    ]
