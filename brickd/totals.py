"""Totals over workers: by brick, and by category.

Owns: what a brick's totals are, and whose mean is the worst. Must not know: files, states of workers, screens.
Invariant: the categories' times add up to the time that was recorded.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from brickd import _reader
from brickd.fold import Fold
from brickd.segment import Path, Reading
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
    fold: Fold[str] = Fold()
    categories: dict[str, str] = {}
    means: dict[int, list[tuple[float, str]]] = defaultdict(list)
    like: Reading | None = None
    for worker in workers:
        # Workers of one service mostly met the same names and paths in the same order.
        if like is None or (worker.reading.paths, worker.reading.names) != (like.paths, like.names):
            like = worker.reading
            places = fold.places(like, _names(like, categories))
        for number, (count, total_ns, _) in fold.add(worker.reading, places).items():
            means[number].append((total_ns / count, worker.name))
    result = []
    for number, name in enumerate(fold.keys):
        row = fold.row(number)
        if row["count"]:
            worst, who = max(means[number])
            median = statistics.median(mean for mean, _ in means[number])
            result.append(Brick(name, categories[name], row, who, worst / median if median > 0 else 1.0))
    return sorted(result, key=lambda brick: (-brick.row["self_ns"], brick.name))


def _names(reading: Reading, categories: dict[str, str]) -> Callable[[Path, int], str]:
    """Names a path's brick, and notes the first category that was declared for it."""
    known: dict[int, str] = {}

    def name_of(path: Path, _: int) -> str:
        name = known.get(path.name)
        if name is None:
            name = known[path.name] = reading.name(path.name)
            if categories.get(name, "other") == "other":
                categories[name] = reading.category(path.name)
        return name

    return name_of


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
