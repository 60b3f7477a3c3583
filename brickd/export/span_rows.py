"""A span in the form in which an export reads it from a recording.

Owns: the fields of rows, and what all rows of a batch have in common. Must not know: recordings, formats. Invariant:
the fields are those of `struct brick_span_row` in brickd/reader/core/span_rows.h.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from brickd.export.places import Place

if TYPE_CHECKING:
    import numpy as np

KINDS = ("span", "step", "given", "measured", "bounded")
SPAN, STEP, GIVEN, MEASURED, BOUNDED = range(len(KINDS))
ROW = struct.Struct("<3q4Q4I")
FIELDS = (
    ("begin_ns", "<i8"), ("duration_ns", "<i8"), ("self_ns", "<i8"), ("step", "<u8"), ("elements", "<u8"),
    ("bytes", "<u8"), ("rows", "<u8"), ("path", "<u4"), ("lost", "<u4"), ("kind", "<u4"), ("track", "<u4"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class RecordedWorker:
    """A worker of a recording.

    Attributes:
        number: its index in the export, from 0.
        pid: the pid of its process; 0 if unknown or in another pid namespace.
        threads: the thread that each lane had in the last snapshot that shows one; 0 if there is none.
        flags: the flags of each place (`places.flags_of`).
        knots: the map of its clock (`clock_map`).
    """

    number: int
    uuid: str
    name: str
    service: str
    pid: int
    places: list[Place]
    flags: bytes
    knots: bytes
    tick_ns: float
    threads: dict[int, int]

    @property
    def defers(self) -> bool:
        """Whether the worker hands work to devices."""
        return any(place.device for place in self.places)


class SpanTrack(NamedTuple):
    """The origin of a batch: a lane, or a stream of a device."""

    worker: RecordedWorker
    lane: int | None
    stream: int | None = None

    @property
    def thread(self) -> int:
        """The thread of the lane; 0: unknown."""
        return 0 if self.lane is None else self.worker.threads.get(self.lane, 0)


class SpanBatch(NamedTuple):
    """Spans of one track; `rows` is valid until the next batch."""

    track: SpanTrack
    rows: memoryview

    def array(self) -> np.ndarray[Any, Any]:
        """Return the rows as a numpy array of `FIELDS`."""
        import numpy as np

        return np.frombuffer(self.rows, np.dtype(list(FIELDS)))
