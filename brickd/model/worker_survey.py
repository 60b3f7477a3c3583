"""The survey of all workers of this machine: reads every segment, and finds the live workers.

Owns: which segments exist, which workers are alive. Must not know: totals, screens, how names are made. Invariants: An
invalid segment affects only itself and is listed with the reason. A worker is alive if its segment changes, even if it
holds no lock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from brickd.errors import DaemonEnds, NotPermitted, SegmentCopy, SegmentRefused, SegmentUnpublished
from brickd.model.background import Background
from brickd.model.worker_names import Who, named
from brickd.model.workers import Held, Survey, Worker
from brickd.shm import _reader, removed_file
from brickd.shm.duplicates import Twin, original, undecided
from brickd.shm.ledger import ledger_of
from brickd.shm.memory_budget import SELDOM, Account, Budget
from brickd.shm.removed_workers import RemovedWorker, uncounted
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_copy import CLOCKS, Identity, Reading
from brickd.shm.segment_files import Identifier, committed, identifier_of, listing
from brickd.shm.segment_files import prefix as configured

# How long a segment without a lock is watched before its worker is shown as dead. Nothing is removed on this evidence,
# because `brickd prune` watches longer.
_WATCH_SECONDS, _GLANCE_SECONDS = 0.02, 0.002

_NOTHING = Background()
_NONE = Held()


def survey(prefix: str | None = None, background: Background = _NOTHING, held: Held = _NONE) -> Survey:
    """Read every segment of this user on this machine, and combine them with a daemon's state about the workers.

    Args:
        prefix: the beginning of the files' names; None for the configured prefix.
        background: a daemon's state, from its memory or from its checkpoint.
        held: the open files, if this process drains them.
    """
    clocks = {kind: _reader.clock_pair(kind) for kind in CLOCKS}
    found = listing(prefix, held.others)
    budget, now_ns = Budget(SELDOM if held.accounts else 1), time.monotonic_ns()

    def read(segment: Segment) -> Reading:
        return held.accounts.get(segment.identifier, Account()).read(segment, budget, now_ns)

    # The cheapest segment is read first, so that an expensive one takes nothing from its memory budget.
    readings, refused = _look(sorted(found.own, key=committed), read, background, held)
    # If a worker lost its segment, its state is stored under the uuid of the lost segment.
    before = {each.uuid: background.before(each.process["took"]) for each in readings}
    names = background.names | {now: background.names[lost] for now, lost in before.items() if lost in background.names}
    lost = set(before.values())
    # A removed segment is skipped if its worker continues in another one. The daemon may still have the removed one
    # open.
    here = [each for each in readings if each.uuid not in lost or identifier_of(each.file) is not None]
    laid = [background.laid_over(each, before[each.uuid]) for each in here]
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
    """Return removed workers whose counts are in no total.

    The file of records is read after the segments, because a segment's record is written before the segment is removed.
    The record of a live worker does not count. If a dead worker still has a segment, the segment may be an earlier
    copy. So if a count in the record is larger than the same count in the segment, only the difference is used.
    """
    kept, found = background.removed, removed_file.look(configured() if prefix is None else prefix).removed
    if not (kept.alone or found):
        return tuple(kept.sums.values())
    shown = {worker.reading.uuid: worker.ledger.counts() for worker in workers if worker.together == 1}
    taken = {worker.reading.lost for worker in workers}
    # If a file cannot be removed, it is buried, that is, no longer read, while its totals are still shown. The shown
    # totals may come from a copy.
    settled = (background.buried - background.gone.keys()).union(living)
    return (*uncounted((*kept.alone.values(), *found), shown, taken, settled), *kept.sums.values())


def identities(background: Background = _NOTHING) -> list[tuple[str, Identity]]:
    """Return all workers with the names that `survey` gives them. Only the headers of segments are read."""
    found: list[Identity] = _look(listing().own, Segment.identity, background, _NONE)[0]
    found += [gone.reading for gone in (*background.gone.values(), *background.older)]
    return named(found, background.names)


def _look(
    files: Sequence[str], read: Callable[[Segment], Who], background: Background, held: Held
) -> tuple[list[Who], list[SegmentRefused]]:
    """Read each segment; return the results and the refused segments."""
    found: list[Who] = []
    refused: list[SegmentRefused] = []
    unlocked: list[Segment] = []
    seen: dict[Identifier, str] = {}
    with contextlib.ExitStack() as opened:
        for file in dict.fromkeys([*files, *(each.name for each in held.drained)]):
            if not held.goes_on():
                raise DaemonEnds("the daemon is stopping (start another daemon: brickd up)")
            try:
                with contextlib.ExitStack() as here:
                    if (known := held.refused.get(file)) is not None:
                        refused.append(known)
                        continue
                    segment = held.segment(file) or here.enter_context(open_segment(file))
                    if segment.identifier in seen:  # the file was already read under another name
                        continue
                    seen[segment.identifier] = segment.name
                    uuid = segment.header["uuid"].hex()
                    # the background already counts this worker
                    if uuid in background.gone or uuid in background.buried:
                        continue
                    found.append(read(segment))
                    if not found[-1].alive:
                        unlocked.append(segment)
                        opened.push(here.pop_all())
            except SegmentUnpublished:
                continue
            except SegmentRefused as error:
                if identifier_of(file) is not None:  # without this, the file was removed after it was listed
                    refused.append(error)
            except NotPermitted:  # a file of another user took the name after the listing
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
    """Return the files that are refused because another file has the same uuid. The result is keyed by name."""
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
    """Return the names of those unlocked segments that change.

    Their workers are alive; the host may have closed the descriptor that held the lock.
    """
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
