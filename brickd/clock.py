"""The worker's clock: how long its ticks are, and what it shows now.

Owns: the conversion of ticks, and which of a worker's words about its clock are believed. Must not know: segments.
Invariant: whatever a header says, a tick has a plausible length.
"""

from __future__ import annotations

from brickd import _reader

_PLAUSIBLE_TICK_NS = (0.05, 50.0)  # 20 GHz to 20 MHz
_SHORTEST_BASELINE_NS = 10_000_000


def clock(header: _reader.Header) -> tuple[float, int]:
    """The length of the worker's tick, and the worker's clock now.

    The baseline is the worker's whole life: its first pair against one taken now. A first pair that cannot be (of
    another time namespace, say) is not believed, and a younger worker's baseline is too short: then this process
    measures for itself.
    """
    kind = header["clock"]
    ticks, ns = _reader.clock_pair(kind)
    if kind == _reader.CLOCK_MONOTONIC:
        return 1.0, ticks
    past_ticks, past_ns = ticks - header["anchor_ticks"], ns - header["anchor_ns"]
    own = _own_tick_ns(kind)
    if past_ticks > 0 and past_ns > _SHORTEST_BASELINE_NS:
        tick_ns = past_ns / past_ticks
        if _PLAUSIBLE_TICK_NS[0] < tick_ns < _PLAUSIBLE_TICK_NS[1] and abs(tick_ns / own - 1) < 0.001:
            return tick_ns, ticks
    return own, ticks


# The first one now, so that the 10 ms have passed by the time that it is wanted.
_own_pairs = {_reader.CLOCK_TSC: _reader.clock_pair(_reader.CLOCK_TSC)}


def _own_tick_ns(kind: int) -> float:
    """This process's own measure, over a baseline that grows with its age and is never shorter than 10 ms."""
    first = _own_pairs.setdefault(kind, _reader.clock_pair(kind))
    now = _reader.clock_pair(kind)
    if now[0] < first[0]:  # a counter that went back, as after a suspend: a new baseline
        first = _own_pairs[kind] = now
    while now[1] - first[1] < _SHORTEST_BASELINE_NS:
        now = _reader.clock_pair(kind)
    return (now[1] - first[1]) / (now[0] - first[0])
