"""The formats of `brickd export`, and the export itself.

Owns: which encoder writes which format, the flow from the files of a recording to the output. Must not know: the
command line. Invariant: only the encoder of the requested format is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from brickd.export import recorded_workers
from brickd.export.encoder import Encoder
from brickd.export.output_file import output_file
from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import SpanBatch
from brickd.export.span_stream import SpanCounts, SpanFilter, SpanStream
from brickd.model.event_log import Event
from brickd.recording.chunks import Form
from brickd.recording.file_bytes import Reads, unreported
from brickd.recording.replay import opened_files

_ENCODERS = {
    "perfetto": "perfetto:Perfetto",
    "pprof": "pprof:Pprof",
    "collapsed": "collapsed:Collapsed",
    "jsonl": "lines:JsonLines",
    "csv": "lines:Csv",
    "parquet": "parquet:Parquet",
}
FORMATS = tuple(_ENCODERS)
_ALL = SpanFilter()
BINARY = {"perfetto", "pprof", "parquet"}


class Exported(NamedTuple):
    """A finished export: its size in bytes, and notes for the user."""

    recorded: DescribedRecording
    counts: SpanCounts
    bytes: int
    words: tuple[str, ...]

    @property
    def has_no_spans(self) -> bool:
        """Whether the recording was made without single spans."""
        return self.recorded.began is not None and not self.recorded.began.spans


def export_files(
    paths: Sequence[str],
    format: str,
    path: str,
    names: Sequence[str] = (),
    bricks: Collection[str] = (),
    wanted: SpanFilter = _ALL,
    reads: Reads = unreported,
) -> Exported:
    """Write the spans of a recording, given its files; `reads` is told how far they were read.

    Raises the errors of `export`.
    """
    with opened_files(paths, reads) as forms:
        return export(forms, format, path, names, bricks, wanted)


def export(
    forms: Sequence[Form],
    format: str,
    path: str,
    names: Sequence[str] = (),
    bricks: Collection[str] = (),
    wanted: SpanFilter = _ALL,
) -> Exported:
    """Write the spans of a recording into a file.

    Raises:
        NoSuchWorker, RecordingRefused: as `recorded_workers.read`.
        BrickdError: the file cannot be written, or a package is missing.
    """
    module, _, name = _ENCODERS[format].partition(":")
    make: type[Encoder] = getattr(importlib.import_module(f"brickd.export.{module}"), name)
    recorded = recorded_workers.read(forms, names, bricks)
    with output_file(path) as file:
        encoder = make(file.write, recorded)
        stream = SpanStream(forms, recorded, wanted, context=encoder.context)
        encoder.begin()
        for each in stream:
            if isinstance(each, SpanBatch):
                encoder.take(each)
            elif isinstance(each, Event):
                encoder.event(each)
            else:
                encoder.sample(each)
        encoder.end(stream.counts)
    return Exported(recorded, stream.counts, file.bytes, (*recorded.words(), *stream.words()))
