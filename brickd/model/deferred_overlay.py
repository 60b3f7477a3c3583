"""A reading of a segment, combined with what the daemon knows about the worker's deferred work.

Owns: the paths of deferred work. Must not know: how times of deferred work are computed, files. Invariants: Measured
time is put on the path under which the worker started the work. Bounded time is on an additional path with another
unit, so a bound is never added to a measurement. The worker's own counts are never replaced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from brickd.model.deferred import Deferred
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading

_SIZE = _reader.SUMMARY_BYTES
_NOTHING = bytes(_SIZE)


class Overlay(NamedTuple):
    """A copy of a worker's deferred work, which can be read while the daemon continues."""

    measured: _reader.Packed
    bound: _reader.Packed
    latency: _reader.Packed
    counts: dict[str, int]


def overlay(deferred: Deferred) -> Overlay | None:
    """Return a copy of the deferred work; None if the worker never deferred work."""
    if not deferred.counts:
        return None
    tables = (deferred.measured.packed(), deferred.bound.packed(), deferred.latency.packed())
    return Overlay(*tables, {**deferred.counts, "pending": deferred.pending})


def laid_over(reading: Reading, over: Overlay | None) -> Reading:
    """Return the reading with the deferred work added."""
    if over is None:
        return reading
    paths, summaries, latency = list(reading.paths), bytearray(reading.summaries), bytearray()
    measured, bounds, latencies = (bytes(table) for table in (over.measured, over.bound, over.latency))
    for number, path in enumerate(reading.paths):
        if path is None or path.unit != _reader.UNIT_DEFERRED:
            continue
        summaries[number * _SIZE : (number + 1) * _SIZE] = _row(measured, number)
        if (bound := _row(bounds, number)) != _NOTHING:
            latency += bytes(len(paths) * _SIZE - len(latency)) + _row(latencies, number)
            paths.append(CallPath(path.parent, path.name, path.layer, _reader.UNIT_BOUND))
            summaries += bound
    return replace(
        reading,
        paths=paths,
        summaries=_reader.Packed(summaries),
        latency=_reader.Packed(latency),
        deferred=dict(over.counts),
    )


def lifted(reading: Reading) -> Deferred:
    """Return the deferred work that `laid_over` put into a reading, which has no waiting starts.

    This is needed if a worker that seemed dead is alive.
    """
    numbers = {path: number for number, path in enumerate(reading.paths) if path is not None}
    summaries, latencies = bytes(reading.summaries), bytes(reading.latency)
    measured, bound, latency = (bytearray(len(reading.paths) * _SIZE) for _ in range(3))
    for path, number in numbers.items():
        if path.unit == _reader.UNIT_DEFERRED:
            _put(measured, number, _row(summaries, number))
        elif path.unit == _reader.UNIT_BOUND:
            deferred = numbers[path._replace(unit=_reader.UNIT_DEFERRED)]
            _put(bound, deferred, _row(summaries, number))
            _put(latency, deferred, _row(latencies, number))
    result = Deferred()
    tables = (_reader.Summaries(table) for table in (measured, bound, latency))
    result.measured, result.bound, result.latency = tables
    result.counts.update({term: n for term, n in reading.deferred.items() if term != "pending"})
    return result


def _put(table: bytearray, number: int, row: bytes) -> None:
    table[number * _SIZE : (number + 1) * _SIZE] = row


def _row(table: bytes, number: int) -> bytes:
    return table[number * _SIZE : (number + 1) * _SIZE].ljust(_SIZE, b"\0")
