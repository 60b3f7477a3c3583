"""What was recorded lately: differences of two looks at the totals.

Owns: which snapshots are kept, which difference a window is, whose totals it is taken from. Must not know: who asks,
files, screens. Invariants: what a window holds was recorded in the time that it names; a worker that dies, or goes on
under another uuid, takes nothing out of it, nor does one that was forgotten; of whom it is not known what he had
recorded before, nothing is in it.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from brickd import _reader
from brickd.memory import OTHERS, Gone
from brickd.reading import Reading
from brickd.snapshot import EVERY_NS, Snapshot
from brickd.workers import Worker

SLOTS = 6
_LATE_NS = EVERY_NS // 2


@dataclass(frozen=True, slots=True)
class Window:
    """What workers recorded within some time.

    Attributes:
        workers: their readings hold what was added in that time; of the shortest and the longest span these say no
            more than between which durations they lie.
        length_ns: how long that is.
    """

    workers: list[Worker]
    length_ns: int


class Windows:
    """The last minute: for one thread that takes snapshots, and any that ask."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque(maxlen=SLOTS + 1)
        self._lock = threading.Lock()

    def take(self, snapshot: Snapshot) -> None:
        """Keep the next one."""
        with self._lock:
            self._kept.append(snapshot)

    def forget(self, dropped: Iterable[Gone], here: Collection[str]) -> None:
        """Go on as if some had never been there: their totals were dropped.

        Args:
            dropped: whose.
            here: the uuids of those that are left, living or dead; who is not, and could have been added up with those
                that were dropped, was.
        """
        readings = [(each.reading, each.workers) for each in dropped]
        uuids = {reading.uuid for reading, _ in readings}
        older = {(reading.service, reading.clock) for reading, workers in readings if workers > 1}

        def stays(reading: Reading) -> bool:
            into = {(service, reading.clock) for service in (reading.service, OTHERS)}
            return reading.uuid in here or not (reading.uuid in uuids or into & older)

        with self._lock:
            for _ in range(len(self._kept)):
                snapshot = self._kept.popleft()
                workers = [worker for worker in snapshot.survey.workers if stays(worker.reading)]
                self._kept.append(replace(snapshot, survey=replace(snapshot.survey, workers=workers)))

    def over(self, everybody: Sequence[Worker], of: Sequence[Worker], now_ns: int, slots: int) -> Window | None:
        """What was recorded up to now.

        Args:
            everybody: all workers there are now.
            of: whose window it is to be.
            now_ns: when now is.
            slots: so many times ten seconds, or nearly: from the snapshot that is nearest to that.

        Returns:
            The window, shorter where nothing older is known; None where nothing is.
        """
        with self._lock:
            snapshots = [each for each in self._kept if each.now_ns < now_ns]
        if not snapshots:
            return None
        began = min(snapshots, key=lambda each: abs(now_ns - each.now_ns - slots * EVERY_NS))
        return Window(since(began, everybody, of, now_ns), now_ns - began.now_ns)


def since(began: Snapshot, everybody: Sequence[Worker], of: Iterable[Worker], now_ns: int) -> list[Worker]:
    """These workers with what they recorded since a snapshot; without those of whom that is not known."""
    bases = _bases(began, everybody)
    result = []
    for worker in of:
        if then := bases.get(worker.reading.uuid):
            result.append(replace(worker, reading=_without(worker.reading, then)))
        elif not _was_there(worker.reading, now_ns - began.now_ns):
            result.append(worker)
    return result


def _bases(began: Snapshot, everybody: Sequence[Worker]) -> dict[str, list[Reading]]:
    """By uuid of those that are here now: what they had recorded before, under this uuid or another."""
    before = {worker.reading.uuid: worker.reading for worker in began.survey.workers}
    lost = {uuid[:16]: uuid for uuid in before}
    bases: dict[str, list[Reading]] = {}
    for worker in everybody:
        uuid = worker.reading.uuid
        had = uuid if uuid in before else lost.get(_took(worker.reading))
        if had is not None and had in before:
            bases[uuid] = [before.pop(had)]
    # Who is not here any more was added to those of its service that went before it.
    older = {(each.service, each.reading.clock): each.reading.uuid for each in everybody if each.together > 1}
    for reading in before.values():
        into = older.get((reading.service, reading.clock)) or older.get((OTHERS, reading.clock))
        if into is not None:
            bases.setdefault(into, []).append(reading)
    return bases


def _took(reading: Reading) -> str:
    """The beginning of the uuid under which its worker was known before it lost its segment."""
    return reading.process["took"].to_bytes(8, "little").hex()


def _was_there(reading: Reading, length_ns: int) -> bool:
    """Whether it lived before the window began, though nobody could read it."""
    if reading.now_ticks is None:
        return False
    age_ns = (reading.now_ticks - reading.header["anchor_ticks"]) * reading.tick_ns
    return age_ns > length_ns + _LATE_NS


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
