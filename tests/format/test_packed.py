"""Packed summaries: unpacking returns the original, and an invalid form is refused."""

from __future__ import annotations

import gc
import json
import struct

import dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.shm import _reader, segment_codec
from brickd.shm._reader import Packed, Summaries

WORDS = _reader.SUMMARY_BYTES // 8
ROWS_MAX = 2 * _reader.NUMBERS_MAX

WORD = st.just(0) | st.integers(0, 2**64 - 1) | st.integers(0, 7).map(lambda byte: 0xFF << 8 * byte)
SPARSE = st.dictionaries(st.integers(0, 4 * WORDS - 1), WORD, max_size=60)


def rows(words: dict[int, int], count: int = 4) -> bytes:
    return struct.pack(f"<{count * WORDS}Q", *(words.get(place, 0) for place in range(count * WORDS)))


def unpacked(form: bytes) -> bytes | None:
    """Unpack as summary_codec.h defines it, in plain Python; return None if the form is invalid."""
    words, rest = bytearray(), iter(form)
    try:
        for present in rest:
            if present == 0:
                words += bytes(8 * (next(rest) + 1))
            else:
                words += bytes(next(rest) if present >> bit & 1 else 0 for bit in range(8))
    except (RuntimeError, StopIteration):
        return None
    return bytes(words) if len(words) % _reader.SUMMARY_BYTES == 0 else None


@given(SPARSE)
def test_packed_bytes_survive_unpacking(words: dict[int, int]) -> None:
    given = rows(words)
    small = Packed(given)
    assert bytes(small) == given == unpacked(small.form())
    assert len(small) == len(given)
    assert Packed.of(small.form()) == small == segment_codec.packed(json.loads(segment_codec.packed_text(small)))
    np.testing.assert_array_equal(dtypes.summaries(small), dtypes.summaries(given))


@given(
    st.binary(max_size=400) | st.builds(lambda words, cut: Packed(rows(words)).form()[:cut], SPARSE, st.integers(0, 99))
)
def test_only_bytes_of_a_valid_packed_form_are_accepted(form: bytes) -> None:
    wanted = unpacked(form)
    if wanted is None:
        with pytest.raises(ValueError, match="not a packed array of at most"):
            Packed.of(form)
    else:
        assert bytes(Packed.of(form)) == wanted


def test_a_short_form_cannot_expand_beyond_the_limit() -> None:
    row = b"\0" + bytes([WORDS - 1])
    assert len(Packed.of(row * ROWS_MAX)) == ROWS_MAX * _reader.SUMMARY_BYTES
    with pytest.raises(ValueError, match=f"at most {ROWS_MAX} summaries"):
        Packed.of(row * (ROWS_MAX + 1))
    with pytest.raises(TypeError, match="the packed summaries must be bytes, not str"):
        Packed.of("")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["A", "AAA", "AAAA AAAA", "\n", "é", "AI8=="])
def test_invalid_packed_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (two messages are possible)
        segment_codec.packed(text)


@pytest.mark.parametrize("bytes_", [1, _reader.SUMMARY_BYTES - 1, _reader.SUMMARY_BYTES + 1])
def test_bytes_that_are_not_summaries_are_not_packed(bytes_: int) -> None:
    with pytest.raises(ValueError, match="not an array of summaries"):
        Packed(bytes(bytes_))


def test_empty_summaries_are_packed_as_nothing() -> None:
    assert (Packed(b"").form(), len(Packed(b"")), bytes(Packed.of(b"")), segment_codec.packed_text(Packed(b""))) == (
        b"",
        0,
        b"",
        '""',
    )
    assert not Packed(b"")


@pytest.mark.ci
def test_a_memoryview_keeps_the_unpacked_bytes_alive() -> None:
    given = rows({3: 7, 200: 2**63})
    seen = memoryview(Packed(given))
    gc.collect()
    assert seen == given
    assert seen.readonly


def test_unpacked_arrays_that_are_in_use_do_not_share_memory() -> None:
    tables = []
    for number, count in enumerate((300, 20, 80, 1_000, 20, 400), 1):  # 1,000 summaries take more memory than is kept
        table = bytearray(count * _reader.SUMMARY_BYTES)
        table[:: _reader.SUMMARY_BYTES] = count * bytes([number])
        tables.append(bytes(table))
    packed = [Packed(table) for table in tables]
    for _ in range(3):  # from the second time on, memory is used again
        seen = [memoryview(each) for each in packed]
        assert [each == table for each, table in zip(seen, tables, strict=True)] == [True] * len(tables)
        for each in seen:
            each.release()
        assert [Summaries(each).tobytes() for each in packed] == tables


def test_summaries_are_packed_again_only_after_an_addition() -> None:
    ours = Summaries()
    ours.add(3, 9, 1, 2)
    first = ours.packed()
    assert ours.packed() is first
    ours.add(0, 5, 0, 0)
    second = ours.packed()
    ours.merge(b"", b"")
    ours.merge(first, struct.pack("4i", 5, 5, 5, 5))
    for small, wanted in ((first, 4), (second, 4), (ours.packed(), 6)):
        assert len(small) == wanted * _reader.SUMMARY_BYTES
    assert bytes(ours.packed()) == ours.tobytes() != bytes(second).ljust(6 * _reader.SUMMARY_BYTES, b"\0")
    assert bytes(Summaries(first).tobytes()) == bytes(first)
