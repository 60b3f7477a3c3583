"""A copy of a segment as it was at one moment.

Owns: `Reading`, a private copy of a segment without its rings, and `Identity`, the part that identifies the worker.
Must not know: files, how a segment is read, how numbers are shown.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

from brickd.shm import _reader

CLOCKS = {1: "TSC", 2: "CNTVCT", 3: "CLOCK_MONOTONIC_RAW"}


class CallPath(NamedTuple):
    """A place in the call tree, or a mark at a place. `parent` and `layer` are -1 if the path has none."""

    parent: int
    name: int
    layer: int
    unit: int

    @property
    def marks(self) -> bool:
        """Whether the path is a mark: a launch, a transfer, a need or a node. Marks have counts but no times."""
        return self.unit >= _reader.UNIT_LAUNCHED

    @property
    def holds_spans(self) -> bool:
        """Whether a span may have this path as parent. Of marks, only a node of the execution graph can be a parent."""
        return not self.marks or self.unit == _reader.UNIT_NODE


class SiteKey(NamedTuple):
    """A place where fingerprints are compared: the name of a kernel, and its layer or -1."""

    name: int
    layer: int
    unit: int

    @property
    def off(self) -> bool:
        """Whether the worker never reads the tensors of the site, because they would reveal the text of requests."""
        return self.unit == _reader.SITE_OFF


@dataclass(frozen=True, slots=True)
class Identity:
    """A worker's declared identity, and whether the worker is alive.

    The worker's name depends on the identity and on whether the worker is alive.

    Attributes:
        file: the name of the segment.
        pid: the pid of the worker's process; 0 if it is in another pid namespace, None if it has ended.
    """

    file: str
    header: _reader.Header
    pid: int | None

    @property
    def service(self) -> str:
        """The service that the worker declared."""
        return label(self.header["service"])

    @property
    def coordinates(self) -> str:
        """The coordinates or the name that the worker declared, or ""."""
        return label(self.header["coordinates"])

    @property
    def uuid(self) -> str:
        """The worker's unique id, which depends neither on its name nor on its pid."""
        return self.header["uuid"].hex()

    @property
    def clock(self) -> str:
        """The name of the clock that counts the worker's ticks."""
        return CLOCKS[self.header["clock"]]

    @property
    def alive(self) -> bool:
        """Whether the worker's process held the worker's lock."""
        return self.pid is not None


@dataclass(frozen=True, slots=True)
class Reading(Identity):
    """A segment's content at one moment, copied and checked; times are in ticks.

    Attributes:
        latency: like `summaries`, but of the times from the start of deferred work to its sync; empty if no daemon has
            read any deferred work.
        deferred: how many starts of deferred work had each outcome.
        now_ticks: the value of the worker's clock; None if unknown.
        flags: the consumer's requests to the worker (CONTROL_*).
        drained: whether a process drains the worker's rings; True for a stored reading.
        sites: the sites by id; None for a site that is not written yet.
        asked_rate: the rate of steps for which the consumer requests checksums; 0 if the worker's own rate applies.
        left_out: the sites for which the consumer requests no checksums, one bit for each site id.
    """

    process: _reader.ProcessCounters
    lanes: list[tuple[int, _reader.Lane, _reader.Consumer]]
    names: list[tuple[str, int] | None]
    paths: list[CallPath | None]
    summaries: bytes | _reader.Packed
    odd: int
    moving: int
    tick_ns: float
    now_ticks: int | None
    memory_bytes: int
    latency: bytes | _reader.Packed = b""
    deferred: Mapping[str, int] = field(default_factory=dict)
    flags: int = 0
    drained: bool = True
    sites: list[SiteKey | None] = field(default_factory=list)
    asked_rate: int = 0
    left_out: int = 0

    def alike(self) -> list[tuple[_reader.Lane, _reader.Consumer, int]]:
        """Return the lanes.

        If consecutive lanes are the same object, they appear only once, together with a count. This saves time, because
        a worker may have 1,024 lanes, and most are unused.
        """
        runs = groupby(self.lanes, lambda each: (id(each[1]), id(each[2])))
        return [(lane, consumer, 1 + sum(1 for _ in run)) for _, run in runs for _, lane, consumer in islice(run, 1)]

    @property
    def lost(self) -> str:
        """The first half of the uuid of a lost segment whose totals the worker took over; "" if there is none."""
        return begins(self.process["took"])

    @property
    def ended(self) -> bool:
        """Whether the worker ended cleanly, without being killed."""
        return not self.alive and self.process["ended"] != 0

    @property
    def detailed(self) -> bool:
        """Whether the consumer requests the detail of each span."""
        return self.flags & _reader.CONTROL_SPANS != 0

    @property
    def unread(self) -> bool:
        """Whether the worker keeps the detail of each span although no process reads it."""
        return self.alive and self.detailed and not self.drained

    @property
    def thinned(self) -> bool:
        """Whether the consumer requests checksums of other steps or sites than the worker is configured for."""
        return self.asked_rate != 0 or self.left_out != 0

    @property
    def thinned_unowned(self) -> bool:
        """Whether the worker still has requests for other steps or sites although it has no consumer."""
        return self.alive and self.thinned and not self.drained

    @property
    def rate(self) -> int:
        """The rate of steps with checksums; 0 if it is not set."""
        return self.asked_rate or self.header["rate"]

    @property
    def own_rate(self) -> int:
        """The rate for the parts of instrumented models; 0 if there are no such parts or `rate` applies to them too."""
        own = self.process["rate"]
        return own if self.rate == 0 and own <= _reader.RATE_ALL else 0

    def leaves_out(self, site: int) -> bool:
        """Whether the consumer requests no checksums of a site."""
        return self.left_out >> site & 1 != 0

    @property
    def off(self) -> bool:
        """Whether the consumer requests that the worker records nothing."""
        return self.flags & _reader.CONTROL_OFF != 0

    def name(self, number: int) -> str:
        """Return the text of a name, or the name's id if the name is not written yet."""
        return name_in(self.names, number)

    def category(self, number: int) -> str:
        """Return the declared category of a name, or 'other'."""
        entry = self.names[number] if 0 <= number < len(self.names) else None
        return self.name(entry[1]) if entry is not None and entry[1] != 0 else "other"


def name_in(names: Sequence[tuple[str, int] | None], number: int) -> str:
    """Return the text of a name in a table, or the name's id if the name is not written yet."""
    entry = names[number] if 0 <= number < len(names) else None
    return entry[0] if entry is not None else f"name#{number}"


def begins(took: int) -> str:
    """Return the first half of a lost segment's uuid, decoded from the word `took`; "" if there is none."""
    return took.to_bytes(8, "little").hex() if took else ""


@functools.lru_cache(maxsize=1_024)
def label(text: bytes) -> str:
    """Return the text in a field of fixed size. An answer asks for each worker's service many times."""
    return text.split(b"\0", 1)[0].decode("utf-8", "replace")
