"""Finds the sources to which the shapes of kernel launches refer.

Owns: how a shape refers to a source. Must not know: texts, files, screens. Invariant: each launch counts once.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.records import fields_of
from brickd.shm.segment_copy import Reading

_SOURCE = re.compile(r" @([0-9a-f]{16})$")
_COUNT = struct.Struct("<Q")


@dataclass(slots=True)
class Referred:
    """The references to one source: the number of launches of each kernel, and the workers that launched them."""

    launches: Counter[str] = field(default_factory=Counter)
    workers: list[str] = field(default_factory=list)


def referred(workers: Iterable[Worker]) -> dict[int, Referred]:
    """Return the references to each source in the launches of these workers, keyed by the hash of the source."""
    found: dict[int, Referred] = {}
    for worker in workers:
        for hash_, kernel, launches in _launched(worker.reading):
            to = found.setdefault(hash_, Referred())
            to.launches[kernel] += launches
            if worker.name not in to.workers[-1:]:
                to.workers.append(worker.name)
    return found


def _launched(reading: Reading) -> Iterator[tuple[int, str, int]]:
    """Yield the hash, the kernel and the number of launches for each shape that names a source."""
    offset = next(at for name, at, *_ in fields_of("summary") if name == "count")
    summaries: memoryview | None = None
    for number, path in enumerate(reading.paths):
        if path is None or path.unit != _reader.UNIT_SHAPED or path.parent < 0:
            continue
        shape, above = _SOURCE.search(reading.name(path.name)), reading.paths[path.parent]
        if shape is None or above is None:
            continue
        summaries = summaries or memoryview(reading.summaries)
        (launches,) = _COUNT.unpack_from(summaries, number * _reader.SUMMARY_BYTES + offset)
        if launches:
            yield int(shape[1], 16), reading.name(above.name), launches
