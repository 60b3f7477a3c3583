"""Sources as workers send them: a second implementation of the writer's pieces and hash."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from brickd.model.kernel_sources.store import Sources

NAME, PATH, TEXT, END = range(4)
PIECE = 40
MASK = 2**64 - 1
Piece = tuple[int, int, bytes]


def fnv1a(text: bytes) -> int:
    """The hash that identifies a source."""
    made = 0xCBF29CE484222325
    for byte in text:
        made = (made ^ byte) * 0x100000001B3 & MASK
    return made


def part(hash_: int, which: int, text: bytes) -> list[Piece]:
    """Return the pieces of a name, a path or a text."""
    return [
        (hash_, which << 30 | at // PIECE, text[at : at + PIECE].ljust(PIECE, b"\0"))
        for at in range(0, len(text), PIECE)
    ]


def end(hash_: int, name: int, path: int, text: int) -> Piece:
    """Return the last piece, which has the lengths of the three parts."""
    return hash_, END << 30, struct.pack("<3Q", name, path, text).ljust(PIECE, b"\0")


def all_pieces(text: bytes, name: bytes = b"", path: bytes = b"", hash_: int | None = None) -> list[Piece]:
    """Return all pieces of a source, with its own hash or with another claimed hash."""
    known = fnv1a(text) if hash_ is None else hash_
    return [
        *part(known, NAME, name),
        *part(known, PATH, path),
        *part(known, TEXT, text),
        end(known, len(name), len(path), len(text)),
    ]


def record(piece: Piece, sequence: int = 1) -> bytes:
    """Return the record of a piece, as it is in a ring."""
    hash_, number, text = piece
    return struct.pack("<QIHHQ", sequence, number, 1, 7, hash_) + text


def texts(of: Sources) -> dict[int, bytes]:
    """Return all texts in the store, keyed by hash."""
    found = {hash_: of.read(hash_) for hash_ in of.heads()}
    return {hash_: source.text for hash_, source in found.items() if source is not None}


def take_each(sources: Sources, sender: str, pieces: Iterable[Piece]) -> None:
    """Add the pieces, each in its own call."""
    for piece in pieces:
        sources.take(sender, [piece])
