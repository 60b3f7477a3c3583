"""Open spans: the youngest span of each lane, decoded from the lane's open word.

Owns: the decoding of the open word, and the walk from a path to its root. Must not know: other workers, screens, the
meaning of an open span. Invariants: An age is never negative. An open word with an unknown path yields no span.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from brickd.base.units import or_none
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading


class Open(NamedTuple):
    """An open span; `path` has the names from the root down to the span.

    Attributes:
        layer: None outside of layers.
        since_ns: the age of the span, to within 256 ticks; None if the worker's clock is unknown.
    """

    brick: str
    layer: int | None
    since_ns: int | None
    path: tuple[str, ...]


def youngest(reading: Reading, lane: _reader.Lane) -> Open | None:
    """Return the youngest open span of the lane, if any."""
    word = lane["current"]
    number = word & 0xFFFF
    path = reading.paths[number] if number < len(reading.paths) else None
    if not word or path is None:
        return None
    names = tuple(reading.name(each.name) for each in _upwards(reading, path))
    return Open(names[0], or_none(path.layer), _since_ns(reading, word >> 16), names[::-1])


def _since_ns(reading: Reading, start: int) -> int | None:
    if reading.now_ticks is None:
        return None
    # The open word contains only bits 8 to 55 of the time at which the span started.
    ticks = ((reading.now_ticks >> 8) - start) % 2**48 << 8
    return round(ticks * reading.tick_ns) if ticks < 2**55 else 0


def _upwards(reading: Reading, path: CallPath | None) -> Iterator[CallPath]:
    while path is not None:
        yield path
        path = reading.paths[path.parent] if path.parent >= 0 else None
