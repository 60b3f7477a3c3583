"""A sampled span of the OpenTelemetry SDK. It has a BatchSpanProcessor, and an exporter that drops all spans.

The queue is emptied after each batch, outside of the timed part, so the thread of the BatchSpanProcessor sleeps during
the rounds. The time is what a span costs its own thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.method import Case
from benchmarks.peers import needs

BY = "OpenTelemetry SDK"
SPAN = "with tracer.start_as_current_span(name):"
HOW = {SPAN: "sampled, batch processor; export is not counted"}
_QUEUE = 1024  # spans in a batch; the queue of the BatchSpanProcessor has room for 2,048


class _Discarding:
    """Counts the spans that would be exported."""

    def __init__(self) -> None:
        self.exported = 0

    def export(self, spans: Sequence[object]) -> None:
        self.exported += len(spans)

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def shutdown(self) -> None:
        pass


def cases(_: Path) -> list[Case]:
    trace = needs.package("opentelemetry.sdk.trace", needs.BENCH)
    export = needs.package("opentelemetry.sdk.trace.export", needs.BENCH)
    exporter = _Discarding()
    processor = export.BatchSpanProcessor(exporter)
    provider = trace.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return [
        Case(
            SPAN,
            "with tracer.start_as_current_span(name): pass",
            {"tracer": provider.get_tracer("bench"), "name": "b"},
            after=processor.force_flush,
            batch_max=_QUEUE,
            recorded=lambda: exporter.exported,
        )
    ]
