"""What workers' weights are, as they last said: of each tensor the newest fingerprint, and the first of its generation.

Owns: who holds what, and how much is kept. Must not know: who is a replica of whom, files. Invariants: what is equal
is kept once, whoever holds it; of what finds no room nothing is known, and it is counted; what is read again and is
what it was, as nearly all is, costs no more than that its time is noted.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from brickd import _reader
from brickd.numerics.contents import CONTENT_BYTES, COST_BYTES, Contents, identity
from brickd.numerics.holds import ROW_BYTES, Holds, Place
from brickd.numerics.sites import Site
from brickd.numerics.tensors import Tensor, Tensors
from brickd.records import SLOT_BYTES

BYTES_MAX = 128 << 20

RECORD_BYTES = SLOT_BYTES + CONTENT_BYTES
# brick_checked of brick_shm.h: site, ticks, step, position, flags; then of the output what `identity` is made of.
_NAMED, _EXPERT = _reader.CHECKED_STEP, _reader.CHECKED_POSITION
_SITE = ~_reader.SITE_STATEFUL  # of what stands for a site what `site_digest` is
_RECORD = struct.Struct("<8xI4xQQQ22xBx64x16s36x5s71x")


class Speaks(Protocol):
    """A worker, as far as it is heard here."""

    uuid: str
    service: str

    @property
    def digests(self) -> Sequence[int]:
        """What stands for its sites, by their numbers; 0: it never said what that one is."""
        ...

    def known(self, number: int) -> Site | None:
        """What one of its sites is called; None of one that it never named."""
        ...


class Weights:
    """Of many workers; any thread may ask, one takes.

    Attributes:
        contents: what their tensors hold.
        changes: a number that grows when anything does.
        news: one that grows when more changes than when tensors were last read.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.contents = Contents()
        self.changes = self.news = 0
        self._bytes_max, self._rows = bytes_max, 0
        self._tensors: dict[str, Tensors] = {}
        self._workers: dict[str, Holds] = {}
        self._lock = threading.Lock()

    # ---- taking

    def take(self, speaker: Speaks, records: bytes) -> None:
        """Take records of weights: whole ones, one behind the other."""
        with self._lock:
            tensors, holds = self._of(speaker.uuid, speaker.service)
            numbers, contents, digests = tensors.numbers, self.contents.numbers, speaker.digests
            for at, (site, ticks, generation, position, flags, sums, form) in enumerate(_RECORD.iter_unpack(records)):
                expert = position if flags & _EXPERT else -1
                number = numbers.get((digests[site] & _SITE if site < len(digests) else 0, expert))
                if number is None:
                    if (named := speaker.known(site)) is None:
                        continue
                    number = tensors.number(Tensor(named.kernel, named.layer, expert))
                content = contents.get(sums + form, 0)
                if (
                    number is not None
                    and number < len(holds.now)
                    and holds.now[number] == content
                    and holds.generations[number] == generation
                    and holds.ticks[number] < ticks
                ):
                    holds.ticks[number] = ticks
                else:
                    said = records[at * RECORD_BYTES + SLOT_BYTES : (at + 1) * RECORD_BYTES]
                    self._put(holds, number, generation, flags & _NAMED != 0, ticks, content, said)
                self.changes += 1
            self._know(speaker.uuid, holds, tensors)

    def merge(self, other: Weights, mark: str = "") -> None:
        """Take what others know as well, under uuids with a mark before them."""
        with self._lock:
            for uuid, theirs in other._workers.items():
                tensors, holds = self._of(mark + uuid, theirs.service)
                holds.refused = max(holds.refused, theirs.refused)
                for number, tensor in enumerate(other.tensors(theirs.service)[: len(theirs)]):
                    row = theirs.row(number)
                    for ticks, content in ((row.first_ticks, row.first), (row.ticks, row.now)):
                        if content:
                            said = other.contents[content]
                            known = self.contents.numbers.get(identity(said), 0)
                            named = bool(theirs.named[number])
                            self._put(holds, tensors.number(tensor), row.generation, named, ticks, known, said)
                self._know(mark + uuid, holds, tensors)
                self.changes += 1

    def _of(self, uuid: str, service: str) -> tuple[Tensors, Holds]:
        """What is known; of whom nothing is, what is to be known of it."""
        return self._tensors.get(service, Tensors()), self._workers.get(uuid, Holds(service))

    def _know(self, uuid: str, holds: Holds, tensors: Tensors) -> None:
        if holds.now or holds.refused:
            self._workers[uuid], self._tensors[holds.service] = holds, tensors

    def _put(
        self, holds: Holds, number: int | None, generation: int, named: bool, ticks: int, content: int, said: bytes
    ) -> None:
        """Have what a record says in its place; `content`: the number of that, 0 where nobody holds it yet."""
        place = Place.ALL if number is None else holds.place(number, generation, ticks)
        if place is Place.NOTHING:
            return
        if number is None or not self._has_room(number + 1 - len(holds.now), content):
            self._refuse(holds, number)
            return
        content = content or self.contents.add(said)
        if number >= len(holds.now):
            self._rows += number + 1 - len(holds.now)
            self.news += 1
            self.contents.hold(content, 2)
            holds.append(number, generation, named, ticks, content)
            return
        before, now, first = holds.generations[number], holds.now[number], holds.firsts[number]
        holds.put(number, place, generation, named, ticks, content)
        self.news += before != generation or now != holds.now[number] or first != holds.firsts[number]
        if place is not Place.FIRST and now != content:
            self.contents.hold(content)
            self.contents.release(now)
        if place is not Place.NOW and first != content:
            self.contents.hold(content)
            self.contents.release(first)

    def _has_room(self, rows: int, content: int) -> bool:
        """For so many rows more, and for a content that nobody holds yet."""
        contents = len(self.contents.numbers) + (content == 0)
        return (self._rows + max(rows, 0)) * ROW_BYTES + contents * COST_BYTES <= self._bytes_max

    def _refuse(self, holds: Holds, number: int | None) -> None:
        """Of what finds no room nothing is known: what was known would be taken for it."""
        holds.refused += 1
        self.news += 1
        if number is not None and number < len(holds):
            self.contents.release(holds.now[number])
            self.contents.release(holds.firsts[number])
            holds.clear(number)

    def retain(self, uuids: Collection[str]) -> None:
        """Forget all others."""
        with self._lock:
            for uuid in [uuid for uuid in self._workers if uuid not in uuids]:
                holds = self._workers.pop(uuid)
                for content in (*holds.now, *holds.firsts):
                    self.contents.release(content)
                self._rows -= len(holds)
                self.changes += 1
                self.news += 1
            services = {holds.service for holds in self._workers.values()}
            for service in self._tensors.keys() - services:
                del self._tensors[service]

    # ---- outliving a process

    def kept(self) -> tuple[dict[int, bytes], dict[str, Tensors], dict[str, Holds]]:
        """All of it: contents by number, tensors by service, workers by uuid; for the thread that takes."""
        return self.contents.all(), self._tensors, self._workers

    @classmethod
    def of_kept(
        cls, contents: Mapping[int, bytes], tensors: Mapping[str, Sequence[Tensor]], workers: Mapping[str, Holds]
    ) -> Weights:
        """What `kept` said.

        Raises:
            ValueError: it does not add up.
        """
        made = cls()
        for service, found in tensors.items():
            numbered = made._tensors[service] = Tensors()
            if [numbered.number(tensor) for tensor in found] != list(range(len(found))):
                raise ValueError(f"{len(found)} tensors of service {service!r}, among them one twice or too many")
        numbers = {0: 0}
        for number, said in contents.items():
            if len(said) != CONTENT_BYTES or number == 0:
                raise ValueError(f"content {number} of {len(said)} bytes, wanted are {CONTENT_BYTES}")
            numbers[number] = made.contents.add(said)
            made.contents.hold(numbers[number])
        for uuid, holds in workers.items():
            if len(holds) > len(made.tensors(holds.service)):
                wanted = len(made.tensors(holds.service))
                raise ValueError(f"{len(holds)} rows of a worker of a service of {wanted} tensors")
            if any((now == 0) != (first == 0) for now, first in zip(holds.now, holds.firsts, strict=True)):
                raise ValueError(f"a tensor of {uuid} that holds something and held nothing first, or the reverse")
            for column in (holds.now, holds.firsts):
                for at, number in enumerate(column):
                    column[at] = numbers[number]
                    made.contents.hold(numbers[number])
            made._workers[uuid] = holds
            made._rows += len(holds)
        for number in numbers.values():  # those that nobody holds go
            made.contents.release(number)
        if made._rows * ROW_BYTES + len(made.contents) * COST_BYTES > made._bytes_max:
            raise ValueError(f"{made._rows} rows and {len(made.contents)} contents, more than may be kept")
        return made

    # ---- looking

    def of(self, uuid: str) -> Holds | None:
        """The tensors of a worker; None where it said nothing of any."""
        return self._workers.get(uuid)

    def tensors(self, service: str) -> Sequence[Tensor]:
        """All that workers of a service have, by their numbers."""
        found = self._tensors.get(service)
        return found.all if found is not None else ()

    def about(self, uuids: Iterable[str]) -> Weights:
        """What some of the workers said, as it is now: to be looked at."""
        other = Weights(self._bytes_max)
        with self._lock:
            other.contents, other.changes = self.contents.copy(), self.changes
            found = {uuid: holds for uuid in uuids if (holds := self._workers.get(uuid)) is not None}
            other._workers = {uuid: holds.copy() for uuid, holds in found.items()}
            for holds in found.values():
                if holds.service not in other._tensors:
                    other._tensors[holds.service] = self._tensors[holds.service].copy()
        return other

    def __iter__(self) -> Iterator[str]:
        return iter(self._workers)
