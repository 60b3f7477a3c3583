"""Reads the fingerprints, weights and sources that are now in the rings of segments.

Owns: how these records are added to the state that an earlier daemon saved. Must not know: who uses these records.
Invariant: a refused segment adds nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from brickd.analysis.numerics import evidence
from brickd.analysis.numerics.fingerprints import ALL_BYTES, Numerics
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.weights import codec
from brickd.analysis.weights.shards import shard_of, shards_of
from brickd.analysis.weights.store import Weights
from brickd.base import state_file
from brickd.base.paths import runtime
from brickd.errors import CheckpointRefused, NotPermitted, SegmentRefused
from brickd.model.kernel_sources.files import Filed
from brickd.model.kernel_sources.store import Sources
from brickd.model.workers import Worker
from brickd.shm import _reader, segment_files
from brickd.shm.segment import open_segment


def opened(bytes_max: int = ALL_BYTES) -> Numerics:
    """Return an empty store of fingerprints, with the weights that an earlier daemon saved."""
    return Numerics(bytes_max, _weights_left())


def _weights_left() -> Weights | None:
    with contextlib.suppress(CheckpointRefused, OSError):
        content = state_file.content_of(runtime().weights)
        return None if content is None else codec.decode(segment_files.prefix(), content)
    return None


def add_fingerprints(of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
    """Add the fingerprints of workers, with `mark` as a prefix of the workers' uuids."""
    for worker in of:
        with contextlib.suppress(SegmentRefused), open_segment(worker.reading.file) as segment:
            producer = numerics.producer(
                mark + worker.reading.uuid, worker.service, segment.tables, shard_of(segment.coordinates)
            )
            for lane, _, _ in worker.reading.lanes:
                slots = segment.ring(lane, events=True)[1]
                producer.receive(_reader.checked(slots, 0, 0)[0])
                producer.name_steps(_reader.step_texts(slots))
            producer.lose(segment.dropped(_reader.KIND_CHECKED))


def recall(numerics: Numerics, compared: Compared | None, of: Sequence[Worker]) -> None:
    """Add the evidence about workers that an earlier daemon saved."""
    if compared is not None:
        evidence.recall(numerics, compared, shards_of(of))


def sources(of: Sequence[Worker], left: Sources | None) -> Sources:
    """Return the sources that an earlier daemon saved, and those in the rings of the workers."""
    found = Sources() if left is None else left
    found.go_into(Filed(runtime().sources))
    for worker in of:
        with contextlib.suppress(SegmentRefused, NotPermitted), open_segment(worker.reading.file) as segment:
            for lane, _, _ in worker.reading.lanes:
                _, pieces, _ = _reader.pieces(segment.ring(lane, events=True)[1])
                found.take(worker.reading.uuid, pieces)
    return found
