"""The heads of the chunks in a recording.

Owns: which blocks of a file are heads, and where the search for the next head begins. Must not know: the content of
bodies, the order of chunks. Invariants: The body of a returned head is within the file. Skipped bytes are reported with
their position. If a file ends without a closing chunk, this is reported with the reason.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.recording.damage import End
from brickd.recording.file_bytes import RecordingBytes
from brickd.shm import _reader

_HEAD = _BLOCK = _reader.BLOCK_BYTES
_LOOK_BYTES = 1 << 20
_ZEROS = bytes(_BLOCK)
_PATIENCE = 100  # if a block changes more often than this while it is read, it counts as damaged


class ChunkHead(NamedTuple):
    """The head of a chunk; `length` is the length of the body, `number` is the number of the chunk in the file."""

    offset: int
    kind: int
    length: int
    number: int
    at_ns: int
    body_sum: int

    @property
    def body(self) -> int:
        """The offset of the body."""
        return self.offset + _HEAD

    @property
    def end(self) -> int:
        """The offset of the next chunk."""
        return self.body + -(-self.length // _BLOCK) * _BLOCK


class Heads:
    """The heads of a file."""

    def __init__(self, file: RecordingBytes, key: bytes) -> None:
        self._file, self._key = file, key

    def next(self, end: End) -> ChunkHead | None:
        """Return the first head at or after `end.at` whose body is within the file; None if there is none."""
        file = self._file
        block, patience = file.read(end.at, _HEAD), _PATIENCE
        while (head := self._find(end.at, block)) is None or head.end > file.size:
            found = self._look(end.at + _HEAD)
            before, block = block, file.read(end.at, _HEAD)
            if block != before and patience:  # the writer has changed this block
                patience -= 1
                continue
            if found is None:
                self._break(end, head, block)
                return None
            end.damage(end.at, found.offset, "no chunk begins there" if head is None else "the chunk there was cut")
            end.at = found.offset
            block, patience = file.read(end.at, _HEAD), _PATIENCE
        return head

    def at(self, offset: int) -> ChunkHead | None:
        """Return the head at this offset, if there is one."""
        return self._find(offset, self._file.read(offset, _HEAD))

    def _look(self, offset: int) -> ChunkHead | None:
        """Return the first head at or after this offset."""
        while blocks := self._file.read(offset := self._file.data(offset), _LOOK_BYTES):
            if (found := self._find(offset, blocks)) is not None:
                return found
            if len(blocks) < _LOOK_BYTES:
                return None
            offset += _LOOK_BYTES
        return None

    def _find(self, offset: int, blocks: bytes) -> ChunkHead | None:
        """Return the first head in these blocks, at or after this offset. The last block may be incomplete."""
        found = _reader.find_chunk(self._key, blocks[: len(blocks) // _BLOCK * _BLOCK])
        return None if found is None else ChunkHead(offset + found[0], *found[1:])

    def _break(self, end: End, head: ChunkHead | None, block: bytes) -> None:
        """Report an end of the file without a closing chunk, and the reason."""
        size = self._file.size
        if self._file.trouble:
            end.why = f"{self._file.trouble}; the data before byte {end.at} is complete"
        elif head is not None:
            end.why = f"was cut at byte {size}, within a chunk: the data before byte {end.at} is complete"
        elif size - end.at < _HEAD and size > end.at:
            end.why = f"was cut at byte {size}, within the head of a chunk: the data before byte {end.at} is complete"
        elif block in (b"", _ZEROS):
            end.why = (
                f"has no end: its writer still runs or was killed, or the file was cut at byte {end.at}; the data"
                " before this byte is complete"
            )
        else:
            end.damage(end.at, size, "no chunk begins there or later")
            end.why = f"has no end: the complete chunks before byte {size} are read"

    def behind(self, offset: int) -> int:
        """Return the end of the last nonzero byte at or after this offset; the offset itself if there is none."""
        last = offset
        while piece := self._file.read(offset := self._file.data(offset), _LOOK_BYTES):
            if rest := piece.rstrip(b"\0"):
                last = offset + len(rest)
            offset += len(piece)
        return last
