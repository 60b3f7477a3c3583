"""The totals of places as a pprof profile that is compressed with gzip.

The totals are those of live workers, or those of the spans in a recording. Owns: the messages of profile.proto. Must
not know: files. Invariants: each sample has the count of spans, the self time and a stack of bricks, with the labels
service, worker, layer and device; string 0 is empty; ids begin at 1.

https://github.com/google/pprof/blob/main/proto/profile.proto
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from brickd.base import escape
from brickd.export.encoder import WithoutContext, Write
from brickd.export.places import UNKNOWN_BRICK, PlaceTotal
from brickd.export.protobuf import message, number, numbers, text
from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import SpanBatch
from brickd.export.span_stream import SpanCounts

# Fields of the messages.
SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, STRINGS = 1, 2, 3, 4, 5, 6
TIME_NS, DURATION_NS, PERIOD_TYPE, PERIOD, COMMENT, DEFAULT_SAMPLE_TYPE = 9, 10, 11, 12, 13, 14


def profile(totals: Iterable[PlaceTotal], words: Iterable[str], period_ns: tuple[int, int] | None) -> bytes:
    """Return the profile.

    Args:
        totals: one sample for each worker and place.
        words: notes for the reader.
        period_ns: when the period began (in ns since 1970), and how long it was; None if unknown.
    """
    return _Message().of(totals, words, period_ns)


class _Message:
    """The strings and functions of one profile."""

    def __init__(self) -> None:
        self._strings = {"": 0}
        self._functions: dict[str, int] = {}

    def of(self, totals: Iterable[PlaceTotal], words: Iterable[str], period_ns: tuple[int, int] | None) -> bytes:
        spans, self_time, ns = (self._string(each) for each in ("spans", "self", "nanoseconds"))
        parts = [
            message(SAMPLE_TYPE, number(1, spans), number(2, self._string("count"))),
            message(SAMPLE_TYPE, number(1, self_time), number(2, ns)),
            *(self._sample(total) for total in totals),
        ]
        for name, id_ in self._functions.items():
            parts.append(message(LOCATION, number(1, id_), message(4, number(1, id_))))
            label = self._string(name)
            parts.append(message(FUNCTION, number(1, id_), number(2, label), number(3, label)))
        if period_ns is not None:
            parts += [number(TIME_NS, period_ns[0]), number(DURATION_NS, period_ns[1])]
        parts += [number(COMMENT, self._string(escape.text(each))) for each in words]
        parts.append(message(PERIOD_TYPE, number(1, self_time), number(2, ns)))
        parts.append(number(PERIOD, 1))
        parts.append(number(DEFAULT_SAMPLE_TYPE, self_time))
        parts += [text(STRINGS, each) for each in self._strings]
        return gzip.compress(b"".join(parts), mtime=0)

    def _sample(self, total: PlaceTotal) -> bytes:
        place, worker = total.place, total.worker
        stack = place.stack or (UNKNOWN_BRICK,)
        labels = {"service": worker.service, "worker": worker.name}
        if place.category is not None:
            labels["category"] = place.category
        if place.device:
            labels["device"] = "yes"
        pairs = [(self._string(key), self._string(escape.text(value))) for key, value in labels.items()]
        texts = [message(3, number(1, key), number(2, value)) for key, value in pairs]
        if place.layer is not None:
            texts.append(message(3, number(1, self._string("layer")), number(3, place.layer)))
        locations = numbers(1, [self._function(escape.text(name)) for name in reversed(stack)])
        return message(SAMPLE, locations, numbers(2, (total.spans, total.self_ns)), *texts)

    def _string(self, value: str) -> int:
        return self._strings.setdefault(value, len(self._strings))

    def _function(self, name: str) -> int:
        return self._functions.setdefault(name, len(self._functions) + 1)


class Pprof(WithoutContext):
    """The profile of a recording: one sample for each worker and place."""

    def __init__(self, write: Write, recorded: DescribedRecording) -> None:
        from brickd.export.span_totals import SpanTotals  # here, because a live profile does not need numpy

        self._write, self._recorded = write, recorded
        self._totals = SpanTotals()

    def begin(self) -> None:
        """Write nothing."""

    def take(self, batch: SpanBatch) -> None:
        """Add the spans of the batch to the totals."""
        self._totals.add(batch)

    def end(self, counts: SpanCounts) -> None:
        """Write the profile."""
        of = self._totals
        period_ns = (of.begin_ns + self._recorded.epoch_ns, of.end_ns - of.begin_ns) if counts.spans else None
        self._write(profile(of, counts.words(), period_ns))
