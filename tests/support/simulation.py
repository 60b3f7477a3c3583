"""Simulates writers and a daemon that fail in every possible way, in an order that a seed decides.

Each writer makes the stores of the format one at a time, in a file in /dev/shm with its own lock. The daemon is
brickd's real loop, reader and checkpoint. Each effect of the daemon goes through `Faults`. There, writers may continue,
a write may be cut short, a disk may be full, or the daemon may die. The same seed gives the same run.

A writer follows brick_shm.h (tests/writer/test_lane_machine.py checks the agent against the same rules).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forge
import posix_ipc
import pytest
from conftest import SHM
from test_deferred import History

from brickd.base.units import SECOND
from brickd.daemon import collector
from brickd.daemon.collector import Collector
from brickd.errors import CheckpointRefused
from brickd.model import worker_survey
from brickd.model.worker_survey import survey
from brickd.model.workers import Survey
from brickd.shm import _reader, removed_file, segment_files
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory

U64 = 2**64 - 1
LANES, SLOTS, PATHS = 2, 8, 64
_OFD_SETLK = 37
_FLOCK = struct.Struct("@hhqqi4x")
_EVENT = struct.Struct("<IHH6Q")
_DEFERRED, _SPAN = 1, 2  # the paths of deferred work and of spans
DURATION = 77


# For each kind of struct: the index and the lane with which forge.py finds each lane's struct.
_PLACES: dict[str, list[tuple[int, int]]] = {
    "consumer": [(lane, 0) for lane in range(LANES)],
    "lane": [(lane, 0) for lane in range(LANES)],
    "span_ring": [(0, lane) for lane in range(LANES)],
    "event_ring": [(0, lane) for lane in range(LANES)],
    "summary": [(_SPAN, lane) for lane in range(LANES)],
}


# ---- writers


def blank(uuid: bytes) -> bytearray:
    """Return a segment without records."""
    header = forge.golden("1.1")[: forge.PAGE]
    image = bytearray(header)
    counts = {"lanes": LANES, "paths": PATHS, "names": 64, "sites": 1, "span_slots": SLOTS, "event_slots": SLOTS}
    forge.put(image, "header", counts | {"minor": 2, "clock": _reader.CLOCK_MONOTONIC, "index": -1, "uuid": uuid})
    forge.put(image, "header", {"service": b"sim", "coordinates": b"", "size": forge.regions(image)["size"]})
    forge.put(image, "header", {"pid": int.from_bytes(uuid[:2], "little"), "process_start": 1})
    image = bytearray(forge.seal(image)).ljust(forge.regions(image)["size"], b"\0")
    ready = 1 << 63
    for number, unit in ((0, _reader.UNIT_TICKS), (_DEFERRED, _reader.UNIT_DEFERRED), (_SPAN, _reader.UNIT_TICKS)):
        key = ready | unit << 56 | number << 16 | 0xFFFF
        struct.pack_into("<Q", image, forge.place(image, "path", number), key)
        forge.put(image, "name", {"word": 1 << 31 | 5, "text": (b"other", b"work1", b"span2")[number]}, number)
    forge.put(image, "process", {"names": 3, "paths": 3})
    return image


@dataclass
class Lane:
    """The state of a lane's thread that is not in shared memory."""

    attempts: int = 0
    head: int = 0
    tail: int = 0
    ids: int = 0
    span_attempts: int = 0
    span_head: int = 0
    span_tail: int = 0
    begun: int = 0


class Writer:
    """A worker.

    Attributes:
        history: the readable records, in the order in which they became readable.
        dropped: how many events had no room, keyed by kind.
    """

    def __init__(self, prefix: str, number: int, now: Callable[[], int], *, slow: bool) -> None:
        self.uuid = number.to_bytes(2, "little").ljust(16, b"\x07")
        self.file = self.first = f"{prefix}{number:04}"  # `first` is the first segment of the process
        self.now = now
        image = blank(self.uuid)
        self._at = {
            record: [forge.place(image, record, *place) for place in places] for record, places in _PLACES.items()
        }
        self._sequences = [
            forge.regions(image)["area"] + lane * forge.regions(image)["stride"] + 8 * _SPAN for lane in range(LANES)
        ]
        self._process = forge.place(image, "process")
        self.fd = os.open(SHM / self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        # Here, the lock belongs to the open file, not to the process, because writers and daemon share one process.
        fcntl.fcntl(self.fd, _OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        magic, image[:8] = bytes(image[:8]), bytes(8)
        os.write(self.fd, image)
        os.pwrite(self.fd, magic, 0)
        self.identifier = segment_files.identifier_of(self.file)
        self.lanes = [Lane() for _ in range(LANES)]
        self.history = History()
        self.dropped: dict[int, int] = {}
        self.spans = 0
        self.known: set[int] = set()  # deferred ids for which the host has not given a measurement yet
        self.steps: list[Iterator[None]] = []
        self.alone: int | None = None  # the thread whose ticks are not published yet; the other threads wait for it
        self.slow = slow
        self.alive, self.leaving, self.ended = True, False, False
        self.removed = False  # whether another process removed the segment
        self.reaped = False  # whether the segment was removed after a record of it was written
        self.copied = False  # whether the segment was copied
        self.goes_on: Writer | None = None  # the writer of the segment in which this process continues
        # If the segment was removed while a daemon had it open, it may be unknown what that daemon has lost.
        self.uncertain = self.vanished = False
        for lane in range(LANES):
            self._store("lane", lane, "opened", 1)

    # ---- stores, one at a time

    def _store(self, record: str, lane: int, name: str, value: int, index: int = 0) -> None:
        offset, code, _ = forge.field(record, name)
        at = self._at[record][lane] + offset + 8 * index
        os.pwrite(self.fd, struct.pack(f"<{code}", value), at)

    def _tail(self, lane: int, name: str, head: int, known: int) -> int:
        offset, _, _ = forge.field("consumer", name)
        position, complement = struct.unpack("<QQ", os.pread(self.fd, 16, self._at["consumer"][lane] + offset))
        if position == complement ^ U64 and position <= head <= position + SLOTS:
            assert position >= known, "the daemon moved a tail back"
            return int(position)
        return known

    def _event(
        self, number: int, kind: int, payload: int, words: list[int], then: Callable[[], None]
    ) -> Iterator[None]:
        lane = self.lanes[number]
        lane.attempts += 1
        self._store("lane", number, "event_attempts", lane.attempts)
        yield
        room = SLOTS - SLOTS // 8 if kind == _reader.KIND_DEFER else SLOTS
        if lane.head - lane.tail >= room:
            lane.tail = self._tail(number, "event", lane.head, lane.tail)
        if lane.head - lane.tail >= room:
            self.dropped[kind] = self.dropped.get(kind, 0) + 1
            self._store("lane", number, "event_dropped", self.dropped_in(number, kind), kind)
            self.alone = None
            return
        at = self._at["event_ring"][number] + 64 * (lane.head % SLOTS)
        os.pwrite(self.fd, _EVENT.pack(payload, 1, kind, *words, *[0] * (6 - len(words))), at + 8)
        yield
        lane.head += 1
        self._store("lane", number, "event_records", lane.head)
        yield
        os.pwrite(self.fd, struct.pack("<Q", lane.attempts), at)
        then()  # from here on, the record is readable, even if its writer dies before it moves the head
        yield
        self._store("lane", number, "event_head", lane.head)
        self.alone = None

    def dropped_in(self, number: int, kind: int) -> int:
        drops = self._drops = getattr(self, "_drops", {})
        drops[number, kind] = drops.get((number, kind), 0) + 1
        return int(drops[number, kind])

    # ---- a worker's actions

    def _ticks(self, number: int) -> int:
        if not self.slow:
            self.alone = number
        return self.now()

    def defer(self, number: int, stream: int) -> Iterator[None]:
        lane, ticks = self.lanes[number], self._ticks(number)
        yield
        lane.ids += 1
        id = (number + 1) << 48 | lane.ids
        words = [ticks, stream, id, 0, 1, 2]
        yield from self._event(
            number, _reader.KIND_DEFER, _DEFERRED, words, lambda: self.history.starts.append((ticks, stream, id))
        )
        self.known.add(id)

    def finalize(self, number: int, stream: int | None) -> Iterator[None]:
        ticks = self._ticks(number)
        yield
        yield from self._event(
            number,
            _reader.KIND_FINALIZE,
            stream is None,
            [ticks, stream or 0],
            lambda: self.history.syncs.append((ticks, stream)),
        )

    def measured(self, number: int, ns: int) -> Iterator[None]:
        """Record a measured time for the youngest deferred start that is neither finalized nor measured yet."""
        for ticks, stream, id in reversed(self.history.starts):
            if not self.history.closes(ticks, stream) and id in self.known:
                self.known.discard(id)
                self._ticks(number)

                def then(id: int = id) -> None:
                    self.history.measurements[id] = ns

                yield from self._event(number, _reader.KIND_MEASURED, 0, [id, ns], then)
                return

    def _summarize(self, number: int, n: int, duration: int) -> None:
        """Add the totals of `n` spans of one duration."""
        os.pwrite(self.fd, struct.pack("<Q", 2 * n - 1), self._sequences[number])
        for name, value in (("count", n), ("total", n * duration), ("max", duration), ("min", duration)):
            self._store("summary", number, name, value)
        self._store("summary", number, "squares", struct.unpack("<Q", struct.pack("<d", n * float(duration) ** 2))[0])
        bucket = min(max((duration**4).bit_length() - 21, 0), 127)
        self._store("summary", number, "histogram", n, bucket)
        os.pwrite(self.fd, struct.pack("<Q", 2 * n), self._sequences[number])
        self._store("lane", number, "summarized", n)

    def span(self, number: int, duration: int) -> Iterator[None]:
        lane, start = self.lanes[number], self.now()
        lane.begun += 1
        self._store("lane", number, "begun", lane.begun)
        yield
        self._summarize(number, lane.begun, duration)
        self.spans += 1
        yield
        lane.span_attempts += 1
        self._store("lane", number, "span_attempts", lane.span_attempts)
        yield
        if lane.span_head - lane.span_tail >= SLOTS:
            lane.span_tail = self._tail(number, "span", lane.span_head, lane.span_tail)
        if lane.span_head - lane.span_tail >= SLOTS:
            self._store("lane", number, "span_dropped", self.dropped_in(number, -1))
            return
        at = self._at["span_ring"][number] + 64 * (lane.span_head % SLOTS)
        os.pwrite(self.fd, _EVENT.pack(_SPAN, 1, _reader.KIND_SPAN, start, duration, 0, 0, 0, 0), at + 8)
        yield
        os.pwrite(self.fd, struct.pack("<Q", lane.span_attempts), at)
        yield
        lane.span_head += 1
        self._store("lane", number, "span_head", lane.span_head)

    # ---- the life of a worker

    def act(self, chance: random.Random) -> None:
        """Do the next store of one of the worker's threads."""
        if not self.alive or self.leaving:
            return
        while len(self.steps) < LANES:
            self.steps.append(self._next(chance, len(self.steps)))
        which = chance.randrange(LANES) if self.alone is None else self.alone
        try:
            next(self.steps[which])
        except StopIteration:
            self.steps[which] = self._next(chance, which)

    def _next(self, chance: random.Random, number: int) -> Iterator[None]:
        draw = chance.random()
        if draw < 0.45:
            return self.defer(number, chance.randrange(2))
        if draw < 0.55:
            return self.finalize(number, chance.choice((0, 1, None)))
        if draw < 0.65:
            return self.measured(number, chance.randint(1, 99))
        return self.span(number, DURATION)

    def finish(self) -> None:
        """Let each thread finish its action."""
        order = sorted(range(len(self.steps)), key=lambda number: number != self.alone)
        for number in order:
            for _ in self.steps[number]:
                pass
        self.steps = []

    def end(self) -> None:
        """End cleanly while a consumer is attached."""
        self.finish()
        os.pwrite(self.fd, struct.pack("<Q", 1), self._process + forge.later("process", "ended"))
        self.ended = True
        self.die()

    def leave(self, prefix: str, consumed: Callable[[], bool]) -> Generator[None, None, None]:
        """End cleanly, in steps. The worker may be killed after each step: the segment or a record of it must be
        left."""
        self.finish()
        os.pwrite(self.fd, struct.pack("<Q", 1), self._process + forge.later("process", "ended"))
        self.leaving = self.ended = True
        steps = self._leave(prefix, consumed)
        next(steps)
        return steps

    def _leave(self, prefix: str, consumed: Callable[[], bool]) -> Generator[None, None, None]:
        try:
            yield
            marked = _reader.SegmentCopier(self.fd).control()["attached"]
            if not marked and not consumed():
                yield
                if append(prefix, self.fd):
                    yield
                    self.unlink()
        finally:
            self.die()

    def unlink(self) -> None:
        """Remove the worker's segment after a record of it was written."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SHM / self.file)
            self.reaped = True

    @property
    def recorded(self) -> bool:
        """Return whether the worker has recorded anything."""
        return any(lane.begun or lane.attempts for lane in self.lanes)

    @property
    def heir(self) -> Writer:
        """Return the newest segment in which this process continued."""
        return self if self.goes_on is None else self.goes_on.heir

    @property
    def begun(self) -> int:
        return sum(lane.begun for lane in self.lanes)

    def take_over(self, lost: Writer) -> None:
        """Continue the process that lost its segment: take over its totals, and begin with empty rings."""
        os.pwrite(self.fd, lost.uuid[:8], self._process + forge.later("process", "took"))
        self.history, self.known, self.dropped, self.spans = lost.history, lost.known, lost.dropped, lost.spans
        for number, (mine, its) in enumerate(zip(self.lanes, lost.lanes, strict=True)):
            mine.ids, mine.begun = its.ids, its.begun
            if mine.begun:
                self._store("lane", number, "begun", mine.begun)
                self._summarize(number, mine.begun, DURATION)
        lost.goes_on, self.uncertain, self.first = self, lost.uncertain, lost.first

    def die(self) -> None:
        """Die between two stores; the kernel drops the lock."""
        if self.alive:
            self.alive = False
            os.close(self.fd)


def append(prefix: str, fd: int) -> bool:
    """Append a record of a removed segment."""
    return _reader.append_removed(prefix, _reader.SegmentCopier(fd).removed(_reader.REMOVED_ROOM, 0))


# ---- the daemon's world


class Killed(BaseException):
    """Raised instead of SIGKILL: the daemon stops immediately."""


@dataclass
class Faults:
    """Decides which fault happens at each effect of the daemon."""

    chance: random.Random
    meanwhile: Callable[[], None]
    kill: float = 0.0
    tear: float = 0.0
    full: float = 0.0
    refuse: float = 0.0
    refused: bool = False
    effects: list[str] = field(default_factory=list)

    def meet(self, effect: str) -> None:
        """Let other processes act, or a fault happen, before an effect."""
        self.effects.append(effect)
        self.meanwhile()
        if self.chance.random() < self.kill:
            raise Killed(effect)

    def fail(self, effect: str) -> None:
        if self.chance.random() < self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), effect)

    def some(self, data: bytes) -> int:
        """Return how many of the bytes are written. This draws one random number, no matter how many bytes there
        are.
        """
        return int(self.chance.random() * (len(data) + 1))

    def write_all(self, writes: list[tuple[int, int, bytes]]) -> dict[int, int]:
        for fd, offset, data in writes:
            self.meet("tails")
            if self.chance.random() < self.tear:
                os.pwrite(fd, data[: self.some(data)], offset)
                raise Killed("tails torn")
            os.pwrite(fd, data, offset)
        return {}


class _Os:
    """The module os, as the daemon sees it."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_CREAT:
            self._faults.meet("open")
            self._faults.fail("open")
        return os.open(path, flags, *rest)

    def write(self, fd: int, data: Any) -> int:
        self._faults.meet("write")
        if self._faults.chance.random() < self._faults.tear:
            os.write(fd, bytes(data)[: self._faults.some(data)])
            raise Killed("write torn")
        self._faults.fail("write")
        return os.write(fd, bytes(data)[: max(1, self._faults.some(data))])

    def replace(self, draft: Any, path: Any) -> None:
        self._faults.meet("replace")
        self._faults.fail("replace")
        os.replace(draft, path)

    def ftruncate(self, fd: int, size: int) -> None:
        for _ in range(5):  # removals are rare, so do several steps at once to bring them to an end
            self._faults.meet("ftruncate")
        os.ftruncate(fd, size)

    def unlink(self, path: Any) -> None:
        self._faults.meet("unlink")
        os.unlink(path)


class _PosixIpc:
    """The module posix_ipc, as the daemon sees it."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(posix_ipc, name)

    def unlink_shared_memory(self, name: str) -> None:
        self._faults.meet("unlink")
        if self._faults.chance.random() < self._faults.refuse:
            self._faults.refused = True
            raise posix_ipc.PermissionsError
        posix_ipc.unlink_shared_memory(name)


@dataclass
class World:
    prefix: str
    path: Path
    patch: pytest.MonkeyPatch
    chance: random.Random
    now_ns: int = 0
    writers: list[Writer] = field(default_factory=list)
    daemon: Collector | None = None
    logged: list[tuple[str, str, str]] = field(default_factory=list)
    kills: int = 0
    slow: bool = False
    damage: float = 0.0
    damaged: bool = False
    looks: int = 0
    seen: dict[str, int] = field(default_factory=dict)  # the number of spans that each worker showed, by uuid
    removing: list[Generator[None, None, None]] = field(
        default_factory=list
    )  # another process may act between any two steps
    names: dict[str, str] = field(default_factory=dict)
    copies: set[str] = field(default_factory=set)  # the names of files that are copies of segments
    copies_drained: set[str] = field(default_factory=set)
    # How many details were folded up to the last checkpoint, keyed by worker: first by all daemons that have died, then
    # by the present one.
    folded: Counter[str] = field(default_factory=Counter)
    folding: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.faults = Faults(self.chance, self.meanwhile)
        self.patch.setattr(checkpoint, "os", _Os(self.faults))
        self.patch.setattr(segment_files, "os", _Os(self.faults))
        self.patch.setattr(segment_files, "posix_ipc", _PosixIpc(self.faults))
        self.patch.setattr(removed_file, "os", _Os(self.faults))
        self.patch.setattr(_reader, "write_all", self.faults.write_all)
        # no need to watch the workers: no process here records without a lock
        self.patch.setattr(worker_survey, "_WATCH_SECONDS", 0.0)

    def ticks(self) -> int:
        """The writers' clock."""
        self.now_ns += self.chance.randint(1, 1000)
        return self.now_ns

    def meanwhile(self) -> None:
        if self.writers:
            for _ in range(self.chance.randint(0, 3)):
                self.chance.choice(self.writers).act(self.chance)
        while self.removing and self.chance.random() < 0.4:
            self.go_on_removing()
        if self.chance.random() < 0.05:
            self.look()

    def look(self) -> None:
        """Read the workers while the daemon runs, if its loop allows that."""
        if self.daemon is None:
            self.look_alone()
            return
        roster = self.daemon.roster
        if not roster.reading.acquire(blocking=False):
            return
        try:
            if roster.lock.acquire(blocking=False):
                roster.lock.release()
                self.looks += 1
                judge_look(self, self.survey())
        finally:
            roster.reading.release()

    def look_alone(self) -> None:
        """Read the workers without a daemon."""
        with contextlib.suppress(CheckpointRefused):
            memory = checkpoint.load(self.path) or Memory(self.prefix)
            self.looks += 1
            judge_look(self, survey(self.prefix, memory.background()), names=False)

    def start(self) -> None:
        """Start a daemon from the checkpoint of the last daemon."""
        if self.path.exists() and self.chance.random() < self.damage:
            content = bytearray(self.path.read_bytes() or b"\0")
            content[int(self.chance.random() * len(content))] ^= 1 << self.chance.randrange(8)
            self.path.write_bytes(content[: int(self.chance.choice((1, self.chance.random())) * len(content))])
            self.damaged = True
        try:
            memory = checkpoint.load(self.path) or Memory(self.prefix)
        except CheckpointRefused as error:
            self.logged.append(("break", "", str(error)))
            memory = Memory(self.prefix)
        self.daemon = collector.Collector(memory, self._keep, self._log_event, clock=int)

    def _keep(self, content: bytes) -> None:
        assert self.daemon is not None
        folding = {each.uuid: each.drain.spans for each in self.daemon.roster.attached.values()}
        checkpoint.save(self.path, content)
        self.folding |= folding

    def _log_event(self, kind: str, text: str, *, worker: str | None = None, **_: str | None) -> None:
        self.logged.append((kind, worker or "", text))

    def survey(self) -> Survey:
        """Return all workers as the present daemon shows them."""
        assert self.daemon is not None
        return survey(self.prefix, self.daemon.memory.background(), self.daemon.roster.held())

    def stop(self) -> None:
        """End the daemon; the kernel closes its descriptors."""
        if self.daemon is not None:
            self._note_copies()
            for each in self.daemon.roster.attached.values():
                each.segment.close()
            for writer in self.writers:
                if writer.removed and self.has(writer):
                    self._unsure(writer)
        self.daemon = None
        self.names.clear()  # the names given in the daemon's last second were not saved
        self.folded.update(self.folding)
        self.folding = {}

    def now_folding(self, uuid: str) -> int:
        """Return how many details the present daemon has folded for a worker that it drains or remembers."""
        assert self.daemon is not None
        here = {each.uuid: each.drain.spans for each in self.daemon.roster.attached.values()}
        return here.get(uuid, self.folding.get(uuid, 0))

    def tick(self, seconds: float) -> None:
        """Let the daemon do a tick, or start a daemon; it may die in the tick."""
        self.now_ns += int(seconds * SECOND)
        try:
            if self.daemon is None:
                self.start()
            assert self.daemon is not None
            self.daemon.tick(self.now_ns, look=True)
            self._note_copies()
        except Killed:
            self.kills += 1
            self.stop()

    def worker(self) -> None:
        self.writers.append(Writer(self.prefix, len(self.writers) + 1, self.ticks, slow=self.slow))

    def remove(self, writer: Writer) -> None:
        """Remove a worker's segment."""
        if self._missed(writer) or writer.copied:
            return
        os.unlink(SHM / writer.file)
        writer.removed = True
        if not self.has(writer):
            self._unsure(writer)

    def has(self, writer: Writer) -> bool:
        """Return whether the present daemon drains this worker's own segment instead of a copy."""
        return self._has_open(writer.identifier)

    def _note_copies(self) -> None:
        """Note the copies that the daemon drains in place of a worker's own file."""
        assert self.daemon is not None
        self.copies_drained |= self.copies.intersection(
            each.segment.name for each in self.daemon.roster.attached.values()
        )

    def _has_open(self, identifier: segment_files.Identifier | None) -> bool:
        attached = () if self.daemon is None else self.daemon.roster.attached.values()
        return any(each.segment.identifier == identifier for each in attached)

    def _missed(self, writer: Writer) -> bool:
        """Return whether the daemon has not found the segment yet. If the worker left the segment now, the daemon would
        never see it.
        """
        return self.daemon is not None and not self.has(writer) and not writer.vanished

    def reopen(self, lost: Writer) -> None:
        """Let the worker notice that its segment was removed, and continue in another segment."""
        if self._missed(lost):
            return
        lost.finish()
        self.worker()
        self.writers[-1].take_over(lost)
        lost.die()

    def leave(self, writer: Writer) -> None:
        """Let a worker end, whether or not a daemon drains it."""
        self.removing.append(writer.leave(self.prefix, lambda: self.has(writer)))

    def reap(self, writer: Writer) -> None:
        """Let a new worker find a dead worker's segment that has no consumer, and remove the segment."""
        self.removing.append(self._reap(writer))

    def _reap(self, writer: Writer) -> Generator[None, None, None]:
        yield
        try:
            fd = os.open(SHM / writer.file, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            appended = append(self.prefix, fd)
        finally:
            os.close(fd)
        if appended:
            yield
            writer.unlink()

    def go_on_removing(self) -> None:
        """Do one step of a process that removes a segment, or kill it."""
        which = self.removing.pop(self.chance.randrange(len(self.removing)))
        if self.chance.random() < 0.1:
            which.close()
        elif next(which, self) is not self:
            self.removing.append(which)

    def _unsure(self, writer: Writer) -> None:
        writer.vanished = writer.uncertain = True
        while writer.goes_on is not None:
            writer = writer.goes_on
            writer.uncertain = True

    def run(self, steps: int) -> None:
        """Let `steps` actions happen, in the order that the seed decides."""
        chance = self.chance
        for _ in range(steps):
            self._remove_some()
            draw = chance.random()
            alive = [each for each in self.writers if each.alive and not each.leaving]
            if draw < 0.05 and len(self.writers) < 5:
                self.worker()
                if chance.random() < 0.3:
                    self._live_shortly(self.writers[-1])
            elif draw < 0.07 and alive:
                chance.choice(alive).die()
            elif draw < 0.09 and alive:
                chance.choice(alive).end()
            elif draw < 0.12 and alive and len(self.writers) < 8:
                which = chance.choice(alive)
                (self.reopen if which.removed else self.remove)(which)
            elif draw < 0.2 and (removed := [each for each in alive if each.removed]):
                self.reopen(chance.choice(removed))
            elif draw < 0.6 and alive:
                for _ in range(chance.randint(1, 12)):
                    chance.choice(alive).act(chance)
            else:
                self.tick(chance.choice((0.001, 0.02, 1.0, 1.0, 6.0)))

    def _remove_some(self) -> None:
        """Remove segments with a record: a worker ends, or a worker removes the segments of dead workers."""
        alive = [each for each in self.writers if each.alive and not each.leaving]
        if alive and self.chance.random() < 0.02:
            self.leave(self.chance.choice(alive))
        if self.chance.random() < 0.3 and (dead := self._dead()):
            self.reap(self.chance.choice(dead))
        if self.chance.random() < 0.04:
            self.copy()
        if self.chance.random() < 0.1:
            self.take_away()
        while self.removing and self.chance.random() < 0.3:
            self.go_on_removing()
        if self.chance.random() < 0.1:
            self.look()

    def copy(self) -> None:
        """Copy a segment; the name of the copy sorts before or after the original. No worker holds a lock on the
        copy."""
        # Never copy a segment that was removed without a record. The copy would be the only place in which its spans
        # are counted.
        there = [each for each in self.writers if not each.removed and (SHM / each.file).exists()]
        if not there:
            return
        writer = self.chance.choice(there)
        name = f"{self.prefix}{self.chance.choice(('!', 'copy'))}{writer.file.removeprefix(self.prefix)}"
        draft = SHM / f".{name}"
        draft.write_bytes((SHM / writer.file).read_bytes())
        draft.chmod(0o600)
        draft.rename(SHM / name)
        writer.copied = True
        self.copies.add(name)

    def take_away(self) -> None:
        """Remove a copy, with or without a record of it."""
        there = [name for name in sorted(self.copies) if (SHM / name).exists()]
        if not there:
            return
        name = self.chance.choice(there)
        if self.chance.random() < 0.5:
            (SHM / name).unlink()
        else:
            self.removing.append(self._reap_copy(name))

    def _reap_copy(self, name: str) -> Generator[None, None, None]:
        yield
        try:
            fd = os.open(SHM / name, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            status = os.fstat(fd)
            appended = not self._has_open((status.st_dev, status.st_ino)) and append(self.prefix, fd)
        finally:
            os.close(fd)
        if appended:
            yield
            (SHM / name).unlink(missing_ok=True)

    def _live_shortly(self, writer: Writer) -> None:
        """Let a worker live and die before any daemon finds it."""
        for _ in range(self.chance.randint(0, 20)):
            writer.act(self.chance)
        writer.die() if self.chance.random() < 0.5 else self.leave(writer)

    def _dead(self) -> list[Writer]:
        """Return the workers that a new worker would find dead."""
        return [each for each in self.writers if not each.alive and not self.has(each) and (SHM / each.file).exists()]

    def settle(self) -> None:
        """Stop all faults, and let all live workers come to rest."""
        self.faults.kill = self.faults.tear = self.faults.full = self.faults.refuse = self.damage = 0.0
        for each in self.removing:
            each.close()  # as if the process was killed in the middle of a removal
        self.removing.clear()
        for writer in self.writers:
            if writer.alive:
                writer.finish()
        self.faults.meanwhile = lambda: None
        for _ in range(6):
            self.tick(6.0)

    def close(self) -> None:
        self.stop()
        for each in self.writers:
            each.die()
        for file in SHM.glob(self.prefix + "*"):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()


def judge_look(world: World, found: Survey, *, names: bool = True) -> None:
    """Check a reading: it has each worker once; no worker has more spans than it began, or fewer than in earlier
    readings."""
    uuids = [each.reading.uuid for each in found.workers]
    assert len(uuids) == len(set(uuids))
    by_uuid = {each.uuid.hex(): each for each in world.writers}
    spans = {each.reading.uuid: each.ledger.spans["begun"] for each in found.workers}
    for each in found.workers:
        writer = by_uuid[each.reading.uuid]
        assert each.ledger.spans["summarized"] <= writer.spans
        assert each.reading.deferred.get("started", 0) <= len(writer.history.starts)
        # The daemon may drop a copy and use the worker's own file instead. Then the worker loses the name that its
        # earlier segment had.
        sure = not (writer.uncertain or world.damaged or writer.copied)
        if names and each.reading.alive and sure and world.has(writer):
            assert world.names.setdefault(writer.first, each.name) == each.name, "the live worker keeps the name"
    for uuid, begun in list(spans.items()):
        heir = by_uuid[uuid].heir.uuid.hex()
        # If the worker's new segment was removed, only its lost segment is still shown. The spans of the lost segment
        # must not be counted again in the record of the new one.
        if heir not in uuids:
            spans[heir] = spans.get(heir, 0) + begun
    for removed in found.removed:
        spans[removed.uuid] = spans.get(removed.uuid, 0) + removed.counts.spans
    for uuid, begun in spans.items():
        assert begun <= by_uuid[uuid].begun, "no span is shown or removed twice"
    if not world.damaged:
        moved = {each.uuid.hex() for each in world.writers if each.goes_on is not None or each.vanished}
        for uuid, begun in world.seen.items():
            assert uuid in moved or not by_uuid[uuid].recorded or spans.get(uuid, -1) >= begun, "no total decreases"
    world.seen |= {uuid: max(begun, world.seen.get(uuid, 0)) for uuid, begun in spans.items()}
