"""The writer of recordings: refusals, counts, and the files that it leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tapes import BLOCK, END_BYTES, FIRST, ID, begin, clean, content, memory, read_fd

from brickd.shm import _reader

SNAPSHOT = _reader.CHUNK_SNAPSHOT


def test_a_file_unsuitable_for_a_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    for flags, content_, reason in (
        (os.O_RDONLY, b"", "opened with O_RDWR and without O_APPEND"),
        (os.O_RDWR | os.O_APPEND, b"", "opened with O_RDWR and without O_APPEND"),
        (os.O_RDWR, b"full", "an empty file, but this file has 4 bytes"),
    ):
        path.write_bytes(content_)
        fd = os.open(path, flags)
        with pytest.raises(ValueError, match=reason):
            begin(fd)
        os.close(fd)
    reading, writing = os.pipe()
    with pytest.raises(ValueError, match="needs a regular file, but this is another kind of file"):
        begin(writing)
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError, match="Bad file descriptor"):
        begin(-1)


def test_impossible_parameters_of_a_recording_are_refused() -> None:
    with memory() as fd:
        with pytest.raises(ValueError, match="an id must have 16 bytes, not 3"):
            _reader.Recording(fd, 1000, b"abc", 0)
        for limit, ahead, spare in ((-1, 0, 0), (1000, -1, 0), (2**63 - 1, 0, 0), (1000, 0, -1)):
            with pytest.raises(ValueError, match="limit_bytes, ahead_bytes and spare_bytes must be 0 to"):
                _reader.Recording(fd, limit, ID, 0, 0, ahead, spare)
        with pytest.raises(OSError, match="File too large"):
            begin(fd, limit_bytes=FIRST + END_BYTES - 1)
        assert content(fd) == b""


@pytest.mark.parametrize("kind", [0, _reader.CHUNK_END, _reader.CHUNK_RECORDS])
def test_chunk_kinds_reserved_for_the_recording_cannot_be_appended(kind: int) -> None:
    with memory() as fd:
        recording = begin(fd)
        with pytest.raises(ValueError, match=f"a chunk of kind {kind}"):
            recording.append(kind, 0, b"")
        assert (recording.chunks, recording.refused_chunks) == (0, 0)


@pytest.mark.parametrize("body", [b"", bytes(63), bytes(65)])
def test_only_whole_slots_of_another_file_are_appended_as_records(body: bytes) -> None:
    with memory() as fd:
        recording = begin(fd)
        with pytest.raises(ValueError, match="expected a head and slots of 64 bytes each"):
            recording.append_records(0, body)
        recording.append_records(7, bytes(128))
        recording.close()
        (chunk,) = read_fd(fd).chunks
        assert (chunk.kind, chunk.at_ns, chunk.body) == (_reader.CHUNK_RECORDS, 7, bytes(128))


@pytest.mark.slow
def test_the_longest_chunk_is_recorded_and_a_longer_one_is_not() -> None:
    with memory() as fd:
        recording = begin(fd, limit_bytes=1 << 30)
        body = bytearray(_reader.CHUNK_BYTES_MAX + 1)
        with pytest.raises(ValueError, match="at most 67108864"):
            recording.append(SNAPSHOT, 0, body)
        body.pop()
        recording.append(SNAPSHOT, 0, body)
        recording.close()
        seen = read_fd(fd)
        assert [len(each.body) for each in seen.chunks] == [_reader.CHUNK_BYTES_MAX]
        assert clean(seen.end)


def test_a_recording_keeps_to_its_limit_whatever_it_allocates_ahead() -> None:
    for limit in (FIRST + END_BYTES, 1000, 4096, 10_000):
        with memory() as fd:
            recording = begin(fd, limit_bytes=limit, ahead_bytes=1 << 20)
            while recording.left_bytes >= BLOCK:
                recording.append(SNAPSHOT, 0, bytes(BLOCK))
            assert os.fstat(fd).st_size <= limit
            recording.close()
            assert os.fstat(fd).st_size <= limit
            assert clean(read_fd(fd).end)


def test_a_closed_recording_accepts_and_counts_nothing() -> None:
    with memory() as fd:
        recording = begin(fd)
        recording.close()
        before = content(fd)
        recording.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            recording.append(SNAPSHOT, 0, b"late")
        assert (recording.left_bytes, recording.refused_chunks) == (0, 0)
        assert content(fd) == before


def test_a_recording_keeps_its_own_copy_of_the_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "F.brick"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    recording = begin(fd)
    os.close(fd)
    recording.append(SNAPSHOT, 1, b"still")
    recording.close()
    with path.open("rb") as file:
        assert read_fd(file.fileno()).written == [(SNAPSHOT, 1, b"still")]


def test_a_dropped_recording_leaves_its_file_without_an_end() -> None:
    with memory() as fd:
        recording = begin(fd)
        recording.append(SNAPSHOT, 1, b"there")
        del recording
        seen = read_fd(fd)
        assert seen.written == [(SNAPSHOT, 1, b"there")]
        assert not seen.end.ended
