"""The content of the record of a weight, for arbitrary bytes."""

from __future__ import annotations

import struct

import pytest
from checked_record import CheckedRecord, Tensor

from brickd.analysis.weights.contents import content
from brickd.shm.records import DTYPES, SLOT_BYTES


def content_of(of: Tensor, extents: tuple[int, ...] = (1, 64)) -> bytes:
    """Return the bytes after the head of a record."""
    return CheckedRecord(of, extents=extents).slots()[SLOT_BYTES:]


def test_each_number_type_has_its_name_and_an_unknown_one_its_number() -> None:
    names = [content(content_of(Tensor(7, dtype=dtype))).dtype for dtype in range(256)]
    assert names == [
        DTYPES[dtype] if 0 < dtype < len(DTYPES) and DTYPES[dtype] else f"dtype#{dtype}" for dtype in range(256)
    ]
    assert (names[0], names[12], names[255]) == ("dtype#0", "float32", "dtype#255")


@pytest.mark.parametrize(
    ("dims", "shape"), [(0, ()), (1, (2,)), (5, (2, 3, 4, 5, 6)), (6, (2, 3, 4, 5, 6, 7)), (7, (2, 3, 4, 5, 6, 7))]
)
def test_a_shape_shows_as_many_dimensions_as_a_record_holds(dims: int, shape: tuple[int, ...]) -> None:
    record = bytearray(content_of(Tensor(7), (2, 3, 4, 5, 6, 7)))
    struct.pack_into("<I", record, 8, dims)
    assert content(bytes(record)).shape == shape


def test_each_field_of_a_record_is_shown() -> None:
    of = content(content_of(Tensor(1, l2=2.5, elements=3, shape=4, nan=5, pos_inf=6, neg_inf=7, dtype=12), (8, 9)))
    assert (of.checksum, of.l2, of.elements, of.shape_digest, of.nan, of.pos_inf, of.neg_inf) == (1, 2.5, 3, 4, 5, 6, 7)
    assert (of.shape, of.form) == ((8, 9), ("float32", 4, 3))
