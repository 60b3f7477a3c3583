"""Workers' weights: the newest fingerprint of each tensor, and the first fingerprint in its generation.

Owns: which worker holds which content, and the limit of memory. Must not know: which workers are replicas, files.
Invariants: Equal contents are stored once for all workers. Records for which there is no room are counted, and their
tensors become unknown. Reading an unchanged tensor again, the usual case, only updates its time.
"""

from __future__ import annotations

import operator
import struct
import threading
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Protocol

from brickd.analysis.weights.contents import CONTENT_BYTES, COST_BYTES, ContentStore
from brickd.analysis.weights.tensors import TENSORS_MAX, Tensor, Tensors
from brickd.analysis.weights.worker_tensors import ROW_BYTES, Holds
from brickd.shm import _reader
from brickd.shm.records import SLOT_BYTES
from brickd.shm.sites import Site

BYTES_MAX = 128 << 20

RECORD_BYTES = SLOT_BYTES + CONTENT_BYTES
# The head of the struct `brick_checked` of brick_shm.h: site, ticks, step, position, flags.
_HEAD = struct.Struct("<8xI4xQQQ22xBx")
_NO_HEAD = bytes(SLOT_BYTES)
_NAMED, _EXPERT = _reader.CHECKED_STEP, _reader.CHECKED_POSITION
_NOTHING = -1  # never the number of a tensor


class WeightsProducer(Protocol):
    """A worker that writes records of weights."""

    uuid: str
    service: str

    @property
    def digests(self) -> array[int]:
        """The digests of the worker's sites, by id; 0 if the site has no name."""

    def known(self, number: int) -> Site | None:
        """Return the site with this id; None if it has no name."""


class Weights:
    """The weights of many workers. Any thread may read; only one thread calls `take`.

    Attributes:
        changes: a number that grows with each change.
        news: like `changes`, but it does not grow when only reading times change.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.contents = ContentStore()
        self.changes = self.news = 0
        self._bytes_max, self._rows = bytes_max, 0
        self._tensors: dict[str, Tensors] = {}
        self._workers: dict[str, Holds] = {}
        self._lock = threading.Lock()

    def take(self, producer: WeightsProducer, records: bytes) -> None:
        """Take complete records of weights, in the order in which the worker wrote them."""
        with self._lock:
            tensors, holds = self._of(producer.uuid, producer.service)
            numbers = array("i", _reader.weights_of(records, producer.digests, tensors.numbers))
            for at in range(len(numbers)) if _NOTHING in numbers else ():
                if numbers[at] == _NOTHING:
                    site, _, _, position, flags = _HEAD.unpack_from(records, at * RECORD_BYTES)
                    if (called := producer.known(site)) is not None:
                        expert = position if flags & _EXPERT else -1
                        numbers[at] = self._number(tensors, holds, Tensor(called.kernel, called.layer, expert))
            self._put(holds, records, numbers)
            self._know(producer.uuid, holds, tensors)

    def merge(self, other: Weights, mark: str = "") -> None:
        """Add the weights of another store; put `mark` before each uuid."""
        with self._lock:
            for uuid, theirs in other._workers.items():
                tensors, holds = self._of(mark + uuid, theirs.service)
                holds.refused = max(holds.refused, theirs.refused)
                numbers, records = array("i"), []
                for of in theirs.numbers():
                    generation, flags = theirs.generations[of], _NAMED * theirs.named[of]
                    numbers.extend([self._number(tensors, holds, other.tensors(theirs.service)[of])] * 2)
                    for ticks, contents in ((theirs.first_ticks, theirs.firsts), (theirs.ticks, theirs.now)):
                        records += [_HEAD.pack(0, ticks[of], generation, 0, flags), other.contents[contents[of]]]
                self._put(holds, b"".join(records), numbers)
                self._know(mark + uuid, holds, tensors)

    def _number(self, tensors: Tensors, holds: Holds, tensor: Tensor) -> int:
        """Return the index of a tensor, or _NOTHING if the limit is reached."""
        number = tensors.number(tensor)
        if number is None:
            holds.refused += 1
            self.news += 1
            return _NOTHING
        return number

    def _of(self, uuid: str, service: str) -> tuple[Tensors, Holds]:
        """Return the tensors of a service and the tensors of a worker. They are new and empty if they were unknown."""
        tensors, holds = self._tensors.get(service), self._workers.get(uuid)
        return Tensors() if tensors is None else tensors, Holds(service) if holds is None else holds

    def _know(self, uuid: str, holds: Holds, tensors: Tensors) -> None:
        if holds.now or holds.refused:
            self._workers[uuid], self._tensors[holds.service] = holds, tensors

    def _grow(self, holds: Holds, rows: int) -> None:
        room = (self._bytes_max - len(self.contents) * COST_BYTES) // ROW_BYTES - self._rows
        if (more := min(rows - len(holds), room)) > 0:
            self._rows += more
            holds.grow(more)

    def _put(self, holds: Holds, records: bytes, numbers: array[int]) -> None:
        self._grow(holds, max(numbers, default=_NOTHING) + 1)
        contents = self.contents.take(records, (self._bytes_max - self._rows * ROW_BYTES) // COST_BYTES)
        news, left = holds.put(records, numbers, contents, self.contents.uses)
        self.contents.clear(left)
        self.news += news
        self.changes += 1

    def retain(self, uuids: Collection[str]) -> None:
        """Remove all workers except these."""
        with self._lock:
            for uuid in [uuid for uuid in self._workers if uuid not in uuids]:
                holds = self._workers.pop(uuid)
                for content, times in Counter((*holds.now, *holds.firsts)).items():
                    self.contents.release(content, times)
                self._rows -= len(holds)
                self.changes += 1
                self.news += 1
            services = {holds.service for holds in self._workers.values()}
            for service in self._tensors.keys() - services:
                del self._tensors[service]

    def lose(self, uuid: str, records: int, until: int | None = None) -> None:
        """Count lost records of a worker; each may have been a record of its weights.

        All lost records were written before the worker's tick `until`, so a tensor that the worker read later is known.
        `until` is None if the tick is unknown.
        """
        with self._lock:
            holds = self._workers.get(uuid)
            if holds is None:
                return
            if until is None or any(ticks < until for ticks in compress(holds.ticks, holds.now)):
                holds.refused += records
                self.changes += 1
                self.news += 1

    def kept(self) -> tuple[dict[int, bytes], dict[str, Tensors], dict[str, Holds]]:
        """Return contents, tensors and workers to save; call it in the thread that calls `take`."""
        return self.contents.all(), self._tensors, self._workers

    @classmethod
    def of_kept(
        cls, contents: Mapping[int, bytes], tensors: Mapping[str, Sequence[Tensor]], workers: Mapping[str, Holds]
    ) -> Weights:
        """Restore the result of `kept`; raise a ValueError if it is inconsistent."""
        made = cls()
        for service, found in tensors.items():
            numbered = made._tensors[service] = Tensors()
            if [numbered.number(tensor) for tensor in found] != list(range(len(found))):
                raise ValueError(
                    f"service {service!r} lists {len(found)} tensors, expected each once and at most {TENSORS_MAX}"
                )
        for number, content in contents.items():
            if len(content) != CONTENT_BYTES or number == 0:
                raise ValueError(f"content {number} has {len(content)} bytes, expected {CONTENT_BYTES}")
        records = b"".join(_NO_HEAD + content for content in contents.values())
        numbers = {0: 0} | dict(zip(contents, made.contents.take(records, len(contents)), strict=True))
        columns: dict[bytes, array[int]] = {}  # replicas have equal columns
        times: Counter[bytes] = Counter()
        for uuid, holds in workers.items():
            if len(holds) > len(made.tensors(holds.service)):
                known = len(made.tensors(holds.service))
                raise ValueError(f"a worker has {len(holds)} tensors, expected at most the {known} of its service")
            now, firsts = holds.now.tobytes(), holds.firsts.tobytes()
            if now != firsts and any(map(operator.ne, map(bool, holds.now), map(bool, holds.firsts))):
                raise ValueError(
                    f"a tensor of {uuid} has either a current or a first content, expected both or neither"
                )
            for column, written in ((holds.now, now), (holds.firsts, firsts)):
                if written not in columns:
                    columns[written] = array("I", map(numbers.__getitem__, column))
                column[:] = columns[written]
                times[written] += 1
            made._workers[uuid] = holds
            made._rows += len(holds)
        for written, column in columns.items():
            for number in filter(None, column):
                made.contents.uses[number] += times[written]
        made.contents.clear(numbers.values())
        if made._rows * ROW_BYTES + len(made.contents) * COST_BYTES > made._bytes_max:
            raise ValueError(f"{made._rows} rows and {len(made.contents)} contents exceed {made._bytes_max} bytes")
        return made

    def of(self, uuid: str) -> Holds | None:
        """Return the tensors of a worker; None if the worker is unknown."""
        return self._workers.get(uuid)

    def tensors(self, service: str) -> Sequence[Tensor]:
        """All tensors of a service, by index."""
        found = self._tensors.get(service)
        return found.all if found is not None else ()

    def about(self, uuids: Iterable[str]) -> Weights:
        """Return a copy of the weights of some workers."""
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
