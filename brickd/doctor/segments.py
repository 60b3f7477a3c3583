"""The segments of this machine: dead ones, refused ones, those of others.

Owns: what is known of each, and what becomes of those that are of no use. Must not know: processes, what was recorded.
Invariants: broken is what somebody records and nobody can read; a fix is offered to whoever may carry it out.
"""

from __future__ import annotations

import os
import pwd
import shlex
from dataclasses import dataclass
from typing import NamedTuple

from brickd import _reader, records
from brickd.doctor.container import Container, run_as
from brickd.doctor.finding import Finding, State, fine, listed, mib
from brickd.errors import NotPermitted, SegmentRefused
from brickd.files import find, open_file
from brickd.losses import Loss, losses
from brickd.workers import Survey, Worker


class Known(NamedTuple):
    """A worker whose segment was read.

    Attributes:
        name: what brickd calls it.
        file: its segment.
        uid: its user.
        pid: as the holder of the lock, seen from here (0: not at all); None: nobody holds it and nothing moves.
        own_pid: as it sees itself.
        reads_counter: its clock is the processor's counter.
        taken_bytes: what the segment takes of memory.
        most_bytes: what it may take.
        losses: what it could not record.
        unread: it keeps each span in detail, and nobody reads them.
        thinned_for_nobody: it records checksums as a daemon wanted it that was killed.
        service: which runs it.
        key: the name of the key that its checksums were made with; 0: they were made without one; None: there are none,
            or nobody can tell.
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
    thinned_for_nobody: bool = False
    service: str = ""
    key: int | None = None


class Refused(NamedTuple):
    """A file with a segment's name that was not believed.

    Attributes:
        file: its name.
        reason: why not.
        owner: its user.
        ours: whether we may remove it.
        alive: whether a worker lives in it.
        regular: whether it is a file at all: not a link, a folder, a FIFO.
    """

    file: str
    reason: str
    owner: str = ""
    ours: bool = True
    alive: bool = False
    regular: bool = True


@dataclass(frozen=True, slots=True)
class Segments:
    """What was found in /dev/shm; `foreign` has the owner of each segment that we may not read."""

    workers: tuple[Known, ...] = ()
    refused: tuple[Refused, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def live(self) -> tuple[Known, ...]:
        """The workers that can be watched from here."""
        return tuple(worker for worker in self.workers if worker.pid is not None)

    @property
    def empty(self) -> bool:
        """Whether nothing was found at all."""
        return not (self.workers or self.refused or self.foreign)

    @property
    def hidden(self) -> State:
        """How bad it is that a worker cannot be seen: where none can, it is the one that is asked about."""
        return "advice" if self.live else "broken"


def observe(survey: Survey) -> Segments:
    """What `survey` found, and whose it is."""
    return Segments(
        workers=tuple(map(_known, survey.workers)),
        refused=tuple(map(_refused, survey.refused)),
        foreign=tuple(_user(uid) for file in find() if (uid := _uid(file)) is not None and not _readable(file)),
    )


def _path(file: str) -> str:
    return os.path.join(_reader.DIRECTORY, file)


def _readable(file: str) -> bool:
    return os.access(_path(file), os.R_OK, effective_ids=True, follow_symlinks=False)


def _uid(file: str) -> int | None:
    """Whose file it is; None where it is gone."""
    try:
        return os.stat(_path(file), follow_symlinks=False).st_uid
    except OSError:
        return None


def _user(uid: int) -> str:
    """A user as sudo takes it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def _known(worker: Worker) -> Known:
    header = worker.reading.header
    return Known(
        name=worker.name,
        file=worker.reading.file,
        uid=header["uid"],
        pid=worker.reading.pid,
        own_pid=header["pid"],
        reads_counter=header["clock"] != _reader.CLOCK_MONOTONIC,
        taken_bytes=worker.reading.memory_bytes,
        most_bytes=header["size"],
        losses=tuple(losses(worker.reading, worker.ledger)),
        unread=worker.reading.unread,
        thinned_for_nobody=worker.reading.thinned_for_nobody,
        service=worker.reading.service,
        key=worker.reading.process["key"] or (0 if _made_without(worker) else None),
    )


def _made_without(worker: Worker) -> bool:
    """Whether a worker whose segment names no key made a checksum all the same.

    Each site that is not off had one, or one that was counted as lost.
    """
    reading, ledger = worker.reading, worker.ledger
    lost = reading.process["tensors_refused"] + ledger.events_dropped[records.kind_name(_reader.KIND_CHECKED)]
    recorded = any(lane["event_records"] for _, lane, _ in reading.lanes)
    return recorded and lost == 0 and any(site is not None and not site.off for site in reading.sites)


def _refused(error: SegmentRefused) -> Refused:
    uid = _uid(error.path)
    try:
        with open_file(error.path) as file:
            alive, regular = file.worker() is not None, True
    except (SegmentRefused, NotPermitted, OSError):
        alive, regular = False, False
    owner = "" if uid is None else _user(uid)
    return Refused(error.path, error.reason, owner, os.geteuid() in (0, uid), alive, regular)


def judge_dead(segments: Segments) -> Finding:
    """How much have dead workers left?"""
    dead = [worker for worker in segments.workers if worker.pid is None]
    wanted = "none of dead workers"
    if not dead:
        return fine("segments-dead", f"{len(segments.live):,} of live workers, no other", wanted)
    seen = f"{len(dead):,} of dead workers ({listed([worker.name for worker in dead])})"
    seen += f", {mib(sum(worker.taken_bytes for worker in dead))}"
    why = "their totals are still shown; take what you want of them first"
    return Finding("segments-dead", "advice", seen, wanted, "brickd prune", why, tuple(worker.file for worker in dead))


def judge_unread(segments: Segments) -> Finding:
    """Who keeps spans in detail for nobody?"""
    unread = [worker.name for worker in segments.workers if worker.unread]
    wanted = "spans in detail only while somebody reads them"
    return _for_nobody("spans-unread", unread, wanted, "keeps any in detail", "a daemon asks for what is wished")


def judge_thinned(segments: Segments) -> Finding:
    """Who records checksums as nobody wants it any more?"""
    thinned = [worker.name for worker in segments.workers if worker.thinned_for_nobody]
    wanted = "checksums of other steps and sites than configured only while a daemon wants it"
    return _for_nobody("fingerprints-set", thinned, wanted, "records others", "a daemon sets what is wished")


def _for_nobody(name: str, who: list[str], wanted: str, what: str, remedy: str) -> Finding:
    if not who:
        return fine(name, f"nobody {what} for nobody", wanted)
    why = f"whoever asked for it was killed; {remedy}"
    return Finding(name, "advice", f"in {listed(who)}", wanted, "brickd up -d", why, tuple(who))


def judge_refused(segments: Segments) -> list[Finding]:
    """Which files were not believed, and what becomes of them? Those with one fix are told together."""
    if not segments.refused:
        return [fine("segments-refused", "none was refused", "segments that add up")]
    alike: dict[tuple[State, str, str], list[Refused]] = {}
    for refused in segments.refused:
        alike.setdefault(_remedy(refused), []).append(refused)
    return [
        Finding(
            name="segments-refused",
            state=state,
            seen=f"{first.file}: {first.reason}" + (f"; and {len(rest):,} more" if rest else ""),
            wanted="segments that add up",
            fix=fix,
            why=why,
            about=tuple(refused.file for refused in (first, *rest)),
        )
        for (state, fix, why), (first, *rest) in alike.items()
    ]


def _remedy(refused: Refused) -> tuple[State, str, str]:
    if refused.alive:
        why = "a live worker writes it and nobody can read it: brick-agent there and brickd here are of two versions"
        return "broken", "pip install ./agent .", why
    if not refused.regular:
        return (
            "advice",
            f"rm -r -- {shlex.quote(_path(refused.file))}",
            f"only its name is a segment's; user {refused.owner}",
        )
    if not refused.ours:
        return "advice", f"sudo -u {shlex.quote(refused.owner)} brickd prune --refused", "it belongs to that user"
    return "advice", "brickd prune --refused", "only its name is a segment's, or it is of another format"


def judge_foreign(segments: Segments, group: str, container: Container) -> Finding:
    """Whose segments may we not read? `group`: one of ours that they could be given to."""
    wanted = "segments that this user may read"
    if not segments.foreign:
        return fine("segments-foreign", "none of users whose segments we may not read", wanted)
    users = sorted(set(segments.foreign))
    seen = f"{len(segments.foreign):,} of {listed(users)}"
    fix = run_as(container, users[0])
    why = f"or BRICKD_GROUP={shlex.quote(group)} in the server's environment"
    return Finding("segments-foreign", segments.hidden, seen, wanted, fix, why, tuple(users))
