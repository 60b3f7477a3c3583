"""The archive of a bundle, read as hostile input.

Owns: which archives are accepted, and the limits while an archive is read. Must not know: what members contain.
Invariants: Nothing is written to a disk, and only one piece of a member is in memory. Only regular members with plain
names are accepted: no links, devices, folders, or extensions of the tar format. The decompressed bytes are counted, so
an archive that grows without end is refused.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from brickd.base.units import size
from brickd.bundle.manifest import MEMBERS_MAX, TOTAL_BYTES_MAX, bytes_max, is_member_name
from brickd.errors import BrickdError, NotPermitted

_PIECE_BYTES = 1 << 16
_GZIP = 31  # zlib reads a gzip header, and checks the sum at the end
_BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(_BLOCK)


class ArchiveError(BrickdError):
    """An archive that is damaged, hostile, or no bundle."""


class _Decompressed:
    """The decompressed bytes of an archive."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._zlib, self._most = file, zlib.decompressobj(_GZIP), most
        self._left = b""
        self._count = 0

    def read(self, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end. ArchiveError: the archive is too long or damaged."""
        pieces = []
        while length > 0 and (piece := self._piece(min(length, _PIECE_BYTES))):
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

    def _piece(self, most: int) -> bytes:
        while not self._zlib.eof:
            given = self._left or self._file.read(_PIECE_BYTES)
            try:
                found = self._zlib.decompress(given, most)
            except zlib.error as error:
                raise ArchiveError(f"is not a gzip file, or is damaged: {error}") from None
            self._left = self._zlib.unconsumed_tail
            self._count += len(found)
            if self._count > self._most:
                raise ArchiveError(f"has more than {size(self._most)} after decompression, the limit of a bundle")
            if found:
                return found
            if not given and not self._zlib.eof:
                raise ArchiveError("is cut: the compressed data has no end")
        return b""

    def member(self, name: str, length: int) -> Iterator[bytes]:
        """Yield the content of a member in pieces, and skip the bytes that fill its last block."""
        padding = -length % _BLOCK
        while length > 0 and (piece := self._piece(min(length, _PIECE_BYTES))):
            length -= len(piece)
            yield piece
        if length or len(self.read(padding)) < padding:
            raise ArchiveError(f"is cut within the member {name}")

    def require_end(self) -> None:
        """Raise ArchiveError if other bytes follow the archive."""
        while piece := self.read(_PIECE_BYTES):
            if piece.strip(b"\0"):
                raise ArchiveError("has data after its last member")
        if self._zlib.unused_data or self._file.read(1):
            raise ArchiveError("has data after its end")


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open the file of an archive.

    Raises:
        BrickdError: the file cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError as error:
        raise NotPermitted(f"{path}: cannot be opened: {error.strerror} (run brickd as its owner)") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BrickdError(f"{path}: cannot be opened: {reason} (brickd bundle -o FILE writes one)") from None
    with open(fd, "rb", buffering=0) as file:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise BrickdError(f"{path}: has mode {stat.filemode(mode)}, expected a regular file")
        yield file


def members(file: IO[bytes], most: int = TOTAL_BYTES_MAX) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the name of each member, and its content in pieces, which are read before the next member.

    `most` limits the bytes of the file, and those of all members.

    Raises:
        ArchiveError: the rest of the archive is not read. The pieces of a member also raise it.
    """
    stream, names = _Decompressed(file, most), set[str]()
    length = os.fstat(file.fileno()).st_size
    if length > most:
        raise ArchiveError(f"has {size(length)}, expected at most {size(most)}")
    while (block := stream.read(_BLOCK)) != _ZEROS:
        name, length = _head(block)
        if name in names:
            raise ArchiveError(f"has two members with the name {name}")
        if len(names) == MEMBERS_MAX:
            raise ArchiveError(f"has more than {MEMBERS_MAX} members")
        names.add(name)
        pieces = stream.member(name, length)
        yield name, pieces
        for _ in pieces:  # the rest, if the caller did not read all of them
            pass
    stream.require_end()


def _head(block: bytes) -> tuple[str, int]:
    """Return the name and the length of a member."""
    if len(block) < _BLOCK:
        raise ArchiveError("is cut: the end of the tar file is missing")
    try:
        head = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise ArchiveError(f"is not a tar file, or is damaged: {error}") from None
    name = head.name
    if head.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise ArchiveError(f"has the member {name!r} of type {head.type!r}, expected only regular files")
    if not is_member_name(name):
        raise ArchiveError(f"has a member with the name {name!r}, expected a plain name without folders")
    if not 0 <= head.size <= bytes_max(name):
        raise ArchiveError(f"has the member {name} of {head.size:,} bytes, expected at most {bytes_max(name):,}")
    return name, head.size
