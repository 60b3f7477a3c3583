"""Windows: the recent work, as the difference of two readings of the totals.

Owns: which snapshots are kept, and which totals are subtracted for a window. Must not know: callers, files, screens.
Invariants: The content of a window was recorded within the time of the window. A window does not lose work if a worker
dies, is merged into a sum, continues under another uuid or is forgotten. If the totals of a worker at the beginning of
a window are unknown, the window has only the worker's work after the first snapshot that has its totals.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from brickd.model.survey_snapshot import Snapshot, without_lanes
from brickd.model.worker_origins import Origin
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.memory_budget import MIB, kept_of, packed_size
from brickd.shm.reading_sums import same_rows
from brickd.shm.segment_copy import Reading

SLOTS = 6
# Above this limit, fewer snapshots are kept, so windows are shorter. 64 workers, each with 256 paths of the same names,
# take 12 MB.
KEPT_BYTES = 64 * MIB
# The limit of the unpacked totals that are subtracted from a sum. If they are larger, they are treated as unknown. 64
# workers with 1,024 paths each, all merged within a minute, take 72 MiB.
BASES_BYTES = 96 * MIB


@dataclass(frozen=True, slots=True)
class Window:
    """The work of workers within a period. Minimum and maximum are known only as ranges."""

    workers: list[Worker]
    length_ns: int


class Windows:
    """The snapshots of the last minute. One thread adds snapshots; any thread may request windows."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque(maxlen=SLOTS + 1)
        self._lock = threading.Lock()

    def take(self, snapshot: Snapshot) -> None:
        """Keep the next snapshot."""
        with self._lock:
            self._kept.append(without_lanes(snapshot))
            while len(self._kept) > 1 and self._bytes() > KEPT_BYTES:
                self._kept.popleft()

    def _bytes(self) -> int:
        readings = (worker.reading for each in self._kept for worker in each.survey.workers)
        return sum(kept_of(readings, packed_size))

    def over(self, of: Sequence[Worker], now_ns: int, length_ns: int) -> Window | None:
        """Return the work of the last `length_ns`, counted from the snapshot that is nearest to its beginning.

        The window is shorter if no snapshot is old enough. Return None if there is no snapshot.
        """
        with self._lock:
            snapshots = [each for each in self._kept if each.now_ns < now_ns]
        if not snapshots:
            return None
        began = min(snapshots, key=lambda each: abs(now_ns - each.now_ns - length_ns))
        workers = since(snapshots[snapshots.index(began) :], of)
        return Window(list(workers), now_ns - began.now_ns)


def since(began: Sequence[Snapshot], of: Iterable[Worker]) -> Iterator[Worker]:
    """Yield the workers with their work since the first of these snapshots.

    If that snapshot does not have a worker's totals, the work counts from the next snapshot that has them. Unknown
    workers are omitted.
    """
    known: list[_Before] = []

    def bases(worker: Worker) -> list[Reading] | None:
        for number, snapshot in enumerate(began):
            if number == len(known):
                known.append(_Before(snapshot))
            if (found := known[number].bases(worker)) is not None:
                return found
        return None

    for worker in of:
        if (found := bases(worker)) is not None:
            yield worker._replace(reading=_without(worker.reading, found))


class _Before:
    def __init__(self, began: Snapshot) -> None:
        self._workers = {worker.reading.uuid: worker for worker in began.survey.workers}
        self._lost = {uuid[:16]: worker.reading for uuid, worker in self._workers.items()}
        self._clocks = began.survey.clocks

    def bases(self, worker: Worker) -> list[Reading] | None:
        """Return the totals that a worker already had at the time of the snapshot; None if unknown."""
        reading = worker.reading
        then = self._workers.get(reading.uuid)
        origins = worker.added if worker.together > 1 else (Origin.of(reading),)
        came = worker.together - (0 if then is None else then.together)
        if not 0 <= came <= len(origins):
            return None
        # each reading counts only once, even if a file repeats the reading
        found = {} if then is None else {then.reading.uuid: then.reading}
        for origin in origins[len(origins) - came :]:
            if (base := self._base(origin)) is not None:
                found[base.uuid] = base
            elif not self._came_later(origin, reading.header["clock"]):
                return None
        if len(found) > 1 and sum(len(each.summaries) for each in found.values()) > BASES_BYTES:
            return None
        return list(found.values())

    def _base(self, origin: Origin) -> Reading | None:
        """Return the earlier totals of a worker.

        They are under the uuid of its segment, or else of its lost segment.
        """
        if (worker := self._workers.get(origin.uuid)) is not None:
            return worker.reading
        return self._lost.get(origin.took.to_bytes(8, "little").hex()) if origin.took else None

    def _came_later(self, origin: Origin, clock: int) -> bool:
        """Whether both clocks show that the worker's segment was created after the snapshot.

        One clock is not enough: the processor's counter may restart while the machine is suspended, and in another time
        namespace the kernel's clock differs.
        """
        if origin.took or clock not in self._clocks:
            return False
        ticks, ns = self._clocks[clock]
        return origin.anchor_ticks >= ticks and origin.anchor_ns >= ns


def _without(reading: Reading, bases: Iterable[Reading]) -> Reading:
    summaries, latency = _reader.Summaries(reading.summaries), _reader.Summaries(reading.latency)
    for base in bases:
        rows = _rows(base, reading)
        summaries.subtract(base.summaries, rows)
        latency.subtract(base.latency, rows[: len(base.latency) // _reader.SUMMARY_BYTES])
    return replace(reading, summaries=summaries.packed(), latency=latency.packed())


def _rows(of: Reading, within: Reading) -> array[int]:
    """Return, for each path of a reading, its index in another reading; -1 if the other reading does not have it."""
    count = len(of.paths)
    if within.paths[:count] == of.paths and within.names[: len(of.names)] == of.names:
        return same_rows(count)
    places = {
        (path.parent, within.name(path.name), path.layer, path.unit): number
        for number, path in reversed(list(enumerate(within.paths)))
        if path is not None
    }
    rows = array("i", [-1]) * count
    for number, path in enumerate(of.paths):
        if path is not None and path.parent < number:
            parent = rows[path.parent] if path.parent >= 0 else -1
            rows[number] = places.get((parent, of.name(path.name), path.layer, path.unit), -1)
    return rows
