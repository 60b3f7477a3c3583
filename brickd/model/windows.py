"""What was recorded recently: differences of two looks at the totals.

Owns: which snapshots are kept, which difference a window is, whose totals it is taken from. Must not know: who asks,
files, screens. Invariants: what a window holds was recorded in the time that it names; a worker that dies, is added up
with others or goes on under another uuid takes nothing out of it, nor does one that was forgotten; of a worker with
unknown earlier totals, a window holds only what came after a look that knew them.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from brickd.model.survey_snapshot import EVERY_NS, Snapshot
from brickd.model.worker_origins import Origin
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.memory_budget import MIB, kept_of, packed_size
from brickd.shm.segment_copy import Reading

SLOTS = 6
# Of fewer snapshots windows are shorter. 64 workers that use 256 paths each take 12 MB, and share their names.
KEPT_BYTES = 64 * MIB
# What is subtracted from a sum of workers, unpacked: 64 that came within a minute with 1,024 paths each have 72 MiB.
BASES_BYTES = 96 * MIB


@dataclass(frozen=True, slots=True)
class Window:
    """What workers recorded within some time; minimum and maximum are known as ranges only."""

    workers: list[Worker]
    length_ns: int


class Windows:
    """The last minute: for one thread that takes snapshots, and any that ask."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque(maxlen=SLOTS + 1)
        self._lock = threading.Lock()

    def take(self, snapshot: Snapshot) -> None:
        """Keep the next one."""
        # Lanes take much, and a window says nothing of them.
        workers = [replace(each, reading=replace(each.reading, lanes=[])) for each in snapshot.survey.workers]
        with self._lock:
            self._kept.append(replace(snapshot, survey=replace(snapshot.survey, workers=workers)))
            while len(self._kept) > 1 and self._bytes() > KEPT_BYTES:
                self._kept.popleft()

    def _bytes(self) -> int:
        readings = (worker.reading for each in self._kept for worker in each.survey.workers)
        return sum(kept_of(readings, packed_size))

    def over(self, of: Sequence[Worker], now_ns: int, slots: int) -> Window | None:
        """The work of the last `slots` times ten seconds, from the snapshot nearest to that.

        The window is shorter if nothing older is known, and None if nothing is.
        """
        with self._lock:
            snapshots = [each for each in self._kept if each.now_ns < now_ns]
        if not snapshots:
            return None
        began = min(snapshots, key=lambda each: abs(now_ns - each.now_ns - slots * EVERY_NS))
        return Window(since(snapshots[snapshots.index(began) :], of), now_ns - began.now_ns)


def since(began: Sequence[Snapshot], of: Iterable[Worker]) -> list[Worker]:
    """The workers with what they recorded since the first of some snapshots.

    If that does not know a worker, the next one that does counts; workers that none knows are left out.
    """
    known: list[_Before] = []

    def bases(worker: Worker) -> list[Reading] | None:
        for number, snapshot in enumerate(began):
            if number == len(known):
                known.append(_Before(snapshot))
            if (found := known[number].bases(worker)) is not None:
                return found
        return None

    found = ((worker, bases(worker)) for worker in of)
    return [replace(worker, reading=_without(worker.reading, each)) for worker, each in found if each is not None]


class _Before:
    """What was recorded up to a snapshot."""

    def __init__(self, began: Snapshot) -> None:
        self._workers = {worker.reading.uuid: worker for worker in began.survey.workers}
        self._lost = {uuid[:16]: worker.reading for uuid, worker in self._workers.items()}
        self._clocks = began.survey.clocks

    def bases(self, worker: Worker) -> list[Reading] | None:
        """All that a worker's totals hold from before the snapshot; None if that is not known."""
        reading = worker.reading
        then = self._workers.get(reading.uuid)
        origins = worker.added if worker.together > 1 else (Origin.of(reading),)
        came = worker.together - (0 if then is None else then.together)
        if not 0 <= came <= len(origins):
            return None
        found = {} if then is None else {then.reading.uuid: then.reading}  # each once, whatever a file says
        for origin in origins[len(origins) - came :]:
            if (base := self._base(origin)) is not None:
                found[base.uuid] = base
            elif not self._came_later(origin, reading.header["clock"]):
                return None
        if len(found) > 1 and sum(len(each.summaries) for each in found.values()) > BASES_BYTES:
            return None
        return list(found.values())

    def _base(self, origin: Origin) -> Reading | None:
        """The earlier totals of one, under its uuid or that of the segment which it lost."""
        if (worker := self._workers.get(origin.uuid)) is not None:
            return worker.reading
        return self._lost.get(origin.took.to_bytes(8, "little").hex()) if origin.took else None

    def _came_later(self, origin: Origin, clock: int) -> bool:
        """Whether its segment was made after the snapshot by both clocks, without earlier totals.

        A counter of the processor may begin anew while the machine is suspended, and in another time namespace the
        kernel's clock is another.
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
    """For each path of a reading the number that it has in another; -1: none."""
    count = len(of.paths)
    if within.paths[:count] == of.paths and within.names[: len(of.names)] == of.names:
        return array("i", range(count))
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
