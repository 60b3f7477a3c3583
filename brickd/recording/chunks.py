"""The chunks of a recording, read from its file.

Owns: which chunks of a file are valid, and the report on invalid ones. Must not know: the meaning of chunks.
Invariants: A returned chunk is unchanged. `Form.end` reports missing data with the position. These are the only
effects, whatever the file contains, and even if it changes while it is read. At most one chunk is in memory.

brickd/reader/core/recording_format.h describes the format of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

from brickd.errors import RecordingRefused
from brickd.recording.chunk_heads import ChunkHead, Heads
from brickd.recording.damage import DroppedChunks, End
from brickd.recording.file_bytes import Reads, RecordingBytes, open_file, unreported
from brickd.shm import _reader

_BLOCK = _reader.BLOCK_BYTES


class Title(NamedTuple):
    """Which recording a file belongs to (`id`), and the file's `number` in that recording."""

    major: int
    minor: int
    made_ns: int
    id: bytes
    number: int


class Chunk(NamedTuple):
    """A valid chunk: its kind (`_reader.CHUNK_...`), its time since 1970, its number, offset and body."""

    kind: int
    at_ns: int
    sequence: int
    offset: int
    body: bytes

    @property
    def end(self) -> int:
        """The offset after the last byte of the chunk's body."""
        return self.offset + _BLOCK + len(self.body)


class RingRecords(NamedTuple):
    """Slots of one ring, unchanged.

    Attributes:
        worker: the id of the worker in the recording.
        events: whether the ring is the event ring of the lane.
        inside: the number of leading slots that belong to an earlier record, or to no record.
        first: the position of the first slot.
        slots: the slots of 64 bytes each, which are not checked yet.
    """

    worker: int
    lane: int
    events: bool
    inside: int
    first: int
    slots: bytes


class Form:
    """An open file of a recording; `end` describes how its last complete reading ended."""

    def __init__(self, file: RecordingBytes) -> None:
        """Take over the file and read the title; raise RecordingRefused if the title is invalid."""
        self.path = file.path
        self.end = End()
        self._file = file
        titles = file.read(0, _reader.RECORDING_FIRST)
        try:
            major, minor, made_ns, id_, number, self._key = _reader.recording_title(titles)
        except ValueError as error:
            raise RecordingRefused(self.path, file.trouble or str(error)) from None
        self.title = Title(major, minor, made_ns, id_, number)
        self._twins = titles[:_BLOCK] == titles[_BLOCK:]
        self._heads = Heads(file, self._key)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield all valid chunks of known kinds, in order."""
        self.end = end = self._begin()
        if not self._twins:
            end.damage(0, end.at, "one of the two titles is damaged")
        for chunk in self._whole(end):
            if chunk.kind == _reader.CHUNK_END:
                self._close(end, chunk.body)
                return
            if chunk.kind < _reader.CHUNK_KINDS:
                yield chunk
            else:
                end.skip(chunk.kind)

    def only(self, *kinds: int) -> Iterator[Chunk]:
        """Yield only chunks of some kinds. Other bodies are not read, and damage is not reported."""
        for chunk in self._whole(self._begin(), (*kinds, _reader.CHUNK_END)):
            if chunk.kind == _reader.CHUNK_END:
                return
            yield chunk

    def heads(self, *kinds: int) -> Iterator[ChunkHead]:
        """Yield the heads of the chunks of some kinds. No body is read, and damage is not reported."""
        end = self._begin()
        while (head := self._heads.next(end)) is not None and head.kind != _reader.CHUNK_END:
            end.at = head.end
            if head.kind in kinds:
                yield head

    def again(self, offset: int) -> Chunk | None:
        """Read the chunk at this offset again; None if it is no longer there."""
        head = self._heads.at(offset)
        body = None if head is None else self._body(head)
        return None if head is None or body is None else Chunk(head.kind, head.at_ns, head.number, offset, body)

    def _begin(self) -> End:
        return End(at=min(_reader.RECORDING_FIRST, self._file.size))

    def _whole(self, end: End, kinds: tuple[int, ...] = ()) -> Iterator[Chunk]:
        """Yield all valid chunks, of every kind or of `kinds`."""
        number = 0
        while (head := self._heads.next(end)) is not None:
            if kinds and head.kind not in kinds:
                end.at = head.end
                continue
            body = self._body(head)
            before, end.at = end.at, head.end
            if body is None:
                end.damage(head.offset, head.end, f"chunk {head.number} has a wrong checksum")
                continue
            if head.number < number:
                end.damage(head.offset, head.end, f"chunk {head.number} comes after chunk {number - 1}")
                continue
            if head.number > number:
                end.missing += head.number - number
                if not end.damages or end.damages[-1].end != before:
                    end.damage(before, before, f"chunk {head.number} comes after chunk {number - 1}")
            number = head.number + 1
            yield Chunk(head.kind, head.at_ns, head.number, head.offset, body)

    def _body(self, head: ChunkHead) -> bytes | None:
        """Return the body of a chunk if its checksum is correct."""
        blocks = self._file.read(head.body, head.end - head.body)
        if len(blocks) < head.end - head.body:  # the file was cut after the head was found
            return None
        return blocks[: head.length] if _reader.recording_sum(self._key, blocks) == head.body_sum else None

    def _close(self, end: End, body: bytes) -> None:
        """Record that the writer closed the file, and report any bytes after the end."""
        end.ended = True
        try:
            _, *refused = _reader.recording_end(body)
        except ValueError as error:
            end.damage(end.at, end.at, str(error))
        else:
            end.refused = DroppedChunks(*refused)
        if (last := self._heads.behind(end.at)) > end.at:
            end.damage(end.at, last, "bytes after its end")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_recording(path: str, reads: Reads = unreported) -> Form:
    """Open a file of a recording; raise the errors of `open_file` and of `Form`."""
    file = open_file(path, reads)
    try:
        return Form(file)
    except BaseException:
        file.close()
        raise


def records(body: bytes) -> RingRecords:
    """Decode the body of a chunk of records; raise a ValueError if it is invalid."""
    worker, lane, ring, inside, first = _reader.recorded_from(body)
    if ring > 1:
        raise ValueError(f"slots of ring {ring}, expected 0 or 1")
    return RingRecords(worker, lane, ring == 1, inside, first, body[_BLOCK:])
