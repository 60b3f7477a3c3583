"""The interface of an encoder, and what several of them share.

Owns: the order of calls. Must not know: individual formats, files. Invariant: an encoder writes in pieces; in memory it
has at most one batch, or the totals of places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import SpanBatch
from brickd.export.span_stream import SpanCounts, UsageSample
from brickd.model.event_log import Event

Write = Callable[[bytes | memoryview], object]


class Encoder(Protocol):
    """Encodes one recording; created with a function that writes bytes, and with the recording's description."""

    context: bool  # whether it wants events and samples

    def __init__(self, write: Write, recorded: DescribedRecording) -> None: ...

    def begin(self) -> None:
        """Write what precedes all spans."""

    def take(self, batch: SpanBatch) -> None:
        """Write a batch, or add it up."""

    def event(self, event: Event) -> None:
        """Write an event of the daemon."""

    def sample(self, sample: UsageSample) -> None:
        """Write a sample of resource use."""

    def end(self, counts: SpanCounts) -> None:
        """Write what follows all spans."""


class WithoutContext:
    """The methods of an encoder that writes no events and no samples."""

    context = False

    def event(self, event: Event) -> None:
        """Ignore it."""

    def sample(self, sample: UsageSample) -> None:
        """Ignore it."""


def joined(pieces: Sequence[bytes]) -> tuple[bytes, bytes]:
    r"""Join texts into one. Return it, and the offsets of the texts, as `_reader.span_lines` takes them.

    >>> joined([b"ab", b"c"])
    (b'abc', b'\x00\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00')
    """
    from array import array
    from itertools import accumulate

    return b"".join(pieces), array("I", accumulate(map(len, pieces), initial=0)).tobytes()
