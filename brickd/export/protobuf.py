"""The wire format of protocol buffers: fields as bytes.

Owns: varints and keys. Must not know: messages. Invariant: a text is valid UTF-8.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_U64 = 2**64 - 1


def varint(value: int) -> bytes:
    r"""Encode a number; a negative number is encoded as 64 bits.

    >>> varint(300), len(varint(-1))
    (b'\xac\x02', 10)
    """
    value &= _U64
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    """Encode a field of type int32, int64, uint64, bool or enum."""
    return varint(field << 3) + varint(value)


def real(field: int, value: float) -> bytes:
    """Encode a field of type double."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """Encode a field whose value is bytes, or a message that consists of these fields."""
    body = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """Encode a field of type string."""
    return message(field, value.encode("utf-8", "replace"))


def numbers(field: int, values: Iterable[int]) -> bytes:
    """Encode a repeated, packed field of numbers."""
    return message(field, *map(varint, values))
