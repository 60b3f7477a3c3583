"""The longest spans of a recording.

Owns: their choice and order. Must not know: screens. Invariant: only one batch and as many spans as requested are in
memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from brickd.export import recorded_workers
from brickd.export.lines import KEYS, document, track_values
from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import KINDS, ROW, STEP, SpanBatch, SpanTrack
from brickd.export.span_stream import SpanFilter, SpanStream
from brickd.model.step_texts import StepTexts
from brickd.query.queries import SpansQuery, step_number
from brickd.recording.chunks import Form

_Row = tuple[int, ...]
_Kept = tuple[int, int, SpanTrack, _Row]  # duration, -arrival: of equal durations, the earlier span first


def find(forms: Sequence[Form], query: SpansQuery) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the document of the longest spans, and notes."""
    recorded = recorded_workers.read(forms, query.names, query.brick)
    stream = SpanStream(forms, recorded, wanted(query.step, query.longer))
    kept: list[_Kept] = []
    arrived = 0
    for batch in stream:
        if isinstance(batch, SpanBatch):
            arrived = _keep(kept, batch, query.top, arrived)
    spans = [
        span_document(recorded, stream.step_texts, track, row)
        for _, _, track, row in sorted(kept, key=lambda each: each[:2], reverse=True)
    ]
    answer = {
        **document(recorded),
        **stream.counts.document(),
        "spans_total": stream.counts.spans,
        "spans": spans,
    }
    return answer, (*recorded.words(), *stream.words())


def wanted(step: str | None, longer: float) -> SpanFilter:
    """Return a filter for the spans of a step that take at least `longer` seconds. None stands for all steps."""
    return SpanFilter(None if step is None else step_number(step), round(longer * 1e9))


def _keep(kept: list[_Kept], batch: SpanBatch, top: int, arrived: int) -> int:
    rows = batch.array()
    durations = rows["duration_ns"]
    least = kept[0][0] if len(kept) >= top else -1
    for number in (durations > least).nonzero()[0].tolist():
        row = ROW.unpack_from(batch.rows, number * ROW.size)
        entry = row[1], -(arrived + number), batch.track, row
        if len(kept) < top:
            heapq.heappush(kept, entry)
        elif row[1] > kept[0][0]:
            heapq.heapreplace(kept, entry)
    return arrived + len(rows)


def span_document(recorded: DescribedRecording, texts: StepTexts, track: SpanTrack, row: _Row) -> dict[str, Any]:
    """Return a span as JSON."""
    begin, duration, own, step, elements, size, rows, path, lost, kind, _ = row
    place, named = track.worker.places[path], texts.members(step or None)
    values = (
        *track_values(track), place.brick, place.category, place.layer, list(place.stack), KINDS[kind],
        begin + recorded.epoch_ns, duration, own, named["step"], elements, size,
        rows if kind == STEP else None, lost,
    )  # fmt: skip
    return {**dict(zip(KEYS, values, strict=True)), **named}
