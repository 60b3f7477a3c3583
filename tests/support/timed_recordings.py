"""Recordings of this machine with snapshots at times that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tapes import forged

from brickd.base.units import SECOND
from brickd.datasources.shared_memory import SharedMemory
from brickd.model.event_log import Event
from brickd.model.survey_snapshot import EVERY_NS, Snapshot
from brickd.recording import body_codec as bodies
from brickd.shm import _reader

BEGAN_NS = 1_700_000_000 * SECOND
TIMES = [BEGAN_NS + number * EVERY_NS for number in range(4)]


def timed(path: Path, before: Callable[[int], object] = lambda _: None, times: Sequence[int] = TIMES) -> str:
    """Write a recording of the workers as they are now, with a snapshot and an event at each time.

    `before` is called before each snapshot, with its number.
    """
    known, chunks = set[int](), []
    for number, at_ns in enumerate(times):
        before(number)
        snapshot = Snapshot.of(SharedMemory().survey(), number * EVERY_NS, at_ns)
        event = Event(number + 1, at_ns, "looked", f"look {number}")
        if (tables := bodies.tables(snapshot, known)) is not None:
            chunks.append((_reader.CHUNK_TABLES, at_ns, tables))
        chunks.append((_reader.CHUNK_EVENTS, at_ns, bodies.event(event)))
        chunks.append((_reader.CHUNK_SNAPSHOT, at_ns, bodies.snapshot(snapshot, None, bodies.RecordingCounts())))
    path.write_bytes(forged(chunks))
    return str(path)
