"""One segment: found, opened, believed or refused, and read.

Owns: the file's rules (what may be opened, who lives, who consumes) and `Reading`, a private copy of all that a segment
said at one time. Must not know: what the numbers mean to people, or where readings go. Invariants: a file is opened
without following links or waiting for anybody; nothing is opened twice by a process that holds a lock on it; whatever
does not add up is `SegmentRefused` with a reason, never an exception of another kind; a refused segment costs itself
alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from brickd import _reader
from brickd.errors import NotPermitted, SegmentRefused, SegmentUndrained, SegmentUnopened, SegmentUnpublished
from brickd.locks import holder, take

_CLOCKS = {1: "TSC", 2: "CNTVCT", 3: "CLOCK_MONOTONIC_RAW"}


def prefix() -> str:
    """What the names of segments begin with."""
    return os.environ.get("BRICKD_SHM_PREFIX") or _reader.PREFIX


def find(beginning: str | None = None) -> list[str]:
    """The names of all files that could be segments, in a stable order."""
    beginning = prefix() if beginning is None else beginning
    try:
        return sorted(name for name in os.listdir(_reader.DIRECTORY) if name.startswith(beginning))
    except FileNotFoundError:
        return []


# Which file it is, whatever it is called: device and inode.
Identifier = tuple[int, int]


class Path(NamedTuple):
    """A place in the call tree; `parent` is -1 at a root, `layer` is -1 without one."""

    parent: int
    name: int
    layer: int
    unit: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a segment's worker says it is, and whether it lives: all that its name depends on.

    Attributes:
        file: the segment's name.
        header: what the worker said once, at its birth.
        pid: of the process that lives in it, as our namespace sees it (0: not at all); None: it ended.
    """

    file: str
    header: _reader.Header
    pid: int | None

    @property
    def service(self) -> str:
        """The service that the worker said it belongs to."""
        return _label(self.header["service"])

    @property
    def coordinates(self) -> str:
        """The worker's own coordinates or name, or ''."""
        return _label(self.header["coordinates"])

    @property
    def uuid(self) -> str:
        """Which worker this is, whatever its name and pid."""
        return self.header["uuid"].hex()

    @property
    def clock(self) -> str:
        """What its ticks are read from."""
        return _CLOCKS[self.header["clock"]]

    @property
    def alive(self) -> bool:
        """Whether its process held the worker's lock."""
        return self.pid is not None


@dataclass(frozen=True, slots=True)
class Reading(Identity):
    """All that a segment said at one time, copied and checked; times still in ticks.

    Attributes:
        latency: as `summaries`, from the starts of deferred work to its syncs; empty where no daemon knows of any.
        deferred: what became of those starts.
    """

    process: _reader.Process
    lanes: list[tuple[int, _reader.Lane, _reader.Consumer]]
    names: list[tuple[str, int] | None]
    paths: list[Path | None]
    summaries: bytes
    odd: int
    moving: int
    tick_ns: float
    now_ticks: int
    memory_bytes: int
    latency: bytes = b""
    deferred: Mapping[str, int] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether its worker came to its end by itself, and was not killed."""
        return not self.alive and self.process["ended"] != 0

    def name(self, number: int) -> str:
        """The text of a name; one that is not ready is told by its number."""
        entry = self.names[number] if 0 <= number < len(self.names) else None
        return entry[0] if entry is not None else f"name#{number}"

    def category(self, number: int) -> str:
        """The category declared for a name, else 'other'."""
        entry = self.names[number] if 0 <= number < len(self.names) else None
        return self.name(entry[1]) if entry is not None and entry[1] != 0 else "other"


def _label(text: bytes) -> str:
    return text.split(b"\0", 1)[0].decode("utf-8", "replace")


class File:
    """An open file that may be a segment: whose it is, who lives in it, its removal."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        status = os.fstat(fd)
        self.identifier = (status.st_dev, status.st_ino)
        self.uid = status.st_uid
        self.memory_bytes = status.st_blocks * 512

    def worker(self) -> int | None:
        """The pid of the process that lives in it, as our namespace sees it (0: not at all); None: it ended."""
        return holder(self.fd, _reader.LOCK_WORKER)

    def consumer(self) -> int | None:
        """The pid of the process that drains it, or None."""
        return holder(self.fd, _reader.LOCK_CONSUMER)

    def consume(self) -> bool:
        """Be the one that drains it, until this process ends or closes it; False: another one is."""
        return take(self.fd, _reader.LOCK_CONSUMER)

    def removable(self) -> bool:
        """Whether we may unlink it: only its owner may, where it lies."""
        return os.geteuid() in (0, self.uid)

    def linked(self) -> bool:
        """Whether it has a name still."""
        return os.fstat(self.fd).st_nlink > 0

    def published(self) -> bool:
        """Whether its worker finished making it."""
        return any(os.pread(self.fd, 8, 0))

    def same_file(self) -> bool:
        """Whether the name still leads to the file that is open here."""
        return identifier_of(self.name) == self.identifier

    def unlink(self) -> bool:
        """Remove the file; False when the name leads elsewhere by now."""
        if not self.same_file():
            return False
        try:
            # Not posix_ipc: it takes no name that is not UTF-8, and anybody may have made one.
            os.unlink(os.path.join(_reader.DIRECTORY, self.name))
        except FileNotFoundError:
            return False
        except PermissionError as error:
            raise NotPermitted(f"{self.name}: belongs to another user; only its owner may remove it") from error
        return True

    def close(self) -> None:
        """Give up the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Segment(File):
    """An open segment whose header was believed."""

    def __init__(self, name: str, fd: int) -> None:
        super().__init__(name, fd)
        with _refusing(name):
            if not self.published():
                raise SegmentUnpublished(name, "not published: its worker is starting, or died while it did")
            self._copier = _reader.Segment(fd)
            self.header = self._copier.header()
            if self.header["uid"] != self.uid:
                raise ValueError(f"says that user {self.header['uid']} made it, but user {self.uid} owns it")

    @property
    def service(self) -> str:
        """The service that its worker said it belongs to."""
        return _label(self.header["service"])

    def tick_ns(self) -> float:
        """The length of its worker's tick."""
        return _clock(self.header)[0]

    def process(self) -> _reader.Process:
        """The counters of the worker as a whole."""
        with _refusing(self.name):
            return self._copier.process()

    def dropped(self, kind: int) -> int:
        """How many events of a kind its worker found no room for."""
        with _refusing(self.name):
            return sum(lane["event_dropped"][kind] for _, lane, _ in self._copier.lanes())

    def activity(self) -> int:
        """A number that changes whenever something was recorded."""
        with _refusing(self.name):
            return sum(
                lane["begun"] + lane["summarized"] + lane["event_attempts"] for _, lane, _ in self._copier.lanes()
            )

    def spans(self) -> int:
        """How many spans were summarized; 0 where that cannot be read."""
        try:
            return sum(lane["summarized"] for _, lane, _ in self._copier.lanes())
        except ValueError:
            return 0

    def command(self, flags: int) -> None:
        """Ask something of its worker; needs the right to write."""
        if self.control()["flags"] != flags:
            os.pwrite(self.fd, flags.to_bytes(4, "little"), _reader.CONTROL)

    def control(self) -> _reader.Control:
        """What the consumer asked of the worker."""
        with _refusing(self.name):
            return self._copier.control()

    def ring(self, lane: int, *, events: bool) -> tuple[int, bytes]:
        """The number of the first slot that is still there, and the slots."""
        with _refusing(self.name):
            return self._copier.ring(lane, events)

    def identity(self) -> Identity:
        """What its worker's name depends on, without a look at what was recorded."""
        return Identity(self.name, self.header, self.worker())

    def read(self) -> Reading:
        """Copy everything but the rings."""
        with _refusing(self.name):
            pid = self.worker()
            summaries, odd, moving = self._copier.summaries()
            # Paths after summaries and names after paths: what is counted has a path, what has a path has a name.
            paths = self._copier.paths()[: len(summaries) // _reader.SUMMARY_BYTES]
            names = self._copier.names()
            tick_ns, now_ticks = _clock(self.header)
            return Reading(
                file=self.name,
                header=self.header,
                pid=pid,
                process=self._copier.process(),
                lanes=self._copier.lanes(),
                names=names,
                paths=[None if path is None else Path._make(path) for path in paths],
                summaries=summaries,
                odd=odd,
                moving=moving,
                tick_ns=tick_ns,
                now_ticks=now_ticks,
                memory_bytes=self.memory_bytes,
            )


@contextmanager
def _refusing(file: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise SegmentRefused(file, str(error)) from None
    except OSError as error:
        raise SegmentRefused(file, f"cannot be read: {error.strerror}") from error


def identifier_of(name: str) -> Identifier | None:
    """Which file has the name now, told without opening it; None: none has."""
    try:
        status = os.stat(os.path.join(_reader.DIRECTORY, name), follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


# Errors of whoever opens, not of the file.
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def _opened(name: str, access: int) -> int:
    if "/" in name:
        raise SegmentUnopened(name, "cannot be opened: a file's name holds no slash")
    try:
        # Not shm_open: that of glibc waits for the other end of a FIFO, and posix_ipc's crashes on a name with a zero.
        flags = access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(os.path.join(_reader.DIRECTORY, name), flags)
    except PermissionError as error:
        raise NotPermitted(f"{name}: belongs to another user") from error
    except FileNotFoundError as error:
        raise SegmentRefused(name, "is gone") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _PASSING:
            raise SegmentUndrained(name, f"cannot be opened now: {error.strerror}") from error
        raise SegmentUnopened(name, f"cannot be opened: {error}") from error
    status = os.fstat(fd)
    wrong = None
    if not stat.S_ISREG(status.st_mode):
        wrong = f"not a regular file but {stat.filemode(status.st_mode)}"
    elif status.st_nlink != 1:
        wrong = f"has {status.st_nlink} links, not 1"
    if wrong is not None:
        os.close(fd)
        raise SegmentUnopened(name, wrong)
    return fd


def open_file(name: str) -> File:
    """Open what may be a segment, by its file's name.

    Raises:
        SegmentRefused: it is gone.
        SegmentUnopened: it cannot be one.
        SegmentUndrained: this process can open no more files now.
        NotPermitted: it is another user's.
    """
    return File(name, _opened(name, os.O_RDONLY))


def open_segment(name: str, access: int = os.O_RDONLY) -> Segment:
    """Open a segment by its file's name.

    Args:
        name: of the file.
        access: O_RDWR for whoever is to consume it.

    Raises:
        SegmentRefused: it is none (SegmentUnopened: it cannot even be one), it lies, or it is gone.
        SegmentUndrained: this process can open no more files now.
        SegmentUnpublished: its worker is starting, or died while it did.
        NotPermitted: it is another user's.
    """
    fd = _opened(name, access)
    try:
        return Segment(name, fd)
    except BaseException:
        os.close(fd)
        raise


_PLAUSIBLE_TICK_NS = (0.05, 50.0)  # 20 GHz to 20 MHz
_SHORTEST_BASELINE_NS = 10_000_000


def _clock(header: _reader.Header) -> tuple[float, int]:
    """The length of the worker's tick, and the worker's clock now.

    The baseline is the worker's whole life: its first pair against one taken now. A first pair that cannot be (of
    another time namespace, say) is not believed, and a younger worker's baseline is too short: then this process
    measures for itself.
    """
    kind = header["clock"]
    ticks, ns = _reader.clock_pair(kind)
    if kind == _reader.CLOCK_MONOTONIC:
        return 1.0, ticks
    past_ticks, past_ns = ticks - header["anchor_ticks"], ns - header["anchor_ns"]
    own = _own_tick_ns(kind)
    if past_ticks > 0 and past_ns > _SHORTEST_BASELINE_NS:
        tick_ns = past_ns / past_ticks
        if _PLAUSIBLE_TICK_NS[0] < tick_ns < _PLAUSIBLE_TICK_NS[1] and abs(tick_ns / own - 1) < 0.001:
            return tick_ns, ticks
    return own, ticks


# The first one now, so that the 10 ms have passed by the time that it is wanted.
_own_pairs = {_reader.CLOCK_TSC: _reader.clock_pair(_reader.CLOCK_TSC)}


def _own_tick_ns(kind: int) -> float:
    """This process's own measure, over a baseline that grows with its age and is never shorter than 10 ms."""
    first = _own_pairs.setdefault(kind, _reader.clock_pair(kind))
    now = _reader.clock_pair(kind)
    if now[0] < first[0]:  # a counter that went back, as after a suspend: a new baseline
        first = _own_pairs[kind] = now
    while now[1] - first[1] < _SHORTEST_BASELINE_NS:
        now = _reader.clock_pair(kind)
    return (now[1] - first[1]) / (now[0] - first[0])
