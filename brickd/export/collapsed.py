"""Spans as collapsed stacks, for flame graphs.

Owns: how a stack is written. Must not know: files. Invariants: each line is `worker;brick;...;brick COUNT`, where COUNT
is the self time in µs; a name has no `;` and no line break; layers are merged; a device's times have their own stacks.

https://github.com/brendangregg/FlameGraph
"""

from __future__ import annotations

from collections import Counter

from brickd.export.encoder import WithoutContext, Write
from brickd.export.lines import frame
from brickd.export.places import UNKNOWN_BRICK
from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import SpanBatch
from brickd.export.span_stream import SpanCounts
from brickd.export.span_totals import SpanTotals

DEVICE = "[device]"  # the frame between a worker and its deferred work


class Collapsed(WithoutContext):
    """One line for each stack."""

    def __init__(self, write: Write, recorded: DescribedRecording) -> None:
        self._write = write
        self._totals = SpanTotals()

    def begin(self) -> None:
        """Write nothing."""

    def take(self, batch: SpanBatch) -> None:
        """Add up the batch."""
        self._totals.add(batch)

    def end(self, counts: SpanCounts) -> None:
        """Write all stacks, sorted."""
        stacks: Counter[str] = Counter()
        for worker, place, _, self_ns, _ in self._totals:
            above = [DEVICE] if place.device else []
            frames = [worker.name, *above, *(place.stack or (UNKNOWN_BRICK,))]
            stacks[";".join(map(frame, frames))] += self_ns
        for stack, self_ns in sorted(stacks.items()):
            self._write(f"{stack} {round(self_ns / 1000)}\n".encode("utf-8", "replace"))
