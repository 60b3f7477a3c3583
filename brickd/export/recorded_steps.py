"""The steps of a recording: each span that was a step of an engine.

Owns: which steps are returned and in which order, and the error for a query that asks for single spans without naming a
recording. Must not know: screens. Invariant: Only one batch and as many steps as requested are in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from brickd.errors import BrickdError
from brickd.export import recorded_workers
from brickd.export.lines import document
from brickd.export.longest_spans import span_document
from brickd.export.span_rows import ROW, STEP, SpanBatch, SpanTrack
from brickd.export.span_stream import SpanFilter, SpanStream
from brickd.query.queries import StepsQuery
from brickd.recording.chunks import Form
from brickd.recording.mistaken_files import named_files


def require_recordings(verb: str, recordings: Sequence[str], names: Sequence[str] = (), options: str = "") -> None:
    """Refuse a query without a recording. If a name in the query is a file of another kind, the message says so."""
    if not recordings:
        steps = f"brickd record --spans -o run.brick, then brickd {verb} run.brick{options}"
        why = "no recording is given, expected a recording with single spans"
        raise BrickdError(f"{named_files(names)}{why}: {steps}")


def find(forms: Sequence[Form], query: StepsQuery) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a document with the newest steps of some workers, sorted by when each step began. Also return notes."""
    recorded = recorded_workers.read(forms, query.names)
    stream = SpanStream(forms, recorded, SpanFilter())
    kept: deque[tuple[SpanTrack, tuple[int, ...]]] = deque(maxlen=query.newest)
    total = 0
    for batch in stream:
        if isinstance(batch, SpanBatch):
            places = (batch.array()["kind"] == STEP).nonzero()[0].tolist()
            kept.extend((batch.track, ROW.unpack_from(batch.rows, number * ROW.size)) for number in places)
            total += len(places)
    steps = [
        span_document(recorded, stream.step_texts, track, row)
        for track, row in sorted(kept, key=lambda each: each[1][0])
    ]
    counts = {key: value for key, value in stream.counts.document().items() if key != "spans"}
    answer = {**document(recorded), **counts, "steps_total": total, "steps": steps}
    return answer, (*recorded.words(), *stream.words())
