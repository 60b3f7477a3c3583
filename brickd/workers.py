"""All workers of this machine: surveyed, named, told dead from alive.

Owns: which segments there are, who is called what, who lives. Must not know: totals, screens. Invariants: a bad segment
costs itself alone and is listed with its reason; a name stands for one worker; nobody is declared dead whose segment
moves, whatever became of its lock.
"""

from __future__ import annotations

import difflib
import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from brickd.errors import NoSuchWorker, NotPermitted, SegmentRefused, SegmentUnpublished
from brickd.ledger import Ledger, ledger_of
from brickd.segment import Reading, Segment, find, open_segment

# How long a segment without a lock is watched before its worker is called dead on a screen. Nothing is removed on
# this evidence: `brickd prune` looks longer.
_WATCH_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Worker:
    """One instrumented process, as one reading of its segment shows it."""

    name: str
    reading: Reading
    ledger: Ledger

    @property
    def service(self) -> str:
        """The group of workers that run the same thing."""
        return self.reading.service


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found at one time.

    Attributes:
        workers: those that could be read, by service and name.
        refused: segments that did not add up.
        foreign: how many belong to users whose segments we may not read.
    """

    workers: list[Worker]
    refused: list[SegmentRefused]
    foreign: int


def survey(prefix: str | None = None) -> Survey:
    """Read every segment of this machine that may be read."""
    readings: list[Reading] = []
    refused: list[SegmentRefused] = []
    foreign = 0
    unlocked: list[Segment] = []
    try:
        for file in find(prefix):
            try:
                segment = open_segment(file)
            except SegmentUnpublished:
                continue
            except SegmentRefused as error:
                refused.append(error)
                continue
            except NotPermitted:
                foreign += 1
                continue
            try:
                readings.append(segment.read())
            except SegmentRefused as error:
                refused.append(error)
                segment.close()
                continue
            if readings[-1].alive:
                segment.close()
            else:
                unlocked.append(segment)
        moving = _moving(unlocked)
    finally:
        for segment in unlocked:
            segment.close()
    readings = [replace(reading, pid=0) if reading.file in moving else reading for reading in readings]
    return Survey(_named(readings), refused, foreign)


def _moving(unlocked: Sequence[Segment]) -> set[str]:
    """Those whose worker lost its lock (the host closed our descriptor, say) but goes on recording."""
    if not unlocked:
        return set()
    before = {segment.name: _activity(segment) for segment in unlocked}
    time.sleep(_WATCH_SECONDS)
    return {segment.name for segment in unlocked if _activity(segment) != before[segment.name]}


def _activity(segment: Segment) -> int:
    try:
        return segment.activity()
    except SegmentRefused:
        return -1


def _named(readings: Iterable[Reading]) -> list[Worker]:
    """Give each its name: the declared one, else the lowest number of its service that is free, by age.

    The living come first, so that a worker that was started again has the name and the dead one a mark behind it.
    """
    by_age = sorted(readings, key=lambda r: (not r.alive, r.header["started_ns"], r.uuid))
    declared = {name for reading in by_age if (name := _declared(reading)) is not None}
    taken: set[str] = set()
    workers = []
    for reading in by_age:
        name = _declared(reading)
        if name is None:
            numbers = (f"{reading.service}/{number}" for number in itertools.count())
            name = next(free for free in numbers if free not in declared and free not in taken)
        if name in taken:
            name = f"{name}~{reading.uuid[:6]}"
        taken.add(name)
        workers.append(Worker(name, reading, ledger_of(reading)))
    return sorted(workers, key=lambda worker: (worker.service, _natural(worker.name)))


def _declared(reading: Reading) -> str | None:
    if reading.coordinates:
        return f"{reading.service}/{reading.coordinates}"
    return f"{reading.service}/{reading.header['index']}" if reading.header["index"] >= 0 else None


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Order api/10 behind api/9."""
    parts = ("".join(group) for _, group in itertools.groupby(name, str.isdecimal))
    return tuple((int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts)


def select(workers: Sequence[Worker], names: Sequence[str]) -> list[Worker]:
    """Those that are named, or whose service is; all when nothing is named.

    Raises:
        NoSuchWorker: a name that nobody has, with the ones that come near it.
    """
    if not names:
        return list(workers)
    known = {worker.name for worker in workers} | {worker.service for worker in workers}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or sorted(known)[:3]
            hint = f"there are {', '.join(near)}" if near else "nothing is recorded here at all"
            raise NoSuchWorker(f"no worker or service {name}: {hint} (see brickd status)")
    return [worker for worker in workers if worker.name in names or worker.service in names]
