"""The structs of the format as numpy dtypes, and arrays out of private copies.

Owns: the one place where copied bytes become arrays. Must not know: files, or where the bytes came from. Invariants:
every dtype is made from the table of brick_shm.h alone; the module is imported where arrays are wanted and nowhere
else, since numpy takes longer to load than a segment to read.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from brickd.shm import _reader
from brickd.shm.records import SPANS, fields_of

Array = npt.NDArray[np.void]


@functools.cache
def dtype(record: str) -> np.dtype[np.void]:
    """The dtype of a struct, by its name without the prefix: `dtype("summary")`."""
    fields = fields_of(record)
    if not fields:
        raise KeyError(f"no shared struct is called {record!r}")
    scalars = [np.dtype(f"<{code}") for _, _, _, code in fields]
    return np.dtype(
        {
            "names": [name for name, _, _, _ in fields],
            "formats": [
                scalar if count == 1 else (scalar, (count,))
                for scalar, (_, _, count, _) in zip(scalars, fields, strict=True)
            ],
            "offsets": [offset for _, offset, _, _ in fields],
            "itemsize": max(
                offset + count * scalar.itemsize for scalar, (_, offset, count, _) in zip(scalars, fields, strict=True)
            ),
        }
    )


def records(slots: bytes) -> Array:
    """The first slots of the records among a ring's slots, in order.

    A record says itself how many slots it takes; one that takes none, or more than there are, ends the walk.
    """
    heads: Array = np.frombuffer(slots, dtype("record"), count=len(slots) // dtype("record").itemsize)
    counts = heads["slots"]
    if (counts == 1).all():
        return heads
    starts: list[int] = []
    at = 0
    while at < len(heads) and 0 < counts[at] <= len(heads) - at:
        starts.append(at)
        at += int(counts[at])
    return heads[starts]


def span_records(slots: bytes) -> Array:
    """The spans among a ring's slots, in order; records of other kinds are left out whole."""
    found = records(slots)
    spans: Array = found[np.isin(found["kind"], [*SPANS]) & (found["slots"] == 1)].view(dtype("span"))
    return spans


def summaries(copied: bytes | _reader.Packed) -> Array:
    """The summaries that `Segment.summaries` copied, by path."""
    return np.frombuffer(memoryview(copied), dtype("summary"))
