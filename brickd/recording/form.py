"""The chunks of a recording, read out of its file.

Owns: which bytes of a file are believed, and what is said of those that are not. Must not know: what the chunks mean.
Invariants: a chunk that is given stands in the file as it was written; what is not given is told, with its place, by
`Form.end`; no file, whatever is in it and whoever changes or cuts it meanwhile, ends the reading with anything but
that. It is read with pread alone, and never is more of it in memory than a chunk.

The form itself is described in brickd/reader/recording.h.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple, Self

from brickd import _reader
from brickd.errors import NotPermitted, RecordingRefused
from brickd.recording.ending import End, Refused

_HEAD = _BLOCK = _reader.BLOCK_BYTES
_LOOK_BYTES = 1 << 20
_ZEROS = bytes(_BLOCK)
_PATIENCE = 100  # so often a head may change while it is looked at


class Title(NamedTuple):
    """Which recording it is.

    Attributes:
        made_ns: since 1970.
        id: the same in all files that follow one another.
        number: of this file among them.
    """

    major: int
    minor: int
    made_ns: int
    id: bytes
    number: int


class Chunk(NamedTuple):
    """One chunk, whole.

    Attributes:
        kind: one of `_reader.CHUNK_...`.
        at_ns: since 1970.
        sequence: its number in the file.
        offset: where it begins.
    """

    kind: int
    at_ns: int
    sequence: int
    offset: int
    body: bytes


class Records(NamedTuple):
    """Slots of one ring as they stood in it.

    Attributes:
        worker: the number that its writer gave it.
        events: whether it is the event ring of the lane.
        first: position of the first slot.
        slots: hostile; 64 bytes each.
    """

    worker: int
    lane: int
    events: bool
    first: int
    slots: bytes


class _Head(NamedTuple):
    offset: int
    kind: int
    length: int
    number: int
    at_ns: int
    body_sum: int

    @property
    def end(self) -> int:
        return self.offset + _HEAD + -(-self.length // _BLOCK) * _BLOCK


class Form:
    """An open recording.

    Attributes:
        title: which one it is.
        end: how the last reading ended.
    """

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.end = End()
        self._fd = fd
        self._trouble = ""
        try:
            titles = self._read(0, _reader.RECORDING_FIRST)
            major, minor, made_ns, id_, number, self._key = _reader.recording_title(titles)
        except ValueError as error:
            raise RecordingRefused(path, self._trouble or str(error)) from None
        self.title = Title(major, minor, made_ns, id_, number)
        self._twins = titles[:_BLOCK] == titles[_BLOCK:]

    def __iter__(self) -> Iterator[Chunk]:
        """All chunks that are whole and of a kind that is known, in order."""
        self.end = end = End(at=min(_reader.RECORDING_FIRST, self._size()))
        number = 0
        if not self._twins:
            end.damage(0, end.at, "of its two titles one is whole")
        while (head := self._next_head(end)) is not None:
            blocks = self._read(head.offset + _HEAD, head.end - head.offset - _HEAD)
            if _reader.recording_sum(self._key, blocks) != head.body_sum:
                end.damage(head.offset, head.end, f"chunk {head.number} is not what its checksum says")
                end.at = head.end
                continue
            before, end.at = end.at, head.end
            if head.number < number:
                end.damage(head.offset, head.end, f"chunk {head.number} comes after chunk {number - 1}")
                continue
            if head.number > number:
                end.missing += head.number - number
                if not end.damages or end.damages[-1].end != before:
                    end.damage(before, before, f"chunk {head.number} comes after chunk {number - 1}")
            number = head.number + 1
            if head.kind == _reader.CHUNK_END:
                self._close(end, blocks)
                return
            if head.kind < _reader.CHUNK_KINDS:
                yield Chunk(head.kind, head.at_ns, head.number, head.offset, blocks[: head.length])
            else:
                end.skipped[head.kind] += 1

    # ---- where chunks are

    def _next_head(self, end: End) -> _Head | None:
        """The next head whose body is within the file, from `end.at` on; None: there is none any more."""
        block, patience = self._read(end.at, _HEAD), _PATIENCE
        while (head := self._find(end.at, block)) is None or head.end > self._size():
            found = self._look(end.at + _HEAD)
            before, block = block, self._read(end.at, _HEAD)
            if block != before and patience:  # its writer has come to it since, and perhaps to the next one
                patience -= 1
                continue
            if found is None:
                self._break(end, head, block)
                return None
            end.damage(end.at, found.offset, "no chunk begins there" if head is None else "a chunk that was cut")
            end.at = found.offset
            block, patience = self._read(end.at, _HEAD), _PATIENCE
        return head

    def _look(self, offset: int) -> _Head | None:
        """The first head from there on."""
        while blocks := self._read(offset := self._data(offset), _LOOK_BYTES):
            if (found := self._find(offset, blocks)) is not None:
                return found
            if len(blocks) < _LOOK_BYTES:
                return None
            offset += _LOOK_BYTES
        return None

    def _find(self, offset: int, blocks: bytes) -> _Head | None:
        """The first head in blocks that begin there, the last of which may be a part of one."""
        found = _reader.find_chunk(self._key, blocks[: len(blocks) // _BLOCK * _BLOCK])
        return None if found is None else _Head(offset + found[0], *found[1:])

    # ---- how it ends

    def _close(self, end: End, body: bytes) -> None:
        """Its writer closed it."""
        end.ended = True
        try:
            _, *refused = _reader.recording_end(body)
        except ValueError as error:
            end.damage(end.at, end.at, str(error))
        else:
            end.refused = Refused(*refused)
        if (last := self._last(end.at)) > end.at:
            end.damage(end.at, last, "bytes behind its end")

    def _break(self, end: End, head: _Head | None, block: bytes) -> None:
        """Nothing is whole any more, and its writer did not close it."""
        size = self._size()
        if self._trouble:
            end.why = f"{self._trouble}; all before byte {end.at} is there"
        elif head is not None:
            end.why = f"was cut at byte {size}, within a chunk: all before byte {end.at} is there"
        elif size - end.at < _HEAD and size > end.at:
            end.why = f"was cut at byte {size}, within the head of a chunk: all before byte {end.at} is there"
        elif block in (b"", _ZEROS):
            end.why = (
                f"was not ended: it is written still, or its writer was killed, or it was cut at byte {end.at}:"
                " all before is there"
            )
        else:
            end.damage(end.at, size, "no chunk begins there, nor behind it")
            end.why = f"has no end: all that is whole before byte {size} is there"

    def _last(self, offset: int) -> int:
        """Behind the last byte from there on that is not zero; where there is none, the offset."""
        last = offset
        while piece := self._read(offset := self._data(offset), _LOOK_BYTES):
            if rest := piece.rstrip(b"\0"):
                last = offset + len(rest)
            offset += len(piece)
        return last

    # ---- the file

    def _size(self) -> int:
        return os.fstat(self._fd).st_size

    def _data(self, offset: int) -> int:
        """Where the first block from there on is that may be anything but zeros: most of a huge file may be holes."""
        try:
            found = os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:  # nothing else is there; or its file system does not say
            found = self._size() if error.errno == errno.ENXIO else offset
        return max(offset, found // _BLOCK * _BLOCK)

    def _read(self, offset: int, length: int) -> bytes:
        """As much of it as is there."""
        pieces: list[bytes] = []
        try:
            while length > 0 and (piece := os.pread(self._fd, length, offset)):
                pieces.append(piece)
                offset += len(piece)
                length -= len(piece)
        except OSError as error:
            self._trouble = f"cannot be read at byte {offset}: {error.strerror}"
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Give up the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_recording(path: str) -> Form:
    """Open a recording.

    Raises:
        RecordingRefused: it is none, or of a form that this brickd does not read, or it cannot be opened.
        NotPermitted: it is another user's.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError as error:
        raise NotPermitted(f"{path}: may not be read by this user") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RecordingRefused(path, f"cannot be opened: {reason}") from error
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise RecordingRefused(path, f"is no file of a recording: {stat.filemode(mode)}, a regular file is wanted")
        return Form(path, fd)
    except BaseException:
        os.close(fd)
        raise


def records(body: bytes) -> Records:
    """What a chunk of RECORDS says.

    Raises:
        ValueError: it is none.
    """
    worker, lane, ring, first = _reader.recorded_from(body)
    if ring > 1:
        raise ValueError(f"slots of ring {ring}, wanted 0 or 1")
    return Records(worker, lane, ring == 1, first, body[_BLOCK:])
