"""The segments of this machine: those of dead workers, those that were refused, those of other users.

Owns: the facts about each segment, and how to remove useless segments. Must not know: processes, what was recorded.
Invariants: `broken` means that something was recorded but cannot be read. A fix is offered only to a user who can carry
it out.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from brickd.base.units import listed, plural
from brickd.base.users import user_name
from brickd.doctor.check import CheckResult, State, fine, mib
from brickd.doctor.container import Container, run_as
from brickd.errors import NotPermitted, SegmentOverBudget, SegmentRefused
from brickd.model.workers import Survey, Worker
from brickd.shm import _reader, records
from brickd.shm.losses import Loss, losses
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import open_file

_USUAL = "BRICKD_LANES=32 BRICKD_PATHS=8192"  # the defaults of brick_agent
_PAGE_BYTES, _SLOT_BYTES, _BLOCK_PATHS = 4096, 64, 64  # as in brick_shm.h


class ReadSegment(NamedTuple):
    """A worker whose segment was read.

    Attributes:
        pid: the process that holds the worker's lock, in this pid namespace; 0 if it is in another namespace; None if
            no process holds the lock and the segment no longer changes.
        own_pid: the worker's pid in its own pid namespace.
        reads_counter: whether the worker's clock is the processor's counter.
        taken_bytes: the memory that the segment uses.
        most_bytes: the memory that the worker's present threads and paths may use.
        unread: whether the worker keeps each span in detail although no process reads the spans.
        thinned_unowned: whether the worker's fingerprints still follow the setting of a daemon that was killed.
        key: the name of the key of the worker's checksums; 0 if they have no key; None if unknown or without checksums.
    """

    name: str
    file: str
    uid: int = 0
    pid: int | None = None
    own_pid: int = 0
    reads_counter: bool = True
    taken_bytes: int = 0
    most_bytes: int = 0
    losses: tuple[Loss, ...] = ()
    unread: bool = False
    thinned_unowned: bool = False
    service: str = ""
    key: int | None = None


class RefusedSegment(NamedTuple):
    """A file with a segment's name that was refused.

    Attributes:
        alive: whether a live worker holds the lock of the file.
        regular: whether it is a regular file, and not a link, a folder or a FIFO.
        costly: whether it is a valid segment but too large to read.
    """

    file: str
    reason: str
    alive: bool = False
    regular: bool = True
    costly: bool = False


@dataclass(frozen=True, slots=True)
class Segments:
    """The files found in /dev/shm.

    Attributes:
        foreign: for each other user (uid), the number of files with a segment's name.
        shared: the segments of this user that other users may open.
    """

    workers: tuple[ReadSegment, ...] = ()
    refused: tuple[RefusedSegment, ...] = ()
    foreign: Mapping[int, int] = field(default_factory=dict)
    shared: tuple[str, ...] = ()

    @property
    def live(self) -> tuple[ReadSegment, ...]:
        """The workers that are alive."""
        return tuple(worker for worker in self.workers if worker.pid is not None)

    @property
    def empty(self) -> bool:
        """Whether there are no files of this user."""
        return not (self.workers or self.refused)

    @property
    def hidden(self) -> State:
        """The state of a finding about an invisible worker: broken if no worker at all is visible."""
        return "advice" if self.live else "broken"


def observe(survey: Survey) -> Segments:
    """Extract the facts from a survey."""
    return Segments(
        workers=tuple(map(_known, survey.workers)),
        refused=tuple(map(_refused, survey.refused)),
        foreign=survey.foreign,
        shared=tuple(worker.reading.file for worker in survey.workers if _open_to_others(worker.reading.file)),
    )


def _path(file: str) -> str:
    return os.path.join(_reader.DIRECTORY, file)


def _open_to_others(file: str) -> bool:
    try:
        return os.lstat(_path(file)).st_mode & 0o077 != 0
    except OSError:  # the worker ended and its segment was removed
        return False


def _known(worker: Worker) -> ReadSegment:
    header = worker.reading.header
    return ReadSegment(
        name=worker.name,
        file=worker.reading.file,
        uid=header["uid"],
        pid=worker.reading.pid,
        own_pid=header["pid"],
        reads_counter=header["clock"] != _reader.CLOCK_MONOTONIC,
        taken_bytes=worker.reading.memory_bytes,
        most_bytes=most_bytes(worker.reading),
        losses=tuple(losses(worker.reading, worker.ledger)),
        unread=worker.reading.unread,
        thinned_unowned=worker.reading.thinned_unowned,
        service=worker.reading.service,
        key=worker.reading.process["key"] or (0 if _made_without(worker) else None),
    )


def most_bytes(reading: Reading) -> int:
    """Return the memory that a segment uses once each thread has used every path and both of its rings.

    The file is much larger, because it has a place for each possible path in each possible lane. The places that no
    thread has used are holes in the file, which take no memory.
    """
    header = reading.header
    rings = _pages(header["span_slots"] * _SLOT_BYTES) + _pages(header["event_slots"] * _SLOT_BYTES)
    lane = _pages(header["paths"] * 8) + header["paths"] * _reader.SUMMARY_BYTES + rings
    blocks_free = max(0, header["paths"] - reading.process["paths"]) // _BLOCK_PATHS
    used = lane - blocks_free * _BLOCK_PATHS * _reader.SUMMARY_BYTES
    return header["size"] - header["lanes"] * lane + len(reading.lanes) * used


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES


def _made_without(worker: Worker) -> bool:
    """Whether a worker made a checksum although its segment has no key.

    If a worker has recorded events and lost none, it has fingerprinted each site that is not off.
    """
    reading, ledger = worker.reading, worker.ledger
    lost = reading.process["tensors_refused"] + ledger.events_dropped[records.kind_name(_reader.KIND_CHECKED)]
    recorded = any(lane["event_records"] for _, lane, _ in reading.lanes)
    return recorded and lost == 0 and any(site is not None and not site.off for site in reading.sites)


def _refused(error: SegmentRefused) -> RefusedSegment:
    try:
        with open_file(error.path) as file:
            alive, regular = file.worker() is not None, True
    except (SegmentRefused, NotPermitted, OSError):
        alive, regular = False, False
    return RefusedSegment(error.path, error.reason, alive, regular, isinstance(error, SegmentOverBudget))


def judge_dead(segments: Segments) -> CheckResult:
    """Report the segments that workers left when they ended or died."""
    dead = [worker for worker in segments.workers if worker.pid is None]
    wanted = "no segments of workers that ended or died"
    if not dead:
        return fine("segments-dead", f"{plural(len(segments.live), 'segment')} of live workers only", wanted)
    seen = f"{plural(len(dead), 'segment')} of workers that ended or died ({listed([worker.name for worker in dead])})"
    seen += f", {mib(sum(worker.taken_bytes for worker in dead))}"
    why = "the totals of these workers are still shown: save them first if you need them"
    files = tuple(worker.file for worker in dead)
    return CheckResult("segments-dead", "advice", seen, wanted, "brickd prune", why, files)


def judge_unread(segments: Segments) -> CheckResult:
    """Find workers that keep each span in detail although no process reads these spans."""
    unread = [worker.name for worker in segments.workers if worker.unread]
    wanted = "spans in detail only while a daemon reads them"
    return _without_reader("spans-unread", unread, wanted, "no worker keeps spans in detail without a reader")


def judge_thinned(segments: Segments) -> CheckResult:
    """Find workers whose fingerprints still follow the setting of a daemon that was killed."""
    thinned = [worker.name for worker in segments.workers if worker.thinned_unowned]
    wanted = "the configured fingerprints, unless a daemon has set others"
    return _without_reader("fingerprints-set", thinned, wanted, "every worker records the fingerprints that are set")


def _without_reader(name: str, workers: list[str], wanted: str, well: str) -> CheckResult:
    if not workers:
        return fine(name, well, wanted)
    why = "the process that set it was killed; a daemon restores the configured setting"
    return CheckResult(name, "advice", f"set in {listed(workers)}", wanted, "brickd up -d", why, tuple(workers))


def judge_refused(segments: Segments) -> list[CheckResult]:
    """Report refused files. Files that have the same fix are combined into one finding."""
    if not segments.refused:
        return [fine("segments-refused", "no segment was refused", "valid segments")]
    alike: dict[tuple[State, str, str], list[RefusedSegment]] = {}
    for refused in segments.refused:
        alike.setdefault(_remedy(refused), []).append(refused)
    return [
        CheckResult(
            name="segments-refused",
            state=state,
            seen=f"{first.file}: {first.reason}" + (f"; and {len(rest):,} more" if rest else ""),
            wanted="valid segments",
            fix=fix,
            why=why,
            about=tuple(refused.file for refused in (first, *rest)),
        )
        for (state, fix, why), (first, *rest) in alike.items()
    ]


def _remedy(refused: RefusedSegment) -> tuple[State, str, str]:
    if refused.costly and refused.alive:
        why = (
            "a live worker writes this segment, and reading it costs too much: start the worker with smaller tables, "
            "or as another user"
        )
        return "broken", f"export {_USUAL}", why
    if refused.costly:
        return "advice", "brickd prune", "its worker ended or died, and reading the segment costs too much"
    if refused.alive:
        why = "a live worker writes this segment: its brick-agent and this brickd have different versions"
        return "broken", "pip install ./agent .", why
    if not refused.regular:
        why = "the file has a segment's prefix, but no worker made it"
        return "advice", f"rm -r -- {shlex.quote(_path(refused.file))}", why
    return "advice", "brickd prune --refused", "the file is not a segment, or has another format"


def judge_foreign(segments: Segments, container: Container) -> CheckResult:
    """Report the segments of other users. brickd reads only the segments of its own user."""
    wanted = "each user runs brickd for their own segments"
    if not segments.foreign:
        return fine("segments-foreign", "no other user has segments", wanted)
    by_count = sorted(segments.foreign.items(), key=lambda each: (-each[1], each[0]))
    seen = listed([f"{user_name(uid)} has {count:,}" for uid, count in by_count])
    about = [user_name(uid) for uid, _ in by_count]
    # The finding is only a remark: it does not change the exit code.
    hint = "" if segments.workers else f"; this user has none (to look as {about[0]}: {run_as(container, about[0])})"
    return fine("segments-foreign", f"not read: {seen}{hint}", wanted, about)


def judge_shared(segments: Segments) -> CheckResult:
    """Find this user's segments that other users may open."""
    wanted = "segments of mode 0600"
    if not segments.shared:
        return fine("segments-mode", "no other user can open a segment", wanted)
    fix = f"chmod 600 {shlex.join(map(_path, segments.shared))}"
    why = "an older brick-agent gave these segments to BRICKD_GROUP: a member could stop the drain or kill the server"
    return CheckResult("segments-mode", "advice", listed(list(segments.shared)), wanted, fix, why, segments.shared)
