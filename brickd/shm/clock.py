"""The worker's clock: the length of its ticks and its current value.

Owns: the conversion of ticks, time namespaces, and which clock fields of a header are trusted. Must not know: segments.
Invariants: The length of a tick is plausible, whatever the header contains. The value of a clock may be unknown, but it
is never wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from brickd.base.json_values import whole
from brickd.base.units import SECOND
from brickd.shm import _reader

_PLAUSIBLE_TICK_NS = (0.05, 50.0)  # 20 GHz to 20 MHz
_SHORTEST_BASELINE_NS = 10_000_000
_UNLIKE = 0.001  # the accepted relative difference between clocks of one machine


class Now(NamedTuple):
    """The length of a worker's tick, and the current value of its clock in ticks; None if unknown."""

    tick_ns: float
    ticks: int | None


class HostClocks(NamedTuple):
    """One moment as the clocks of the machine show it, in ns: CLOCK_MONOTONIC_RAW, CLOCK_REALTIME, CLOCK_MONOTONIC."""

    raw_ns: int
    unix_ns: int
    monotonic_ns: int

    @classmethod
    def of(cls, document: Iterable[Any]) -> HostClocks:
        """Check the three times of a document. ValueError: one of the times is impossible."""
        return cls(*(whole(each, 0, 2**61) for each in document))


def host_clocks() -> HostClocks:
    """Read the clocks together.

    Of a few attempts, the one that took the least time is used (1 µs on an idle machine).
    """
    best: HostClocks | None = None
    least = 0
    for _ in range(5):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        unix, monotonic = time.time_ns(), time.monotonic_ns()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if best is None or after - before < least:
            least = after - before
            best = HostClocks((before + after) // 2, unix, monotonic)
    assert best is not None
    return best


class WorkerClock:
    """A worker's clock."""

    def __init__(self, header: _reader.Header, pid: int | None) -> None:
        """Read the clock from the header; `pid` is the worker's pid in this namespace."""
        self._header, self._kind = header, header["clock"]
        # A time namespace shifts the kernel's clocks, but not the processor's counter.
        self._ahead_ns = _ahead_ns(pid) if self._kind == _reader.CLOCK_MONOTONIC else 0

    def now(self) -> Now:
        """Return the length of the worker's tick, and the current value of its clock.

        The length is measured over the worker's whole life, from the pair of clock values in the header to a pair read
        now. If the pair in the header is too recent or implausible (for example, from another time namespace), the
        length is the one that this process measures for itself.
        """
        ticks, ns = _reader.clock_pair(self._kind)
        if self._kind == _reader.CLOCK_MONOTONIC:
            return Now(1.0, self._shifted(ticks))
        past_ticks, past_ns = ticks - self._header["anchor_ticks"], ns - self._header["anchor_ns"]
        own = _own_tick_ns(self._kind)
        if past_ticks > 0 and past_ns > _SHORTEST_BASELINE_NS:
            tick_ns = past_ns / past_ticks
            if _PLAUSIBLE_TICK_NS[0] < tick_ns < _PLAUSIBLE_TICK_NS[1] and abs(tick_ns / own - 1) < _UNLIKE:
                return Now(tick_ns, ticks)
        return Now(own, ticks)

    def _shifted(self, ns: int) -> int | None:
        """Convert a time of this process to the worker's clock; None if unknown or if the time is implausible."""
        if self._ahead_ns is not None:
            return ns + self._ahead_ns
        age_ns = ns - self._header["anchor_ticks"]
        oldest_ns = (time.time_ns() - self._header["started_ns"]) * (1 + _UNLIKE) + SECOND
        return ns if 0 <= age_ns <= oldest_ns else None


def _ahead_ns(pid: int | None) -> int | None:
    """Return by how much a process's monotonic clocks are ahead of those of this process; None if unknown."""
    if not pid or not _knows_our_pids():
        return None
    ours, theirs = _offset_ns("self"), _offset_ns(str(pid))
    if ours is None:
        return 0  # a kernel without time namespaces
    return None if theirs is None else theirs - ours


def _knows_our_pids() -> bool:
    """Whether /proc belongs to this pid namespace. In another namespace, the same pid refers to a different process."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _offset_ns(process: str) -> int | None:
    """Return by how much a process's monotonic clocks are ahead of the machine's monotonic clocks."""
    try:
        with open(f"/proc/{process}/timens_offsets") as file:
            _, seconds, ns = next(line for line in file if line.startswith("monotonic")).split()
        return int(seconds) * SECOND + int(ns)
    except (OSError, StopIteration, ValueError):
        return None


# A tick is measured over at least 10 ms. The first pair of clock values is read at import, so that the first
# measurement usually need not wait.
_own_pairs = {_reader.CLOCK_TSC: _reader.clock_pair(_reader.CLOCK_TSC)}


def _own_tick_ns(kind: int) -> float:
    """Measure the length of a tick.

    The measurement starts at this process's first pair of clock values. If that pair is less than 10 ms old, wait until
    it is 10 ms old.
    """
    first = _own_pairs.setdefault(kind, _reader.clock_pair(kind))
    now = _reader.clock_pair(kind)
    if now[0] < first[0]:  # the counter went back, for example after a suspend: start again
        first = _own_pairs[kind] = now
    while now[1] - first[1] < _SHORTEST_BASELINE_NS:
        now = _reader.clock_pair(kind)
    return (now[1] - first[1]) / (now[0] - first[0])
