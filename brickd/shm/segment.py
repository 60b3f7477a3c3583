"""One segment. This module opens it, accepts or refuses it, and reads it.

Owns: the calls of the reader that make a `Reading`. Must not know: the meaning of the numbers, the use of readings.
Invariant: an invalid segment only raises `SegmentRefused`, with a reason, and affects no other segment.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from brickd.errors import SegmentRefused, SegmentUnpublished
from brickd.shm import _reader
from brickd.shm.clock import Now, WorkerClock
from brickd.shm.sampling import bits_of, changed
from brickd.shm.segment_copy import CallPath, Identity, Reading, SiteKey, label
from brickd.shm.segment_files import SegmentFile, opened
from brickd.shm.sites import WorkerNames

# The minor versions of the format since which workers can thin out checksums, follow epochs, and run canaries.
_THINS_SINCE, _EPOCHS_SINCE, _CANARIES_SINCE = 4, 8, 15
_SHARED_MAX = 4_096  # tables with more rows are not cached; the 16 cached tables take 12 MB at most


class Extent(NamedTuple):
    """The amount of data in a segment: holes do not count, and the header is not trusted.

    Attributes:
        lines: the number of lanes to read, opened or not.
        lanes: the number of opened lanes; consecutive equal lanes count once.
        names: the rows of the table of names up to the last written row; likewise for paths and sites.
        blocks: the blocks of summaries, with 64 paths each.
    """

    lines: int
    lanes: int
    names: int
    paths: int
    sites: int
    blocks: int


class Segment(SegmentFile):
    """An open segment with a valid header."""

    def __init__(self, name: str, fd: int) -> None:
        super().__init__(name, fd)
        with _refusing(name):
            if not self.published():
                raise SegmentUnpublished(name, "not published yet: its worker is starting, or died while it started")
            self._copier = _reader.SegmentCopier(fd)
            self.header = self._copier.header()
            if self.header["uid"] != self.uid:
                raise ValueError(f"names user {self.header['uid']} as its creator, but user {self.uid} owns it")
        self._clock = WorkerClock(self.header, self.worker())

    @property
    def service(self) -> str:
        """The service that the worker declared."""
        return label(self.header["service"])

    @property
    def coordinates(self) -> str:
        """The worker's coordinates or name, or ""."""
        return label(self.header["coordinates"])

    def now(self) -> Now:
        """The current value of the worker's clock."""
        return self._clock.now()

    @property
    def fetched(self) -> int:
        """The number of bytes read from the segment so far."""
        return self._copier.fetched

    def extent(self) -> Extent:
        """Return how much data there is to read now."""
        with _refusing(self.name):
            return Extent(*self._copier.extent())

    def process(self) -> _reader.ProcessCounters:
        """Return the counters of the worker."""
        with _refusing(self.name):
            return self._copier.process()

    def dropped(self, kind: int) -> int:
        """Return the number of events of a kind for which there was no room."""
        with _refusing(self.name):
            return self._copier.sums()[2][kind]

    def activity(self) -> int:
        """A number that changes whenever the worker records something."""
        with _refusing(self.name):
            return self._copier.sums()[0]

    def spans(self) -> int:
        """The number of summarized spans; 0 if the number cannot be read."""
        try:
            return self._copier.sums()[1]
        except ValueError:
            return 0

    def removed(self, reason: int) -> bytes:
        """Return the record that is appended to a file before the segment is removed."""
        with _refusing(self.name):
            return self._copier.removed(reason, time.time_ns())

    @property
    def thins(self) -> bool:
        """Whether the worker supports a rate and a selection of sites for checksums."""
        return self.header["minor"] >= _THINS_SINCE

    def command(self, flags: int, rate: int = 0, left_out: int = 0) -> None:
        """Write the flags, the rate of checksums and the excluded sites.

        Only what changed is written. The rate 0 stands for the worker's own rate.
        """
        asked = self.control()
        if asked["flags"] != flags:
            self._ask("flags", flags.to_bytes(4, "little"))
        if not self.thins:
            return
        if asked["fingerprint_rate"] != rate:
            self._ask("fingerprint_rate", rate.to_bytes(4, "little"))
        at, words = changed(bits_of(asked["sites"]), left_out)
        if words:
            self._ask("sites", words, at)

    def mark_attached(self) -> None:
        """Tell the worker that a consumer attached. The worker then leaves its segment behind when it ends cleanly."""
        if not self.control()["attached"]:
            self._ask("attached", (1).to_bytes(8, "little"))

    @property
    def has_epochs(self) -> bool:
        """Whether the worker uses the epoch to choose the steps with checksums."""
        return self.header["minor"] >= _EPOCHS_SINCE

    def epoch_write(self, word: int) -> tuple[int, int, bytes]:
        """Return an argument for `_reader.write_all` that writes an epoch word."""
        return self.fd, _reader.CONTROL + _control_fields()["epoch"], word.to_bytes(8, "little")

    @property
    def has_canaries(self) -> bool:
        """Whether the worker's agent can run the canaries that a daemon orders."""
        return self.header["minor"] >= _CANARIES_SINCE

    def order_canary(self, digest: int) -> int:
        """Tell the worker to run the canary whose definition has this digest; return the number of the order."""
        order = self.control()["canary"] % 2**32 % (2**32 - 1) + 1
        self._ask("canary", (digest << 32 | order).to_bytes(8, "little"))
        return order

    def rescan(self) -> None:
        """Tell the worker to read its weights again. The segment must be open for writing."""
        number = (self.control()["weights"] + 1) % 2**64
        self._ask("weights", number.to_bytes(8, "little"))

    def _ask(self, field: str, content: bytes, beyond: int = 0) -> None:
        try:
            os.pwrite(self.fd, content, _reader.CONTROL + _control_fields()[field] + beyond)
        # an invalid segment may have a hole here, which cannot be filled while /dev/shm is full
        except OSError as error:
            raise SegmentRefused(self.name, f"cannot be written: {error.strerror}") from error

    def control(self) -> _reader.Control:
        """Return the settings that the consumer requests from the worker."""
        with _refusing(self.name):
            return self._copier.control()

    def tables(self) -> WorkerNames:
        """Return the names for the ids in checksums.

        Sites are read before names, so that the names of all these sites are read too.
        """
        with _refusing(self.name):
            sites = self._copier.sites()
            return WorkerNames(self._copier.names(), sites)

    def ring(self, lane: int, *, events: bool, newest: int = 0) -> tuple[int, bytes]:
        """Return the position of the first slot of a ring that is not consumed, and all these slots, which are few."""
        with _refusing(self.name):
            return self._copier.ring(lane, events)

    def identity(self) -> Identity:
        """Return the data that determine the worker's name, without reading its records."""
        return Identity(self.name, self.header, self.worker())

    def read(self) -> Reading:
        """Copy everything except the rings.

        The summaries are packed, because several surveys keep the readings of all segments at the same time.
        """
        with _refusing(self.name):
            pid = self.worker()
            summaries, odd, moving = self._copier.summaries()
            # Paths are read after summaries, and names after paths and sites, so that each summary has a path, and each
            # path and site has a name. In an invalid segment, there may be fewer paths than summaries.
            paths = self._copier.paths()[: len(summaries) // _reader.SUMMARY_BYTES]
            if len(paths) * _reader.SUMMARY_BYTES < len(summaries):
                summaries = _reader.Packed(memoryview(summaries)[: len(paths) * _reader.SUMMARY_BYTES])
            sites = _sites(tuple(self._copier.sites()))
            names = self._copier.names()
            tick_ns, now_ticks = self.now()
            control = self._copier.control()
            return Reading(
                file=self.name,
                header=self.header,
                pid=pid,
                process=self._copier.process(),
                lanes=self._copier.lanes(),
                names=names,
                paths=_paths(paths),
                summaries=summaries,
                odd=odd,
                moving=moving,
                tick_ns=tick_ns,
                now_ticks=now_ticks,
                memory_bytes=self.memory_bytes,
                flags=control["flags"],
                asked_rate=control["fingerprint_rate"] if self.thins else 0,
                left_out=bits_of(control["sites"]) if self.thins else 0,
                drained=self.drained(),
                sites=sites,
            )


@functools.cache
def _control_fields() -> dict[str, int]:
    """Return the offsets of the fields of the control page."""
    return {row[1]: row[2] for row in (*_reader.layout(), *_reader.later()) if row[0] == "control"}


def _paths(rows: Sequence[tuple[int, int, int, int] | None]) -> list[CallPath | None]:
    return _shared_paths(tuple(rows)) if len(rows) <= _SHARED_MAX else _checked_paths(rows)


@functools.lru_cache(maxsize=16)
def _shared_paths(rows: tuple[tuple[int, int, int, int] | None, ...]) -> list[CallPath | None]:
    """Return the paths of these rows. The result is cached, because most workers of a service have the same paths."""
    return _checked_paths(rows)


def _checked_paths(rows: Iterable[tuple[int, int, int, int] | None]) -> list[CallPath | None]:
    paths = [None if row is None else CallPath._make(row) for row in rows]
    for number, path in enumerate(paths):
        if path is not None and path.unit == _reader.UNIT_BOUND:  # only a daemon adds paths of this unit
            raise ValueError(f"path {number} has unit {path.unit}, which workers never write")
    return paths


@functools.lru_cache(maxsize=16)
def _sites(rows: tuple[tuple[int, int, int] | None, ...]) -> list[SiteKey | None]:
    return [None if row is None else SiteKey._make(row) for row in rows]


@contextmanager
def _refusing(file: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise SegmentRefused(file, str(error)) from None
    except OSError as error:
        raise SegmentRefused(file, f"cannot be read: {error.strerror}") from error


def open_segment(name: str, access: int = os.O_RDONLY) -> Segment:
    """Open a segment by the name of its file. To drain it, open it with O_RDWR.

    Raises:
        SegmentRefused: the file is not a valid segment, or no longer exists (SegmentUnopened: it cannot be a segment).
        SegmentUndrained: this process can open no more files now.
        SegmentUnpublished: the worker is starting, or died while starting.
        NotPermitted: the segment belongs to another user.
    """
    fd = opened(name, access)
    try:
        return Segment(name, fd)
    except BaseException:
        os.close(fd)
        raise
