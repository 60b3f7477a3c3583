"""Stuck workers: a span is open much longer than usual, or the process is stopped.

Owns: how long a lane has not recorded anything, and when that is too long. Must not know: how the snapshots are taken,
screens. Invariants: A lane with a new record is not stuck. A span of a category for waiting is never stuck. Workers
that are stuck in the same place share one alarm.

The 99th percentile (p99) of a span's duration is taken from its place in this worker or, failing that, in any worker of
the service. A span or worker is stuck in these cases:

- The p99 is known: after the p99 multiplied by `stuck_times`, but not before `stuck_min`.
- No worker has completed the span, and nothing was recorded inside it: after `stuck_first`, if the worker records
  nothing in any lane. So a first step that hangs is stuck, and a long start is not.
- No worker has completed the span, but spans inside it were completed: never. Such a span is the loop of a worker that
  waits for work.
- The process is stopped (SIGSTOP, a debugger): after `stuck_min`, with or without open spans.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from brickd.analysis.timing.alarms import Alarm
from brickd.analysis.timing.hang import LanePosition
from brickd.analysis.timing.worker_series import UNJUDGED
from brickd.base.thresholds import Thresholds
from brickd.base.units import duration, listed
from brickd.model.survey_snapshot import Snapshot
from brickd.model.worker_names import as_argument
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.open_spans import Open, youngest
from brickd.shm.segment_copy import Reading

_PATHS = 0xFFFF  # the bits of an open word that contain the number of the path


class _Quiet(NamedTuple):
    """The counters of a lane, which change when a span begins or ends, and the time of the last change."""

    activity: tuple[int, ...]
    since_ns: int


class _Stuck(NamedTuple):
    """A stuck worker; `place` is None if its process is stopped."""

    worker: str
    place: LanePosition | None
    for_ns: int
    p99_ns: float | None


class Stuck:
    """Finds stuck workers in consecutive snapshots."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, int], _Quiet] = {}
        self._stopped: dict[str, int] = {}  # since when each process is stopped, by uuid

    def look(self, snapshot: Snapshot, thresholds: Thresholds) -> list[Alarm]:
        """Return the alarms of a snapshot."""
        alive = [worker for worker in snapshot.survey.workers if worker.reading.alive]
        self._note(alive, snapshot.now_ns)
        services: dict[str, list[Worker]] = {}
        for worker in alive:
            services.setdefault(worker.service, []).append(worker)
        return [
            alarm
            for service, workers in services.items()
            for alarm in _alarms(service, self._found(workers, snapshot.now_ns, thresholds))
        ]

    def _note(self, alive: Sequence[Worker], now_ns: int) -> None:
        lanes: dict[tuple[str, int], _Quiet] = {}
        stopped: dict[str, int] = {}
        for worker in alive:
            moved = False
            for number, lane, _ in worker.reading.lanes:
                if not lane["begun"]:
                    continue
                key = worker.reading.uuid, number
                activity = lane["begun"], lane["summarized"], lane["open"], lane["current"]
                before = self._lanes.get(key)
                same = before is not None and before.activity == activity
                lanes[key] = before if before is not None and same else _Quiet(activity, now_ns)
                moved |= not same
            if worker.usage is not None and worker.usage.stopped:
                since_ns = self._stopped.get(worker.reading.uuid, now_ns)
                stopped[worker.reading.uuid] = now_ns if moved else since_ns
        self._lanes, self._stopped = lanes, stopped

    def _found(self, workers: Sequence[Worker], now_ns: int, thresholds: Thresholds) -> Iterator[_Stuck]:
        least_ns, service = thresholds.ns("stuck_min"), _Service(workers)
        for worker in workers:
            uuid = worker.reading.uuid
            if (since_ns := self._stopped.get(uuid)) is not None:
                if now_ns - since_ns >= least_ns:
                    yield _Stuck(worker.name, None, now_ns - since_ns, None)
                continue
            quiet_ns = {
                number: now_ns - self._lanes[uuid, number].since_ns
                for number, lane, _ in worker.reading.lanes
                if lane["begun"]
            }
            all_quiet_ns = min(quiet_ns.values(), default=0)
            for number, lane, _ in worker.reading.lanes:
                if quiet_ns.get(number, 0) < least_ns or not lane["current"]:
                    continue
                span = youngest(worker.reading, lane)
                if span is None or span.since_ns is None or _waits(worker.reading, lane["current"] & _PATHS):
                    continue
                # A span inside this one may have ended recently, so the time begins with the lane's last record.
                for_ns = min(span.since_ns, quiet_ns[number])
                p99_ns = _quantile(worker.reading, lane["current"] & _PATHS)
                if p99_ns is None:
                    p99_ns = service.p99_ns(span)
                if p99_ns is not None:
                    most_ns = max(least_ns, thresholds.stuck_times * p99_ns)
                elif _has_children(worker.reading, lane["current"] & _PATHS):
                    continue
                else:
                    most_ns, for_ns = thresholds.ns("stuck_first"), min(for_ns, all_quiet_ns)
                if for_ns >= max(most_ns, least_ns):
                    place = LanePosition(span.brick, span.layer, span.path[-2] if len(span.path) > 1 else None)
                    yield _Stuck(worker.name, place, for_ns, p99_ns)


def _waits(reading: Reading, number: int) -> bool:
    path = reading.paths[number]
    return path is not None and reading.category(path.name).casefold() in UNJUDGED


class _Service:
    """The largest p99 of each place among a service's workers, computed on demand."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._p99_ns: dict[tuple[tuple[str, ...], int | None], float | None] = {}

    def p99_ns(self, span: Open) -> float | None:
        """Return the p99 of the place of a span; None if no worker has completed a span there."""
        place = span.path, span.layer
        if place not in self._p99_ns:
            found = (_quantile(each.reading, _number(each.reading, span)) for each in self._workers)
            self._p99_ns[place] = max((each for each in found if each is not None), default=None)
        return self._p99_ns[place]


def _number(reading: Reading, span: Open) -> int:
    """Return the index of the path with these names in another worker; -1 if there is none."""
    numbers: dict[int, dict[str, list[int]]] = {}
    for number, path in enumerate(reading.paths):
        if path is not None and path.holds_spans:
            numbers.setdefault(path.parent, {}).setdefault(reading.name(path.name), []).append(number)
    found = [-1]
    for name in span.path:
        found = [each for parent in found for each in numbers.get(parent, {}).get(name, ())]
    layer = -1 if span.layer is None else span.layer
    same = (each for each in found if (path := reading.paths[each]) and not path.marks and path.layer == layer)
    return next(same, -1)


def _quantile(reading: Reading, number: int) -> float | None:
    """Return the p99 of a path in nanoseconds; None if no span of this path was completed."""
    if number < 0:
        return None
    count = len(reading.paths)
    rows, parents = array("i", [-1]) * count, array("i", [-1]) * count
    rows[number] = 0
    fold = _reader.Fold()
    fold.add(reading.summaries, rows, parents, bytes([_reader.PART_OUTER]) * count, reading.tick_ns)
    row = fold.row(0) if fold.sums() else None
    return row["p99_ns"] if row is not None and row["count"] else None


def _has_children(reading: Reading, number: int) -> bool:
    """Whether there is a path directly below this one. A path is created by its first span."""
    return any(path is not None and path.parent == number and path.holds_spans for path in reading.paths)


def _alarms(service: str, found: Iterable[_Stuck]) -> Iterator[Alarm]:
    places: dict[LanePosition | None, dict[str, _Stuck]] = {}
    for each in found:
        workers = places.setdefault(each.place, {})
        workers[each.worker] = max(each, workers.get(each.worker, each), key=lambda one: one.for_ns)
    for place, stuck in places.items():
        names = tuple(stuck)
        least = min(stuck.values(), key=lambda one: one.for_ns)
        are, its = ("are", "their processes have") if len(names) > 1 else ("is", "its process has")
        if place is None:
            why = f"{its} been stopped (SIGSTOP, or a debugger) for at least {duration(least.for_ns)}"
        else:
            where = place.brick if place.layer is None else f"{place.brick} (layer {place.layer})"
            usual = "was never completed" if least.p99_ns is None else f"has a p99 of {duration(least.p99_ns)}"
            why = f"in {where} for {duration(least.for_ns)}; this brick {usual}"
        text = f"{listed(names)} {are} stuck{':' if place is None else ''} {why}"
        subject = "" if place is None else f"{place.within}/{place.brick}/{place.layer}"
        yield Alarm("stuck", service, names, subject or "stopped", text, f"brickd hang {as_argument(service)}")
