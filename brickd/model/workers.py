"""All workers of this machine: surveyed, told dead from alive, chosen by name.

Owns: which segments there are, who lives. Must not know: totals, screens, how a name comes about. Invariants: a bad
segment costs itself alone and is listed with its reason; nobody is declared dead whose segment moves, whatever became
of its lock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from brickd.base.users import others_have
from brickd.errors import DaemonEnds, NoSuchWorker, NotPermitted, SegmentCopy, SegmentRefused, SegmentUnpublished
from brickd.model.deferred_overlay import laid_over
from brickd.model.retained_workers import Background
from brickd.model.worker_names import Who, named, suggestion
from brickd.model.worker_origins import Origin
from brickd.shm import _reader, removed_file
from brickd.shm.duplicates import Twin, original, undecided
from brickd.shm.ledger import Ledger, ledger_of
from brickd.shm.memory_budget import SELDOM, Account, Budget
from brickd.shm.removed_workers import RemovedWorker, uncounted
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_copy import CLOCKS, Identity, Reading
from brickd.shm.segment_files import Identifier, Owners, committed, identifier_of, listing
from brickd.shm.segment_files import prefix as configured

# How long a segment without a lock is watched before its worker is called dead on a screen. Nothing is removed on
# this evidence: `brickd prune` looks longer.
_WATCH_SECONDS, _GLANCE_SECONDS = 0.02, 0.002

_NOTHING = Background()


class Usage(NamedTuple):
    """What a process takes, and whether it is stopped.

    Attributes:
        cpu_percent: of one processor; None before a second look.
        stopped: by a signal or a debugger.
        ran, waited: how long its threads together ran and waited for a processor since the look before, as parts of
            that time; None: not known.
        cpu: the only processor that it may use; None: it may use several, or it is not known.
        throttled: how long its control group was throttled, likewise; None: not known.
    """

    cpu_percent: float | None
    rss_bytes: int
    stopped: bool = False
    ran: float | None = None
    waited: float | None = None
    cpu: int | None = None
    throttled: float | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """One instrumented process, as one reading of its segment shows it.

    Attributes:
        together: how many workers these are; old dead ones may be summed up in one.
        added: of a sum the workers that were added last, as far as known: the last one last.
        label: the first part of its name if several worlds are one: it says in which it is.
    """

    name: str
    reading: Reading
    ledger: Ledger
    together: int = 1
    usage: Usage | None = None
    added: tuple[Origin, ...] = ()
    label: str = ""

    @property
    def service(self) -> str:
        """The group of workers that run the same thing."""
        return self.reading.service


@dataclass(frozen=True, slots=True)
class Held:
    """What a process that drains knows of the files.

    Attributes:
        segments: the open ones: to open and close them once more would give up their locks.
        drained: those of them that are, and whose workers go on in no other: they count also without a name, which
            somebody may have removed, or this process itself since it was asked who is there.
        refused: by name, what does not add up, also if one reading alone would not show it.
        others: the owners of other users' files, as far as they are known.
        accounts: what the drained ones got so far.
        goes_on: whether to look at the next segment.
    """

    segments: Mapping[Identifier, Segment] = field(default_factory=dict)
    drained: Sequence[Segment] = ()
    refused: Mapping[str, SegmentRefused] = field(default_factory=dict)
    others: Owners = field(default_factory=dict)
    accounts: Mapping[Identifier, Account] = field(default_factory=dict)
    goes_on: Callable[[], bool] = lambda: True

    def segment(self, file: str) -> Segment | None:
        """The one that has this name now, whatever it was called before; else the one that had it."""
        identifier = identifier_of(file) if self.segments else None
        if identifier is not None:
            return self.segments.get(identifier)
        return next((each for each in self.drained if each.name == file), None)


_NONE = Held()


@dataclass(frozen=True, slots=True)
class Survey:
    """All workers at one time.

    Attributes:
        workers: those that could be read, by service and name.
        refused: segments that did not add up.
        foreign: how many segments each other user has, by uid; they are not read.
        clocks: each kind of clock, and CLOCK_MONOTONIC_RAW beside it, before the first segment was sought: a segment
            that was made later was not there.
        removed: workers whose segments were removed, with what of them is in no total.
    """

    workers: list[Worker]
    refused: list[SegmentRefused]
    foreign: Mapping[int, int] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    clocks: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    removed: tuple[RemovedWorker, ...] = ()


def survey(prefix: str | None = None, background: Background = _NOTHING, held: Held = _NONE) -> Survey:
    """Read every segment of our user on this machine, and add what a daemon knows beside them.

    Args:
        prefix: of the files' names; None: the configured one.
        background: what a daemon knows, from its memory or its checkpoint.
        held: what this process knows of the files, where it drains them.
    """
    clocks = {kind: _reader.clock_pair(kind) for kind in CLOCKS}
    found = listing(prefix, held.others)
    budget, now_ns = Budget(SELDOM if held.accounts else 1), time.monotonic_ns()

    def read(segment: Segment) -> Reading:
        return held.accounts.get(segment.identifier, Account()).read(segment, budget, now_ns)

    # The cheap ones first: none of them is to lose anything to another.
    readings, refused = _look(sorted(found.own, key=committed), read, background, held)
    # What is known of a worker that lost its segment stands under the uuid of that.
    before = {each.uuid: background.before(each.process["took"]) for each in readings}
    names = background.names | {now: background.names[lost] for now, lost in before.items() if lost in background.names}
    lost = set(before.values())
    # One that was removed under a worker which goes on elsewhere by now, though whoever drains has not seen it yet.
    here = [each for each in readings if each.uuid not in lost or identifier_of(each.file) is not None]
    laid = [laid_over(each, background.overlay(each.uuid, before[each.uuid])) for each in here]
    gone = [each for uuid, each in background.gone.items() if uuid not in lost] + list(background.older)
    kept = [replace(each.reading, pid=None) for each in gone]
    together = {id(reading): each.workers for reading, each in zip(kept, gone, strict=True)}
    workers = [
        Worker(name, each, ledger_of(each), together.get(id(each), 1), added=background.added.get(each.uuid, ()))
        for name, each in named(laid + kept, names)
    ]
    removed = _removed(prefix, workers, {each.uuid for each in here if each.alive}, background)
    return Survey(workers, refused, found.counts(), clocks=clocks, removed=removed)


def _removed(
    prefix: str | None, workers: Sequence[Worker], living: Collection[str], background: Background
) -> tuple[RemovedWorker, ...]:
    """Removed workers in no total; the file last, for a segment goes after its record has come.

    A record of a live worker counts nothing. The file of a dead one may be a copy that somebody made earlier, so
    that its record counts what is beyond the copy's totals.
    """
    kept, found = background.removed, removed_file.look(configured() if prefix is None else prefix).removed
    if not (kept.alone or found):
        return tuple(kept.sums.values())
    shown = {worker.reading.uuid: worker.ledger.counts() for worker in workers if worker.together == 1}
    taken = {worker.reading.lost for worker in workers}
    # A file that cannot be removed is buried while its totals are still shown: they may be those of a copy.
    settled = (background.buried - background.gone.keys()).union(living)
    return (*uncounted((*kept.alone.values(), *found), shown, taken, settled), *kept.sums.values())


def identities(
    prefix: str | None = None, background: Background = _NOTHING, held: Held = _NONE
) -> list[tuple[str, Identity]]:
    """All workers with the names that `survey` gives them, cheaply: from the headers alone."""
    found: list[Identity] = _look(listing(prefix, held.others).own, Segment.identity, background, held)[0]
    found += [gone.reading for gone in (*background.gone.values(), *background.older)]
    return named(found, background.names)


def _look(
    files: Sequence[str], read: Callable[[Segment], Who], background: Background, held: Held
) -> tuple[list[Who], list[SegmentRefused]]:
    """What was read of each segment, and the refused ones."""
    found: list[Who] = []
    refused: list[SegmentRefused] = []
    unlocked: list[Segment] = []
    seen: dict[Identifier, str] = {}
    with contextlib.ExitStack() as opened:
        for file in dict.fromkeys([*files, *(each.name for each in held.drained)]):
            if not held.goes_on():
                raise DaemonEnds("the daemon ends")
            try:
                with contextlib.ExitStack() as here:
                    if (known := held.refused.get(file)) is not None:
                        refused.append(known)
                        continue
                    segment = held.segment(file) or here.enter_context(open_segment(file))
                    if segment.identifier in seen:  # by another name that it has as well
                        continue
                    seen[segment.identifier] = segment.name
                    uuid = segment.header["uuid"].hex()
                    if uuid in background.gone or uuid in background.buried:  # counted there
                        continue
                    found.append(read(segment))
                    if not found[-1].alive:
                        unlocked.append(segment)
                        opened.push(here.pop_all())
            except SegmentUnpublished:
                continue
            except SegmentRefused as error:
                if identifier_of(file) is not None:  # else it was removed since it was listed
                    refused.append(error)
            except NotPermitted:  # another user's file took its name since it was listed
                continue
        moving = _moving(unlocked)
        activity = {segment.name: _activity(segment) for segment in unlocked}
    whole = [replace(each, pid=0) if each.file in moving else each for each in found]
    identifiers = {name: identifier for identifier, name in seen.items()}
    twins = [
        (each.uuid, Twin(each.file, identifiers[each.file], each.alive, activity.get(each.file, 0))) for each in whole
    ]
    copies = _copies(twins, background)
    refused = sorted([*refused, *copies.values()], key=lambda each: each.path)
    return [each for each in whole if each.file not in copies], refused


def _copies(found: Iterable[tuple[str, Twin]], background: Background) -> dict[str, SegmentRefused]:
    """The files that are refused because another file has their uuid, by name."""
    by_uuid: dict[str, list[Twin]] = {}
    for uuid, twin in sorted(found):
        by_uuid.setdefault(uuid, []).append(twin)
    refused: dict[str, SegmentRefused] = {}
    for uuid, twins in by_uuid.items():
        if len(twins) == 1:
            continue
        real = original(twins, background.files.get(uuid))
        for twin in twins:
            if real is None:
                other = next(each.name for each in twins if each is not twin)
                refused[twin.name] = undecided(twin.name, other)
            elif twin is not real:
                refused[twin.name] = SegmentCopy(twin.name, real.name, real.identifier)
    return refused


def _moving(unlocked: Sequence[Segment]) -> set[str]:
    """Segments without a lock whose worker goes on (the host closed our descriptor, say)."""
    before = {segment.name: _activity(segment) for segment in unlocked}
    moving: set[str] = set()
    until, over = time.monotonic() + _WATCH_SECONDS, False
    while len(moving) < len(before) and not over:
        time.sleep(_GLANCE_SECONDS)
        over = time.monotonic() >= until
        moving = {segment.name for segment in unlocked if _activity(segment) != before[segment.name]}
    return moving


def _activity(segment: Segment) -> int:
    try:
        return segment.activity()
    except SegmentRefused:
        return -1


_NO_FOREIGN: Mapping[int, int] = MappingProxyType({})


def select(
    workers: Sequence[Worker],
    names: Sequence[str],
    *,
    segments: Iterable[str] | None = None,
    foreign: Mapping[int, int] = _NO_FOREIGN,
    services: Iterable[str] = (),
) -> list[Worker]:
    """Those that are named, or whose service is; all when nothing is named.

    Args:
        workers: to choose from.
        names: of workers and services.
        segments: the known ones, if a segment's file could have been named as well.
        foreign: how many segments each other user has: without workers of ours, the name may be one of theirs.
        services: further names that are allowed, though no worker has them.

    Raises:
        NoSuchWorker: an unknown name; the message has similar ones.
    """
    readable = {worker.name for worker in workers} | {worker.service for worker in workers} | set(services)
    for name in names:
        if name not in readable:
            what = "worker or service" if segments is None else "worker, service or segment"
            known = readable | set(segments or ())
            hint = f"{suggestion(name, known)} (see brickd status)"
            if foreign and not known:
                hint = others_have(foreign)
            raise NoSuchWorker(f"no {what} {name}: {hint}")
    if not names:
        return list(workers)
    return [worker for worker in workers if worker.name in names or worker.service in names]
