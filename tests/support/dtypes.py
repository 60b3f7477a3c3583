"""The structs of the format as numpy dtypes, and arrays over private copies.

Owns: the conversion of copied bytes to arrays. Must not know: files, where the bytes came from. Invariant: every dtype
comes from the table of fields in brick_shm.h.
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
    """Return the dtype of the struct with this name. The name has no prefix, as in `dtype("summary")`."""
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
    """Return the first slot of each record in a ring's slots, in order.

    A record contains its number of slots. A record that claims 0 slots, or more slots than are left, ends the
    iteration.
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
    """Return the spans in a ring's slots, in order; records of other kinds are skipped."""
    found = records(slots)
    spans: Array = found[np.isin(found["kind"], [*SPANS]) & (found["slots"] == 1)].view(dtype("span"))
    return spans


def summaries(copied: bytes | _reader.Packed) -> Array:
    """Return copied summaries as an array with one row per path."""
    return np.frombuffer(memoryview(copied), dtype("summary"))
