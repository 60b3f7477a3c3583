"""Totals over workers: by brick, and by category.

Owns: which path counts for which brick, and whose time is whose. Must not know: files, states of workers, screens.
Invariants: self times add up to the time that was recorded, each moment once; a brick's total counts a moment once even
where the brick stands below itself; the order of workers changes nothing.
"""

from __future__ import annotations

import statistics
from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from brickd import _reader
from brickd.segment import Reading
from brickd.workers import Worker


@dataclass(frozen=True, slots=True)
class Brick:
    """What all workers together spent in one brick."""

    name: str
    category: str
    row: _reader.Row
    worst_worker: str
    spread: float

    def document(self) -> dict[str, Any]:
        """As JSON has it: times in whole nanoseconds."""
        row = self.row
        times = ("total", "self", "mean", "min", "max", "p50", "p90", "p99", "p999")
        return {
            "name": self.name,
            "category": self.category,
            "count": row["count"],
            **{f"{time}_ns": round(row[f"{time}_ns"]) for time in times},  # type: ignore[literal-required]
            "elements": row["elements"],
            "bytes": row["bytes"],
            "bounded": False,  # nothing here is a bound: deferred measurements need the daemon
            "worst_worker": self.worst_worker,
            "spread": round(self.spread, 4),
        }


def bricks(workers: Iterable[Worker]) -> list[Brick]:
    """Every brick that was recorded, the largest self time first."""
    fold = _reader.Fold()
    rows: dict[str, int] = {}
    categories: dict[str, str] = {}
    means: dict[int, list[tuple[float, str]]] = defaultdict(list)
    like: Reading | None = None
    for worker in workers:
        # Workers of one service mostly met the same names and paths in the same order.
        if like is None or (worker.reading.paths, worker.reading.names) != (like.paths, like.names):
            like = worker.reading
            of_path, outer = _rows(like, rows, categories)
        shares = fold.add(worker.reading.summaries, of_path, outer, worker.reading.tick_ns)
        for share, (count, total_ns, _) in shares.items():
            means[share].append((total_ns / count, worker.name))
    result = []
    for name, number in rows.items():
        row = fold.row(number)
        if row["count"]:
            worst, who = max(means[number])
            median = statistics.median(mean for mean, _ in means[number])
            result.append(Brick(name, categories[name], row, who, worst / median if median > 0 else 1.0))
    return sorted(result, key=lambda brick: (-brick.row["self_ns"], brick.name))


def _rows(reading: Reading, rows: dict[str, int], categories: dict[str, str]) -> tuple[array[int], bytes]:
    """For each path the row of its brick, and whether no path above it belongs to the same one."""
    of_name: dict[int, int] = {}
    of_path = array("i")
    above: list[int] = []  # by path: the rows of its ancestors and itself, a bit each
    outer = bytearray()
    for path in reading.paths:
        if path is None:
            of_path.append(-1)
            outer.append(0)
            above.append(0)
            continue
        row = of_name.get(path.name)
        if row is None:
            name, category = reading.name(path.name), reading.category(path.name)
            row = of_name[path.name] = rows.setdefault(name, len(rows))
            if categories.get(name, "other") == "other":
                categories[name] = category
        ancestors = above[path.parent] if path.parent >= 0 else 0
        of_path.append(row)
        outer.append(not ancestors >> row & 1)
        above.append(ancestors | 1 << row)
    return of_path, bytes(outer)


def categories(of: Iterable[Brick]) -> list[dict[str, Any]]:
    """Self times by category: they add up to 100 percent of what was recorded."""
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, float] = defaultdict(float)
    for brick in of:
        counts[brick.category] += brick.row["count"]
        times[brick.category] += brick.row["self_ns"]
    whole = sum(times.values())
    return [
        {
            "name": name,
            "count": counts[name],
            "total_ns": round(time),
            "percent": round(100 * time / whole, 2) if whole else 0.0,
        }
        for name, time in sorted(times.items(), key=lambda item: (-item[1], item[0]))
    ]
