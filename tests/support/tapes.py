"""Writes valid recordings for tests, damages them, and reads them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from brickd.recording.chunks import Chunk, Form
from brickd.recording.damage import End
from brickd.recording.file_bytes import Reads, RecordingBytes, unreported
from brickd.shm import _reader

ID = bytes(range(16))
BLOCK, FIRST = _reader.BLOCK_BYTES, _reader.RECORDING_FIRST
END_BYTES = 2 * BLOCK
MADE_NS = 1_790_000_000_000_000_000

Written = tuple[int, int, bytes]  # the kind, the time (at_ns) and the body of a chunk


@contextmanager
def memory(content: bytes = b"") -> Iterator[int]:
    """Return a file in memory without a name."""
    fd = os.memfd_create("recording")
    try:
        os.write(fd, content)
        yield fd
    finally:
        os.close(fd)


def begin(fd: int, limit_bytes: int = 1 << 20, number: int = 0, ahead_bytes: int = 0) -> _reader.Recording:
    return _reader.Recording(fd, limit_bytes, ID, MADE_NS, number, ahead_bytes)


def flush(recording: _reader.Recording, spool: _reader.Spool) -> None:
    """Write everything in the spool."""
    recording.write(spool, spool.ready()[0])


def content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def tape(chunks: Sequence[Written], number: int = 0) -> bytes:
    """Return a complete recording of these chunks."""
    with memory() as fd:
        recording = begin(fd, number=number)
        for chunk in chunks:
            recording.append(*chunk)
        recording.close()
        return content(fd)


@dataclass
class Read:
    chunks: list[Chunk]
    end: End

    @property
    def written(self) -> list[Written]:
        return [(each.kind, each.at_ns, each.body) for each in self.chunks]


def form(fd: int, reads: Reads = unreported) -> Form:
    """Open the recording in a file; the caller closes it."""
    return Form(RecordingBytes("F.brick", os.dup(fd), reads))


def read_fd(fd: int) -> Read:
    with form(fd) as opened:
        return Read(list(opened), opened.end)


def read(content: bytes) -> Read:
    """Read a file with this content."""
    with memory(content) as fd:
        return read_fd(fd)


def clean(end: End) -> bool:
    """Return whether the writer has closed the file, and nothing in the file is damaged."""
    return end.ended and not end.damages


def size(body: bytes) -> int:
    """Return the size that a chunk with this body takes in the file."""
    return BLOCK + -(-len(body) // BLOCK) * BLOCK


# ---- recordings made by hand


def sealed(block: bytes, key: bytes) -> bytes:
    """Return the block of eight words with its checksum in the last word."""
    return block[:56] + struct.pack("<Q", _reader.recording_sum(key, block[:56] + bytes(8)))


def head(key: bytes, kind: int, length: int, number: int, body_sum: int = 0, at_ns: int = 9) -> bytes:
    return sealed(struct.pack("<8sI4xQQQ8xQ8x", b"brikchnk", kind, length, number, at_ns, body_sum), key)


def forged(chunks: Sequence[Written]) -> bytes:
    """Return a recording of arbitrary chunks with correct checksums."""
    written = tape([])[:FIRST]
    key = _reader.recording_title(written)[-1]
    for number, (kind, at_ns, body) in enumerate(chunks):
        blocks = body.ljust(size(body) - BLOCK, b"\0")
        written += head(key, kind, len(body), number, _reader.recording_sum(key, blocks), at_ns) + blocks
    return written
