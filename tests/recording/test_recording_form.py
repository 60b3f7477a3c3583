"""The format of recordings: valid data is read back, and damage is reported with its position."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tapes import (
    BLOCK,
    END_BYTES,
    FIRST,
    ID,
    MADE_NS,
    Written,
    begin,
    clean,
    content,
    form,
    head,
    memory,
    read,
    read_fd,
    sealed,
    size,
    tape,
)

from brickd.errors import RecordingRefused
from brickd.recording.chunks import Title
from brickd.recording.damage import DAMAGES_MAX, Damage, DroppedChunks
from brickd.shm import _reader

KINDS = st.sampled_from([_reader.CHUNK_WORKERS, _reader.CHUNK_SNAPSHOT, _reader.CHUNK_EVENTS])
BODY = st.binary(max_size=3 * BLOCK + 1) | st.sampled_from([BLOCK, 2 * BLOCK, 5000]).map(bytes)
CHUNKS = st.lists(st.tuples(KINDS, st.integers(0, 2**64 - 1), BODY), max_size=6)

SMALL: list[Written] = [
    (_reader.CHUNK_WORKERS, 1, b"{}"),
    (_reader.CHUNK_SNAPSHOT, 2, b""),
    (_reader.CHUNK_SNAPSHOT, 3, bytes(range(100, 165))),
    (_reader.CHUNK_SNAPSHOT, 4, bytes(64)),
]


def places(chunks: list[Written]) -> list[range]:
    """Return the range of bytes of each chunk in a file."""
    found, at = [], FIRST
    for _, _, body in chunks:
        found.append(range(at, at + size(body)))
        at += size(body)
    return found


# ---- complete files


@given(CHUNKS, st.integers(0, 2**32 - 1))
def test_written_chunks_are_read_unchanged(chunks: list[Written], number: int) -> None:
    written = tape(chunks, number)
    seen = read(written)
    assert seen.written == chunks
    assert [each.sequence for each in seen.chunks] == list(range(len(chunks)))
    assert [each.offset for each in seen.chunks] == [place.start for place in places(chunks)]
    assert clean(seen.end)
    assert seen.end.words() == []
    assert seen.end.at == len(written) == FIRST + sum(size(body) for _, _, body in chunks) + END_BYTES


def test_a_recording_has_an_id() -> None:
    with memory(tape([], 7)) as fd, form(fd) as opened:
        assert opened.title == Title(1, 3, MADE_NS, ID, 7)


def test_a_recording_can_be_read_repeatedly_from_its_beginning() -> None:
    with memory(tape(SMALL)) as fd, form(fd) as opened:
        assert list(opened) == list(opened)
        next(iter(opened))
        assert [each.at_ns for each in opened] == [1, 2, 3, 4]
        assert clean(opened.end)


@given(CHUNKS)
def test_complete_chunks_of_an_unfinished_recording_are_read(chunks: list[Written]) -> None:
    with memory() as fd:
        recording = begin(fd, ahead_bytes=1 << 14)
        for count, chunk in enumerate(chunks, 1):
            recording.append(*chunk)
            seen = read_fd(fd)
            assert seen.written == chunks[:count]
            assert seen.end.at == recording.bytes
            assert not clean(seen.end)
            (reported,) = seen.end.words()
            assert reported.startswith("has no end: its writer still runs or was killed")
        assert content(fd)[recording.bytes :].strip(b"\0") == b""


def test_chunks_of_selected_kinds_are_read_without_examining_others() -> None:
    changed = bytearray(tape(SMALL))
    changed[places(SMALL)[2].start + BLOCK] ^= 1
    with memory(bytes(changed)) as fd, form(fd) as opened:
        (first,) = opened.only(_reader.CHUNK_WORKERS)
        assert (first.kind, first.body) == (_reader.CHUNK_WORKERS, b"{}")
        assert [each.at_ns for each in opened.only(_reader.CHUNK_SNAPSHOT)] == [2, 4]
        assert opened.end.words() == []
        assert len(list(opened)) == 3
        before = opened.end
        list(opened.only(_reader.CHUNK_SNAPSHOT))
        assert opened.end is before


def test_a_chunk_can_be_read_again_while_it_is_unchanged() -> None:
    with memory(tape(SMALL)) as fd, form(fd) as opened:
        for chunk in opened:
            assert opened.again(chunk.offset) == chunk
        assert opened.again(chunk.offset + BLOCK) is None
        os.pwrite(fd, b"x", chunk.offset + BLOCK)
        assert opened.again(chunk.offset) is None
        os.ftruncate(fd, chunk.offset)
        assert opened.again(chunk.offset) is None


# ---- changed files


@pytest.mark.ci
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_changed_byte_loses_only_its_chunk_and_is_reported(mask: int) -> None:
    whole = tape(SMALL)
    where = places(SMALL)
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= mask
        seen = read(bytes(changed))
        assert seen.written == [chunk for chunk, place in zip(SMALL, where, strict=True) if at not in place]
        assert not clean(seen.end)
        end_at = len(whole) - END_BYTES
        ((start, end, _),) = seen.end.damages
        assert start <= at < end
        assert (start, end) in [(0, FIRST), *((place.start, place.stop) for place in where), (end_at, len(whole))]
        assert seen.end.missing == (FIRST <= at < end_at)
        assert seen.end.ended == (at < end_at)
        assert seen.end.words()


@pytest.mark.ci
def test_a_truncated_recording_is_read_up_to_the_truncation() -> None:
    whole = tape(SMALL)
    where = places(SMALL)
    for length in range(len(whole)):
        if length < BLOCK:
            with pytest.raises(RecordingRefused):
                read(whole[:length])
            continue
        seen = read(whole[:length])
        assert seen.written == [chunk for chunk, place in zip(SMALL, where, strict=True) if place.stop <= length]
        assert not seen.end.ended
        assert any(f"cut at byte {length}" in reported for reported in seen.end.words())
        # The writer had allocated room for this file in advance. It was killed, so the data ends within this room.
        killed = read(whole[:length].ljust(len(whole) + 5000, b"\0"))
        assert [each for each in killed.written if each in SMALL] == killed.written
        assert killed.written[: len(seen.written)] == seen.written
        assert not clean(killed.end) or whole[length:].strip(b"\0") == b""


def test_a_body_truncated_after_its_head_was_read_is_missing() -> None:
    step = 1 << 20
    chunks: list[Written] = [
        (_reader.CHUNK_SNAPSHOT, 1, bytes(step - FIRST - 2 * BLOCK)),
        (_reader.CHUNK_SNAPSHOT, 2, b"last"),
    ]
    assert places(chunks)[1].start == step - BLOCK
    with memory() as fd:
        recording = begin(fd, 2 * step)
        for chunk in chunks:
            recording.append(*chunk)
        recording.close()
        looked: list[tuple[str, int, int]] = []

        def reads(path: str, at: int, of: int) -> None:
            looked.append((path, at, of))
            if at:
                os.ftruncate(fd, at + 2)

        with form(fd, reads) as opened:
            assert [each.at_ns for each in opened] == [1]
            assert any(
                f"cut at byte {step + 2}" in reported or "checksum" in reported for reported in opened.end.words()
            )
        assert looked[0] == ("F.brick", step, recording.bytes)


def test_removed_repeated_and_exchanged_chunks_are_reported_as_missing() -> None:
    whole = tape(SMALL)
    pieces = [whole[:FIRST], *(whole[place.start : place.stop] for place in places(SMALL)), whole[-END_BYTES:]]
    title, one, two, three, four, end = pieces
    seen = read(title + one + four + end)
    assert seen.written == [SMALL[0], SMALL[3]]
    assert seen.end.missing == 2
    place = places(SMALL)[1].start
    assert seen.end.damages == [Damage(place, place, "chunk 3 comes after chunk 0")]
    seen = read(title + one + two + two + three + four + end)
    assert seen.written == SMALL
    assert [each.why for each in seen.end.damages] == ["chunk 1 comes after chunk 1"]
    seen = read(title + one + three + two + four + end)
    assert seen.written == [SMALL[0], SMALL[2], SMALL[3]]
    assert not clean(seen.end)


def test_chunks_of_another_file_do_not_belong_to_this_one() -> None:
    here, there = tape(SMALL, 0), tape(SMALL, 1)
    place = places(SMALL)[2]
    seen = read(here[: place.start] + there[place.start : place.stop] + here[place.stop :])
    assert seen.written == [*SMALL[:2], SMALL[3]]
    assert [each[:2] for each in seen.end.damages] == [(place.start, place.stop)]


def test_bytes_inside_a_damaged_body_are_not_taken_for_a_chunk() -> None:
    inner = tape(SMALL, 1)
    chunks: list[Written] = [(_reader.CHUNK_SNAPSHOT, 1, inner), (_reader.CHUNK_SNAPSHOT, 2, b"last")]
    changed = bytearray(tape(chunks))
    changed[FIRST + 3] ^= 4
    seen = read(bytes(changed))
    assert seen.written == chunks[1:]
    assert seen.end.missing == 1


def test_bytes_after_the_end_are_reported_unless_zero() -> None:
    whole = tape(SMALL)
    assert clean(read(whole + bytes(10_000)).end)
    seen = read(whole + bytes(1000) + b"x" + bytes(1000))
    assert seen.written == SMALL
    assert seen.end.damages == [Damage(len(whole), len(whole) + 1001, "bytes after its end")]


def test_a_hole_of_any_length_in_a_file_takes_no_time() -> None:
    whole, huge = tape(SMALL), 1 << 50
    last = places(SMALL)[-1]
    with memory(whole) as fd:
        os.ftruncate(fd, huge)
        assert clean(read_fd(fd).end)
        os.pwrite(fd, b"x", 1 << 49)
        assert read_fd(fd).end.damages == [Damage(len(whole), (1 << 49) + 1, "bytes after its end")]
    with memory(whole[: last.start]) as fd:
        os.ftruncate(fd, huge)
        seen = read_fd(fd)
        assert (seen.written, seen.end.damages) == (SMALL[:-1], [])
        assert seen.end.why.startswith("has no end")
        os.pwrite(fd, whole[last.start :], 1 << 49)
        seen = read_fd(fd)
        assert seen.written == SMALL
        assert seen.end.damages == [Damage(last.start, 1 << 49, "no chunk begins there")]


def test_the_first_damages_are_listed_and_further_ones_counted() -> None:
    chunks: list[Written] = [(_reader.CHUNK_SNAPSHOT, n, b"") for n in range(DAMAGES_MAX + 20)]
    changed = bytearray(tape(chunks))
    for place in places(chunks)[::2]:
        changed[place.start + 20] ^= 1
    seen = read(bytes(changed))
    assert seen.written == chunks[1::2]
    assert len(seen.end.damages) == (DAMAGES_MAX + 20) / 2
    for place in places(chunks):
        changed[place.start + 21] ^= 1
    seen = read(bytes(changed))
    assert seen.written == []


# ---- versions and hostile numbers


def titled(major: int, minor: int) -> bytes:
    title = struct.pack("<8sHHIQ16sQ16x", b"brickrec", major, minor, 0, MADE_NS, ID, 77)
    return sealed(title, bytes(16)) * 2


def test_chunks_of_a_newer_minor_are_skipped_and_counted() -> None:
    title = titled(1, 9)
    key = _reader.recording_title(title)[-1]
    kind = _reader.CHUNK_KINDS + 3
    unknown = (
        head(key, kind, 0, 0, _reader.recording_sum(key, b""))
        + head(key, kind, 70, 1, _reader.recording_sum(key, b"y" * 70 + bytes(58)))
        + b"y" * 70
        + bytes(58)
    )
    body = b"known".ljust(BLOCK, b"\0")
    known = head(key, _reader.CHUNK_SNAPSHOT, 5, 2, _reader.recording_sum(key, body)) + body
    seen = read(title + unknown + known)
    assert seen.written == [(_reader.CHUNK_SNAPSHOT, 9, b"known")]
    assert seen.end.skipped == {kind: 2}
    assert f"2 chunks ignored: this brickd does not know the kind {kind}" in seen.end.words()
    with memory(title) as fd, form(fd) as opened:
        assert opened.title.minor == 9


def test_a_few_unknown_kinds_are_listed_and_further_ones_counted() -> None:
    title = titled(1, 9)
    key = _reader.recording_title(title)[-1]
    nothing = _reader.recording_sum(key, b"")
    seen = read(title + b"".join(head(key, 100 + number, 0, number, nothing) for number in range(3000)))
    assert 0 < len(seen.end.skipped) < 100
    assert seen.end.skipped.total() + seen.end.skipped_more == 3000
    assert len(seen.end.words()) < 100


def test_a_recording_of_another_major_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        RecordingRefused, match=r"F.brick: has format 2\.3, this brickd reads 1\.x: use the brickd that wrote it"
    ):
        read(titled(2, 3) + bytes(1000))


@pytest.mark.parametrize(
    ("bytes_", "reason"),
    [
        (b"", "is empty"),
        (
            b"PK\3\4" + bytes(500),
            "is not a recording of brickd: it begins with 0000000004034b50, expected 6365726b63697262",
        ),
        (bytes(64), "is not a recording of brickd"),
        (tape([])[:60], "was cut within its title: it has 60 bytes, expected at least 128"),
        (tape([])[:56] + bytes(8) + tape([])[:56] + bytes(8), "has a damaged title: its checksum is"),
    ],
)
def test_a_file_that_is_not_a_recording_is_refused_with_its_first_bytes(bytes_: bytes, reason: str) -> None:
    with pytest.raises(RecordingRefused, match=reason):
        read(bytes_)


@pytest.mark.parametrize("length", [1, 4096, _reader.CHUNK_BYTES_MAX, _reader.CHUNK_BYTES_MAX + 1, 2**63, 2**64 - 1])
def test_an_impossible_length_is_damage_and_takes_no_memory(length: int) -> None:
    whole = tape(SMALL)
    key = _reader.recording_title(whole)[-1]
    place = places(SMALL)[1]
    seen = read(whole[: place.start] + head(key, _reader.CHUNK_SNAPSHOT, length, 1) + whole[place.stop :])
    assert seen.written[0] == SMALL[0]
    assert seen.written[1:] in ([], SMALL[2:], SMALL[3:])
    assert not clean(seen.end)


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 900), st.binary(max_size=70)), max_size=4))
def test_any_file_gives_only_chunks_that_were_written(rest: bytes, changes: list[tuple[int, bytes]]) -> None:
    changed = bytearray(tape(SMALL))
    for at, piece in changes:
        changed[at + BLOCK : at + BLOCK + len(piece)] = piece
    seen = read(bytes(changed) + rest)
    assert [each for each in SMALL if each in seen.written] == seen.written
    assert (seen.written == SMALL) or not clean(seen.end)
    assert all(0 <= each.start <= each.end <= len(changed) + len(rest) for each in seen.end.damages)


def test_the_end_counts_the_chunks_that_did_not_fit() -> None:
    with memory() as fd:
        recording = begin(fd, limit_bytes=1000)
        with pytest.raises(OSError, match="File too large"):
            recording.append(_reader.CHUNK_SNAPSHOT, 1, bytes(1000))
        recording.append(_reader.CHUNK_SNAPSHOT, 2, bytes(recording.left_bytes))
        assert recording.left_bytes == 0
        recording.close()
        assert os.fstat(fd).st_size <= 1000
        seen = read_fd(fd)
    assert clean(seen.end)
    assert seen.end.refused == DroppedChunks(1, 1000, 0)
    assert seen.end.words() == ["the recording had no room for 1 chunk of 1,000 bytes"]


# ---- the checksum


@given(st.binary(min_size=1, max_size=200).map(lambda body: body.ljust(-(-len(body) // BLOCK) * BLOCK, b"\0")))
def test_every_bit_affects_a_checksum(blocks: bytes) -> None:
    key = bytes(16)
    sums = {_reader.recording_sum(key, blocks)}
    number = int.from_bytes(blocks, "little")
    for bit in range(len(blocks) * 8):
        sums.add(_reader.recording_sum(key, (number ^ 1 << bit).to_bytes(len(blocks), "little")))
    sums.add(_reader.recording_sum(key, blocks + bytes(BLOCK)))
    assert len(sums) == len(blocks) * 8 + 2


@pytest.mark.parametrize(("key", "blocks"), [(-1, 0), (1, 0), (0, 1), (0, BLOCK - 1)])
def test_keys_and_blocks_of_wrong_lengths_are_refused(key: int, blocks: int) -> None:
    with memory(tape([])) as fd, form(fd) as opened:
        length = len(opened._key)
    for call in (_reader.find_chunk, _reader.recording_sum):
        with pytest.raises(
            ValueError, match=f"^the key has {length + key} bytes, expected {length}; the blocks have {blocks} bytes, "
        ):
            call(bytes(length + key), bytes(blocks))


@pytest.mark.ci
def test_the_search_for_a_chunk_reads_nothing_beyond_its_blocks() -> None:
    script = """if True:
        import ctypes, mmap
        from brickd.shm import _reader
        pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        at = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(at + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
        assert _reader.find_chunk(bytes(KEY), (ctypes.c_char * mmap.PAGESIZE).from_buffer(pages)) is None
    """
    with memory(tape([])) as fd, form(fd) as opened:
        subprocess.run([sys.executable, "-P", "-c", script.replace("KEY", str(len(opened._key)))], check=True)
