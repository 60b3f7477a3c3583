"""The totals of each brick and of each category over all workers.

On request, the totals of each brick are split by worker, service or layer. Owns: the totals of a brick, and which
worker has the largest mean. Must not know: files, states of workers, screens. Invariants: The times of all categories
add up to the recorded time. The total time of a brick is never less than its self time. The rates of a kernel are
computed from the amounts of its launches only if the times of all launches are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from brickd.base.units import or_none
from brickd.model.summary_fold import SummaryFold
from brickd.model.workers import Worker
from brickd.query.queries import By
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading

_Key = tuple[str, str | int | None, bool]


class BrickTotals(NamedTuple):
    """The totals of one brick over all workers, or over one group of workers.

    Attributes:
        category: the first category that a worker declared, or 'other'.
        group: the worker, the service or the layer (None outside of layers); None without grouping.
        bounded: whether the times are only upper bounds. The time until a sync is divided among the work before the
            sync, and each part is an upper bound.
        latency: for a bounded brick, the times from each start to the sync.
        worst_worker: the worker with the largest mean.
    """

    name: str
    category: str
    group: str | int | None
    bounded: bool
    row: _reader.Row
    latency: _reader.Row | None
    worst_worker: str

    def figure(self, key: str) -> Any:
        """Return one value of the document, without the others. It must not depend on the period."""
        if key == "name":
            return self.name
        return round(self.row[key], 4 if key == "spread" else None)  # type: ignore[literal-required]

    def document(self, by: By | None = None, over_ns: int | None = None, *, summed: bool = False) -> dict[str, Any]:
        """Return the totals as JSON.

        For a window, `over_ns` is its length, and there is no shortest and no longest span.
        """
        row = self.row
        times = ("total", "self", "mean", "min", "max", "p50", "p90", "p95", "p99", "p999")
        windowed = over_ns is not None
        return {
            "name": self.name,
            "category": self.category,
            **({by: self.group} if by else {}),
            "count": row["count"],
            **{f"{time}_ns": round(row[f"{time}_ns"]) for time in times},  # type: ignore[literal-required]
            **(dict.fromkeys(("min_ns", "max_ns")) if windowed else {}),
            "cv": round(row["deviation_ns"] / row["mean_ns"], 4) if row["mean_ns"] else None,
            "elements": row["elements"],
            "bytes": row["bytes"],
            "flops": round(row["flops"]),
            "count_per_second": per_second(row["count"], over_ns),
            "elements_per_second": per_second(row["elements"], over_ns),
            "elements_per_second_in_brick": per_second(row["elements"], row["total_ns"]),
            "flops_per_second_in_brick": per_second(row["flops"], row["total_ns"]),
            "flops_per_byte": round(row["flops"] / row["bytes"], 4) if row["flops"] and row["bytes"] else None,
            "bounded": self.bounded,
            "latency_to_sync_mean_ns": None if self.latency is None else round(self.latency["mean_ns"]),
            "latency_to_sync_max_ns": None if self.latency is None or windowed else round(self.latency["max_ns"]),
            "worst_worker": None if summed else self.worst_worker,
            "spread": None if summed else round(row["spread"], 4),
        }


def bricks(workers: Iterable[Worker], by: By | None = None) -> list[BrickTotals]:
    """Return every recorded brick, the largest self time first."""
    fold: SummaryFold[_Key] = SummaryFold()
    latencies: SummaryFold[_Key] = SummaryFold()
    categories: dict[str, str] = {}
    workers = list(workers)
    # if several means are equal, the worker whose name sorts last is the worst
    names = sorted(worker.name for worker in workers)
    numbers = {name: number for number, name in enumerate(names)}
    for worker in workers:
        key_of, group = _keyed(worker, by, categories)
        fold.add(worker.reading, key_of, group, numbers[worker.name])
        if worker.reading.latency:
            latencies.add(_of_latencies(worker.reading), key_of, group)
    launched = _launched(workers, categories, by)
    latency_of = {key: latencies.row(number) for number, key in enumerate(latencies.keys)}
    result = []
    for number, key in enumerate(fold.keys):
        name, part, bounded = key
        row = fold.row(number)
        if row["count"]:
            # In a recursive brick, the outermost span may still be open. That span adds its total only at its end, but
            # the spans inside it have already added their self times.
            row["total_ns"] = max(row["total_ns"], row["self_ns"])
            launches = launched.get((name, part)) if not bounded else None
            # If the row also has other spans, its time is not the time of the launches alone.
            if launches is not None and row["count"] == launches.timed >= launches.row["count"]:
                row["elements"] += launches.row["elements"]
                row["bytes"] += launches.row["bytes"]
                row["flops"] += launches.row["flops"]
            latency, worst = latency_of[key] if bounded else None, names[row["worst"]]
            result.append(BrickTotals(name, categories[name], part, bounded, row, latency, worst))
    # Times are compared in whole nanoseconds, as the screen shows them. Two readings of the same spans may differ by a
    # fraction of a nanosecond, and this must not change the order. If times are equal, spans outside of layers (None)
    # come first.
    return sorted(result, key=lambda b: (-round(b.row["self_ns"]), b.name, b.bounded, b.group is not None, b.group))


@dataclass(slots=True)
class _Launched:
    """The totals of a kernel's launches. `timed` is the number of launches whose time is known."""

    row: _reader.Row
    timed: int = 0


def _launched(
    workers: Iterable[Worker], categories: dict[str, str], by: By | None
) -> dict[tuple[str, str | int | None], _Launched]:
    """Return the launches of each kernel, keyed by name and group."""
    fold: SummaryFold[tuple[str, str | int | None, int]] = SummaryFold(marks=True)
    launching: dict[int, bool] = {}  # by the id of the table of paths: most workers of a service have the same one
    for worker in workers:
        reading, table = worker.reading, id(worker.reading.paths)
        if table not in launching:
            launching[table] = any(path is not None and path.unit == _reader.UNIT_LAUNCHED for path in reading.paths)
        if launching[table]:
            key_of, group = _keyed(worker, by, categories)
            fold.add(reading, _with_unit(key_of), group)
    rows = {key: fold.row(number) for number, key in enumerate(fold.keys)}
    found = {key[:2]: _Launched(row) for key, row in rows.items() if key[2] == _reader.UNIT_LAUNCHED}
    for (name, part, unit), row in rows.items():
        if unit in (_reader.UNIT_NS, _reader.UNIT_DEFERRED) and (name, part) in found:
            found[name, part].timed += row["count"]
    return found


def _with_unit(key_of: Callable[[CallPath, int], _Key]) -> Callable[[CallPath, int], tuple[str, str | int | None, int]]:
    return lambda path, above: (*key_of(path, above)[:2], path.unit)


def _of_latencies(reading: Reading) -> Reading:
    """Return a copy of the reading in which the latencies take the place of the totals."""
    return replace(reading, summaries=bytes(reading.latency).ljust(len(reading.paths) * _reader.SUMMARY_BYTES, b"\0"))


def _keyed(
    worker: Worker, by: By | None, categories: dict[str, str]
) -> tuple[Callable[[CallPath, int], _Key], str | None]:
    """Return two things: a function that maps a path to its key, and the group, on which the keys depend as well."""
    name_of = names_in(worker.reading, categories)
    group = {"worker": worker.name, "service": worker.service}.get(by or "")

    def key_of(path: CallPath, _: int) -> _Key:
        return name_of(path.name), or_none(path.layer) if by == "layer" else group, path.unit == _reader.UNIT_BOUND

    return key_of, group


def names_in(reading: Reading, categories: dict[str, str]) -> Callable[[int], str]:
    """Return a function that maps the id of a name to its text, and that records the first category of each name."""
    known: dict[int, str] = {}

    def name_of(number: int) -> str:
        name = known.get(number)
        if name is None:
            name = known[number] = reading.name(number)
            if categories.get(name, "other") == "other":
                categories[name] = reading.category(number)
        return name

    return name_of


def per_second(amount: float, time_ns: float | None) -> float | None:
    """Return an amount per second; None if the amount or the time is zero."""
    return round(amount / time_ns * 1e9, 1) if amount and time_ns else None


def percent_of(part: float, whole: float) -> float:
    """Return a percentage with four digits, so that a small part is never 0; return 0 if the whole is 0."""
    return float(f"{100 * part / whole:.4g}") if whole else 0.0


def categories(of: Iterable[BrickTotals]) -> list[dict[str, Any]]:
    """Return the self times by category, which add up to 100 percent of the recorded time."""
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, float] = defaultdict(float)
    for brick in of:
        counts[brick.category] += brick.row["count"]
        times[brick.category] += brick.row["self_ns"]
    whole = sum(times.values())
    return [
        {"name": name, "count": counts[name], "total_ns": round(time), "percent": percent_of(time, whole)}
        for name, time in sorted(times.items(), key=lambda item: (-item[1], item[0]))
    ]
