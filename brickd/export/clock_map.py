"""The clocks of a recording: converts a worker's ticks to ns of CLOCK_MONOTONIC_RAW, and relates this clock to others.

Owns: the pairs of clock values in snapshots, and the slopes between them. Must not know: spans. Invariants: ticks that
increase give ns that never decrease; a worker without a pair of clock values has no map.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

from brickd.base.units import SECOND
from brickd.recording.body_codec import Shown
from brickd.shm import _reader
from brickd.shm.clock import HostClocks
from brickd.shm.segment_copy import Reading

_KNOT = struct.Struct("<qqd")  # struct brick_knot
_LIMIT = 2**61
# If the first and the last pair are closer together than this, the worker's own slope is more exact.
_BASELINE_NS = SECOND
_SHIFTED_NS = SECOND  # a worker's clock that differs by more belongs to another time namespace

Pair = tuple[int, int]  # ticks, ns


class ClockReadings:
    """The clock pairs of all snapshots."""

    def __init__(self) -> None:
        self._pairs: dict[int, list[Pair]] = {}
        self._host: HostClocks | None = None
        self._read = False  # whether `_host` was read at one moment

    def add(self, shown: Shown) -> None:
        """Add the pairs of the next snapshot."""
        snapshot = shown.snapshot
        clocks = snapshot.survey.clocks
        for kind, pair in clocks.items():
            pairs = self._pairs.setdefault(kind, [])
            if max(pair) < _LIMIT and (not pairs or (pair[0] > pairs[-1][0] and pair[1] > pairs[-1][1])):
                pairs.append(pair)
        if shown.host is not None:
            if not self._read:  # CLOCK_REALTIME may step later: one offset keeps intervals as they were
                self._host, self._read = shown.host, True
        elif not self._read and (raw := next((ns for _, ns in clocks.values()), None)) is not None:
            # An earlier brickd read the other clocks after the survey. So the shortest survey gives the best pair.
            found = HostClocks(min(raw, _LIMIT), min(snapshot.at_ns, _LIMIT), min(snapshot.now_ns, _LIMIT))
            if self._host is None or found.unix_ns - found.raw_ns < self._host.unix_ns - self._host.raw_ns:
                self._host = found

    @property
    def host(self) -> HostClocks | None:
        """One moment, as each of the clocks shows it; None if no snapshot has clocks."""
        return self._host

    def map_of(self, reading: Reading) -> bytes | None:
        """Return the map of a worker's clock, as `_reader.span_rows` takes it; None if no pair is known."""
        header = reading.header
        kind = header["clock"]
        if kind == _reader.CLOCK_MONOTONIC:
            shift = self._shift(reading)
            return _KNOT.pack(0, -shift, 1.0)
        pairs = self._pairs.get(kind, [])
        if not pairs:
            if header["anchor_ticks"] >= _LIMIT or header["anchor_ns"] >= _LIMIT:
                return None
            pairs = [(header["anchor_ticks"], header["anchor_ns"])]
        if pairs[-1][1] - pairs[0][1] < _BASELINE_NS:
            return _KNOT.pack(*pairs[-1], reading.tick_ns)
        return packed(pairs)

    def _shift(self, reading: Reading) -> int:
        """How far the worker's clock is ahead of the clock of the recorded machine."""
        pairs = self._pairs.get(_reader.CLOCK_MONOTONIC, [])
        if not pairs or reading.now_ticks is None or not reading.alive:
            return 0
        shift = reading.now_ticks - pairs[-1][1]
        return shift if _SHIFTED_NS < abs(shift) < _LIMIT else 0


def packed(pairs: Sequence[Pair]) -> bytes:
    """Encode pairs, each with the slope to the next pair; the last pair has the slope of the previous one.

    >>> packed([(0, 100), (10, 120)]) == _KNOT.pack(0, 100, 2.0) + _KNOT.pack(10, 120, 2.0)
    True
    """
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(pairs)]
    return b"".join(_KNOT.pack(*pair, slope) for pair, slope in zip(pairs, [*slopes, slopes[-1]], strict=True))


def ns_of(knots: bytes, ticks: int) -> int:
    """Convert ticks, like `brick_knots_ns`.

    >>> ns_of(packed([(0, 100), (10, 120), (20, 130)]), 15), ns_of(packed([(0, 100), (10, 120)]), -1)
    (125, 98)
    """
    rows: list[tuple[int, int, float]] = list(_KNOT.iter_unpack(knots))
    base_ticks, base_ns, tick_ns = rows[max(0, bisect_right(rows, ticks, key=itemgetter(0)) - 1)]
    return base_ns + max(-_LIMIT, min(_LIMIT, round((ticks - base_ticks) * tick_ns)))
