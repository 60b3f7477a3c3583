"""Records of checksums without a worker: the records that a worker would write for made-up tensors."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dtypes
import numpy as np

from brickd.shm import _reader

FLOAT32 = 12
ALL = 2**64 - 1


@dataclass(frozen=True)
class Tensor:
    """The values of one tensor."""

    checksum: int
    l2: float = 1.0
    sketch: tuple[float, ...] = (0.0,) * 16
    elements: int = 64
    shape: int = 1
    dtype: int = FLOAT32
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0


@dataclass(frozen=True)
class CheckedRecord:
    """The record of a checksum."""

    output: Tensor
    inputs: tuple[Tensor, ...] = ()
    site: int = 1
    step: int = 0
    position: int = 0
    ticks: int = 0
    params: int = 0
    valid: int = ALL
    backend: int = 0
    of: int = 0
    relation: int = 0
    flags: int = 0
    fnv1a: int = 1  # 0 in recordings that omit this checksum, because it has no key
    extents: tuple[int, ...] = field(default=(1, 64))
    token: int = 0

    def slots(self) -> bytes:
        """The record as it is in a ring."""
        slots = 4 + 2 * len(self.inputs)
        own = ("site", "step", "position", "ticks", "params", "valid", "backend", "of", "relation", "flags")
        head = _one(
            "checked",
            slots=slots,
            kind=_reader.KIND_CHECKED,
            inputs=len(self.inputs),
            sequence=1,
            **{name: getattr(self, name) for name in own},
        )
        shape = (*self.extents, *(0,) * (6 - len(self.extents)))
        output = _one("output", fnv1a=self.fnv1a, dims=len(self.extents), shape=shape, token=self.token)
        return head + output + b"".join(map(_tensor, (self.output, *self.inputs)))


def _tensor(of: Tensor) -> bytes:
    reported = {
        name: getattr(of, name)
        for name in ("checksum", "l2", "elements", "shape", "dtype", "nan", "pos_inf", "neg_inf")
    }
    return _one("tensor_sums", **reported) + _one("tensor_sketch", places=of.sketch)


def _one(record: str, **values: Any) -> bytes:
    row = np.zeros(1, dtypes.dtype(record))
    for name, value in values.items():
        row[name] = value
    return row.tobytes()


NUMBERS = array("Q", range(1000, 1064))  # the digests of the first sites and names, by number


def add(
    fingerprints: _reader.Fingerprints,
    worker: int,
    given: Sequence[CheckedRecord],
    service: int = 0,
    *,
    shard: int = 0,
    named: bool = True,
) -> tuple[int, list[int], bytes]:
    """Add the records of a worker. Return how many bytes were taken, the numbers of the fingerprints that differ, and
    the records of weights.
    """
    records = b"".join(each.slots() for each in given)
    taken, weights = fingerprints.add(worker, service, shard, NUMBERS, NUMBERS, records, named)
    return taken, fingerprints.unlike(), weights
