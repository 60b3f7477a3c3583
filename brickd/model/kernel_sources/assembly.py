"""One source, complete or incomplete: assembles the pieces from several workers.

Owns: the position of each piece, when a text is complete, the encoding of a source as bytes. Must not know: other
sources, files, rings.

A source is identified by the FNV-1a hash of its text. Several workers may send parts of the same source, for example
because one worker dies and another continues. So their pieces are combined. The first piece at each position is kept;
a different piece at this position is kept separately for its sender. So a hostile sender cannot block another sender's
text.

Invariants: Only a text with the hash of the source is returned. The order of pieces does not change this text. Name and
path are only labels. They come from the worker that sent the end of the text, as far as they have arrived.
"""

from __future__ import annotations

import struct
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from brickd.base.json_values import bits, flag, limited, parsed, plain, require, unicode, validating, whole
from brickd.shm import _reader

PIECE = _reader.SOURCE_PIECE
_PART_BITS = 30
_NUMBER = (1 << _PART_BITS) - 1
_PARTS = range(_reader.SOURCE_END)  # the parts of a source: name, path, text
_LENGTHS = struct.Struct("<3Q")
_MOST = (_reader.SOURCE_LABEL, _reader.SOURCE_LABEL, _reader.SOURCE_MAX)
_ENDS_MAX = 64  # the most senders whose length of one source is kept
_OTHER_BYTES = 160  # the memory that a differing piece takes in addition
_HEAD_BYTES_MAX = 1 << 14

Lengths = tuple[int, int, int]


class SourceHead(NamedTuple):
    """What is known about a source, without its text. Unknown names and paths are "".

    Attributes:
        size: the number of bytes of the text; None if unknown.
        pieces: the number of pieces of the text that have arrived; None if all have.
        differing: the number of workers that sent another text with the same hash.
    """

    name: str
    path: str
    size: int | None
    pieces: int | None = None
    differing: int = 0


class KernelSource(NamedTuple):
    """A complete source. The text is UTF-8 if the worker that sent it followed the format."""

    hash: int
    name: str
    path: str
    text: bytes

    def head(self) -> SourceHead:
        """What is known about the source, without its text."""
        return SourceHead(self.name, self.path, len(self.text))

    def agrees(self, piece: int, sent: bytes) -> bool:
        """Whether the pieces from this index on match the text.

        The pieces of names and paths always match.
        """
        part, number = piece >> _PART_BITS, piece & _NUMBER
        if part == _reader.SOURCE_END:
            lengths = lengths_of(number, sent)
            return lengths is not None and lengths[_reader.SOURCE_TEXT] == len(self.text)
        if part != _reader.SOURCE_TEXT:
            return True
        begin = number * PIECE
        expected = self.text[begin : begin + len(sent)]
        return begin < len(self.text) and sent == expected.ljust(-(-len(expected) // PIECE) * PIECE, b"\0")

    def encoded(self) -> list[bytes]:
        """Return the encoded source: a line with the head, then the text."""
        head = {"hash": f"{self.hash:016x}", "name": self.name, "path": self.path, "size_bytes": len(self.text)}
        return [plain(head).encode(), b"\n", self.text]


def head_of(content: bytes) -> tuple[int, SourceHead]:
    """Decode the hash and the head; raise a ValueError if the first line is invalid."""
    line, newline, _ = content[:_HEAD_BYTES_MAX].partition(b"\n")
    require(bool(newline), "a line about a source", line)
    with validating():
        head = parsed(line)
        size = whole(head["size_bytes"], most=_reader.SOURCE_MAX)
        return bits(head["hash"], 64), SourceHead(unicode(head["name"]), unicode(head["path"]), size)


def decoded(content: bytes) -> KernelSource:
    """Decode the output of `encoded`; raise a ValueError if it is invalid or its text has another hash."""
    hash_, head = head_of(content)
    text = content.partition(b"\n")[2]
    if len(text) > _reader.SOURCE_MAX:
        raise ValueError(f"source {hash_:016x} has {len(text)} bytes, expected at most {_reader.SOURCE_MAX}")
    if (seen := _reader.source_hash(text)) != hash_:
        raise ValueError(f"source {hash_:016x} has a text with the hash {seen:016x}")
    return KernelSource(hash_, head.name, head.path, text)


def lengths_of(number: int, sent: bytes) -> Lengths | None:
    """Return the lengths of name, path and text from an end record; None if the record is invalid."""
    lengths: Lengths = _LENGTHS.unpack_from(sent)
    possible = number == 0 and len(sent) == PIECE and not any(sent[_LENGTHS.size :])
    return lengths if possible and all(n <= most for n, most in zip(lengths, _MOST, strict=True)) else None


class _Part:
    """The pieces of a name, a path or a text in order, and which of them have arrived."""

    __slots__ = ("here", "text")

    def __init__(self, text: bytes = b"", here: bytes = b"") -> None:
        self.text, self.here = bytearray(text), bytearray(here)

    def put(self, first: int, sent: bytes) -> Iterator[tuple[int, bytes]]:
        """Add new pieces; yield those that differ from an earlier piece at the same position."""
        count = len(sent) // PIECE
        begin, end, last = first * PIECE, (first + count) * PIECE, first + count
        if (lacking := last - len(self.here)) > 0:
            self.here += bytes(lacking)
            self.text += bytes(lacking * PIECE)
        if self.here.find(1, first, last) < 0:
            self.text[begin:end] = sent
            self.here[first:last] = b"\1" * count
        elif self.here.find(0, first, last) >= 0 or self.text[begin:end] != sent:
            for number in range(first, last):
                at, place = (number - first) * PIECE, slice(number * PIECE, (number + 1) * PIECE)
                piece = sent[at : at + PIECE]
                if not self.here[number]:
                    self.text[place], self.here[number] = piece, 1
                elif self.text[place] != piece:
                    yield number, piece


class Making:
    """An incomplete source. `refuted` tells whether a text was complete but did not match the hash."""

    def __init__(self, hash_: int, sender: str) -> None:
        self.hash, self.sender = hash_, sender
        self.refuted = False
        self._parts = [_Part() for _ in _PARTS]
        self._ends: dict[str, Lengths] = {}
        self._others: dict[str, dict[int, bytes]] = {}  # the pieces that differ, by sender and number
        self._text = ""

    @property
    def size(self) -> int:
        """The number of bytes that the source takes in memory."""
        other_bytes = sum(map(len, self._others.values())) * _OTHER_BYTES
        return other_bytes + sum(len(part.text) + len(part.here) for part in self._parts)

    def head(self) -> SourceHead:
        """What is known about the source."""
        here = self._parts[_reader.SOURCE_TEXT].here.count(1)
        for name, path, text in self._ends.values():
            return SourceHead(self._label(0, name, ""), self._label(1, path, ""), text, here)
        return SourceHead("", "", None, here)

    def put(self, sender: str, piece: int, sent: bytes) -> bool:
        """Add consecutive pieces, the first of which has this index; return False if they are invalid."""
        part, number = piece >> _PART_BITS, piece & _NUMBER
        self._text = ""
        if part == _reader.SOURCE_END:
            if (lengths := lengths_of(number, sent)) is None:
                return False
            self._ends.pop(sender, None)
            self._ends[sender] = lengths
            if len(self._ends) > _ENDS_MAX:
                del self._ends[next(iter(self._ends))]
            return True
        possible = -(-_MOST[part] // PIECE) - number
        if possible > 0:
            for each, other in self._parts[part].put(number, sent[: possible * PIECE]):
                self._others.setdefault(sender, {})[part << _PART_BITS | each] = other
        return possible * PIECE >= len(sent)

    def source(self, sender: str) -> KernelSource | None:
        """Return the source if the new pieces of this sender complete it."""
        ends = {sender: self._ends[sender]} if sender in self._ends else self._ends
        tried: set[tuple[int, str]] = set()
        for by, lengths in ends.items():
            for over in (by, sender):
                length = lengths[_reader.SOURCE_TEXT]
                which = (length, over if over in self._others else "")
                if which in tried or (text := self._joined(_reader.SOURCE_TEXT, length, over)) is None:
                    continue
                tried.add(which)
                if _reader.source_hash(text) == self.hash:
                    name, path = (self._label(part, lengths[part], by) for part in _PARTS[:2])
                    return KernelSource(self.hash, name, path, text)
        self.refuted |= bool(tried)
        return None

    def differing(self, source: KernelSource) -> set[str]:
        """Return the workers that sent a different text; "" stands for unknown senders."""
        sent = [(sender, *each) for sender, others in self._others.items() for each in others.items()]
        found = {sender for sender, piece, text in sent if not source.agrees(piece, text)}
        found |= {sender for sender, lengths in self._ends.items() if lengths[_reader.SOURCE_TEXT] != len(source.text)}
        first = self._joined(_reader.SOURCE_TEXT, len(source.text), "")
        return found if first == source.text else found | {""}

    def _joined(self, part: int, length: int, over: str) -> bytes | None:
        """Return the first `length` bytes of a part, with the pieces of one sender; None if it is incomplete."""
        pieces, of = -(-length // PIECE), self._parts[part]
        if of.here.count(1, 0, pieces) < pieces:
            return None
        text = of.text[: pieces * PIECE]
        for piece, sent in self._others.get(over, {}).items():
            number = piece & _NUMBER
            if piece >> _PART_BITS == part and number < pieces:
                text[number * PIECE : (number + 1) * PIECE] = sent
        return bytes(text[:length])

    def _label(self, part: int, length: int, by: str) -> str:
        return (self._joined(part, length, by) or b"").decode("utf-8", "replace")

    def text(self) -> str:
        """Return the JSON text, which is cached until more pieces arrive."""
        if not self._text:
            parts = [[_packed(part.text), _packed(part.here)] for part in self._parts]
            others = {sender: [list(sent), _packed(b"".join(sent.values()))] for sender, sent in self._others.items()}
            self._text = plain([self.sender, self.refuted, parts, self._ends, others])
        return self._text

    @classmethod
    def of(cls, hash_: int, document: Sequence[Any]) -> Making:
        """Decode the output of `text`."""
        sender, refuted, parts, ends, others = document
        self = cls(hash_, unicode(sender))
        self.refuted = flag(refuted)
        self._parts = [_part(text, here, most) for (text, here), most in zip(parts, _MOST, strict=True)]
        for by, lengths in limited(ends, _ENDS_MAX).items():
            name, path, text = (whole(n, most=most) for n, most in zip(lengths, _MOST, strict=True))
            self._ends[unicode(by)] = name, path, text
        for by, (pieces, packed) in others.items():
            sent = _unpacked(packed, len(pieces) * PIECE)
            require(len(sent) == len(pieces) * PIECE, f"{len(pieces)} pieces", len(sent))
            self._others[unicode(by)] = {
                whole(piece, most=(_reader.SOURCE_TEXT + 1 << _PART_BITS) - 1): sent[n * PIECE : (n + 1) * PIECE]
                for n, piece in enumerate(pieces)
            }
        return self


def packed_source(source: KernelSource) -> str:
    """Encode a complete source as JSON."""
    return plain(_packed(b"".join(source.encoded())))


def unpacked_source(packed: str) -> KernelSource:
    """Decode the output of `packed_source`."""
    return decoded(_unpacked(packed, _HEAD_BYTES_MAX + _reader.SOURCE_MAX))


def _packed(content: bytes | bytearray) -> str:
    return b2a_base64(zlib.compress(content, 1), newline=False).decode("ascii")


def _unpacked(packed: str, most: int) -> bytes:
    """Decode the output of `_packed`; raise a ValueError if it has more than `most` bytes."""
    content = zlib.decompressobj()
    found = content.decompress(a2b_base64(packed, strict_mode=True), most + 1)
    require(content.eof, f"at most {most} bytes", len(found))
    return found


def _part(packed: str, packed_here: str, most: int) -> _Part:
    pieces = -(-most // PIECE)
    text, here = _unpacked(packed, pieces * PIECE), _unpacked(packed_here, pieces)
    require(len(text) == len(here) * PIECE and not here.strip(b"\0\1"), f"{len(here)} pieces", len(text))
    return _Part(text, here)
