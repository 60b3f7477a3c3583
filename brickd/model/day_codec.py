"""The stored format of a slot of the last day.

Owns: the format, and which call paths are left out of a slot that is too large. Must not know: files, how a slot is
made. Invariants: Decoding reverses encoding. Call paths that are left out are added to the path `other` and counted.
"""

from __future__ import annotations

import functools
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from brickd.base.json_values import composed, document, listed, number, plain, require, text, unicode, validating, whole
from brickd.model.day_slots import BUCKETS, WORKERS_MAX, DaySlot, WorkerWork, counts_of, limited
from brickd.model.retained_workers import RetainedTotals
from brickd.shm import _reader, segment_codec
from brickd.shm.copy_checks import TICK_NS_MAX
from brickd.shm.reading_sums import added
from brickd.shm.segment_copy import CallPath, Reading

_KEPT_PATHS = (4096, 1024, 256, 64, 0)  # tried in this order, until a slot fits
_BODY_MAX = 1 << 24
_LEVEL = 1  # of compression


def encode(of: DaySlot, most: int) -> bytes:
    """Encode a slot in at most `most` bytes. If necessary, leave out call paths or even the whole content."""
    for kept in _KEPT_PATHS:
        totals, folded = dict[str, RetainedTotals](), of.folded
        for key, each in of.totals.items():
            reading, lost = _folded(each.reading, kept)
            totals[key] = RetainedTotals(each.name, reading, each.workers)
            folded += lost
        body = _body(replace(of, totals=totals, folded=folded))
        if len(body) <= most:
            return body
    paths = sum(len(each.reading.paths) for each in of.totals.values())
    return _body(replace(of, totals={}, workers={}, lost={}, folded=of.folded + paths))


def _body(of: DaySlot) -> bytes:
    return zlib.compress(_text(of).encode(), _LEVEL)


def _text(of: DaySlot) -> str:
    rows = [[work.spans, work.self_ns, work.tick_ns, _sparse(work.histogram)] for work in of.workers.values()]
    tables = segment_codec.SharedTables.over([each.reading for each in of.totals.values()]).texts()
    return composed(
        {
            "totals": composed({key: each.text() for key, each in of.totals.items()}),
            "workers": plain([[service, name, work.lost] for (service, name), work in of.workers.items()]),
            "folded": plain(of.folded),
            "covered_ns": plain(of.covered_ns),
            # These two are texts inside this text. So equal tables are decoded only once, and the work of workers is
            # decoded only when it is needed.
            "tables": plain(composed(tables)),
            "work": plain(plain(rows)),
        }
    )


def decode(body: bytes, began_ns: int, ended_ns: int, *, work: bool = True) -> DaySlot:
    """Decode the output of `encode`. The work of each worker is decoded only if `work` is true.

    ValueError: the slot is invalid.
    """
    with validating():
        found = document(zlib.decompressobj().decompress(body, _BODY_MAX), _BODY_MAX)
        tables = _tables(text(found["tables"]))
        totals = {
            unicode(key): RetainedTotals(unicode(name), segment_codec.reading(reading, tables), whole(workers, 1))
            for key, (name, reading, workers) in found["totals"].items()
        }
        workers = listed(found["workers"], WORKERS_MAX + 1)
        lost = {(unicode(service), unicode(name)): whole(count) for service, name, count in workers}
        require(len(lost) == len(workers), "each worker once", workers)
        covered_ns = whole(found["covered_ns"])
        rows = listed(document(text(found["work"]).encode(), _BODY_MAX), len(lost)) if work else []
        require(not work or len(rows) == len(lost), f"{len(lost)} workers", len(rows))
        return DaySlot(
            began_ns,
            ended_ns,
            totals,
            dict(zip(lost, map(_work_of, rows, lost.values()), strict=False)),
            lost,
            whole(found["folded"]),
            covered_ns,
            covered_ns,
        )


@functools.lru_cache(maxsize=8)
def _tables(text: str) -> segment_codec.SharedTables:
    """Decode tables. Most slots of a day have equal tables."""
    return segment_codec.SharedTables.of(document(text.encode(), _BODY_MAX))


def _work_of(row: Any, lost: int) -> WorkerWork:
    spans, self_ns, tick_ns, histogram = row
    require(0 < number(tick_ns) < TICK_NS_MAX, "a tick's ns", tick_ns)
    return WorkerWork(whole(spans), number(self_ns), lost, float(tick_ns), _dense(histogram))


def _sparse(histogram: Iterable[int]) -> list[int]:
    """The buckets that are not empty, each followed by its count."""
    return [part for bucket, count in enumerate(histogram) if count for part in (bucket, count)]


def _dense(sparse: Any) -> tuple[int, ...]:
    histogram, counts = [0] * BUCKETS, sparse[1::2]
    for bucket, count in zip(sparse[::2], counts, strict=True):
        histogram[bucket] = count
    require(set(map(type, sparse)) <= {int} and min(sparse, default=0) >= 0, "whole numbers", sparse)
    return limited(histogram)


# ---- fewer paths


def _folded(reading: Reading, most: int) -> tuple[Reading, int]:
    """Return a copy of the reading that has only about `most` of the recorded paths, and how many paths it lacks.

    The paths with the most time are kept. The times of the others are added to path 0, `other`, if they are in ticks.
    Times in other units are dropped, because there is no such path for them.
    """
    counts = counts_of(reading)
    totals = memoryview(bytes(reading.summaries)).cast("Q")[1 :: _reader.SUMMARY_BYTES // 8]
    deferred = {path[:3]: n for n, path in enumerate(reading.paths) if path and path.unit == _reader.UNIT_DEFERRED}
    paths = list(enumerate(reading.paths[: len(counts)]))
    recorded = [(path.unit == _reader.UNIT_TICKS, -totals[n], n) for n, path in paths if path is not None and counts[n]]
    if len(recorded) == len(paths) - (not counts[0]) and len(recorded) <= most:
        return reading, 0
    kept = {0}
    for *_, place in sorted(recorded)[:most]:
        above = place
        while above >= 0 and above not in kept and (path := reading.paths[above]) is not None:
            kept.add(above)
            if path.unit == _reader.UNIT_BOUND and path[:3] in deferred:
                kept.add(deferred[path[:3]])  # a bound needs the path of what it bounds
            above = path.parent
    rows = array("i", (n if n in kept else _place(path) for n, path in enumerate(reading.paths)))
    summaries = _reader.Summaries()
    summaries.merge(reading.summaries, rows[: len(counts)])
    few = replace(
        reading,
        paths=[path if n in kept else None for n, path in enumerate(reading.paths)],
        summaries=summaries.tobytes(),
    )
    nothing = replace(
        reading, names=reading.names[:1], paths=reading.paths[:1], summaries=bytes(_reader.SUMMARY_BYTES), latency=b""
    )
    return added(nothing, few), sum(n not in kept for *_, n in recorded)


def _place(path: CallPath | None) -> int:
    return 0 if path is not None and path.unit == _reader.UNIT_TICKS else -1
